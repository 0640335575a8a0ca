"""Loggers: where a run shows its numbers besides metrics.jsonl, by the names in train.log_to.

A logger of one's own is a class with these methods, entered into LOGGERS in a config file:

    LOGGERS["mine"] = Mine  # and config.train.log_to = ("mine",)
"""

import contextlib
import pathlib
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from attn_jax.data.files import write
from attn_jax.errors import UserError

FLUSHED = 20.0  # seconds between two flushes of TensorBoard's file, each of which waits for the disk


@runtime_checkable
class Logger(Protocol):
    """Shows the numbers of a run. It is made anew for each process that trains, and once more after evaluation.

    Args:
        workdir: work directory of the run.
        step: number of steps that are done; 0 for a new run.
        config: all options of the run, by their full keys.

    Raises:
        ImportError: its package is not installed; the run goes on without it.
        OSError: it cannot write.
    """

    def __init__(self, workdir: pathlib.Path, step: int, config: Mapping[str, Any]): ...

    def write(self, step: int, points: Mapping[str, float]) -> None:
        """Shows finite numbers of a step; with several seeds their names end in /0, /1 and so on."""

    def finish(self, step: int, metrics: Mapping[str, float], pictures: Sequence[pathlib.Path]) -> None:
        """Shows what the finished run measures on its test split, and some of its pictures."""

    def close(self) -> None:
        """Closes what is open."""


class TensorBoard:
    """Writes a file in `workdir`/tensorboard for each process; with hyperparameters after evaluation.

    Uses EventsWriter of tensorboardX, not SummaryWriter, whose queue and thread are for pictures and histograms: an
    error in that thread, such as a full disk, cannot be caught.
    """

    def __init__(self, workdir: pathlib.Path, step: int, config: Mapping[str, Any]):
        with _hidden("torch"):  # tensorboardX imports torch if installed, which takes 2 s and is not needed
            import tensorboardX  # noqa: F401
            from tensorboardX import summary
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.proto.summary_pb2 import Summary

        directory = workdir / "tensorboard"
        directory.mkdir(exist_ok=True)
        self._event, self._summary, self._message, self._config = Event, summary, Summary, config
        self._writer = EventsWriter(str(directory / "events"), f".{step}")
        if step > 0:  # TensorBoard then hides later steps that an earlier process wrote
            start = SessionLog(status=SessionLog.START)
            self._writer.write_event(Event(wall_time=time.time(), step=step + 1, session_log=start))
        self._flushed = time.monotonic()

    def write(self, step: int, points: Mapping[str, float]) -> None:
        for name, value in points.items():
            self._write(step, self._summary.scalar(name, value))
        if time.monotonic() - self._flushed > FLUSHED:
            self._flushed = time.monotonic()
            self._writer.flush()

    def finish(self, step: int, metrics: Mapping[str, float], pictures: Sequence[pathlib.Path]) -> None:
        options = {key: x if isinstance(x, bool | int | float | str) else str(x) for key, x in self._config.items()}
        for summary in self._summary.hparams(options, metrics):
            self._write(step, summary)
        self.write(step, metrics)
        for path in pictures:
            image = self._message.Image(colorspace=4, encoded_image_string=path.read_bytes())
            self._write(step, self._message(value=[self._message.Value(tag=path.stem, image=image)]))

    def _write(self, step: int, summary: Any) -> None:
        self._writer.write_event(self._event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Logs to Weights & Biases, `pip install wandb`; WANDB_MODE=offline needs no network, see its documentation.

    A run that resumes goes on in the same run there, whose id is in `workdir`/wandb.txt.
    """

    def __init__(self, workdir: pathlib.Path, step: int, config: Mapping[str, Any]):
        import wandb

        kept = workdir / "wandb.txt"
        if step == 0 or not kept.exists():
            write(kept, secrets.token_hex(4).encode())
        self._image = wandb.Image
        settings = wandb.Settings(silent=True)
        self._run = wandb.init(
            project="attn_jax",
            name=workdir.name,
            id=kept.read_text(),
            resume="allow",
            dir=str(workdir),
            config=dict(config),
            settings=settings,
        )

    def write(self, step: int, points: Mapping[str, float]) -> None:
        self._run.log(dict(points), step=step)

    def finish(self, step: int, metrics: Mapping[str, float], pictures: Sequence[pathlib.Path]) -> None:
        self._run.summary.update(dict(metrics))
        if pictures:
            self._run.log({path.stem: self._image(str(path)) for path in pictures}, step=step)

    def close(self) -> None:
        self._run.finish()


LOGGERS: dict[str, type[Logger]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def open_loggers(names: Sequence[str], workdir: pathlib.Path, step: int, config: Mapping[str, Any]) -> list[Logger]:
    """Makes loggers by their names; a line tells of each whose package is not installed.

    Raises:
        OSError: one cannot write.
        UserError: one cannot start.
    """
    found = []
    for name in names:
        try:
            found.append(LOGGERS[name](workdir, step, config))
        except ImportError as error:
            print(f"{error.name or error} is not installed: train.log_to {name} shows nothing", file=sys.stderr)
        except OSError:
            raise
        except Exception as error:  # any fault of a package, such as a missing login
            raise UserError(f"train.log_to {name}: {error}") from error
    return found


def show_result(
    names: Sequence[str],
    workdir: pathlib.Path,
    step: int,
    config: Mapping[str, Any],
    metrics: Mapping[str, float],
    pictures: Sequence[pathlib.Path],
) -> None:
    """Shows the result of a finished run in loggers, see Logger.finish.

    Raises:
        UserError: a logger cannot write.
    """
    try:
        for logger in open_loggers(names, workdir, step, config):
            logger.finish(step, metrics, pictures)
            logger.close()
    except OSError as error:
        raise UserError(f"cannot write the result for train.log_to in {workdir}: {error.strerror}") from error


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
