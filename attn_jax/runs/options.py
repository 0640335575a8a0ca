"""Options of a run: the root of the tree of parts.

config = default_config(task="dates", model="transformer")    # a locked ConfigDict with the keys of these choices
config = change(config, {"model.encoder": "lstm"})            # keys follow the choices
options = resolve(config)                                     # checked: objects of the classes that were chosen
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from ml_collections import ConfigDict

from attn_jax.decoding.options import DecodeOptions, PointDecodeOptions
from attn_jax.errors import UserError
from attn_jax.evaluation.kinds import KINDS, DataKind, kind_of
from attn_jax.evaluation.options import PointEvalOptions
from attn_jax.models.families import FAMILIES
from attn_jax.models.family import Family
from attn_jax.models.setting import DTYPES, Setting
from attn_jax.parts import Chosen, Option, Options, choice, option, options_of, read, section
from attn_jax.runs.plugins import execute
from attn_jax.runs.tree import Notes, as_tuple, resolve_tree
from attn_jax.tasks import TASKS
from attn_jax.tasks.options import TaskOptions
from attn_jax.training.options import OPTIMIZERS, OptimizerOptions, TrainOptions
from attn_jax.training.parallel import AUTO, PARALLEL, Strategy, choose

TRAINING = ("train", "optimizer")  # sections that are not read after the training
MEASURING = ("decode", "eval")  # sections that do not affect training


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelOptions(Options):
    """Options of a parallel strategy; see training/parallel.py."""

    name: ClassVar[str]
    replicas: ClassVar[int] = 1

    @property
    def strategy(self) -> Strategy:
        """The parallel strategy; raises a UserError if it does not use all processes."""
        return choose(self.name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DividingOptions(ParallelOptions):
    """Options of a strategy that divides the training state among devices."""

    replicas: int = option(
        1,
        "number of groups of devices; each holds one whole state, divided among its devices",
        at_least=1,
        affects="nothing",
    )


def parallel_options(name: str, strategy: Strategy | None) -> type[ParallelOptions]:
    """Makes the class of options of a parallel strategy."""
    base = DividingOptions if strategy is not None and strategy.divides_state else ParallelOptions
    namespace = {"name": name, "__doc__": f"Options of parallel {name}."}
    return dataclasses.make_dataclass(
        f"{name.title()}Options", [], bases=(base,), namespace=namespace, frozen=True, kw_only=True
    )


WAYS = {name: parallel_options(name, strategy) for name, strategy in ({AUTO: None} | PARALLEL).items()}


def decode_options(chosen: Chosen) -> type[Options]:
    """Returns the class of the options of decoding."""
    return KINDS[kind_of(chosen["task"], chosen["model"])].decode


def eval_options(chosen: Chosen) -> type[Options]:
    """Returns the class of the options of evaluation."""
    return KINDS[kind_of(chosen["task"], chosen["model"])].eval_options(chosen["task"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """Options of a run. The other sections depend on `task` and `model`."""

    name: str = option("base", "name of the run", affects="results", afterwards=True)
    description: str = option("", "text on the first line that a run prints", affects="nothing", afterwards=True)
    plugins: tuple = option(
        (),
        "files such as mine.py, or modules, that enter parts of one's own into tables; executed first",
        each=str,
        affects="nothing",
        afterwards=False,
    )
    data_dir: str = option(
        "",
        "folder of the data files; tasks that generate their data need none",
        affects="nothing",
        path=True,
        afterwards=True,
    )
    seed: int = option(
        0, "random seed of parameters, dropout and the order of the examples", large=True, afterwards=True
    )
    seeds: tuple = option(
        (),
        "seeds trained together in one vmapped program, such as (0, 1, 2); (): (seed,)",
        each=int,
        large=True,
        afterwards=True,
    )
    parallel: ParallelOptions = choice(
        WAYS,
        AUTO,
        "one device, or the way to use several (training/parallel.py); fsdp divides parameters and optimizer state",
        affects="nothing",
        afterwards=True,
    )
    dtype: str = option(
        "float32", "type of the computation; parameters are always float32", choices=DTYPES, afterwards=True
    )
    task: TaskOptions = choice(TASKS, "parallel_text", "task, which has the data", afterwards=True)
    model: Family = choice(FAMILIES, "seq2seq", "family of models", afterwards=True)
    train: TrainOptions = section(TrainOptions, "training")
    optimizer: OptimizerOptions = choice(OPTIMIZERS, "adam", "type of optimizer")
    decode: DecodeOptions | PointDecodeOptions = section(decode_options, "predictions")
    eval: PointEvalOptions = section(eval_options, "evaluation")

    config: ConfigDict | None = None  # the tree that the options were read from, with every key

    def __post_init__(self):
        if len(set(self.all_seeds)) != len(self.all_seeds) or any(not 0 <= seed < 2**32 for seed in self.all_seeds):
            raise UserError(f"seeds {self.all_seeds}: expected different integers from 0 to {2**32 - 1}")

    @classmethod
    def check_chosen(cls, chosen: Chosen) -> None:
        task, model = chosen["task"], chosen["model"]
        if kind_of(task, model):
            return
        fitting = {
            "task.name": [name for name, other in TASKS.items() if kind_of(other, model)],
            "model.name": [name for name in FAMILIES if kind_of(task, FAMILIES[name])],
        }
        expected = ", or ".join(f"{key} {' or '.join(names)}" for key, names in fitting.items() if names)
        raise UserError(
            f"model.name {model.name} reads {' or '.join(model.data_kinds)}, and task.name {task.name} has "
            f"{' or '.join(task.data_kinds)}; expected {expected}"
        )

    @property
    def kind(self) -> DataKind:
        """The kind of data that the model reads."""
        return KINDS[kind_of(type(self.task), type(self.model))]

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """All seeds of the run: `seeds`, or `seed` alone."""
        return tuple(self.seeds) or (self.seed,)

    @property
    def setting(self) -> Setting:
        """Settings from other sections that the model depends on."""
        return Setting(dtype=DTYPES[self.dtype])

    def build_model(self, sizes: Any = None) -> Any:
        """Builds the model for the sizes of the data; without `sizes`, for any sizes, as a check."""
        return self.model.build(sizes or self.kind.any_sizes, self.setting)


def schema_of(config: ConfigDict | Mapping[str, Any]) -> dict[str, Option]:
    """Returns the options of a whole config by key; a choice has the key `name` or `pattern` below its slot."""
    found = {}
    for key, about in options_of(RunOptions, config).items():
        top = key.partition(".")[0]
        if about.afterwards is None:
            about = about._replace(afterwards=top not in TRAINING)
        if top in MEASURING and about.affects == "training":
            about = about._replace(affects="results")
        found[key] = about
    return found


def default_config(task: str = "parallel_text", model: str = "seq2seq", plugins: tuple[str, ...] = ()) -> ConfigDict:
    """Returns a locked config with the options of a task and a family, each at its default; executes plugins first."""
    return change(None, {"plugins": plugins, "task": task, "model": model})


def switch(config: ConfigDict, *, task: str = "", model: str = "") -> ConfigDict:
    """Returns a config with another task or family; options that both have keep their values."""
    return change(config, {key: name for key, name in (("task", task), ("model", model)) if name})


def change(config: ConfigDict | None, values: Mapping[str, Any], notes: list[Notes] | None = None) -> ConfigDict:
    """Returns a whole config with new values, by key; the keys follow the choices, see `resolve_tree`.

    Args:
        config: whole or in part; None: all options at their defaults.
        values: new values by key with dots.
        notes: a list to which notes on kept and dropped options are appended.

    Raises:
        UserError: an unknown key or name, or a wrong value.
    """
    execute(as_tuple(values.get("plugins", (config or {}).get("plugins", ()))))
    changed, found = resolve_tree(RunOptions, config, values)
    if notes is not None:
        notes.append(found)
    return changed


def resolve(config: ConfigDict) -> RunOptions:
    """Checks a config and returns its options, from which the run is built. Missing options take their defaults.

    Raises:
        UserError: a value is wrong, or does not fit other values of its section.
    """
    tree = change(config, {})
    return dataclasses.replace(read(RunOptions, tree), config=tree)
