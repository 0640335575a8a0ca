"""Checkpoints: the whole training state, written in the background, checked when read.

`directory`/<step>/ holds `params` and `state` (the rest of the TrainState), both as nested dicts of plain arrays, and
`meta`: the config, the metrics, the `extra` state of the host, and checksums of all of them, to detect flipped bits
(crc32; a sum for each divided array). A checkpoint appears as a whole or not at all, so a killed run still has the
previous one. Arrays are saved without a device axis and can be put on any number of devices; each process writes and
reads its own parts of an array that is divided among devices.
"""

import contextlib
import dataclasses
import errno
import itertools
import json
import math
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import flax
import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from attn_jax.data.files import text_checksum
from attn_jax.errors import UserError
from attn_jax.notices import notice
from attn_jax.training.checksums import checksums, is_divided
from attn_jax.training.pytrees import describe, fit_into, flatten, to_numpy
from attn_jax.types import Callable, Params, PyTree

NO_SPACE = {errno.ENOSPC: "no space left", errno.EDQUOT: "disk quota exceeded", errno.EFBIG: "file too large"}


class Checkpoint(NamedTuple):
    """The content of a checkpoint; the arrays of `state` are on the host."""

    step: int
    state: Any
    config: dict
    extra: dict
    metrics: dict


class Damaged(Exception):
    """The stored content differs from the saved content."""


class Checkpoints:
    """The checkpoints of a run. It keeps the newest, the best and those for an average; others are deleted.

    With jax.distributed each process makes one and calls its methods in the same order. Use it as a context manager.

    Args:
        directory: one folder for each step.
        keep: the number of newest checkpoints to keep.
        average: the number of newest checkpoints with metrics to keep. (A checkpoint without metrics is saved when a
            run is interrupted; an average must not depend on interruptions.)
        best_metric: (name in `metrics`, "min" or "max"). A checkpoint without a finite value is never the best.
        read_only: for prediction and reports; does not disturb a training in the same directory.
        check: called as (step, config, extra) for each checkpoint before it is used; may raise a UserError.

    Raises:
        UserError: an argument is out of range, or the directory cannot be opened.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        *,
        keep: int = 2,
        average: int = 0,
        best_metric: tuple[str, str] = ("loss", "min"),
        read_only: bool = False,
        check: Callable[..., None] = lambda step, config, extra: None,
    ):
        self.directory = pathlib.Path(directory).absolute()
        self.best_name, self.best_mode = best_metric
        self.read_only, self.check = read_only, check
        if self.best_mode not in ("min", "max"):
            raise ValueError(f"best_metric {self.best_name!r}: expected 'min' or 'max', got {self.best_mode!r}")
        if keep < 1:
            raise ValueError(f"keep is {keep}; expected at least 1")
        if read_only and not self.directory.is_dir():
            raise UserError(f"there are no checkpoints: {self.directory} does not exist")
        self.measured: dict[int, dict] = {}  # step -> metrics
        with self._disk_errors("open checkpoints"):
            if not read_only:
                self.directory.mkdir(parents=True, exist_ok=True)
                if jax.process_index() == 0:  # remove files that a killed run was writing
                    for unfinished in self.directory.glob("*.orbax-checkpoint-tmp*"):
                        shutil.rmtree(unfinished, ignore_errors=True)
            # Not orbax's max_to_keep with best_fn, which deletes the newest checkpoint when it is not among the best.
            others = KeepSteps(lambda steps: [self.best_step(), *self._evaluated(steps, average)])
            keep_policy = policies.AnyPreservationPolicy([policies.LatestN(keep), others])
            options = ocp.CheckpointManagerOptions(preservation_policy=keep_policy, read_only=read_only)
            self.manager = ocp.CheckpointManager(self.directory, options=options)
        for step in self.all_steps():
            with contextlib.suppress(Damaged):  # reported by `restore`
                self.measured[step] = self._read_meta(step)["metrics"]

    def save(
        self, step: int, state: PyTree, *, config: dict, extra: dict | None = None, metrics: dict | None = None
    ) -> bool:
        """Saves a checkpoint in the background.

        Args:
            step: the number of steps done.
            state: from Parallel.copy_state; the caller must not change its arrays afterwards.
            config, extra: JSON values; tuples come back as lists.
            metrics: numbers.

        Returns:
            False if the step is there already, and nothing is saved.

        Raises:
            UserError: a later step exists; or the disk is full, possibly since the previous save.
        """
        self.wait()  # raises errors of the previous save
        latest = self.latest_step()
        if latest == step:
            return False
        if latest is not None and latest > step:
            raise UserError(f"cannot save step {step}: {self.directory} already has step {latest}")
        # Copy device arrays: on a CPU they could be views of memory that the next step reuses.
        arrays = {path: x if is_divided(x) else to_numpy(x) for path, x in flatten(state).items()}
        metrics = {name: float(value) for name, value in (metrics or {}).items()}
        in_parts = {path for path, x in arrays.items() if is_divided(x)}
        meta: dict[str, Any] = {"config": config, "extra": extra or {}, "metrics": metrics, "crc32": {}, "sums": {}}
        for path, value in checksums(arrays, in_parts).items():
            meta["sums" if path in in_parts else "crc32"]["/".join(path)] = value
        meta = json.loads(json.dumps(meta))  # as it will be read: tuples become lists
        items = {name: ocp.args.StandardSave(tree) for name, tree in items_of(arrays).items()}
        self.measured[step] = metrics
        with self._disk_errors(f"save step {step}"):
            content = ocp.args.JsonSave({"content": meta, "crc32": text_checksum(meta)})
            saved = self.manager.save(step, args=ocp.args.Composite(**items, meta=content))
        if not saved:
            raise RuntimeError(f"orbax did not save step {step} in {self.directory}")
        return True

    def restore(self, target: PyTree) -> Checkpoint | None:
        """Reads the newest undamaged checkpoint; None if there is no checkpoint.

        Newer damaged checkpoints are deleted, with a notice for each.

        Args:
            target: a state of the same structure, or its shapes; with shapes from Parallel.placed, arrays that were
                saved in parts are put on their devices.

        Raises:
            UserError: the checkpoint does not fit the target, or all checkpoints are damaged; nothing is deleted.
        """
        bad, good = [], None
        places = {name: x for name, x in flatten(target).items() if isinstance(x, jax.ShapeDtypeStruct) and x.sharding}
        for step in reversed(self.all_steps()):
            try:
                good = self._read(step, places=places)
                break
            except Damaged as error:
                bad.append((step, error))
        if good is None:
            if bad:
                raise UserError(f"no readable checkpoint in {self.directory} (step {bad[0][0]}: {bad[0][1]})")
            return None
        restored = good._replace(state=fit_into(target, good.state, f"{self.directory}/{good.step}"))
        for step, error in bad:
            if jax.process_index() == 0:
                notice(f"checkpoint {self.directory}/{step} is damaged ({error}); going on from step {good.step}")
            if not self.read_only:
                self.manager.delete(step)
        return restored

    def restore_params(self, target: Params, step: int | None = None) -> tuple[Params, tuple[int, ...]]:
        """Reads (the parameters of one checkpoint, its step in a tuple).

        The checkpoint is `step` if given, else the best undamaged one, or the newest one if none has metrics. `target`
        is as in `restore`.

        Raises:
            UserError: the checkpoints have metrics, but not the one of best_metric.
        """
        if step is None:
            self._report_unmeasured()
            known = {name for each in self.all_steps() for name in self.metrics(each)}
            if known and self.best_name not in known:
                raise UserError(
                    f"no checkpoint in {self.directory} was measured by train.best_metric {self.best_name}; expected "
                    f"{' or '.join(sorted(known))}"
                )
        good = next(self._good(self._by_merit() if step is None else [step], only_params=True))
        return fit_into({"params": target}, good.state, f"{self.directory}/{good.step}")["params"], (good.step,)

    def average(self, target: Params, count: int) -> tuple[Params, tuple[int, ...]]:
        """Reads (mean of the parameters of the `count` newest undamaged checkpoints, their steps, newest first).

        Checkpoints without metrics are left out, unless none has metrics.
        """
        self._report_unmeasured()
        sums, used = None, []
        steps = self.all_steps()
        for good in itertools.islice(self._good(self._evaluated(steps) or reversed(steps), only_params=True), count):
            params = fit_into({"params": target}, good.state, f"{self.directory}/{good.step}")["params"]
            params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
            sums = params if sums is None else jax.tree.map(np.add, sums, params)
            used.append(good.step)
        return jax.tree.map(lambda total, x: (total / len(used)).astype(x.dtype), sums, target), tuple(used)

    def newest(self) -> tuple[int, dict] | None:
        """Reads (newest step, its `extra`) without arrays; None if there is no step, or it is damaged."""
        step = self.latest_step()
        try:
            return None if step is None else (step, self._read_checked_meta(step)["extra"])
        except Damaged:
            return None

    def all_steps(self) -> list[int]:
        """Returns the steps of all checkpoints, in order."""
        return sorted(int(step) for step in self.manager.all_steps())

    def latest_step(self) -> int | None:
        """Returns the newest step, or None if there is none."""
        return max(self.all_steps(), default=None)

    def best_step(self) -> int | None:
        """Returns the step with the best metric; the newest step if none has it; None without a checkpoint."""
        return next(iter(self._by_merit()), None)

    def metrics(self, step: int) -> dict:
        """Returns the metrics saved with a step; {} if there are none."""
        return self.measured.get(step, {})

    def wait(self) -> None:
        """Waits until everything is on the disk; raises a UserError if it cannot be written."""
        with self._disk_errors(f"save step {max(self.measured, default=0)}"):
            self.manager.wait_until_finished()

    def close(self) -> None:
        """Waits until everything is on the disk, and closes the manager."""
        self.wait()
        self.manager.close()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def _by_merit(self) -> list[int]:
        """Returns all steps, best first, ties newest first; steps without the metric are last."""
        steps = list(reversed(self.all_steps()))
        values = {step: self.metrics(step).get(self.best_name, math.nan) for step in steps}
        measured = [step for step in steps if math.isfinite(values[step])]
        measured.sort(key=lambda step: values[step], reverse=self.best_mode == "max")
        return measured + [step for step in steps if not math.isfinite(values[step])]

    def _evaluated(self, steps: Iterable[int], count: int | None = None) -> list[int]:
        """Returns the newest `count` (or all) of the `steps` that have metrics, newest first."""
        return sorted((step for step in steps if self.metrics(step)), reverse=True)[:count]

    def _report_unmeasured(self) -> None:
        """Gives a notice of each checkpoint whose metrics cannot be read: it may have been the best."""
        for step in self.all_steps():
            if step not in self.measured:
                notice(f"checkpoint {self.directory}/{step} is damaged (its metrics cannot be read); it is left out")

    def _good(self, steps: Iterable[int], only_params: bool = False) -> Iterator[Checkpoint]:
        """Yields the checkpoints of `steps`, with a notice for each damaged one; a UserError if all are damaged."""
        found = False
        for step in steps:
            try:
                good = self._read(step, only_params)
            except Damaged as error:
                notice(f"checkpoint {self.directory}/{step} is damaged ({error}); it is left out")
                continue
            found = True
            yield good
        if not found:
            raise UserError(f"there is no readable checkpoint in {self.directory}")

    def _read_items(self, step: int, **items: Any) -> dict:
        """Reads items of a checkpoint with orbax; raises Damaged if it cannot."""
        self.wait()
        for name in items:
            if not (self.directory / str(step) / name).is_dir():
                raise Damaged(f"it has no folder {name}")
        with self._read_errors(step, " and ".join(items)):
            found = self.manager.restore(step, args=ocp.args.Composite(**items))
            return {name: found[name] for name in items}

    @contextlib.contextmanager
    def _read_errors(self, step: int, items: str):
        """Turns errors of orbax about the files of a checkpoint into Damaged."""
        try:
            yield
        except PermissionError as error:  # like a lack of memory, no damage of the checkpoint
            raise UserError(f"cannot read {self.directory}/{step}: permission denied") from error
        except MemoryError:
            raise
        except Exception as error:  # broken files raise errors of many types
            raise Damaged(f"the files of {items} cannot be read") from error

    def _read_meta(self, step: int) -> dict:
        meta = self._read_items(step, meta=ocp.args.JsonRestore())["meta"]
        if not isinstance(meta, dict) or meta.get("crc32") != text_checksum(meta.get("content")):
            raise Damaged("wrong checksum of meta")
        return meta["content"]

    def _read_checked_meta(self, step: int) -> dict:
        meta = self._read_meta(step)
        self.check(step, meta["config"], meta["extra"])
        return meta

    def _read(self, step: int, only_params: bool = False, places: dict | None = None) -> Checkpoint:
        """Reads a checkpoint, with its arrays in a nested dict; raises Damaged if a checksum is wrong.

        Arrays that were saved in parts are read in parts if `places` has their shape with a sharding.
        """
        meta = self._read_checked_meta(step)
        names = ("params",) if only_params else ("params", "state")
        in_parts = {tuple(name.split("/")) for name in meta.get("sums", {})}
        targets = dict.fromkeys(names)
        if in_parts:  # otherwise orbax would put them on the devices they were saved from
            targets = self._targets(step, names, places or {})
        restores = {name: ocp.args.StandardRestore(target) for name, target in targets.items()}
        try:
            arrays = arrays_of(self._read_items(step, **restores))
        except Damaged as error:
            # The other processes may have read their parts, and wait for this one.
            if in_parts and places and jax.process_count() > 1:
                where = f"its parts of {self.directory}/{step}; without that folder the checkpoint before is used"
                raise UserError(f"process {jax.process_index()} cannot read {where} ({error})") from error
            raise
        sums = {"/".join(path): value for path, value in checksums(arrays, in_parts).items()}
        expected = meta["crc32"] | meta.get("sums", {})
        expected = {name: value for name, value in expected.items() if name.startswith("params/") or not only_params}
        for name in sorted(sums.keys() | expected.keys()):
            if sums.get(name) != expected.get(name):
                raise Damaged(f"wrong checksum of {name}")
        tree = flax.traverse_util.unflatten_dict(arrays)
        return Checkpoint(step, tree, meta["config"], meta["extra"], meta["metrics"])

    def _targets(self, step: int, names: Iterable[str], places: dict) -> dict[str, PyTree]:
        """Returns the restore targets of each item: numpy arrays, or arrays on the devices of `places`."""
        with self._read_errors(step, " and ".join(names)):
            handler = ocp.StandardCheckpointHandler()
            stored = arrays_of({name: handler.metadata(self.directory / str(step) / name).tree for name in names})
        wholes = {path: np.broadcast_to(np.zeros((), x.dtype), x.shape) for path, x in stored.items()}
        fitting = {path: x for path, x in places.items() if path in wholes and describe(x) == describe(wholes[path])}
        return items_of(wholes | fitting)

    @contextlib.contextmanager
    def _disk_errors(self, what: str):
        """Turns disk errors, also those of the background thread, into a UserError."""
        try:
            yield
        except Exception as error:
            reason = disk_reason(error)
            if reason is None:
                raise
            raise UserError(f"cannot {what} in {self.directory}: {reason}") from error


def items_of(arrays: dict[tuple[str, ...], Any]) -> dict[str, PyTree]:
    """Returns the two items of a checkpoint as nested dicts: `params`, and `state` with all other arrays."""
    tree = flax.traverse_util.unflatten_dict(arrays)
    params = tree.pop("params")
    return {"params": params, "state": tree} if tree else {"params": params}


def arrays_of(items: dict[str, PyTree]) -> dict[tuple[str, ...], Any]:
    """Undoes `items_of`; the item `state` may be missing."""
    return flax.traverse_util.flatten_dict({"params": items["params"], **items.get("state", {})})


def disk_reason(error: BaseException | None) -> str | None:
    """Returns the reason in words if an error, or its cause, is a disk error; else None."""
    while error is not None:
        code = getattr(error, "errno", None)
        if isinstance(error, OSError) and code is not None:
            return NO_SPACE.get(code, os.strerror(code).lower())
        for code, words in NO_SPACE.items():  # the array library raises other types, whose text has the reason
            if os.strerror(code).lower() in str(error).lower():
                return words
        error = error.__cause__ or error.__context__
    return None


@dataclasses.dataclass
class KeepSteps(policies.PreservationPolicy):
    """An orbax policy that keeps the steps in `wanted(all steps)`."""

    wanted: Callable[[list[int]], Any]

    def should_preserve(self, checkpoints, *, context):
        steps = self.wanted([info.step for info in checkpoints])
        return [info.step in steps for info in checkpoints]
