"""Greedy decoding with an exported model; needs jax, numpy and safetensors, and nothing of attn_jax.

    echo "1 May 2026" | python decode.py
    echo "12 7 30 3" | python decode.py --ids

A line of standard input is a source, a line of output its prediction: texts of the vocabularies beside this file, of
words, characters or SentencePiece pieces (which need that package); or with --ids token ids, the end token last in a
source, and left out in a prediction. An empty line gives an empty line. export.json describes the functions.
"""

import base64
import json
import pathlib
import sys
import zlib
from collections.abc import Callable

import jax
import numpy as np
from jax import export
from safetensors.numpy import load

FOLDER = pathlib.Path(__file__).resolve().parent


class Decoder:
    """The exported functions start(parameters, source) and step(parameters, memory, state, token)."""

    def __init__(self, folder: pathlib.Path):
        path, self.folder = folder / "export.json", folder
        if not path.exists():
            raise SystemExit(f"{path} does not exist: the export was interrupted; export again")
        self.about = json.loads(path.read_text(encoding="utf-8"))
        stored = load(self.read("params.safetensors"))
        self.params = [jax.numpy.asarray(stored[name]) for name in self.about["parameters"]]
        functions = [bytearray(self.read(name)) for name in ("start.jax", "step.jax")]
        self.start, self.step = (jax.jit(export.deserialize(data).call) for data in functions)

    def read(self, name: str) -> bytes:
        """Returns the content of a file; ends the program if the file belongs to another export."""
        content = (self.folder / name).read_bytes()
        if zlib.crc32(content) != self.about.get("crc32", {}).get(name):  # an earlier version kept none
            raise SystemExit(
                f"{self.folder / name} is not of this export (wrong checksum): one was interrupted, or a file was "
                "changed; export again"
            )
        return content

    def greedy(self, sources: list[list[int]]) -> list[list[int]]:
        """Decodes at most `batch_size` sources greedily, without the forbidden tokens.

        A source without tokens gives an empty prediction, as in --mode=predict.
        """
        about, rows = self.about, self.about["batch_size"]
        batch = np.full((rows, about["source_length"]), about["pad"], np.int32)
        for row, source in zip(batch, sources, strict=False):
            row[: len(source)] = source
        limits = [min(2 * len(source) + 10, about["max_length"]) if source else 0 for source in sources]
        memory, state = self.start(self.params, batch)
        token, found = np.full(rows, about["bos"], np.int32), [[] for _ in sources]
        ended = [False] * len(sources)
        for length in range(max(limits, default=0)):
            state, log_probs = self.step(self.params, memory, state, token)
            scores = np.array(log_probs)
            scores[:, about["forbidden"]] = -np.inf
            token = np.argmax(scores, axis=1).astype(np.int32)
            for i, tokens in enumerate(found):
                ended[i] = ended[i] or length >= limits[i] or token[i] == about["eos"]
                if not ended[i]:
                    tokens.append(int(token[i]))
            if all(ended):
                break
        return found


def read(line: str, number: int, about: dict) -> list[int]:
    """Returns the token ids of a line; ends the program if the functions cannot read the line."""
    size, eos, longest = about["source_vocab_size"], about["eos"], about["source_length"]
    try:
        ids = [int(word) for word in line.split()]
    except ValueError:
        ids = [-1]
    if ids and (ids[-1] != eos or min(ids) < 0 or max(ids) >= size):
        raise SystemExit(
            f"line {number}: {line.strip():.60}; expected token ids below {size}, the end token {eos} last"
        )
    if len(ids) > longest:
        raise SystemExit(f"line {number}: {len(ids)} tokens; the export was made for at most {longest}")
    return ids


def vocabulary(stored: dict, about: dict) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str]]:
    """Returns (text -> token ids, token ids -> text) of an entry of vocabularies.json; ends the program if unknown."""
    if stored["kind"] == "sentencepiece":
        import sentencepiece

        model = sentencepiece.SentencePieceProcessor(model_proto=base64.b64decode(stored["model"]))
        return model.encode, lambda ids: "".join(map(model.id_to_piece, ids)).replace("▁", " ").strip()
    if stored["kind"] not in ("words", "characters"):
        raise SystemExit(f"the vocabulary is of {stored['kind']}; expected --ids, and token ids as lines")
    split, space = (str.split, " ") if stored["kind"] == "words" else (list, "")
    special = {about[name]: f"<{name}>" for name in ("pad", "unk", "bos", "eos")}
    tokens = [*(special[i] for i in range(len(special))), *stored["tokens"]]
    ids = {token: i for i, token in enumerate(tokens) if i >= len(special)}
    return lambda text: [ids.get(token, about["unk"]) for token in split(text)], lambda found: space.join(
        tokens[i] for i in found
    )


def main() -> None:
    """Decodes the lines of standard input."""
    if sys.argv[1:] not in ([], ["--ids"]):
        raise SystemExit(f"unexpected argument {sys.argv[1]}; expected --ids, or none for texts")
    decoder = Decoder(FOLDER)
    about, lines = decoder.about, sys.stdin.read().splitlines()
    show = lambda ids: " ".join(map(str, ids))  # noqa: E731
    if not sys.argv[1:]:
        kept = json.loads(decoder.read("vocabularies.json"))
        encode, (_, show) = vocabulary(kept["source"], about)[0], vocabulary(kept["target"], about)
        lines = [" ".join(map(str, [*ids, about["eos"]] if (ids := encode(line)) else [])) for line in lines]
    sources = [read(line, number, about) for number, line in enumerate(lines, 1)]
    for start in range(0, len(sources), about["batch_size"]):
        for tokens in decoder.greedy(sources[start : start + about["batch_size"]]):
            print(show(tokens))


if __name__ == "__main__":
    main()
