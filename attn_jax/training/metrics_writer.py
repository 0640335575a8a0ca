"""Writing the metrics of a run to metrics.jsonl, and to loggers."""

import contextlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from attn_jax.data.files import append, write
from attn_jax.errors import UserError
from attn_jax.training.loggers import open_loggers


class MetricsWriter:
    """Writes metrics to `workdir`/metrics.jsonl, and to the loggers `log_to`, see attn_jax.training.loggers.

    A line is {"step": 100, "loss": 1.25, ...}; it is in the file when `write` returns. nan and infinities become null
    (nothing for a logger); an array with an axis of seeds becomes a list (a curve for each seed).

    A run that resumes at `step` first drops the lines of later steps, which it will write again, and a half-written
    last line. If each checkpoint is saved after the lines of its step, the file equals, apart from times, the file of
    an uninterrupted run. At step 0, a new run, all lines are dropped. Only the first of several hosts may write.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        step: int = 0,
        log_to: Sequence[str] = (),
        config: Mapping[str, Any] = MappingProxyType({}),
    ):
        self._directory = pathlib.Path(workdir)
        path = self._directory / "metrics.jsonl"
        with self._disk_errors():
            self._directory.mkdir(parents=True, exist_ok=True)
            kept = _until(path.read_bytes(), step) if step > 0 and path.exists() else b""
            write(path, kept)  # atomic: a run that is killed here loses nothing
            self._file = append(path)
            self._loggers = open_loggers(log_to, self._directory, step, config)

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes one line, with a number or one number per seed under each name; a UserError if the disk is full."""
        values = {name: np.asarray(value, np.float64) for name, value in metrics.items()}

        def plain(array):
            return [plain(a) for a in array] if array.ndim else float(array) if np.isfinite(array) else None

        record = {"step": int(step)} | {name: plain(array) for name, array in values.items()}
        points = {}
        for name, array in values.items():
            points |= {f"{name}/{i}": float(x) for i, x in enumerate(array)} if array.ndim else {name: float(array)}
        with self._disk_errors():
            self._file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
            for logger in self._loggers:
                logger.write(int(step), {name: x for name, x in points.items() if np.isfinite(x)})

    def close(self) -> None:
        """Closes the files."""
        with self._disk_errors():
            self._file.close()
            for logger in self._loggers:
                logger.close()

    @contextlib.contextmanager
    def _disk_errors(self):
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write metrics in {self._directory}: {error.strerror.lower()}") from error

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def _until(text: bytes, step: int) -> bytes:
    """Returns the whole lines of a metrics file up to `step`."""
    kept = []
    for line in text.splitlines(keepends=True):
        try:
            record = json.loads(line)
            keep = line.endswith(b"\n") and record["step"] <= step
        except (ValueError, KeyError, TypeError):  # half written when the run was killed
            keep = False
        if keep:
            kept.append(line)
    return b"".join(kept)
