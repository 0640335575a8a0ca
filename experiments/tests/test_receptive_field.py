"""The formula of the receptive field is the support of the Jacobian; and a run of the experiment in small."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.runs.options import resolve
from experiments import raw
from experiments import receptive_field as experiment

SETTING = experiment.Setting(features=8, length=12, num_seeds=2, num_steps=2, batch_size=2, num_measured=16)


@pytest.mark.slow
@pytest.mark.parametrize("variant", experiment.VARIANTS[1:-1], ids=lambda variant: variant.label)
def test_formula_is_the_support_of_the_jacobian(variant):
    config = experiment.config_of(variant, SETTING)
    options = resolve(config)
    encoder = options.model.build_encoder(options.setting)
    inputs = jax.random.normal(jax.random.key(0), (SETTING.length, SETTING.features))
    params = jax.jit(encoder.init)(jax.random.key(1), inputs[None], jnp.ones((1, SETTING.length), bool))["params"]
    before, after = experiment.reach(config.model)
    offset = np.arange(SETTING.length)[:, None] - np.arange(SETTING.length)  # output - input
    seen = experiment.influence(encoder, params, inputs)
    np.testing.assert_array_equal(seen, (offset <= before) & (-offset <= after))
    furthest = tuple(min(side, SETTING.length - 1) for side in (before, after))
    assert experiment.measured_reach(seen) == furthest


def test_reach_grows_by_layer_and_by_kernel():
    def side(layers, kernel):
        model = experiment.config_of(experiment.convolution(layers, kernel, ""), SETTING).model
        before, after = experiment.reach(model)
        assert before == after
        return before

    assert side(3, 5) == 3 * side(1, 5) == 2 * side(3, 3) == 6


@pytest.mark.slow
def test_the_answer_is_the_flagged_symbol():
    inputs, answers, places = experiment.sequences(jax.random.key(0), 5, 10)
    symbols, flag = inputs[..., :-1].argmax(-1), inputs[..., -1]
    assert flag.sum(-1).tolist() == [1] * 5 and flag.argmax(-1).tolist() == places.tolist()
    assert answers.tolist() == [int(symbols[i, place]) for i, place in enumerate(places)]


class Oracle(experiment.Namer):
    """Knows the answers up to two places back and one ahead, and says 0 elsewhere."""

    def __call__(self, inputs):
        flag = inputs[..., -1].argmax(-1)[:, None]
        symbol = jnp.take_along_axis(inputs[..., :-1].argmax(-1), flag, axis=1)
        distance = jnp.arange(inputs.shape[1]) - flag
        known = (distance <= 2) & (distance >= -1)
        return jax.nn.one_hot(jnp.where(known, symbol, 0), experiment.NUM_SYMBOLS)


@pytest.mark.slow
def test_answers_are_counted_by_their_side_of_the_flag():
    setting = SETTING._replace(num_measured=400)
    oracle = Oracle(encoder=None, features=8)
    accuracy = experiment.measure(oracle, setting, {"none": jnp.zeros(2)}, jax.random.key(0))
    middle = setting.length - 1
    assert accuracy.shape == (2, 2 * setting.length - 1)
    assert (accuracy[:, middle - 1 : middle + 3] == 1).all()
    assert accuracy[:, [middle - 2, middle + 3]].max() < 0.5
    assert experiment.answered(accuracy) == (2, 1)


@pytest.mark.slow
def test_a_small_run(tmp_path, monkeypatch, capsys):
    real = experiment.Setting
    monkeypatch.setattr(experiment, "Setting", lambda **stored: real(**stored) if stored else SETTING)
    monkeypatch.setattr(experiment, "VARIANTS", experiment.VARIANTS[4:5])
    raw.main(experiment.PAGES[0], experiment.measure_all, [f"--out={tmp_path / 'results'}"])
    page = capsys.readouterr().out[:-1]
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert lines[2].startswith(f"| {experiment.VARIANTS[0].label} | all / 0 | all / 0 |")
    assert [line.count("|") for line in lines] == [5] * 3 + [6] * 3 + [6] * 3
    assert (tmp_path / "results" / "receptive_field.png").stat().st_size > 10_000
    assert page == (tmp_path / "results" / "receptive_field.md").read_text()
    assert experiment.page(raw.read(tmp_path / "results" / "receptive_field.json")) == page
