"""Every config loads, has the keys of its task and family alone, says how to run it, and trains or can be traced."""

import ast
import json
import pathlib

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from PIL import Image
from tiny_run import fitted, train, write_pairs

from attn_jax.runs import training
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import change, resolve, schema_of
from attn_jax.runs.tree import keys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIGS = sorted(path.stem for path in (ROOT / "configs").glob("*.py") if path.stem != "base")

# Whatever a config makes of these sizes, a test has no time for it. What a config does not have, it is not given.
SMALL = {
    "parallel": "single",
    "task.num_examples": 40,
    "task.valid_size": 10,
    "task.batch_size": 16,
    "task.min_count": 1,
    "task.vocabulary.min_count": 1,
    "task.canvas": 16,
    "task.sizes": (6,),
    "task.num_objects": (1, 2),
    "model.embedding_size": 8,
    "model.hidden_size": 8,
    "model.projection.hidden_size": 8,
    "model.readout_size": 8,
    "model.decoder.readout_size": 8,
    "model.decoder.summary.readout_size": 8,
    "model.attention.score.features": 8,
    "model.attention.wrappers.parts.local_p.features": 8,
    "model.objective.baseline.features": 8,
    "model.feed_forward_size": 8,
    "model.encoder.feed_forward_size": 8,
    "model.decoder.feed_forward_size": 8,
    "model.num_layers": 1,
    "model.encoder.num_layers": 1,
    "model.decoder.num_layers": 1,
    "model.output.num_samples": 8,
    "model.picture.grid.channels": (4,),
    "model.picture.grid.kernels": (3,),
    "model.picture.grid.strides": (8,),
    "model.glimpse_features": 8,
    "model.glimpse_size": 4,
    "model.num_glimpses": 2,
    "train.num_steps": 2,
    "train.eval_every": 2,
    "train.checkpoint_every": 0,
    "train.log_every": 1,
    "train.best_metric": "loss",
}


def shrunk(config: ConfigDict, data_dir: pathlib.Path) -> ConfigDict:
    """The config with small sizes, and files such as it asks for."""
    config = fitted(config, SMALL)
    if config.task.name == "parallel_text":
        for name, (source, target) in {split: config.task[split] for split in ("train", "valid", "test")}.items():
            if source:
                written = write_pairs(data_dir, f"{name} of {source}")
                for path, wanted in zip(written, (source, target), strict=True):
                    path.rename(data_dir / wanted)
        size = 60 if config.task.joint_vocabulary else 36
        config.data_dir, config.task.vocab_size = str(data_dir), (size, size)
    if config.task.name == "regression":
        config.task.num_examples = 0 if config.task.train[0] else 40
        config.task.batch_size, config.model.num_widths = 40, min(config.model.num_widths, 2)
        rows = (f"{i},{i * i % 7}\n" for i in range(50))
        (data_dir / "points.csv").write_text("x,y\n" + "".join(rows), encoding="utf-8")
        config.data_dir = str(data_dir)
    if config.task.name == "pictures":
        for number in range(50):
            Image.fromarray(np.full((16, 16, 3), 5 * number, np.uint8)).save(data_dir / f"{number}.png")
        lines = (f"{number}.png\ta {'dark' if number < 20 else 'light'} square\n" for number in range(50))
        (data_dir / "captions.tsv").write_text("".join(lines), encoding="utf-8")
        config.data_dir = str(data_dir)
    if config.model.name == "glimpses":
        config.task.num_objects = (1, 1)  # its targets are single words
    # The largest holds all, and one shape is compiled, not five.
    if "buckets" not in config.task:
        return config
    largest = tuple(config.task.buckets.get("shapes", ())[-1:]) or (64,)
    return change(config, {"task.buckets": "fixed", "task.buckets.shapes": largest})


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_has_just_its_keys_and_says_how_to_run_it(name):
    path = ROOT / "configs" / f"{name}.py"
    config = load_config_file(str(path))
    assert config.is_locked and config.name == name and config.description
    assert sorted(keys(config)) == sorted(schema_of(config))
    resolve(config)
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert f"python launch.py --config=configs/{name}.py" in docstring
    if config.task.name == "parallel_text":
        assert "python -m attn_jax.data.download " in docstring and f"--config.data_dir={'data/'}" in docstring


def kind_of(name):
    """What a config trains: the family, the kind of data and the objective."""
    options = resolve(load_config_file(str(ROOT / "configs" / f"{name}.py")))
    objective = options.config.model.get("objective", {}).get("name", "")
    return options.model.name, type(options.kind).__name__, objective


KINDS = {name: kind_of(name) for name in CONFIGS}
FIRST = [name for name in CONFIGS if name == next(other for other in CONFIGS if KINDS[other] == KINDS[name])]


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST)
def test_a_config_of_each_kind_trains_two_steps(name, tmp_path):
    config = shrunk(load_config_file(str(ROOT / "configs" / f"{name}.py")), tmp_path)
    run, ended = train(config, tmp_path / "run")
    assert (ended.step, ended.reason, run.checkpoints.latest_step()) == (2, "done", 2)
    assert run.batches.num_pairs >= 25
    records = [json.loads(line) for line in (run.workdir / "metrics.jsonl").read_text().splitlines()]
    losses = [record[name] for record in records for name in ("train/loss", "valid/loss") if name in record]
    assert len(losses) == 3 and np.all(np.isfinite(losses))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in FIRST])
def test_a_step_of_every_other_config_can_be_traced(name, tmp_path):
    """Its gradient has the shapes of the parameters."""
    config = shrunk(load_config_file(str(ROOT / "configs" / f"{name}.py")), tmp_path)
    run = training.open_run(resolve(config), tmp_path / "run")
    run.checkpoints.close()
    rng, batch = jax.random.key(0), jax.tree.map(lambda x: x[0] if len(run.seeds) > 1 else x, run.batches.batch_at(0))
    params = jax.eval_shape(run.setup.model.init, rng, batch)
    (loss, _), gradient = jax.eval_shape(jax.value_and_grad(run.setup.model.loss_fn, has_aux=True), params, batch, rng)
    assert loss.shape == () and run.batches.num_pairs >= 25
    assert jax.tree.map(lambda x: x.shape, gradient) == jax.tree.map(lambda x: x.shape, params)
