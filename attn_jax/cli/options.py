"""Options of a run; its task and its family of models decide which options there are.

config = default_config(task="dates", model="transformer")    # a locked ConfigDict with the keys of these two
options = resolve(config)                                     # checked: one frozen dataclass per section
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from attn_jax.errors import UserError, lookup
from attn_jax.evaluation.options import (
    DecodeOptions,
    EvalOptions,
    LanguageEvalOptions,
    PointDecodeOptions,
    PointEvalOptions,
)
from attn_jax.models.families import FAMILIES, family
from attn_jax.models.setting import DTYPES, Setting
from attn_jax.options import Option, defaults, flatten, option, options_of, read
from attn_jax.tasks import TASKS
from attn_jax.tasks.sizes import PointSizes
from attn_jax.training.options import OptimizerOptions, TextTrainOptions, TokenTrainOptions, TrainOptions
from attn_jax.training.parallel import AUTO, PARALLEL

DIVIDING = tuple(name for name, strategy in PARALLEL.items() if strategy.divides_state)
TRAINING = ("train", "optimizer")  # sections that are not read after the training
MEASURING = ("decode", "eval")  # sections that do not affect it


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every run."""

    name: str = option("base", "name of the run", affects="results")
    description: str = option("", "text on the first line that a run prints", affects="nothing")
    data_dir: str = option(
        "", "folder of the data files; tasks that generate their data need none", affects="nothing", path=True
    )
    seed: int = option(0, "random seed of parameters, dropout and the order of the examples", large=True)
    seeds: tuple = option(
        (),
        "seeds trained together in one vmapped program, such as (0, 1, 2); (): (seed,)",
        each=int,
        large=True,
    )
    parallel: str = option(
        AUTO,
        "one device, or the way to use several (training/parallel.py); fsdp divides parameters and optimizer state",
        choices=(AUTO, *PARALLEL),
        affects="nothing",
    )
    replicas: int = option(
        1,
        "fsdp: number of groups of devices; each holds one whole state, divided among its devices",
        at_least=1,
        affects="nothing",
        only=("parallel", DIVIDING),
    )
    dtype: str = option("float32", "type of the computation; parameters are always float32", choices=DTYPES)

    def __post_init__(self):
        if len(set(self.all_seeds)) != len(self.all_seeds) or any(not 0 <= seed < 2**32 for seed in self.all_seeds):
            raise UserError(f"seeds {self.all_seeds}: expected different integers from 0 to {2**32 - 1}")

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """All seeds of the run: `seeds`, or `seed` alone."""
        return tuple(self.seeds) or (self.seed,)


class Options(NamedTuple):
    """Checked options of a run, one dataclass per section."""

    run: RunOptions
    task: Any  # a class of TASKS
    model: Any  # a class of FAMILIES
    train: TrainOptions
    optimizer: OptimizerOptions
    decode: DecodeOptions | PointDecodeOptions
    eval: EvalOptions | PointEvalOptions

    @property
    def setting(self) -> Setting:
        """Settings from other sections that the model depends on."""
        return Setting(
            dtype=DTYPES[self.run.dtype],
            label_smoothing=self.train.label_smoothing,
        )

    def build_model(self, sizes: Any = None) -> Any:
        """Builds the model for the sizes of the data; without `sizes`, for any sizes, as a check."""
        return self.model.build(sizes or self.task.any_sizes, self.setting)


def sections(task: str, model: str) -> dict[str, type]:
    """Returns the options class of each section of a config.

    Raises:
        UserError: the task or family is unknown, or they do not fit each other.
    """
    task_options, model_options = lookup(TASKS, task, "task.name"), family(model)
    if model_options.sizes is not type(task_options.any_sizes):
        fitting = [name for name, kind in TASKS.items() if type(kind.any_sizes) is model_options.sizes]
        raise UserError(f"model.name {model} is for task.name {' or '.join(fitting)}, got {task}")
    if getattr(task_options.any_sizes, "image", None) and not getattr(model_options, "reads_images", False):
        fitting = [name for name in FAMILIES if getattr(family(name), "reads_images", False)]
        raise UserError(
            f"model.name {model} reads no images, which task.name {task} has; expected {', '.join(fitting)}"
        )
    if getattr(model_options, "only_images", False) and not getattr(task_options.any_sizes, "image", None):
        fitting = [name for name, kind in TASKS.items() if getattr(kind.any_sizes, "image", None)]
        raise UserError(
            f"model.name {model} reads images alone, and task.name {task} has none; expected {' or '.join(fitting)}"
        )
    points = model_options.sizes is PointSizes
    texts = TokenTrainOptions if model_options.has_label_smoothing else TextTrainOptions
    return {
        "task": task_options,
        "model": model_options,
        "train": TrainOptions if points else texts,
        "optimizer": OptimizerOptions,
        "decode": PointDecodeOptions if points else DecodeOptions,
        "eval": PointEvalOptions if points else EvalOptions if task_options.has_sources else LanguageEvalOptions,
    }


@functools.cache
def schema(task: str, model: str) -> dict[str, Option]:
    """Returns every option of a task and a family, by key."""
    found = {key: about._replace(afterwards=True) for key, about in options_of(RunOptions).items()}
    for name, kind in sections(task, model).items():
        inside = {
            key: about._replace(afterwards=name not in TRAINING) if about.afterwards is None else about
            for key, about in options_of(kind, f"{name}.").items()
        }
        if name in MEASURING:
            inside = {
                key: about._replace(affects="results") if about.affects == "training" else about
                for key, about in inside.items()
            }
        found |= inside
    found["task.name"] = found["task.name"]._replace(choices=tuple(TASKS))
    found["model.name"] = found["model.name"]._replace(choices=tuple(FAMILIES))
    return found


def schema_of(config: ConfigDict | Mapping[str, Any]) -> dict[str, Option]:
    """Returns the options of the task and family of a config, by key."""
    return schema(config["task"]["name"], config["model"]["name"])


def default_config(task: str = "parallel_text", model: str = "seq2seq") -> ConfigDict:
    """Returns a locked config with the options of a task and a family, each at its default."""
    config = defaults(RunOptions)
    for name, kind in sections(task, model).items():
        config[name] = defaults(kind)
    return config.lock()


def switch(config: ConfigDict, *, task: str = "", model: str = "") -> ConfigDict:
    """Returns a config of another task or family; options that both have keep their values.

    An option of the task or of the evaluation at its default takes that of the new task, such as the names of
    validation files.
    """
    task, model = task or config.task.name, model or config.model.name
    changed = default_config(task, model)
    known, before = schema(task, model), schema_of(config)
    kept = {
        key: value
        for key, value in flatten(config).items()
        if key in known and not (key.startswith(("task.", "eval.")) and key in before and value == before[key].default)
    }
    changed.update_from_flattened_dict(kept | {"task.name": task, "model.name": model})
    return changed


def change(config: ConfigDict, values: Mapping[str, Any]) -> ConfigDict:
    """Returns a copy of a config with new values, by key; a new task.name or model.name brings its own keys."""
    changed = switch(config, task=values.get("task.name", ""), model=values.get("model.name", ""))
    changed.update_from_flattened_dict(dict(values))
    return changed


def resolve(config: ConfigDict) -> Options:
    """Checks a config and returns its options.

    Raises:
        UserError: a value is wrong, or does not fit other values of its section.
    """
    kinds = sections(config.task.name, config.model.name)
    for key, about in schema_of(config).items():
        about.check(key, config[key])
    run = read(RunOptions, config)
    return Options(run, *(read(kind, config[name], f"{name}.") for name, kind in kinds.items()))


def families_with(key: str) -> list[str]:
    """Returns the names of the families with an option, for messages."""
    return [name for name in FAMILIES if key in options_of(family(name), "model.")]


def tasks_with(key: str) -> list[str]:
    """Returns the names of the tasks with an option, for messages."""
    return [name for name, kind in TASKS.items() if key in options_of(kind, "task.")]


def is_known(key: str) -> bool:
    """Returns whether any task or family has an option."""
    common = (
        options_of(TokenTrainOptions, "train.")
        | options_of(DecodeOptions, "decode.")
        | options_of(EvalOptions, "eval.")
    )
    return key in common or bool(families_with(key) or tasks_with(key))
