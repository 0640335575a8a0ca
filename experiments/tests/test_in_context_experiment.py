"""Two steps of two mechanisms; padding of pairs changes nothing; the pages say what the JSON file says."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.errors import UserError
from experiments import in_context, raw


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MesaNet", "local line"])
def test_seeds_train_side_by_side_and_padding_of_pairs_changes_nothing(name):
    model = in_context.build(in_context.MECHANISMS[name], width=8)
    params = in_context.train(model, (0, 1), in_context.FULL._replace(steps=2, batch_size=3))
    short = in_context.FULL.task.sample(5, np.random.default_rng(0), num_pairs=2)
    padded = short._replace(
        inputs=np.pad(short.inputs, ((0, 0), (0, 2), (0, 0))), outputs=np.pad(short.outputs, ((0, 0), (0, 2)))
    )
    found = [in_context.excess(model, params, examples) for examples in (short, padded)]
    np.testing.assert_allclose(*found, rtol=1e-4)
    assert found[0].shape == (2,) and found[0][0] != found[0][1]


def test_the_posterior_mean_has_no_excess(monkeypatch):
    examples = in_context.FULL.task.sample(5, np.random.default_rng(0), num_pairs=2)
    best = jnp.asarray(in_context.FULL.task.bayes(examples).mean)
    model = in_context.build({}, width=8)
    monkeypatch.setattr(type(model), "apply", lambda *_: best)
    np.testing.assert_allclose(in_context.excess(model, {"one": jax.numpy.zeros(1)}, examples), 0, atol=1e-12)


def test_a_measurement_that_was_stopped_goes_on(tmp_path, monkeypatch, capsys):
    size = in_context.SMALL._replace(counts=(1, 2), steps=1, batch_size=2, test_size=4)
    monkeypatch.setattr(in_context, "MECHANISMS", {"softmax": {}, "delta rule": {"attention": "delta"}})
    trained, stopped = [], []

    def one(model, seeds, size):
        if len(trained) == 1 and not stopped:
            stopped.append(True)
            raise KeyboardInterrupt
        trained.append(size.steps)

    monkeypatch.setattr(in_context, "train", one)
    monkeypatch.setattr(in_context, "excess", lambda *_: np.full(2, float(len(trained))))
    with pytest.raises(KeyboardInterrupt):
        in_context.measure(size, tmp_path, (0, 1))
    found = in_context.measure(size, tmp_path, (0, 1))["excess"]
    assert trained == [1, 1] and found["softmax"]["1"] == [1.0, 1.0] and found["delta rule"]["2"] == [2.0, 2.0]
    assert "settings" not in capsys.readouterr().err
    in_context.measure(size._replace(steps=3), tmp_path, (0, 1))  # of other settings, nothing is kept
    assert trained == [1, 1, 3, 3]
    assert "softmax.json: other settings (steps: 1 there, 3 now); it is measured again" in capsys.readouterr().err


@pytest.mark.parametrize("changed", ["counts", "mechanism", "width", "rate"])
def test_what_was_measured_with_other_settings_is_measured_again(changed, tmp_path, monkeypatch, capsys):
    size, trained = in_context.SMALL._replace(counts=(1,), steps=1, batch_size=2, test_size=4), []
    monkeypatch.setattr(in_context, "MECHANISMS", {"MesaNet": in_context.MECHANISMS["MesaNet"]})
    monkeypatch.setattr(in_context, "train", lambda *_: trained.append(changed))
    monkeypatch.setattr(in_context, "excess", lambda *_: np.full(2, 1.0))
    for _ in range(2):
        in_context.measure(size, tmp_path, (0, 1))
    assert len(trained) == 1 and capsys.readouterr().err.count("\n") == 2
    if changed == "counts":
        size = size._replace(counts=(1, 2))
    elif changed == "mechanism":
        other = in_context.MECHANISMS["MesaNet"] | {"attention.steps": 4}
        monkeypatch.setattr(in_context, "MECHANISMS", {"MesaNet": other})
    else:
        monkeypatch.setattr(in_context, {"width": "WIDTH", "rate": "LEARNING_RATE"}[changed], 16)
    assert set(in_context.measure(size, tmp_path, (0, 1))["excess"]["MesaNet"]) == set(map(str, size.counts))
    assert len(trained) == 2 and "MesaNet.json: other settings (" in capsys.readouterr().err


def test_what_was_kept_without_settings_is_measured_again(tmp_path, capsys):
    (tmp_path / "a.json").write_text(json.dumps({"size": {"steps": 1}, "excess": {}}))
    assert in_context.kept_of(tmp_path / "a.json", {"steps": 1}) is None
    assert "a.json: other settings (they were not kept); it is measured again" in capsys.readouterr().err


def test_the_pages_are_made_of_the_json_file(tmp_path):
    excess = {"softmax": {"2": [0.3, 0.5]}, "delta rule": {"2": [0.1, 0.3]}}
    results = {"excess": excess, "bayes": {"2": 0.25}, "seeds": [0, 1], **in_context.SMALL.key()}
    path, page = tmp_path / "in_context.json", tmp_path / "page.md"
    raw.write(path, results, command="a command", begun=raw.Begun.now())
    page.write_text(f"before\n\n{in_context.BEGIN}\nold\n{in_context.END}\n\nafter\n", encoding="utf-8")
    in_context.render(path, page)
    text = page.read_text(encoding="utf-8")
    assert "| Bayes error | 0.2500 |" in text and "old" not in text and text.endswith("after\n")
    assert "| delta rule | 0.2000 ± 1.2706 |" in text and "| delta rule | -0.2000 ± 0.0000 |" in text
    assert "2 columns, up to 8 pairs in training, 2,000 steps of 32 sequences:" in text
    assert "a command" in path.with_suffix(".md").read_text(encoding="utf-8")
    page.write_text("without marks", encoding="utf-8")
    with pytest.raises(UserError, match="has not the lines"):
        in_context.render(path, page)


def test_a_page_that_is_not_there_is_one_line_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(in_context, "measure", lambda *_: pytest.fail("measured"))
    for arguments in (["--render"], ["--small"]):
        with pytest.raises(UserError, match="--page=nowhere: there is no such file"):
            in_context.main([*arguments, f"--out={tmp_path / 'in_context.json'}", "--page=nowhere"])
    page = tmp_path / "page.md"
    page.write_text(f"{in_context.BEGIN}\n{in_context.END}\n")
    with pytest.raises(UserError, match=r"in_context\.json does not exist"):
        in_context.main(["--render", f"--out={tmp_path / 'in_context.json'}", f"--page={page}"])
