"""Writing the metrics of a run to metrics.jsonl, and for TensorBoard if tensorboardX is installed."""

import contextlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from attn_jax.data.files import append, write
from attn_jax.errors import UserError


class _Board:
    """Numbers for TensorBoard, in a new file of the directory.

    Uses EventsWriter of tensorboardX, not SummaryWriter, whose queue and thread are for pictures and histograms: an
    error in that thread, such as a full disk, cannot be caught.
    """

    def __init__(self, directory: pathlib.Path, step: int):
        with _hidden("torch"):  # tensorboardX imports torch if installed, which takes 2 s and is not needed
            import tensorboardX  # noqa: F401
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.summary import scalar

        directory.mkdir(exist_ok=True)
        self._event, self._scalar = Event, scalar
        self._writer = EventsWriter(str(directory / "events"), f".{step}")
        if step > 0:  # TensorBoard then hides later steps that an earlier process wrote
            start = SessionLog(status=SessionLog.START)
            self._writer.write_event(Event(wall_time=time.time(), step=step + 1, session_log=start))
        self._flushed = time.monotonic()

    def write(self, step: int, points: Mapping[str, float]) -> None:
        for name, value in points.items():
            summary = self._scalar(name, value)
            self._writer.write_event(self._event(wall_time=time.time(), step=step, summary=summary))
        if time.monotonic() - self._flushed > 20:  # every 20 seconds, since flush waits for the disk
            self._flushed = time.monotonic()
            self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class MetricsWriter:
    """Writes metrics to `workdir`/metrics.jsonl, and to `workdir`/tensorboard if tensorboardX is installed.

    A line is {"step": 100, "loss": 1.25, ...}; it is in the file when `write` returns. nan and infinities become null
    (no point in TensorBoard); an array with an axis of seeds becomes a list (a curve for each seed).

    A run that resumes at `step` first drops the lines of later steps, which it will write again, and a half-written
    last line. If each checkpoint is saved after the lines of its step, the file equals, apart from times, the file of
    an uninterrupted run. At step 0, a new run, all lines are dropped. Only the first of several hosts may write.
    """

    def __init__(self, workdir: str | os.PathLike, step: int = 0):
        self._directory = pathlib.Path(workdir)
        path = self._directory / "metrics.jsonl"
        self._board: _Board | None = None
        with self._disk_errors():
            self._directory.mkdir(parents=True, exist_ok=True)
            kept = _until(path.read_bytes(), step) if step > 0 and path.exists() else b""
            write(path, kept)  # atomic: a run that is killed here loses nothing
            self._file = append(path)
            try:
                self._board = _Board(self._directory / "tensorboard", step)
            except ImportError:
                print("tensorboardX is not installed: metrics go to metrics.jsonl only", file=sys.stderr)

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
            if self._board is not None:
                self._board.write(int(step), {name: x for name, x in points.items() if np.isfinite(x)})

    def close(self) -> None:
        """Closes the files."""
        with self._disk_errors():
            self._file.close()
            if self._board is not None:
                self._board.close()

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


@contextlib.contextmanager
def _hidden(name: str):
    """Context manager in which `import name` fails, unless the module was imported before."""
    new = name not in sys.modules
    if new:
        sys.modules[name] = None
    try:
        yield
    finally:
        if new:
            del sys.modules[name]


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
