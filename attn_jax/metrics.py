"""Numbers that say how good a model is: mergeable means, scores of texts such as BLEU, and where they are written."""

import contextlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attn_jax.errors import UserError, nearest
from attn_jax.files import append, write


def _module(x):
    """numpy for what lies on the host (and stays in float64 there), jax.numpy for the rest."""
    return jnp if isinstance(x, jax.Array) else np


@flax.struct.dataclass
class Mean:
    """A mean that can be added up over batches, devices and hosts: the sum of what was counted, and its number.

    Everything is elementwise, so `total` and `count` may carry a leading axis of seeds; `compute` then gives one
    mean for each seed. `psum` of a Mean over devices is their merge.
    """

    total: Any  # any leading axes
    count: Any  # the same

    @classmethod
    def of(cls, values, mask=None) -> "Mean":
        """The mean of all `values`, or of those where `mask` (the same shape, True = counts)."""
        xp = _module(values)
        values = xp.asarray(values)
        if mask is None:
            return cls(total=values.sum(), count=xp.asarray(values.size))
        # where, not a product: what is masked may be inf or nan
        return cls(total=xp.where(mask, values, 0).sum(), count=xp.asarray(mask, bool).sum())

    @classmethod
    def empty(cls) -> "Mean":
        """Of nothing: where a merge begins."""
        return cls(total=np.float64(0), count=np.float64(0))

    def merge(self, other: "Mean") -> "Mean":
        """The mean of both together. On the host it is summed in float64."""

        def add(a, b):
            if isinstance(a, jax.Array) or isinstance(b, jax.Array):
                return a + b
            return np.add(a, b, dtype=np.float64)

        return Mean(total=add(self.total, other.total), count=add(self.count, other.count))

    def compute(self):
        """total / count, and nan where nothing was counted."""
        xp = _module(self.total)
        nonzero = xp.asarray(self.count) > 0
        return xp.where(nonzero, self.total / xp.where(nonzero, self.count, 1), xp.nan)[()]


def perplexity(loss: Mean):
    """exp of the mean negative log-likelihood (in nats) per token; one number for each seed."""
    mean = loss.compute()
    return _module(mean).exp(mean)


def summarize(values: Sequence[float]) -> dict[str, Any]:
    """Mean and standard deviation over the seeds of a run: {"mean", "std", "seeds": the values themselves}.

    `std` is that of a sample (divided by n - 1), 0.0 if there is one seed only.
    """
    array = np.asarray(values, np.float64).reshape(-1)
    if array.size == 0:
        raise ValueError("summarize: expected the values of at least one seed, got none")
    std = float(array.std(ddof=1)) if array.size > 1 else 0.0
    return {"mean": float(array.mean()), "std": std, "seeds": array.tolist()}


def _check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise UserError(f"there are {len(hypotheses)} hypotheses but {len(references)} references; expected as many")
    if not references:
        raise UserError("there are no sentences to score; expected at least one hypothesis and its reference")


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The fraction (0 to 1) of hypotheses that equal their references; spaces at the ends do not matter."""
    _check_pairs(hypotheses, references)
    return float(np.mean([h.strip() == r.strip() for h, r in zip(hypotheses, references, strict=True)]))


def edit_distance(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The mean over all pairs of their Levenshtein distance; 0 where all hypotheses equal their references.

    That is the smallest number of code points to insert, delete or replace to get one text from the other. It is not
    divided by a length, and spaces count as any other code point.
    """
    _check_pairs(hypotheses, references)
    return float(np.mean([_levenshtein(h, r) for h, r in zip(hypotheses, references, strict=True)]))


def _levenshtein(a: str, b: str) -> int:
    row = list(range(len(b) + 1))  # row[j]: the distance of b[:j] and what was read of a, nothing so far
    for i, x in enumerate(a, 1):
        before, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y)))
    return row[-1]


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> tuple[float, str]:
    """BLEU (0 to 100) of a corpus with one reference each, and the signature that says how it was measured.

    Args:
      hypotheses, references: detokenized text, one sentence each.
      tokenize: a tokenizer of sacreBLEU ("13a", "intl", "char", "zh", "ja-mecab", ...); "none" for text that is
        tokenized already and is to be split at spaces only.

    Raises:
      UserError: if the numbers of sentences differ or are zero, or the tokenizer is unknown or cannot be used here.

    Papineni et al. 2002, "BLEU"; Post 2018, "A Call for Clarity in Reporting BLEU Scores".
    """
    from sacrebleu.metrics import BLEU

    _check_pairs(hypotheses, references)
    if tokenize not in BLEU.TOKENIZERS:
        raise UserError(f"unknown BLEU tokenizer {tokenize!r}; {nearest(tokenize, BLEU.TOKENIZERS)}")
    try:
        # force only silences the warning about text that looks tokenized: the signature states the tokenization.
        metric = BLEU(tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:  # a package is missing, or a model cannot be downloaded
        reason = " ".join(str(error).split())
        raise UserError(f"BLEU tokenizer {tokenize!r} cannot be used here: {reason}") from error
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return float(score), str(metric.get_signature())


def corpus_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """chrF2 (0 to 100) of a corpus with one reference each, and its signature.

    The F-score (beta 2) of character 1- to 6-grams: needs no tokenizer, so it suits text without spaces.
    Popović 2015, "chrF: character n-gram F-score for automatic MT evaluation".
    """
    from sacrebleu.metrics import CHRF

    _check_pairs(hypotheses, references)
    metric = CHRF()
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return float(score), str(metric.get_signature())


def _until(text: bytes, step: int) -> bytes:
    """The whole lines of a metrics file that belong to `step` or an earlier one."""
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


class _Board:
    """Numbers for TensorBoard, in a new file of the directory.

    Uses the writer proper of tensorboardX, not its SummaryWriter: that has a queue and a thread, for the sake of
    pictures and histograms, and what goes wrong there, on a full disk say, is a traceback that nobody can catch.
    """

    def __init__(self, directory: pathlib.Path, step: int):
        import tensorboardX  # noqa: F401
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.summary import scalar

        directory.mkdir(exist_ok=True)
        self._event, self._scalar = Event, scalar
        self._writer = EventsWriter(str(directory / "events"), f".{step}")
        if step > 0:  # TensorBoard then hides what an earlier process wrote from there on
            start = SessionLog(status=SessionLog.START)
            self._writer.write_event(Event(wall_time=time.time(), step=step + 1, session_log=start))
        self._flushed = time.monotonic()

    def write(self, step: int, points: Mapping[str, float]) -> None:
        for name, value in points.items():
            summary = self._scalar(name, value)
            self._writer.write_event(self._event(wall_time=time.time(), step=step, summary=summary))
        if time.monotonic() - self._flushed > 20:  # not each time: it waits for the disk
            self._flushed = time.monotonic()
            self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class MetricsWriter:
    """Writes metrics to `workdir`/metrics.jsonl, and to `workdir`/tensorboard if tensorboardX is installed.

    One line is {"step": 100, "loss": 1.25, ...}, in the file as soon as `write` returns. nan and infinities become
    null (in TensorBoard: no point); an array with an axis of seeds becomes a list (a curve for each seed).

    A run that goes on at `step` first drops the lines of later steps, which it will write again, and a half-written
    last line. So its file equals that of a run that never stopped, but for times that the metrics tell, if each
    checkpoint is saved after the lines of its step were written. At step 0, a new run, nothing is kept.
    Of several hosts only the first may write.
    """

    def __init__(self, workdir: str | os.PathLike, step: int = 0):
        self._directory = pathlib.Path(workdir)
        path = self._directory / "metrics.jsonl"
        self._board: _Board | None = None
        with self._disk_errors():
            self._directory.mkdir(parents=True, exist_ok=True)
            kept = _until(path.read_bytes(), step) if step > 0 and path.exists() else b""
            write(path, kept)  # at once: killed here, a run loses nothing
            self._file = append(path)
            try:
                self._board = _Board(self._directory / "tensorboard", step)
            except ImportError:
                print("tensorboardX is not installed: metrics go to metrics.jsonl only", file=sys.stderr)

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes one line: a number, or one for each seed, under each name. UserError if the disk is full."""
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
