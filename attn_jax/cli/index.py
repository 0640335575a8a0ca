"""Encodes two text files of any size into a folder for task.name=indexed_text; see attn_jax/data/token_index.py.

python -m attn_jax.cli.index --source=train.en --target=train.ja --out=DIR [--vocabulary=sentencepiece ...]
python -m attn_jax.cli.index --check=DIR [--source=train.en --target=train.ja]
"""

import argparse
import sys

from attn_jax.data.buckets import make_buckets
from attn_jax.data.indexing import IndexOptions, write_index
from attn_jax.data.token_index import read_index, verify, verify_texts
from attn_jax.data.vocabulary import TEXT_VOCABULARIES
from attn_jax.errors import UserError, one_line
from attn_jax.notices import Progress
from attn_jax.paths import user_path
from attn_jax.runs.locks import locked


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line.

    Raises:
        UserError: an option or a file is wrong.
    """
    options = parser().parse_args(arguments)
    if options.check:
        if bool(options.source) != bool(options.target):
            raise UserError("expected --source=FILE and --target=FILE beside --check=DIR, or neither")
        with Progress("checking", 1, unit="bytes") as bar:
            size = verify(folder := user_path(options.check), lambda *done: show(bar, "checking", *done))
        texts = [user_path(name) for name in (options.source, options.target) if name]
        if texts:
            verify_texts(folder, texts)
        of_texts = ", and of these texts" if texts else ""
        print(f"{folder}\t{size:,} bytes in {len(read_index(folder)['files'])} files are sound{of_texts}")
        return
    if not (options.source and options.target and options.out):
        raise UserError("expected --source=FILE --target=FILE --out=DIR, or --check=DIR")
    if min(options.vocab_size) < 1 or options.sample < 1 or options.max_length < 2:
        raise UserError("--vocab_size and --sample have to be at least 1, --max_length at least 2")
    if options.min_count < 1:
        raise UserError(f"--min_count {options.min_count}: expected at least 1")
    if options.buckets:
        make_buckets(options.buckets)  # before hours of encoding
    given = IndexOptions(
        vocabulary=options.vocabulary,
        vocab_size=tuple(options.vocab_size),
        min_count=options.min_count,
        sentencepiece=options.sentencepiece,
        joint=options.joint,
        sample=options.sample,
        buckets=tuple(options.buckets),
        max_length=options.max_length,
    )
    files = [user_path(name) for name in (options.source, options.target)]
    folder = user_path(options.out)
    with locked(folder), Progress("index", 1, unit="pairs") as bar:
        pairs = write_index(*files, folder, given, lambda *done: show(bar, *done))
    print(f"{options.out}\t{pairs:,} pairs")


def show(bar: Progress, what: str, done: int, total: int) -> None:
    """Shows how far a part of the work is; the next part begins from 0."""
    if bar.label != what or done < bar.step:
        bar.close()
        bar.label, bar.units = what, 0.0
        bar.step = 0
    bar.total = total
    bar.update(done, done - bar.step)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m attn_jax.cli.index",
        description="Encodes two parallel text files of any size for task.name=indexed_text, or goes on encoding them.",
    )
    default = IndexOptions()
    made.add_argument("--source", help="text file of source sentences, one per line")
    made.add_argument("--target", help="text file of their translations")
    made.add_argument("--out", help="folder for the files; it is made")
    made.add_argument("--check", help="compare the checksums of the files in this folder, and of texts that are given")
    made.add_argument("--vocabulary", choices=list(TEXT_VOCABULARIES), default=default.vocabulary)
    made.add_argument("--vocab_size", type=int, nargs=2, default=default.vocab_size, help="of source and target")
    made.add_argument("--min_count", type=int, default=default.min_count, help="rarer words become unk")
    made.add_argument(
        "--sentencepiece", choices=("unigram", "bpe"), default=default.sentencepiece, help="type of model"
    )
    made.add_argument("--joint", action="store_true", help="one vocabulary for both sides, of the first size")
    made.add_argument("--sample", type=int, default=default.sample, help="lines that SentencePiece is trained on")
    made.add_argument("--buckets", type=int, nargs="*", default=(), help="lengths of batches; none: automatic")
    made.add_argument(
        "--max_length", type=int, default=default.max_length, help="longest text, if buckets are automatic"
    )
    return made


if __name__ == "__main__":
    with one_line("index"):
        try:
            main()
        except KeyboardInterrupt:
            print("index: interrupted; run the same command again to go on", file=sys.stderr)
            sys.exit(130)
