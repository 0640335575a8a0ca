"""encode and decode are inverse, ids agree with tokens, and a saved vocabulary is the same vocabulary."""

import json
import pickle
import re

import pytest

from attn_jax.data.facts import Stories, to_json
from attn_jax.data.facts import from_json as facts_of_json
from attn_jax.data.pieces import SentencePiece
from attn_jax.data.vocabulary import VOCABULARIES, Characters, Inflections, StoryWords, Words, from_json
from attn_jax.errors import UserError
from attn_jax.token_ids import BOS, EOS, PAD, SPECIAL, UNK

LINES = [
    "the cat sat on the mat .",
    "the dog sat on the log .",
    "a cat and a dog ran .",
    "猫 が マット の 上 に 座 っ た 。",
    "犬 が 丸太 の 上 に 座 っ た 。",
]
UNSEEN = "the 鯨 sat on a zebra ."


@pytest.fixture(params="words stories characters inflection sentencepiece-unigram sentencepiece-bpe".split())
def vocabulary(request):
    kind, _, model_type = request.param.partition("-")
    return VOCABULARIES[kind].train(LINES, vocab_size=36, min_count=1, model_type=model_type)


def test_round_trip(vocabulary):
    for line in LINES:
        ids = vocabulary.encode(line)
        assert vocabulary.decode(ids) == line
        assert min(ids) > EOS and max(ids) < len(vocabulary)


def test_special_ids(vocabulary):
    assert tuple(vocabulary.tokens([PAD, UNK, BOS, EOS])) == SPECIAL
    ids = vocabulary.encode(LINES[0])
    assert vocabulary.decode([BOS, *ids, EOS, PAD, *ids]) == LINES[0]
    assert vocabulary.decode([EOS]) == vocabulary.decode([]) == ""


def test_one_token_for_each_id_also_of_unknown_ones(vocabulary):
    ids = vocabulary.encode(UNSEEN)
    assert UNK in ids and not {PAD, BOS, EOS} & set(ids)
    written = vocabulary.tokenize(UNSEEN)
    assert len(written) == len(ids) == len(vocabulary.tokens(ids))
    assert vocabulary.join(written) == UNSEEN  # so an unk can be replaced by what was written
    assert all(a == b for a, b, i in zip(written, vocabulary.tokens(ids), ids, strict=True) if i != UNK)
    assert "<unk>" in vocabulary.decode(ids)


def test_saved_is_the_same(vocabulary):
    again = from_json(json.loads(json.dumps(vocabulary.to_json())))
    for copy in (again, pickle.loads(pickle.dumps(vocabulary))):
        assert type(copy) is type(vocabulary) and len(copy) == len(vocabulary)
        assert copy.to_json() == vocabulary.to_json()
        assert [copy.encode(line) for line in LINES] == [vocabulary.encode(line) for line in LINES]


def test_not_a_vocabulary():
    with pytest.raises(UserError, match="unknown vocabulary 'word'; did you mean words"):
        from_json({"kind": "word"})
    with pytest.raises(UserError, match="no 'kind'"):
        from_json({})
    with pytest.raises(UserError, match="not a SentencePiece model"):
        SentencePiece(b"nonsense")


def test_vocab_size_and_min_count():
    lines = ["b a b c", "c a b d"]
    assert len(Words.train(lines, vocab_size=6, min_count=1)) == 6
    assert Words.train(lines, vocab_size=6, min_count=1).encode("a b c d") == [5, 4, UNK, UNK]
    assert Words.train(lines, vocab_size=100, min_count=2).encode("a d") == [5, UNK]
    ties = Words.train(["d c b d", "b a c a d"], vocab_size=100, min_count=1)  # c is seen first, then b, then a
    assert ties.tokens(range(4, len(ties))) == ["d", "a", "b", "c"]
    special = Words.train(["<pad> <unk> x"] * 3, vocab_size=100)  # as a text
    assert len(special) == 5 and special.encode("<pad> <eos> x") == [UNK, UNK, 4]
    with pytest.raises(UserError, match="vocab_size 4 is too small; the smallest possible is 5"):
        Words.train(lines, vocab_size=4)


def test_stories_are_in_lower_case_and_know_where_statements_end():
    for lines in (["Mary left . Where is Mary ?"], ["mary mary left where is", "<unk>"], ["? ? mary left where is ?"]):
        vocabulary = StoryWords.train(lines, vocab_size=100, min_count=1)
        assert vocabulary.tokens([4, 5]) == [".", "?"] and len(vocabulary) == 10
        mary, *ends = vocabulary.encode("MARY . ?")
        assert ends == [4, 5] and UNK not in [mary, *vocabulary.encode("IS LEFT")]
    assert StoryWords.train(["b a a"], vocab_size=7).encode("a b .") == [6, UNK, 4]
    with pytest.raises(UserError, match="vocab_size 6 is too small; the smallest possible is 7"):
        StoryWords.train(["a"], vocab_size=6)
    with pytest.raises(UserError, match=r"a vocabulary of stories whose first entries are not \. \?"):
        from_json({"kind": "stories", "tokens": ["?", ".", "a"]})
    assert isinstance(from_json(vocabulary.to_json()), StoryWords)


def test_lengths_of_stories():
    for lines, longest, shortest in (
        (["a . b . c ?", "a . c ?"], 2, 2),
        (["a b c . b c . a b ?", "a ?"], 2, 3),
        (["a ?", "a"], 0, 1),  # there is no statement
    ):
        facts = Stories.of(line.split() for line in lines)
        assert facts == (longest, shortest) and facts_of_json(to_json(facts)) == facts


def test_an_unknown_letter_of_an_output_is_read_as_one():
    vocabulary = Characters.train(["abun"], vocab_size=100)
    assert vocabulary.decode([4, UNK, UNK, 5]) == "a<unk><unk>b"
    assert vocabulary.encode("a<unk><unk>b") == [4, UNK, UNK, 5]
    assert vocabulary.tokenize("a<un<unk>>") == ["a", "<", "u", "n", "<unk>", ">"]
    assert len(vocabulary.encode("a<un<unk>>")) == 6
    vocabulary = Characters.train(["a<unk>日"], vocab_size=100)  # in the training text they are letters, code points
    assert vocabulary.to_json()["tokens"] == sorted("a<unk>日")
    assert vocabulary.tokenize("<unk>日") == list("<unk>日") and UNK not in vocabulary.encode("<unk>日")


def test_tags_come_first_then_the_lemma():
    vocabulary = Inflections.train(["gehen\tV;PST", "auf\tV.PTCP;PST"], vocab_size=100)
    assert vocabulary.tokenize("ge\tV;PST") == ["<V>", "<PST>", "g", "e"]
    assert vocabulary.tokens(vocabulary.encode("ge\tV;PST")) == ["<V>", "<PST>", "g", "e"]
    assert vocabulary.encode("gehen\tV;PST")[2:] == vocabulary.encode("gehen")  # one table for all
    assert len(vocabulary) == len(SPECIAL) + len({"V", "PST", "V.PTCP"}) + len(set("gehenauf"))


@pytest.mark.parametrize(
    "text", ["", "\t", "a", "a>", "a\t", "\tV", "a\tV", "b <V> c\tV;PST;3;SG", "a\t;", "a\tV;;b c", "<\t<V>", "a\tb\tc"]
)
def test_whatever_is_split_into_tags_and_lemma_comes_back(text):
    vocabulary = Inflections.train([text, "x\tX"], vocab_size=100)
    assert vocabulary.join(vocabulary.tokenize(text)) == text
    assert vocabulary.decode(vocabulary.encode(text)) == text and UNK not in vocabulary.encode(text)


def test_unknown_tags_and_letters():
    vocabulary = Inflections.train(["gehen\tV;PST"], vocab_size=100)
    assert [i == UNK for i in vocabulary.encode("gähn\tV;FUT;PST")] == [False, True, False, False, True, False, False]
    assert vocabulary.decode(vocabulary.encode("gähn\tFUT;PST")) == "g<unk>hn\t<unk>;PST"
    assert vocabulary.decode(vocabulary.encode("än")) == "<unk>n"
    assert vocabulary.encode("g\tpad;eos")[:2] == [UNK, UNK]  # as tags they are written like special tokens
    assert len(Inflections.train(["g\tpad;unk"], vocab_size=100)) == len(SPECIAL) + 1


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_sentencepiece_size_is_exact_and_a_wrong_one_names_the_nearest(model_type, capfd):
    for wrong, word in ((5000, "large"), (10, "small")):
        with pytest.raises(UserError, match=f"vocab_size {wrong} is too {word} for this text") as error:
            SentencePiece.train(LINES, vocab_size=wrong, model_type=model_type)
        possible = int(re.search(r"(\d+)$", str(error.value))[1])
        assert len(SentencePiece.train(LINES, vocab_size=possible, model_type=model_type)) == possible
    assert capfd.readouterr() == ("", "")


def test_sentencepiece_needs_a_piece_besides_the_special_ones_and_a_known_model(capfd):
    for size in (-1, 3, len(SPECIAL)):
        with pytest.raises(UserError, match=rf"^vocab_size {size} is too small; expected more than 4, the special pie"):
            SentencePiece.train(LINES, vocab_size=size)
    with pytest.raises(UserError, match="unknown sentencepiece model 'bpee'; did you mean bpe"):
        SentencePiece.train(LINES, vocab_size=60, model_type="bpee")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("error", [UserError("text, line 2: the line is empty"), KeyboardInterrupt()])
def test_what_is_wrong_with_a_line_is_no_fault_of_sentencepiece(error):
    def lines():
        yield LINES[0]
        raise error

    with pytest.raises(type(error)) as found:
        SentencePiece.train(lines(), vocab_size=36)
    assert found.value is error


def test_sentencepiece_reads_signs_without_width_as_spaces_and_is_deterministic():
    vocabulary, again = (SentencePiece.train(["a b c d"], vocab_size=9) for _ in range(2))
    assert vocabulary.to_json() == again.to_json()
    for sign in ("\u200b", "\u200c", "\u200e", "\u200f", "\ufeff", "\u3000", "\t", "  "):
        assert vocabulary.decode(vocabulary.encode(f"a{sign}ｂ")) == "a b"


def test_sentencepiece_uses_very_long_lines():
    line = "鯨 鯨" + " " * (1 << 20) + "鯨 鯨"  # spaces, since trainings on long words take minutes
    assert SentencePiece.train([line], vocab_size=6).encode("鯨") != [UNK]
