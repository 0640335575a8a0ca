"""Tags beside the lines of a file: one vocabulary of texts and tags, counts of unseen tags, wrong files."""

import pytest
from tasks_by_name import make

from attn_jax.data.data_files import load_vocabularies, save_kept
from attn_jax.data.files import save_checked
from attn_jax.data.pieces import SentencePiece
from attn_jax.data.sizes import text_sizes
from attn_jax.data.vocabulary import Characters, TaggedLemmas, TaggedTexts, Words, from_json
from attn_jax.data.vocabulary_options import WordsOptions
from attn_jax.errors import UserError
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.options import change, resolve, switch
from attn_jax.token_ids import EOS, PAD, UNK
from configs.base import get_config

LINES = ["go home", "see a house", "a house", "go"]
TARGETS = ["went home", "saw a house", "houses", "going"]
TAGS = ["V;PST", "V;PST", "N;PL", "V;PROG"]
OPTIONS = {name: (f"{name}.source", f"{name}.target") for name in ("train", "valid")}
OPTIONS |= {"valid_size": 1, "vocab_size": (100, 100)}
TAGGED = [f"{line}\t{tags}" for line, tags in zip(LINES, TAGS, strict=True)]
FILES = ("train.tags", "valid.tags", "")


@pytest.fixture
def folder(tmp_path):
    for split, count in (("train", 4), ("valid", 2)):
        for name, lines in (("source", LINES), ("target", TARGETS), ("tags", TAGS)):
            (tmp_path / f"{split}.{name}").write_text("\n".join(lines[-count:]) + "\n")
    return tmp_path


def build(folder, **options):
    given = {"vocabulary": WordsOptions(min_count=1), "tag_files": FILES} | options
    return make("parallel_text", folder, **OPTIONS | given)


@pytest.mark.parametrize("kind", [Words, Characters, SentencePiece])
def test_a_vocabulary_of_texts_and_tags(kind):
    texts = kind.train(LINES, vocab_size=24, model_type="bpe")
    vocabulary = TaggedTexts.of_lines(texts, TAGGED)
    for line, tags in zip(LINES, TAGS, strict=True):
        ids = vocabulary.encode(f"{line}\t{tags}")
        count = 1 + len(tags.split(";"))
        assert ids[:-count] == texts.encode(line) and ids[-count] == EOS
        assert all(len(texts) <= i < len(vocabulary) for i in ids[1 - count :])
        assert vocabulary.decode([*ids, EOS, PAD, 7]) == f"{line}\t{tags}"
        assert len(vocabulary.tokenize(f"{line}\t{tags}")) == len(ids)
        assert vocabulary.join(vocabulary.tokens(ids)) == f"{line}\t{tags}"
    assert vocabulary.encode("go\tV;NEW")[-1] == UNK
    assert vocabulary.decode(vocabulary.encode("go")) == "go" and vocabulary.encode("go")[-1] == EOS
    again = from_json(vocabulary.to_json())
    assert again.to_json() == vocabulary.to_json() and again.encode("go\tN;PL") == vocabulary.encode("go\tN;PL")
    assert len(vocabulary) == len(vocabulary.tokens(range(len(vocabulary)))) == len(texts) + 5
    with pytest.raises(UserError, match="same tag twice"):
        TaggedTexts(texts, ["V", "V"])


def test_texts_are_split_at_random_and_tags_are_not():
    texts = SentencePiece.train(LINES, vocab_size=24, model_type="bpe")
    vocabulary = TaggedTexts.of_lines(texts, TAGGED)
    assert vocabulary.sample(TAGGED, alpha=0.0, seed=1) == [vocabulary.encode(line) for line in TAGGED]
    sampled = vocabulary.sample(TAGGED, alpha=0.9, seed=1)
    assert [vocabulary.decode(ids) for ids in sampled] == TAGGED
    assert sum(map(len, sampled)) > sum(len(vocabulary.encode(line)) for line in TAGGED)


def test_letters_with_tags_are_tagged_lemmas():
    ours = TaggedTexts.of_lines(Characters.train(LINES, vocab_size=99), TAGGED)
    theirs = TaggedLemmas.train(TAGGED, vocab_size=99)
    for line in [*TAGGED, "go", "x\tV;X"]:
        assert ours.tokenize(line) == theirs.tokenize(line)
        assert ours.decode(ours.encode(line)) == theirs.decode(theirs.encode(line))
    assert text_sizes(ours, ours).has_tags


def test_files_of_tags_are_read_beside_the_sources(folder, tmp_path):
    task = build(folder)
    assert task.splits["train"].source == TAGGED
    assert task.splits["valid"].target == TARGETS[-2:]
    assert task.stats == {"train": 4, "valid": 2, "valid pairs that training has too": 2}
    plain = build(folder, tag_files=("", "", ""))
    assert task.source_vocabulary.texts.to_json() == plain.source_vocabulary.to_json()
    assert task.target_vocabulary.to_json() == plain.target_vocabulary.to_json()
    (folder / "valid.tags").write_text("N;DU\nV;PST\n")
    assert build(folder).stats["valid sources with a tag that training has not (DU)"] == 1
    (tmp_path / "run").mkdir()
    save_kept(tmp_path / "run", task.kept)
    assert load_vocabularies(tmp_path / "run")[0].to_json() == task.source_vocabulary.to_json()
    held_out = build(folder, valid=("", ""), tag_files=("train.tags", "", ""))
    assert all("\t" in text for split in held_out.splits.values() for text in split.source)


def test_spaces_around_tags_make_no_other_tags(folder):
    expected = build(folder)
    (folder / "train.tags").write_text("V; PST\nV ;PST\nN;\u3000PL\n V;PROG \n")
    task = build(folder)
    assert task.splits == expected.splits and task.stats == expected.stats
    assert task.source_vocabulary.to_json() == expected.source_vocabulary.to_json()
    for line in ("go\tV; PST", "go\t V ;PST "):  # as a user may write it to be predicted
        assert task.source_vocabulary.encode(line) == task.source_vocabulary.encode("go\tV;PST")


def test_a_vocabulary_of_an_earlier_run_may_have_tags_with_spaces():
    old = TaggedTexts(Words(["go"]), ["V", " PST", "N", " N"])
    v, pst, n, spaced = range(5, 9)
    assert old.encode("go\tV;PST") == old.encode("go\tV; PST") == [4, EOS, v, pst]
    assert old.encode("go\tN; N;X") == [4, EOS, n, spaced, UNK]


@pytest.mark.parametrize("name, tags", [("seq2seq", "fed"), ("seq2seq", "attended"), ("transformer", "invariant")])
def test_a_config_builds_a_model_that_reads_them(folder, name, tags):
    config = switch(get_config(), model=name)
    changes = {f"task.{key}": value for key, value in OPTIONS.items()} | {"task.vocabulary.min_count": 1}
    config = change(config, changes | {"data_dir": str(folder), "task.tag_files": FILES, "model.tags": tags})
    if name == "transformer":
        config = change(config, {"model.encoder": "transformer"})
    task = build_task(resolve(config))
    assert build_setup(resolve(config), task.kept).model.module.source_vocab_size == len(task.source_vocabulary)
    with pytest.raises(UserError, match=r"or task.name parallel_text with task.tag_files$"):
        build_setup(resolve(config), build_task(resolve(change(config, {"task.tag_files": ("", "", "")}))).kept)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("train.tags", "V;PST\nN\n", r"train.tags has 2 lines but \S+train.source has 4; expected in line i the tags "),
        ("valid.tags", "V;PST\nV;;X\n", r"valid.tags, line 2: expected tags with ; between them, .*, got 'V;;X'"),
        ("valid.tags", "V\tPST\nV\n", r"valid.tags, line 1: expected tags with ; between them"),
        ("train.tags", "V\n\nV\nV\n", r"train.tags, line 2: the line is empty; expected the tags of a source line"),
        ("train.source", "go\nsee\tit\na\nb\n", r"train.source, line 2: has a tab, which is between a source and its"),
    ],
)
def test_wrong_files(folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises(UserError, match=message) as error:
        build(folder)
    assert "\n" not in str(error.value)


def test_wrong_names(folder):
    for files, message in (
        (("train.tags", "", ""), r"^task.valid has sources and no tags; expected in task.tag_files a name for each sp"),
        (("train.tags", "valid.tags", "test.tags"), r"^task.test has tags and no sources"),
        (("train.tags",), r"^task.tag_files is \('train.tags',\); expected three names, of train, valid and test"),
        (("train.tag", "valid.tags", ""), r"train.tag: no such file; did you mean train.tags"),
    ):
        with pytest.raises(UserError, match=message):
            build(folder, tag_files=files)


def test_a_damaged_vocabulary_is_told(folder, tmp_path):
    source, target = (vocabulary.to_json() for vocabulary in build(folder).kept[:2])
    for changed, message in (
        ({"tags": ["V", 3]}, "source.tags has 3 at place 2"),
        ({"texts": {"kind": "nouns"}}, "source.texts: unknown vocab"),
    ):
        save_checked(tmp_path / "vocabularies.json", {"source": source | changed, "target": target})
        with pytest.raises(UserError, match=message):
            load_vocabularies(tmp_path)
