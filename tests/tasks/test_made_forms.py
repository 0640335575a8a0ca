"""Made forms keep the change of a form and its tags; their stems are random, and they depend on training alone."""

import pytest
from tasks_by_name import make

from attn_jax.data.vocabulary import Inflections, TaggedLemmas
from attn_jax.errors import UserError
from attn_jax.tasks import Pairs
from attn_jax.tasks.text.made_forms import COPY, copies, hallucinate, stem_of

FORMS = Pairs(
    ["spielen\tV.PTCP;PST", "Haus\tN;PL", "gehen\tV;PST;3", "zu Bett gehen\tV;PST;1", "ab\tADP"],
    ["gespielt", "Häuser", "ging", "ging zu Bett", "ab"],
)


def items(pairs):
    return [(*text.split("\t"), form) for text, form in zip(pairs.source, pairs.target, strict=True)]


def changed(text, places, other):
    """The text where `places` are those of `other`."""
    return "".join(other[i] if i in places else letter for i, letter in enumerate(text))


def test_stems_are_the_long_common_parts():
    assert stem_of("spielen", "gespielt") == [(i, i + 2) for i in range(5)]
    assert stem_of("Haus", "Häuser") == []  # "us" is too short
    # A space is part of what is common, and of no stem.
    assert stem_of("zu Bett gehen", "ging zu Bett") == [(i, i + 5) for i in (0, 1, 3, 4, 5, 6)]


def test_only_stems_change_and_alike_in_lemma_and_form():
    made = hallucinate(FORMS, 200, seed=1)
    alphabet = {letter for lemma, _, form in items(FORMS) for letter in lemma + form} - {" "}
    originals = {tags: (lemma, form) for lemma, tags, form in items(FORMS)}
    stems, total = 0, 0
    for lemma, tags, form in items(made):
        assert tags in ("V.PTCP;PST", "V;PST;1")  # the others have no stem
        was_lemma, was_form = originals[tags]
        places = stem_of(was_lemma, was_form)
        assert all(lemma[i] == form[j] for i, j in places)
        assert changed(lemma, {i for i, _ in places}, was_lemma) == was_lemma
        assert changed(form, {j for _, j in places}, was_form) == was_form
        assert set(lemma + form) - {" "} <= alphabet
        stems += sum(lemma[i] != was_lemma[i] for i, _ in places)
        total += len(places)
    # Half of the letters are replaced, one of 20 by itself: 0.475 of about 1,100, so 0.05 are three deviations.
    assert abs(stems / total - 0.5 * (1 - 1 / len(alphabet))) < 0.05


def test_the_seed_decides_and_fewer_are_the_first_ones():
    made = hallucinate(FORMS, 30, seed=1)
    assert hallucinate(FORMS, 30, seed=1) == made != hallucinate(FORMS, 30, seed=2)
    assert hallucinate(FORMS, 7, seed=1) == made.select(range(7))


def test_forms_without_a_stem_cannot_be_varied():
    assert len(hallucinate(FORMS.select([1]), 0, seed=1)) == 0
    with pytest.raises(UserError, match=r"^task.hallucinated 3: no training lemma has 3 neighbouring letters in comm"):
        hallucinate(FORMS.select([1, 4]), 3, seed=1)


def test_each_word_is_copied_once():
    made = copies(FORMS)
    words = ["spielen", "Haus", "gehen", "zu Bett gehen", "ab", "gespielt", "Häuser", "ging", "ging zu Bett"]
    assert made.target == words and made.source == [f"{word}\t{COPY}" for word in words]


@pytest.mark.parametrize("tags, kind", [("first", Inflections), ("apart", TaggedLemmas)])
def test_a_task_adds_made_forms_to_training_alone(tmp_path, tags, kind):
    lines = [f"{lemma}\t{form}\t{tags}" for lemma, tags, form in items(FORMS)]
    (tmp_path / "x-train-high").write_text("\n".join(lines), encoding="utf-8")
    options = {"language": "x", "tags": tags}
    trained = []
    for held_out in ("Hund\tHunde\tN;PL", "Qual\tQualen\tN;PL;NEW"):
        (tmp_path / "x-dev").write_text(held_out, encoding="utf-8")
        task = make("inflection", tmp_path, **options, hallucinated=20, copy_words=True)
        assert task.splits["valid"] == make("inflection", tmp_path, **options).splits["valid"]
        assert len(task.splits["train"]) == 5 + 20 + 9
        assert task.splits["train"].select(range(5)) == make("inflection", tmp_path, **options).splits["train"]
        assert isinstance(task.source_vocabulary, kind)
        tokens = task.source_vocabulary.tokens(task.source_vocabulary.encode(f"a\t{COPY};NEW"))
        assert sorted(set(tokens) - {"<eos>"}) == ["<COPY>", "<unk>", "a"]
        trained.append((task.splits["train"], task.source_vocabulary.to_json()))
    assert trained[0] == trained[1]  # the validation forms say nothing to training
    told = {key: value for key, value in task.stats.items() if "lemma" not in key and "character" not in key}
    made = {"training forms with random stems": 20, "training words to copy": 9}
    assert told == {"train": 5, "valid": 1, "valid forms with a tag that training has not (NEW)": 1} | made
