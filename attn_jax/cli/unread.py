"""Options that nothing in a run reads: a person who sets one believes that it does something.

Which options a run reads is not written down, it is tried out. What is built of a config (the model, the optimizer)
is built a second time with the option as it was; where both are the same, nothing has read the option. Decoding
methods and tasks say by their parameters what they read.
"""

import dataclasses
import functools
import inspect
import types
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from attn_jax.errors import UserError
from attn_jax.evaluation.decode import METHODS
from attn_jax.models.families import MODELS
from attn_jax.models.kernel_regression.options import build_kernel_regression
from attn_jax.tasks import TASKS
from attn_jax.tasks.vocabulary import SPECIAL, VOCABULARIES, SentencePiece
from attn_jax.training.optimizers import make_optimizer

# Options of the batches, which every task of texts has, and of the points of a regression.
BATCHES = {"name", "buckets", "source_buckets", "batch_size", "batch_unit"}
POINT_OPTIONS = {"task": {"name", "batch_size"}, "decode": {"batch_size", "with_scores"}}
# Options of decoding that every method reads, and those of which a method's parameters do not tell.
DECODING = {"method", "max_length", "batch_size", "replace_unk", "with_scores"}
OUTSIDE_METHODS = {"n_best": ("beam", "sample"), "seed": ("sample",)}  # whose parameters are others


def check_read(config: ConfigDict, base: ConfigDict, keys: Iterable[str]) -> None:
    """Checks that something reads each of these options, which a person has set.

    Args:
        config: what was asked for; sound, as attn_jax.cli.runs.check has it.
        base: the same keys with their defaults.
        keys: of the options to look at, with dots.

    Raises:
        UserError: for the first option that nothing reads, unless it has its default.
    """
    for key in keys:
        if config[key] == base[key] or key == "model.name":
            continue
        if key == "eval.tokenize" and "bleu" not in config.eval.metrics:
            raise UserError(f"{key} is read by eval.metrics bleu, which is not among {tuple(config.eval.metrics)}")
        section, _, name = key.partition(".")
        readers = {"task": _readers_of_task, "decode": _readers_of_decoding}.get(section)
        if readers is not None:
            selector, chosen, known = readers(config, name)
            if known is not None and chosen not in known:
                where = f"{selector} {' or '.join(known)}" if known else "nothing"
                raise UserError(f"{key} is read by {where}, not by {selector} {chosen}; leave it out")
        elif (section in ("optimizer", "model") or key == "train.label_smoothing") and is_unread(config, base, key):
            what = _optimizer_in_words(config) if section == "optimizer" else _model_in_words(config)
            raise UserError(f"nothing reads {key} with {what}; leave it out (configs/base.py says what it is for)")


def is_unread(config: ConfigDict, base: ConfigDict, key: str) -> bool:
    """Tells whether the model and the optimizer are the same whatever the option is."""
    built = _built(config, key)
    for value in _others(config[key], base[key]):
        other = config.copy_and_resolve_references()
        other.update_from_flattened_dict({key: value})
        try:
            if not same(built, _built(other, key)):
                return False
        except (UserError, LookupError):  # another value would not do, so it is looked at
            return False
    return True


def _others(value: Any, default: Any) -> list:
    """The default and, where a number or "default" may stand for what was asked for, one value more."""
    others = [default]
    if isinstance(value, int | float) and not isinstance(value, bool):
        others.append(value + 1)
    return others + (["none", "learned"] if default == "default" else [])


def _built(config: ConfigDict, key: str) -> Any:
    if key.startswith("optimizer."):
        return make_optimizer(**config.optimizer.to_dict(), num_steps=1000)
    if config.task.name == "regression":
        return build_kernel_regression(config, 1, 100)
    return MODELS[config.model.name](config, len(SPECIAL), len(SPECIAL))


def _optimizer_in_words(config: ConfigDict) -> str:
    optimizer = config.optimizer
    return f"optimizer.name {optimizer.name}, schedule {optimizer.schedule}, clip_norm {optimizer.clip_norm}"


def _model_in_words(config: ConfigDict) -> str:
    """The choices that decide which options a model has."""
    model = config.model
    words = [f"model.name {model.name}"]
    if model.name in ("seq2seq", "transformer", "classifier"):
        words.append(f"model.encoder {model.encoder}")
    if model.name == "seq2seq":
        words += [f"model.decoder {model.decoder}", f"model.objective {model.objective}"]
    if model.name != "seq2seq" or model.decoder != "none":
        words.append(f"model.attention score {model.attention.score}, normalize {model.attention.normalize}")
    return ", ".join(words)


def _readers_of_task(config: ConfigDict, name: str) -> tuple[str, str, list[str] | None]:
    """(the option that chooses, what it is, the choices that read task.`name`); None: every choice."""
    if name == "source_buckets" and config.task.buckets:
        return "task.buckets", str(tuple(config.task.buckets)), ["()"]
    if config.task.name == "regression" and name in POINT_OPTIONS["task"]:
        return "task.name", config.task.name, None
    if name in BATCHES:
        return "task.name", config.task.name, [other for other in TASKS if other != "regression"]
    readers = [other for other, build in TASKS.items() if name in inspect.signature(build).parameters]
    if config.task.name in readers and name in ("sentencepiece", "min_count"):
        pieces = [kind for kind, vocabulary in VOCABULARIES.items() if issubclass(vocabulary, SentencePiece)]
        others = [kind for kind in VOCABULARIES if kind not in pieces]
        return "task.vocabulary", config.task.vocabulary, pieces if name == "sentencepiece" else others
    return "task.name", config.task.name, readers


def _readers_of_decoding(config: ConfigDict, name: str) -> tuple[str, str, list[str] | None]:
    """As `_readers_of_task`, of decode.`name`."""
    if config.task.name == "regression":
        others = [task for task in TASKS if task != "regression"]
        return "task.name", config.task.name, None if name in POINT_OPTIONS["decode"] else others
    if name in DECODING:
        return "decode.method", config.decode.method, None
    readers = [method for method, search in METHODS.items() if name in inspect.signature(search).parameters]
    return "decode.method", config.decode.method, list(OUTSIDE_METHODS.get(name, readers))


def same(a: Any, b: Any) -> bool:
    """Compares two built things part by part: modules by their fields, functions by their code and what they hold."""
    if a is b:
        return True
    if isinstance(a, type) and isinstance(b, type):  # a transformed module is a new class each time
        return (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)
    if isinstance(a, functools.partial) and isinstance(b, functools.partial):
        return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
    if isinstance(a, types.FunctionType) and isinstance(b, types.FunctionType):
        a, b = inspect.unwrap(a), inspect.unwrap(b)
        if a.__code__ is b.__code__ and any(isinstance(x, ConfigDict) for x in _held(a)[-1]):
            return same(a(), b())  # it holds all options, whichever of them it reads
        return a.__code__ is b.__code__ and same(_held(a), _held(b))
    if type(a) is not type(b):
        return False
    if dataclasses.is_dataclass(a):
        names = [field.name for field in dataclasses.fields(a) if field.name not in ("parent", "name")]
        return all(same(getattr(a, name), getattr(b, name)) for name in names)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | jax.Array):
        return np.array_equal(a, b)
    return bool(a == b)


def _held(function: types.FunctionType) -> tuple:
    """The values that a function carries with it."""
    cells = function.__closure__ or ()
    return function.__defaults__, function.__kwdefaults__, tuple(cell.cell_contents for cell in cells)
