"""Each lemma has one language and one split; files and languages made here; wrong names."""

import re
from functools import partial

import pytest
from tasks_by_name import make

from attn_jax.data.vocabulary import Characters, from_json
from attn_jax.errors import UserError
from attn_jax.tasks.text import language_id
from attn_jax.tasks.text.language_id import LANGUAGES, TEST_SIZE, make_lexicons
from attn_jax.token_ids import EOS, UNK

build = partial(make, "language_id", valid_size=300)
LEFT_OUT = "lemmas of several languages, left out"


def items(pairs):
    return list(zip(pairs.source, pairs.target, strict=True))


@pytest.fixture(scope="module")
def task():
    return build()


def test_a_lemma_is_in_one_split_and_of_one_language(task):
    lexicons = {name: set(lemmas) for name, lemmas in make_lexicons((), 0).items()}
    found = [lemma for split in task.splits.values() for lemma in split.source]
    assert len(set(found)) == len(found)
    for split in task.splits.values():
        for lemma, language in items(split):
            assert [name for name, lemmas in lexicons.items() if lemma in lemmas] == [language]


def test_numbers_add_up(task):
    different = len({lemma for lemmas in make_lexicons((), 0).values() for lemma in lemmas})
    there_are = different - task.stats[LEFT_OUT]
    held_out = int(there_are * language_id.HELD_OUT_SHARE)
    train = there_are - 2 * held_out
    counts = {"train": train, "valid": 300, "test": TEST_SIZE, "languages": len(LANGUAGES)}
    assert task.stats == counts | {LEFT_OUT: different - there_are}
    assert task.stats[LEFT_OUT] > 0


def test_lemmas_are_what_their_language_allows():
    for name, lemmas in make_lexicons((), 3).items():
        onsets, vowels, codas = ("|".join(part) for part in LANGUAGES[name])
        assert len(set(lemmas)) == language_id.NUM_LEMMAS
        assert all(re.fullmatch(f"(({onsets})({vowels})({codas})){{2,3}}", lemma) for lemma in lemmas)
    both = make_lexicons(("valu", "garsk"), 3)  # each by itself
    assert list(both) == ["garsk", "valu"] and both == {name: make_lexicons((), 3)[name] for name in both}
    assert make_lexicons((), 1) != make_lexicons((), 0)


def test_a_smaller_split_is_the_beginning_of_a_larger_one(task):
    few = build(num_examples=100, valid_size=20)
    for name, split in few.splits.items():
        assert items(split) == items(task.splits[name])[: len(split)]
    assert [len(split) for split in few.splits.values()] == [100, 20, TEST_SIZE]


def test_it_is_known_that_other_languages_are_another_cut(task):
    """Lemmas of all languages are cut together, so a test lemma of some languages may be a training lemma of all."""
    fewer = build(labels=("valu", "tekin"))
    for name in ("valid", "test"):
        assert set(fewer.splits[name].source) & set(task.splits["train"].source)
        assert "labels" in language_id.LanguageIdOptions().cut_by[name]


def test_a_label_is_one_known_token(task):
    assert isinstance(task.source_vocabulary, Characters)
    saved = from_json(task.target_vocabulary.to_json())
    assert saved.tokens(range(EOS + 1, len(saved))) == sorted(LANGUAGES)
    for split in task.splits.values():
        assert set(split.target) == set(LANGUAGES)
    assert all(len(saved.encode(name)) == 1 and UNK not in saved.encode(name) for name in LANGUAGES)
    both = (task.source_vocabulary, task.target_vocabulary)
    again = build(kept=both)
    assert (again.source_vocabulary, again.target_vocabulary) == both


def lines(lemmas):
    return "".join(f"{lemma}\t{lemma}{ending}\tN;{ending}\n" for lemma in lemmas for ending in "ab")


@pytest.fixture
def folder(tmp_path):
    files = {
        "german-train-high": lines([f"Haus {i}" for i in range(40)] + ["test", "film"]),
        "french-train-high": lines([f"maison{i}" for i in range(40)] + ["film"]),
        "old-norse-train-high": lines([f"hús{i}" for i in range(40)] + ["test"]),
        "german-train-low": lines(["Haus", "Maus"]),
        "german-dev": lines(["Laus"]),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_files_are_the_lemmas_of_their_languages(folder):
    task = build(folder, valid_size=12)
    assert task.stats == {"train": 96, "valid": 12, "test": 12, "languages": 3, LEFT_OUT: 2}
    every = [item for split in task.splits.values() for item in items(split)]
    words = {"german": "Haus ", "french": "maison", "old-norse": "hús"}
    assert sorted(every) == sorted((f"{word}{i}", name) for name, word in words.items() for i in range(40))
    assert task.target_vocabulary.tokens([4, 5, 6]) == ["french", "german", "old-norse"]


def test_only_the_languages_asked_for(folder):
    assert list(language_id.read_lexicons(folder, "high", ("old-norse", "german", "german"))) == ["german", "old-norse"]
    task = build(folder, labels=("german", "french"), valid_size=3)
    assert task.stats["languages"] == 2 and task.stats[LEFT_OUT] == 1
    assert "test" in {lemma for split in task.splits.values() for lemma in split.source}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"labels": ("germn", "french")}, r"unknown language in \S+ 'germn'; did you mean german\?$"),
        ({"labels": ("german",)}, "task.labels: only the label 'german'; expected at least two to tell apart$"),
        ({"size": "low"}, "task.labels: only the label 'german'; expected at least two"),
        ({"size": "hgh"}, r"unknown task.size of the files in \S+ 'hgh'; did you mean high\?$"),
        ({"num_examples": 97}, r"task.num_examples 97: expected 0 \(all\) to 96, the training lemmas there are$"),
        ({"num_examples": -1}, "task.num_examples -1: expected 0"),
        ({"valid_size": 13}, "task.valid_size 13: expected 1 to 12, the validation lemmas there are$"),
        ({"valid_size": 0}, "task.valid_size 0: expected 1 to 12"),
        ({"data_dir": "", "labels": ("garsk", "tekn")}, r"unknown language 'tekn'; did you mean tekin\?$"),
        ({"data_dir": "", "num_examples": 10**6}, "task.num_examples 1000000: expected 0"),
    ],
)
def test_wrong_options(folder, options, message):
    with pytest.raises(UserError, match=message) as error:
        build(**({"data_dir": folder, "valid_size": 12} | options))
    assert "\n" not in str(error.value)


def test_files_that_are_missing_or_wrong(folder, tmp_path):
    with pytest.raises(UserError, match=r"a: no such folder; expected such as german-train-high$"):
        build(tmp_path / "a")
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"no files LANGUAGE-train-SIZE there; expected such as german-train-high$"):
        build(tmp_path / "none")
    (folder / "french-train-low").write_text(lines(["maison"]), encoding="utf-8")
    with pytest.raises(UserError, match=r"^french, german: 3 lemmas of one language alone; expected at least 10, a"):
        build(folder, size="low", valid_size=1)
    with (folder / "french-train-high").open("a") as file:
        file.write("film\tfilms\n")
    with pytest.raises(UserError, match="french-train-high, line 83: expected the 3 columns"):
        build(data_dir=folder)
