"""Any text whatever, through what reads, encodes, batches, predicts, draws and reports it."""

import contextlib
import io
import json
import re
import types
import unicodedata

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from tiny_run import WORDS

from attn_jax.data.batching import FILL, assign, encode_pairs, eval_batches
from attn_jax.data.buckets import choose_buckets
from attn_jax.data.files import load_checked, load_json, save_checked, save_json
from attn_jax.data.pairs import Pairs
from attn_jax.data.text import read_lines
from attn_jax.data.vocabulary import Characters, Inflections, SentencePiece, TaggedLemmas, Words, from_json
from attn_jax.decoding.options import DecodeOptions
from attn_jax.decoding.translate import Translation, Translator
from attn_jax.errors import UserError, printable
from attn_jax.evaluation.text_predictor import TextPredictor
from attn_jax.figures import plots
from attn_jax.inspection.report.page import render, to_json
from attn_jax.notices import Progress, notice
from attn_jax.runs.inputs import Files, decoded, lines_of
from attn_jax.token_ids import EOS, PAD, SPECIAL, UNK

settings.register_profile("here", deadline=None, max_examples=60, derandomize=True, database=None)
settings.load_profile("here")
TMP = [HealthCheck.function_scoped_fixture]

ANYTHING = st.text(st.characters(codec="utf-8"))
WITH_SURROGATES = st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF, categories=None))
NASTY = "\x1b]0;pwned\x07\x1b[2J\x9b31m\x00\r\n\u202e\u2066\u200f\ufeff\u2028\x85\ud800مرحبا 日本 <script>"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WITH_SURROGATES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WITH_SURROGATES, inner, max_size=3),
    max_leaves=8,
)
DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def acts_on_a_terminal(character):
    """Control characters, line ends, surrogates, and marks of direction; a tab is only space."""
    if character == "\t":
        return False
    mark = unicodedata.bidirectional(character) in DIRECTIONS or character in "\u061c\u200e\u200f"
    return mark or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


@pytest.mark.slow
@given(WITH_SURROGATES)
@example(NASTY)
def test_nothing_raw_reaches_the_terminal(text):
    shown = printable(text)
    assert not any(map(acts_on_a_terminal, shown))
    shown.encode("utf-8")  # raises where it cannot be printed
    assert printable(shown) == shown
    with contextlib.redirect_stderr(io.StringIO()) as told:
        notice(text)
    assert told.getvalue() == shown + "\n"


@pytest.mark.slow
@given(st.lists(ANYTHING, min_size=1, max_size=6))
@example(["a\u2028b", "c\x85d", "\x0c", "\x1cx", "a\0b"])
def test_only_line_feeds_end_lines(texts):
    texts = [text.replace("\n", "").removesuffix("\r").removeprefix("\ufeff") for text in texts]
    texts = [text.removesuffix("\r") for text in texts]
    texts = [text if text and not text.endswith("\r") else "x" for text in texts]
    for end in ("\n", "\r\n"):
        data = "\ufeff" + end.join(texts) + end
        assert list(decoded(io.BytesIO(data.encode()), "here")) == texts


@settings(suppress_health_check=TMP)
@given(st.binary(max_size=60))
@example(b"\xed\xa0\x80\n")
@example(b"\xef\xbb\xbf\n")
@example(b"a\r\nb\r\n")
def test_any_bytes_are_lines_or_one_line_of_refusal(tmp_path, data):
    path = tmp_path / "text"
    path.write_bytes(data)
    for read in (lambda: read_lines(path), lambda: list(lines_of(Files(source=str(path))))):
        try:
            assert all(isinstance(line, str) and "\n" not in line for line in read())
        except UserError as error:
            assert str(path) in str(error) and "\n" not in str(error)


@pytest.mark.slow
@given(st.lists(ANYTHING, min_size=1, max_size=5), ANYTHING)
@example(["a <pad> <unk> <bos> <eos> b"], "<eos> a")
def test_tokens_come_back_and_no_text_makes_a_special_one(texts, other):
    for kind in (Words, Characters, Inflections, TaggedLemmas):
        try:
            vocabulary = kind.train(texts, vocab_size=10_000)
        except UserError:
            assert not any(set(kind._split(text)) - set(SPECIAL) for text in texts)
            continue
        assert from_json(json.loads(json.dumps(vocabulary.to_json()))).to_json() == vocabulary.to_json()
        for text in [*texts, other]:
            ids = vocabulary.encode(text)
            between = {EOS} if kind is TaggedLemmas else set()  # lemma <eos> tags
            assert not set(ids) & ({PAD, 2, EOS} - between) and max(ids, default=0) < len(vocabulary)
            assert len(vocabulary.tokenize(text)) == len(ids)
            if kind is Characters:
                assert vocabulary.decode(ids) == (text if UNK not in ids else vocabulary.decode(ids))
            if kind is Words and UNK not in ids:
                assert vocabulary.decode([*ids, EOS, PAD]) == " ".join(text.split())


@pytest.fixture(scope="module")
def pieces():
    return SentencePiece.train([" ".join(WORDS), "日本語 مرحبا"] * 20, vocab_size=40)


@pytest.mark.slow
@given(ANYTHING)
@example(NASTY.replace("\ud800", ""))
def test_pieces_take_any_text(pieces, text):
    ids = pieces.encode(text)
    assert not set(ids) & {PAD, 2, EOS} and all(0 <= i < len(pieces) for i in ids)
    assert isinstance(pieces.decode(ids), str)


@given(st.lists(st.tuples(ANYTHING, ANYTHING), min_size=1, max_size=12), st.integers(1, 5))
def test_every_pair_is_in_a_bucket_and_in_one_batch(rows, batch_size):
    pairs = Pairs(*map(list, zip(*rows, strict=True)))
    vocabulary = Characters(["a", "b"])
    encoded = encode_pairs(pairs, vocabulary, vocabulary)
    buckets = choose_buckets(encoded.source.lengths, encoded.target.lengths)
    assert (assign(encoded, buckets) < len(buckets)).all()
    seen = []
    for indices, batch in eval_batches(encoded, batch_size, buckets):
        seen += indices.tolist()
        for row, index in enumerate(indices):
            assert np.sum(batch["source"][row] != PAD) == len(pairs.source[index]) + 1
            assert np.sum(batch["target_out"][row] != PAD) == len(pairs.target[index]) + 1
        assert not batch["source"][len(indices) :].any() and FILL not in indices
    assert sorted(seen) == list(range(len(rows)))


class Echo(Translator):
    """Answers with the source."""

    def __init__(self, vocabulary):
        self.source_vocabulary, self.target_vocabulary, self.options = vocabulary, vocabulary, DecodeOptions()
        self.model = types.SimpleNamespace(reads_target=False, score=lambda *x: None, query_weights=lambda *x: None)

    def translate(self, params, texts, first=0):
        return [[Translation(text, 0.0, 0.0)] for text in texts]


@given(st.lists(ANYTHING, max_size=7), st.integers(1, 3))
def test_prediction_answers_each_line_and_its_notices_are_clean(texts, chunk):
    predictor = TextPredictor(Echo(Characters(["a"])))
    with contextlib.redirect_stderr(io.StringIO()) as told:
        found = [line for _, printed in predictor.predict({}, texts, chunk) for line in printed]
        predictor.report(texts, texts)
    assert found == texts
    lines = told.getvalue().split("\n")  # one for the sources, one for the targets, and the end
    assert len(lines) <= 3 and not any(map(acts_on_a_terminal, "".join(lines)))


def test_a_line_of_a_hundred_thousand_characters():
    predictor = TextPredictor(Echo(Characters(["x"])))
    with contextlib.redirect_stderr(io.StringIO()) as told:
        assert next(iter(predictor.predict({}, ["x" * 100_000], 1)))[1] == ["x" * 100_000]
    assert "line 1 has 100,000 source tokens" in told.getvalue()


@settings(suppress_health_check=TMP)
@given(st.dictionaries(WITH_SURROGATES, JSON, max_size=4))
@example({"a": "\ud800", "\udfff": [NASTY]})
def test_json_files_give_back_any_text(tmp_path, data):
    save_json(tmp_path / "a.json", data)
    assert load_json(tmp_path / "a.json") == data
    data.pop("crc32", None)
    save_checked(tmp_path / "b.json", data)
    assert load_checked(tmp_path / "b.json") == (data, True)


@given(JSON)
@example(["</script><script>alert(1)</script>", "<!--", "\u2028", "\ud800"])
def test_a_report_holds_any_text_as_data_alone(data):
    page = render({"data": data})
    assert json.loads(to_json(data)) == json.loads(json.dumps(data))
    (found,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert json.loads(found) == {"data": data} and "<" not in found
    assert page.encode("utf-8")


@settings(max_examples=3, suppress_health_check=TMP)
@given(st.lists(ANYTHING, min_size=1, max_size=3))
@example(["$x^2$", "\x1b[31m\0", "日本 مرحبا", "\u202e", "{\\bad}"])
def test_pictures_take_any_token(tmp_path, tokens):
    path = tmp_path / "weights.png"
    plots.plot_weights(np.full((len(tokens), len(tokens)), 1.0 / len(tokens)), tokens, tokens, path)
    assert path.read_bytes().startswith(b"\x89PNG")


@given(WITH_SURROGATES, st.floats(allow_nan=True))
def test_a_progress_line_is_one_line(text, value):
    stream = io.StringIO()
    bar = Progress("training", 10, stream=stream)
    bar.update(3, 5, loss=value)
    bar.close()
    assert stream.getvalue().count("\n") == 1 and not any(map(acts_on_a_terminal, stream.getvalue().rstrip("\n")))
