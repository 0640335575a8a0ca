"""The language made here is the one described, by a second set of rules; files to splits; wrong files."""

import re
from functools import partial

import pytest
from tasks_by_name import make

from attn_jax.data.vocabulary import Characters, Inflections, from_json
from attn_jax.errors import UserError
from attn_jax.tasks.text import made_language
from attn_jax.tasks.text.inflection import InflectionOptions
from attn_jax.tasks.text.inflection_files import read_forms
from attn_jax.tasks.text.made_language import EXAMPLES, NOUN, NUM_EXAMPLES, TEST_SIZE, VERB, inflect
from attn_jax.token_ids import UNK

DOCUMENTATION = made_language.__doc__
build = partial(make, "inflection", valid_size=300)


def described():
    """{tags: (prefix, suffixes)} of the tables in the documentation."""
    table, header = {}, []
    for line in DOCUMENTATION.splitlines():
        cells = line.split()
        if cells[:1] in (["NOM"], ["1;SG"]):
            header = cells
        elif cells and "..." in cells[0]:
            for name, suffixes in zip(header, cells[1:], strict=True):
                table[cells[0].replace("...", name)] = ("", suffixes.strip("-").split("-"))
        elif "V;NFIN -" in line:
            for tags, prefix, suffix in re.findall(r"(V\S+) (?:(\S+)- and )?-(\S*)", line):
                table[tags] = (prefix, [suffix])
    return table


def surface(lemma, tags, table):
    """The form by rewriting stem-suffix-suffix as a whole, with the harmony of the stem for all suffixes."""
    prefix, suffixes = table[tags]
    stem = lemma if tags.startswith("N;") else re.fullmatch("(.+)n[ae]", lemma)[1]
    front = re.findall("[aoueiöü]", stem)[-1] in "eiöü"
    word = "-".join([stem, *suffixes])
    for capital, vowels in {"A": "ae", "O": "oö", "U": "uü"}.items():
        word = word.replace(capital, vowels[front])
    word = re.sub("(?<=[ptks]-)D", "t", word).replace("D", "d")
    word = re.sub("(?<=[aoueiöü])-(?=[aoueiöü])", "y", word)
    for hard, soft in ("pb", "td", "kg"):
        word = re.sub(f"{hard}-(?=[aoueiöü])", soft, word)
    return prefix + word.replace("-", "")


@pytest.fixture(scope="module")
def task():
    return build()


def items(pairs):
    return [(*text.split("\t"), form) for text, form in zip(pairs.source, pairs.target, strict=True)]


@pytest.mark.parametrize(
    "lemma, tags, form",
    [
        ("takul", "N;NOM;PL", "takullo"),
        ("sotik", "N;ACC;SG", "sotigün"),  # front, as i is the last vowel; k before a vowel
        ("retap", "N;DAT;SG", "retaba"),
        ("reta", "N;DAT;SG", "retaya"),
        ("retet", "N;GEN;PL", "retedös"),
        ("bolas", "N;LOC;SG", "bolasta"),  # s makes D a t, and stays itself
        ("bolas", "N;LOC;PL", "bolasloda"),
        ("bolukna", "V;PRS;3;SG", "bolugur"),
        ("bolukna", "V;PST;3;SG", "bolukto"),
        ("bolukna", "V;IMP;2;PL", "bolukko"),
        ("bolukna", "V.PTCP;PST", "gebolugut"),
        ("nanana", "V;PST;1;SG", "nanadom"),  # only the last syllable is not of the stem
    ],
)
def test_forms_by_hand(lemma, tags, form):
    assert inflect(lemma, tags) == form == surface(lemma, tags, described())


@pytest.mark.slow
def test_the_documentation_is_what_is_done(task):
    table = described()
    assert table.keys() == (NOUN | VERB).keys()
    for split in task.splits.values():
        assert all(form == surface(lemma, tags, table) for lemma, tags, form in items(split))
        assert {tags for _, tags, _ in items(split)} <= table.keys()
    assert {tags for _, tags, _ in items(task.splits["train"])} == table.keys()


def test_the_worked_examples_are_right():
    rows = [re.split(r" {2,}", line.strip()) for line in DOCUMENTATION.partition("in steps:")[2].splitlines()]
    rows = [row for row in rows if len(row) > 3]
    assert [f"{lemma}\t{tags}" for lemma, tags, *_ in rows] == list(EXAMPLES) and len(EXAMPLES) == 6
    table = described()
    for lemma, tags, parts, form, *_ in rows:
        prefix, suffixes = table[tags]
        stem = lemma[:-2] if tags in VERB else lemma
        assert "-".join(part for part in (prefix, stem, *suffixes) if part) == parts
        assert inflect(lemma, tags) == form


def test_splits_share_no_lemma(task):
    lemmas = {name: {lemma for lemma, *_ in items(split)} for name, split in task.splits.items()}
    assert not lemmas["train"] & (lemmas["valid"] | lemmas["test"]) and not lemmas["valid"] & lemmas["test"]
    assert not {text.partition("\t")[0] for text in EXAMPLES} & set.union(*lemmas.values())
    assert task.stats == {"train": NUM_EXAMPLES, "valid": 300, "test": TEST_SIZE}
    assert all(len(set(split.source)) == len(split) for split in task.splits.values())


def test_fewer_forms_are_a_subset(task):
    few = build(num_examples=100, valid_size=20)
    assert len(few.splits["train"]) == 100 and len(few.splits["valid"]) == 20
    for name, split in few.splits.items():
        assert set(items(split)) <= set(items(task.splits[name]))
    assert few.splits["test"] == task.splits["test"] == build(num_examples=100, seeds=(1,)).splits["test"]


def test_vocabularies_know_all_of_training_and_come_back(task):
    assert isinstance(task.source_vocabulary, Inflections) and isinstance(task.target_vocabulary, Characters)
    both = (task.source_vocabulary, task.target_vocabulary)
    for vocabulary, texts in zip(both, (task.splits["train"].source, task.splits["train"].target), strict=True):
        saved = from_json(vocabulary.to_json())
        for text in texts[:500]:
            ids = saved.encode(text)
            assert UNK not in ids and saved.decode(ids) == text
    assert all(UNK not in task.source_vocabulary.encode(text) for text in task.examples)
    again = build(kept=both, num_examples=5)
    assert (again.source_vocabulary, again.target_vocabulary) == both


MADE = {"data_dir": "", "language": ""}
TRAIN = ["gehen\tging\tV;PST", "Haus\tHäuser\tN;PL", "ekmek tahtası\tekmek tahtaları\tN;PL", "sehen\tsah\tV;PST"]
FILES = {"german-train-high": TRAIN, "german-train-low": TRAIN[:2], "french-train-high": TRAIN}
FILES["german-dev"] = ["Maus\tMäuse\tN;PL", "stehen\tstünde\tV;SBJV;PST"]


@pytest.fixture
def folder(tmp_path):
    for name, lines in FILES.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_files_are_the_splits(folder):
    task = build(folder, language="german", valid_size=0)
    assert list(task.splits) == ["train", "valid"]
    assert task.splits["train"].source == ["gehen\tV;PST", "Haus\tN;PL", "ekmek tahtası\tN;PL", "sehen\tV;PST"]
    assert task.splits["train"].target == ["ging", "Häuser", "ekmek tahtaları", "sah"]
    assert task.examples == tuple(task.splits["valid"].source)
    assert task.source_vocabulary.decode(task.source_vocabulary.encode("Haus\tV;PST")) == "Haus\tV;PST"
    assert len(build(folder, language="german", size="low").splits["train"]) == 2


def test_a_test_file_is_a_split_and_the_official_one_goes_first(folder):
    for name, line in (("german-test", TRAIN[0]), ("german-uncovered-test", TRAIN[1])):
        (folder / name).write_text(line + "\r\n", encoding="utf-8")
        task = build(folder, language="german", train=("train.source", "train.target"))  # as runs of before have it
        assert task.splits["test"].target == [line.split("\t")[1]] and len(task.splits["train"]) == 4


def test_tags_never_seen_in_training_are_counted(folder):
    (folder / "german-test").write_text("\n".join(TRAIN), encoding="utf-8")
    task = build(folder, language="german")
    unseen = "valid forms with a tag that training has not (SBJV)"
    assert task.stats[unseen] == 1 and {"train": 4, "valid": 2, "test": 4}.items() <= task.stats.items()
    tags = [f"\t{tags}" for _, tags, _ in items(task.splits["valid"])]
    assert sum(UNK in task.source_vocabulary.encode(text) for text in tags) == 1
    few = build(folder, language="german", num_examples=1)  # one form, so not both V;PST and N;PL
    (unseen,) = (name for name in few.stats if name.startswith("test forms with a tag that training has not ("))
    assert few.stats[unseen] == 2


def test_fewer_lines_of_a_file_are_a_subset_in_its_order(folder):
    splits = [build(folder, language="german", num_examples=n).splits["train"] for n in (1, 2, 3, 4)]
    whole = items(build(folder, language="german").splits["train"])
    for n, split in enumerate(splits, 1):
        assert items(split) == [item for item in whole if item in items(split)] and len(split) == n
        assert set(items(splits[n - 2])) < set(items(split)) or n == 1
    assert items(splits[-1]) == whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, message",
    [
        ({"language": "germn"}, r"germn-train-high: no such file; languages there: .*; did you mean german\?$"),
        ({"language": "x"}, "x-train-high: no such file; languages there: french, german$"),
        ({"size": "hgh"}, r"german-train-hgh: no such file; sizes of german there: high, low; did you mean high\?$"),
        ({"language": "french"}, "french-dev: no such file; expected the validation forms of french next to "),
        ({"language": ""}, "set task.language, such as german, or task.train=\\('NAME', ''\\)$"),
        ({"num_examples": 5}, r"task.num_examples 5: expected 0 \(all\) to 4, the training forms there are$"),
        ({"num_examples": -1}, r"task.num_examples -1: expected 0 \(all\) to 4"),
        (MADE | {"num_examples": -1}, rf"task.num_examples -1: expected 0 \({NUM_EXAMPLES}\) to \d+, the train"),
        (MADE | {"num_examples": 10**7}, r"task.num_examples 10000000: expected 0"),
        (MADE | {"valid_size": 0}, r"task.valid_size 0: expected 1 to \d+, the validation forms there are$"),
        (MADE | {"valid_size": 10**7}, r"task.valid_size 10000000: expected 1"),
    ],
)
def test_wrong_options(folder, options, message):
    with pytest.raises(UserError, match=message) as error:
        build(**({"data_dir": folder, "language": "german"} | options))
    assert "\n" not in str(error.value)


def test_a_folder_without_such_files(tmp_path):
    with pytest.raises(UserError, match=r"a/german-train-high: no such file; the folder \S+a does not exist either$"):
        build(tmp_path / "a", language="german")
    (tmp_path / "notes").write_text("x")
    with pytest.raises(UserError, match=r"german-train-high: no such file, and none of another .* for task.train=\('N"):
        build(tmp_path, language="german")


WANTED = "expected the 3 columns lemma TAB form TAB tags"


@pytest.mark.parametrize("name", ["german-train-high", "german-dev", "german-uncovered-test"])
@pytest.mark.parametrize(
    "content, message",
    [
        (b"a\tb\tN\na\tN\n", f", line 2: {WANTED}, got 2; a file without forms is for --mode=predict --source"),
        (b"a\n", f", line 1: {WANTED}, got 1"),
        (b"a\tb\tN\t\n", f", line 1: {WANTED}, got 4"),
        (b"a\tb\tN\n\tb\tN\n", ", line 2: the column lemma is empty; expected lemma TAB form TAB tags"),
        (b"a\t \tN\n", ", line 1: the column form is empty; expected lemma TAB form TAB tags"),
        (b"a\tb\t\r\n", ", line 1: the column tags is empty; expected lemma TAB form TAB tags"),
        (b"a\tb\tN\n\na\tb\tN\n", ", line 2: the line is empty; expected lemma TAB form TAB tags"),
        (b"a\tb\tN\nH\xe4user\tb\tN\n", r", line 2: not valid UTF-8 (byte 0xe4); convert it to UTF-8"),
        (b"", ": the file is empty; expected lemma TAB form TAB tags"),
    ],
)
def test_wrong_files(folder, name, content, message):
    (folder / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        build(folder, language="german")
    assert str(error.value) == f"{folder / name}{message}"


SWAPPED = {
    "tags of several parts": [f"lemma{i}\tN;ACC;PL\tform{i}" for i in range(4)],
    "tags of one part": ["gehen\tV\tging", "sehen\tV\tsah", "Haus\tN\tHäuser", "stehen\tV\tstand"],
    "SIGMORPHON 2016": [f"{lemma}\tpos=V,tense=PST,num={num}\t{lemma}te" for lemma in "abc" for num in ("SG", "PL")],
}


def test_columns_in_another_order_and_tags_with_commas_are_told(tmp_path):
    (tmp_path / "x").write_text("a,b\taba\tpos=N,num=PL\nc\tca\tpos=N,num=SG\n")
    with pytest.raises(UserError, match=r"x: tags with , between them, such as pos=N,num=PL; .* pos=N;num=PL$"):
        read_forms(tmp_path / "x")
    for lines in SWAPPED.values():
        (tmp_path / "x").write_text("\n".join(lines) + "\n", encoding="utf-8")
        with pytest.raises(UserError, match=r"look like lemma TAB tags TAB form; .*, or task.columns='lemma tags"):
            read_forms(tmp_path / "x")


def test_columns_in_the_right_order_are_read(tmp_path):
    for lines in (
        ["a;b\tc;d\tN;PL"],  # a lemma may have a semicolon
        [f"sheep\tsheep\tN;{tags}" for tags in ("NOM;SG", "NOM;PL", "GEN;SG", "GEN;PL")],  # one form, many tags
        ["学生\t学生\tN", "先生\t先生們\tN;PL"],
    ):
        (tmp_path / "x").write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert read_forms(tmp_path / "x").target == [line.split("\t")[1] for line in lines]


def test_files_of_any_name_and_order(folder):
    for name, lines in {"x.trn": TRAIN, "x.tst": TRAIN[1:]}.items():
        rows = [line.split("\t") for line in lines]
        (folder / name).write_text("\n".join(f"{lemma}\t{tags}\t{form}" for lemma, form, tags in rows))
    (folder / "x.dev").write_text("Maus\tN;PL\tMäuse\n", encoding="utf-8")
    names = {"train": ("x.trn", ""), "valid": ("x.dev", ""), "test": ("x.tst", "")}
    task = build(folder, columns="lemma tags form", **names)
    same = build(folder, language="german")
    assert task.splits["train"] == same.splits["train"] and task.splits["valid"].target == ["Mäuse"]
    assert task.splits["test"].target == same.splits["train"].target[1:]


def test_a_file_takes_the_place_of_one_of_a_language(folder):
    (folder / "german-test").write_text(TRAIN[0], encoding="utf-8")
    (folder / "more").write_text(TRAIN[1], encoding="utf-8")
    splits = build(folder, language="german", test=("more", "")).splits
    assert splits["test"].target == ["Häuser"] and len(splits["train"]) == 4 and len(splits["valid"]) == 2
    assert build(folder, language="french", valid=("german-dev", "")).splits["valid"] == splits["valid"]


DEV = {"train": ("german-dev", "")}


def test_without_a_file_for_validation_forms_are_held_out(folder):
    (folder / "x.trn").write_text("\n".join([*TRAIN, "gehen\tgieng\tV;PST", "sehen\tsahe\tV;PST"]), encoding="utf-8")
    for size in (1, 2, 3):
        task = build(folder, train=("x.trn", ""), valid_size=size)
        cells = [set(task.splits[name].source) for name in ("train", "valid")]
        assert len(task.splits["valid"]) == size and not cells[0] & cells[1]
        dropped = task.stats["training forms with the lemma and tags of a held-out one"]
        assert len(task.splits["train"]) == 6 - size - dropped


@pytest.mark.parametrize(
    "options, message",
    [
        ({"train": ("a", "b")}, r"task.train is \('a', 'b'\); expected one file, such as \('a', ''\)$"),
        ({"test": ("a", "")}, r"task.test names a; expected task.train=\('NAME', ''\) or task.language beside it$"),
        ({"train": ("german", "")}, r"german: no such file; did you mean german-dev\?$"),
        (DEV | {"columns": "lemma tags form"}, "like lemma TAB form TAB tags; .*, or task.columns='lemma form tags'$"),
        (DEV | {"columns": "lemma tag form"}, "columns 'lemma tag form'; did you mean lemma tags f"),
        (DEV, r"task.valid_size 300: expected 1 to 1, as there are 2 training forms and no file for validation$"),
        ({"language": "french"}, r"task.train=\('french-train-high', ''\) in place of task.language holds out task.v"),
    ],
)
def test_wrong_names_of_files(folder, options, message):
    with pytest.raises(UserError, match=message) as error:
        build(folder, **options)
    assert "\n" not in str(error.value)


def test_unseen_characters_that_nobody_sees_are_escaped(folder):
    (folder / "german-dev").write_text("gehen\tgeh e\u0328n\tV;;PST\n", encoding="utf-8")
    told = [name.partition("(")[2] for name in build(folder, language="german", size="low").stats]
    assert ["h, ' ', '\\u0328')", "'')"] == [some for some in told if some]


def test_what_training_has_and_has_not_is_told_before_forms_are_made(folder):
    (folder / "x.dev").write_text("\n".join(FILES["german-dev"] + TRAIN[1:2] * 2 + ["gehen\tgieng\tV;PST"]))
    (folder / "x.tst").write_text("\n".join(["Haus\tHàuser\tN;PL", "hexen\thexte\tV;PST", "hexen\thexete\tV;PST"]))
    names = {"train": ("german-train-high", ""), "valid": ("x.dev", ""), "test": ("x.tst", "")}
    told = {
        "train": 4,
        "valid": 5,
        "test": 3,
        "valid forms that training has too": 2,
        "valid forms with a lemma that training has not (Maus, stehen)": 2,
        "test forms with a lemma that training has not (hexen)": 2,
        "valid forms with a character of the lemma that training has not (M)": 1,
        "test forms with a character of the lemma that training has not (x)": 2,
        "valid forms with a character that training has not (M, ü, d)": 2,
        "test forms with a character that training has not (à, x)": 3,
        "valid forms with a tag that training has not (SBJV)": 1,
        "test lemmas and tags with several forms": 1,
    }
    assert build(folder, **names).stats == told
    assert build(folder, copy_words=True, **names).stats == told | {"training words to copy": 8}


def test_it_is_known_whether_validation_forms_are_held_out():
    held_out = [InflectionOptions(**options).cut_by for options in ({}, {"train": ("a", "")})]
    of_files = [InflectionOptions(**options).cut_by for options in ({"language": "german"}, {"valid": ("a", "")})]
    assert all(map(len, held_out)) and not any(of_files)
