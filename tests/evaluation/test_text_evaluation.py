"""What a sentence gets depends on that sentence alone: not on its batch, its place or the padding.

The parameters are random and large, so that translations differ, end early or late, and contain unknown words.
"""

import functools
import json
import pathlib
from unittest import mock

import jax
import numpy as np
import pytest
from arrays import fill
from tiny_run import WORDS, tiny_config

from attn_jax.data.batching import encode_pairs
from attn_jax.data.facts import Kept
from attn_jax.data.vocabulary import Characters, Inflections, TaggedLemmas, TaggedTexts, Words
from attn_jax.decoding.options import DecodeOptions
from attn_jax.decoding.translate import Translation, Translator
from attn_jax.errors import UserError
from attn_jax.evaluation.base import Evaluator, Predictor
from attn_jax.evaluation.files import float32_text
from attn_jax.evaluation.text import check_text_metrics
from attn_jax.evaluation.text_predictor import TextPredictor
from attn_jax.figures import plots
from attn_jax.runs.build import build_setup, build_task
from attn_jax.runs.options import change, resolve
from attn_jax.tasks.task import Pairs
from attn_jax.token_ids import UNK
from configs import language_id_conv

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARIES = Kept(Words(WORDS), Words(WORDS[:9]))
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, n)) for n in (5, 1, 18, 3, 9, 2, 13)]
PAIRS = Pairs(TEXTS, [" ".join(RNG.choice(WORDS[:9], n)) for n in (2, 13, 17, 3, 1, 8, 3)])


@functools.cache
def setup(**changes):
    small = {"decode__max_length": 14, "decode__batch_size": 3, "task__name": "parallel_text", "task__tokenize": "none"}
    if "task__buckets" not in changes:
        changes |= {"task__buckets": "fixed", "task__buckets__shapes": ((12, 12),)}
    return build_setup(resolve(tiny_config(**small | changes)), VOCABULARIES)


def make(**changes):
    return setup(**changes).predictor.translator


@pytest.fixture(scope="module")
def params():
    translator = make()
    batch = jax.tree.map(jax.numpy.asarray, translator.encode(PAIRS).batch(np.arange(len(PAIRS)), (20, 20)))
    return fill(jax.eval_shape(translator.model.init, jax.random.key(0), batch), seed=34, scale=0.9)


SAMPLED = {"method": "sample"}
METHODS = {
    "greedy": {},
    "beam": {"decode__method": "beam", "decode__method__beam_size": 3, "decode__method__n_best": 2},
    "sample": {"decode__method": "sample", "decode__method__top_k": 5, "decode__method__temperature": 2.0},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_translations_depend_neither_on_the_batch_nor_on_the_order(params, method):
    expected = make(**METHODS[method]).translate(params, TEXTS)
    assert len({found[0].text for found in expected}) > 3
    one_by_one = make(**METHODS[method], decode__batch_size=1)
    assert_same(one_by_one.translate(params, TEXTS), expected)
    for first in (0, 4):  # in two parts
        assert_same(one_by_one.translate(params, TEXTS[first : first + 4], first), expected[first : first + 4])
    if method == "sample":
        assert one_by_one.translate(params, TEXTS[:1], first=3) != expected[:1]
        other = make(**METHODS[method], decode__batch_size=1, seed=1)
        assert other.translate(params, TEXTS[:2]) != expected[:2]
    else:
        order = [3, 0, 6, 5, 1, 4, 2]
        assert_same(one_by_one.translate(params, [TEXTS[i] for i in order]), [expected[i] for i in order])


def assert_same(found, expected):
    assert [[h.text for h in hypotheses] for hypotheses in found] == [[h.text for h in hs] for hs in expected]
    for field in ("log_prob", "score"):
        numbers = [[[getattr(h, field) for h in hypotheses] for hypotheses in side] for side in (found, expected)]
        np.testing.assert_allclose(*numbers, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_n_samples_are_independent_and_the_first_is_the_single_one(params):
    """With another seed than 0, whose samples are others."""
    sampled = METHODS["sample"] | {"decode__method__seed": 7}
    several = make(**sampled, decode__method__n_best=4).translate(params, TEXTS)
    single = make(**sampled).translate(params, TEXTS)
    assert all(len(found) == 4 for found in several)
    assert_same([found[:1] for found in several], single)
    other = make(**METHODS["sample"]).translate(params, TEXTS)
    assert sum(a[0].text != b[0].text for a, b in zip(single, other, strict=True)) > 3
    assert sum(len({hypothesis.text for hypothesis in found}) > 1 for found in several) > 4
    one_by_one = make(**sampled, decode__method__n_best=4, decode__batch_size=1)
    assert_same(one_by_one.translate(params, TEXTS[3:5], first=3), several[3:5])
    predictor = setup(**sampled, decode__method__n_best=4, decode__with_scores=True).predictor
    (_, printed), *_ = predictor.predict(params, [*TEXTS[:1], ""], 9)
    assert len(printed) == 8 and printed[4:6] == ["0.0\t", "-inf\t"]
    assert [line.partition("\t")[2] for line in printed[:4]] == [found.text for found in several[0]]


@pytest.mark.slow
def test_n_best_is_sorted_and_a_printed_score_reads_back_as_the_score(params):
    beam = METHODS["beam"]
    (_, printed), *_ = setup(**beam, decode__with_scores=True).predictor.predict(params, TEXTS, 9)
    found = make(**beam).translate(params, TEXTS)
    assert all(len(each) == 2 and each[0].score >= each[1].score and each[0].text != each[1].text for each in found)
    best = make(**beam | {"decode__method__n_best": 1}).translate(params, TEXTS)
    assert_same([hypotheses[:1] for hypotheses in found], best)
    scores = [translation.score for each in found for translation in each]
    assert [np.float32(line.partition("\t")[0]) for line in printed] == scores
    assert [float32_text(x) for x in (-1e-7, -np.inf, 1 / 3)] == ["-1e-07", "-inf", "0.33333334"]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_forced_score_of_a_translation_is_its_log_prob(params, method):
    predictor = setup(**METHODS[method]).predictor
    translations = predictor.translator.translate(params, TEXTS)
    rows = [(text, h) for text, found in zip(TEXTS, translations, strict=True) for h in found]
    forced = predictor.log_probs(params, Pairs([text for text, _ in rows], [h.text for _, h in rows]))
    # One that was cut off at the limit has no eos; forced, it gets one.
    ended = [len(h.text.split()) < min(2 * len(text.split()) + 12, 14) for text, h in rows]
    assert sum(ended) >= 3
    log_prob = np.array([h.log_prob for _, h in rows])
    np.testing.assert_allclose(forced[ended], log_prob[ended], rtol=1e-4)
    assert (forced[np.invert(ended)] < log_prob[np.invert(ended)]).all()


@pytest.mark.slow
def test_empty_lines_stay_empty_and_count_in_the_numbers_that_samples_depend_on(params):
    translator = make(**METHODS["sample"])
    found = translator.translate(params, ["", TEXTS[0], "  ", TEXTS[1], TEXTS[2], ""])
    assert [found[i][0].text for i in (0, 2, 5)] == [""] * 3
    for place in (1, 3, 4):
        assert_same([found[place]], translator.translate(params, [TEXTS[(1, 3, 4).index(place)]], first=place))
    assert found[3] != translator.translate(params, TEXTS[1:2], first=1)[0]
    assert translator.translate(params, ["", " "]) == [found[0], found[2]]
    assert translator.translate(params, []) == []


@pytest.mark.slow
def test_unknown_words_become_the_source_word_with_the_most_attention(params):
    texts = [text.replace(WORDS[3], "zebra") for text in TEXTS]
    plain = [found[0] for found in make().translate(params, texts)]
    replaced = [found[0] for found in make(decode__unk="replace").translate(params, texts)]
    assert any("<unk>" in h.text for h in plain)
    for text, before, after in zip(texts, plain, replaced, strict=True):
        assert after.log_prob == pytest.approx(before.log_prob)
        weights = setup().predictor.weights(params, Pairs([text], [before.text]))[0]
        source = text.split()
        expected = [
            source[int(np.argmax(row[: len(source)]))] if word == "<unk>" else word
            for word, row in zip(before.text.split(), weights, strict=False)
        ]
        assert after.text.split() == expected


def test_weights_that_depend_on_the_output_are_those_of_the_output_that_has_the_unknown_words():
    """Where the position that is read is latent, each row of weights is given the output up to its own token."""
    latent = {"objective": "markov", "objective__monotonic": True, "objective__jump_size": 0}
    built = setup(**{f"model__{name}": value for name, value in latent.items()})
    params = fill(jax.eval_shape(built.model.init, jax.random.key(0), built.example), 1, 0.9)
    text, rng = " ".join(WORDS[:8]), np.random.default_rng(0)
    for _ in range(5):
        ids = [*rng.integers(UNK + 3, 12, 4).tolist(), UNK, UNK]
        (weights,) = built.predictor.weights(params, Pairs([text], [""], target_ids=[tuple(ids)]))
        expected = [WORDS[place] for place in np.argmax(weights[4:6, :8], axis=-1)]
        assert built.predictor.translator._replaced(params, text, ids)[4:] == expected


@pytest.mark.parametrize(
    "source", [Inflections(["<V>", "a", "b"]), TaggedLemmas(["<V>", "a", "b"]), TaggedTexts(Characters("ab"), ["V"])]
)
def test_an_unknown_letter_becomes_neither_a_tag_nor_the_eos_before_it(source):
    """The weights of source tokens are those of the text: larger ones of tags and eos do not count."""
    weight = {"a": 0.1, "c": 0.2, "<V>": 0.5, "<N>": 0.6, "<eos>": 0.7}

    def weights(params, batch):
        row = [weight[token] for token in source.tokenize(text)]
        return np.array([[row + [0.9] * (batch["source"].shape[1] - len(row))] * batch["target_in"].shape[1]])

    translator = Translator(make().model, source, Characters("ab"), DecodeOptions())
    translator.attention_weights = weights
    for text, expected in (("ac\tV;N", "c"), ("a\tN", "a"), ("ca", "c"), ("\tV", "<unk>")):
        assert translator._replaced(None, text, [4, UNK]) == ["a", expected]


@pytest.mark.slow
def test_losses_scores_and_weights_do_not_depend_on_the_batches(params):
    both, pairs = [setup(decode__batch_size=1, task__buckets="automatic"), setup()], PAIRS.select(range(4))
    encoded = encode_pairs(pairs, *VOCABULARIES[:2])
    sets = [each.evaluator.losses(params, encoded) for each in both]
    for metrics in sets:
        assert float(metrics["loss"].count) == sum(len(text.split()) + 1 for text in pairs.target)
        for name in ("loss", "accuracy"):
            np.testing.assert_allclose(metrics[name].total, sets[0][name].total, rtol=1e-5)
    scores = [each.predictor.log_probs(params, pairs) for each in both]
    np.testing.assert_allclose(-sum(scores[0]), sets[0]["loss"].total, rtol=1e-5)
    for found in scores:
        np.testing.assert_allclose(found, scores[0], rtol=1e-5)
    weights = [each.predictor.weights(params, pairs) for each in both]
    for row, expected, source, target in zip(*weights, pairs.source, pairs.target, strict=True):
        assert row.shape == (len(target.split()) + 1, len(source.split()) + 1)
        np.testing.assert_allclose(row.sum(-1), 1, rtol=1e-5)
        np.testing.assert_allclose(row, expected, atol=1e-5)


@pytest.mark.slow
def test_evaluate_gives_each_seed_its_value_and_each_metric_once(params):
    evaluator = setup().evaluator
    sets = [params, jax.tree.map(lambda x: x * 0.5, params)]
    names = ("accuracy", "exact_match", "perplexity", "exact_match", "bleu")
    metrics, signatures, examples, *_ = evaluator.measure(sets, PAIRS, names)
    assert [example.source for example in examples] == list(PAIRS.source[:3])
    assert [example.reference for example in examples] == list(PAIRS.target[:3])
    translated = evaluator.translator.translate(sets[0], PAIRS.source)
    assert [example.output for example in examples] == [found[0].text for found in translated[:3]]
    assert metrics.keys() == {"loss", "accuracy", "perplexity", "exact_match", "bleu"}
    assert "tok:none" in signatures["bleu"] and signatures["exact_match"] == "percent"
    alone = [evaluator.measure([one], PAIRS, names).values for one in sets]
    for name, values in metrics.items():
        assert values["seeds"] == [one[name]["mean"] for one in alone]
        np.testing.assert_allclose(values["mean"], np.mean(values["seeds"]))
        np.testing.assert_allclose(values["std"], np.std(values["seeds"], ddof=1))
    own = [found[0].text for found in make().translate(params, TEXTS)]
    perfect = evaluator.measure([params], Pairs(TEXTS, own), ("exact_match", "bleu", "chrf")).values
    assert [round(perfect[name]["mean"], 6) for name in ("exact_match", "bleu", "chrf")] == [100.0] * 3


@pytest.mark.slow
def test_references_that_no_output_can_equal_are_told(params, capsys):
    """Of two tokens, an output may have both without eos; a short source allows 2 * 2 + 10 tokens."""
    evaluator, pairs = setup(decode__max_length=2).evaluator, Pairs(["a", "a", "a"], ["a bird can", "a bird", "a"])
    for each, names in ((True, ["perplexity"]), (False, ["exact_match"]), (True, ["exact_match"])):
        assert not capsys.readouterr().err
        evaluator.measure([params], pairs, names, each=each)
    told = "length        1 of 3 references are longer than an output may be, see decode.max_length 2; no output can "
    assert capsys.readouterr().err == f"{told}equal them\n"
    long = Pairs(["a", "a"], [" ".join("a" * 15), " ".join("a" * 14)])
    evaluator = setup(decode__max_length=30).evaluator
    evaluator.measure([params], long, ["exact_match"], each=True)
    assert "1 of 2 references" in capsys.readouterr().err


def test_each_kind_of_model_has_its_roles_and_a_classifier_refuses_targets_that_are_no_labels(tmp_path):
    classifier = setup(model__name="classifier")
    assert classifier.batch_options["labels"] and not setup().batch_options["labels"]
    for name, text in (("source", "a\nbird\n"), ("target", "a\na bird can\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = str(tmp_path / "source"), str(tmp_path / "target")
    with pytest.raises(UserError, match=r"target: the target 'a bird can' has 3 tokens; the model needs"):
        classifier.predictor.read_files(*files)
    assert len(setup().predictor.read_files(*files)) == 2
    for kind in (setup(), classifier):
        assert isinstance(kind.evaluator, Evaluator) and isinstance(kind.predictor, Predictor)
    transformer = {"model__attention__score": "scaled_dot", "model__positions": "rotary"}
    title = setup(model__name="language_model", **transformer).predictor.title
    assert "the rest is on the target so far" in title and setup().predictor.title == ""


def test_a_source_with_tags_has_one_tab(tmp_path):
    """A line lemma TAB form TAB tags, as in the files of inflection, is no source."""
    for name, text in (("lemmas", "ab\tN;PL\nab\ta\tN;PL\n"), ("forms", "a\nb\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    lines, tokens = ["", "ab\ta\tN;PL"], ["<N>", "<PL>", "a", "b"]
    for vocabulary in (Inflections(tokens), TaggedLemmas(tokens)):
        predictor = build_setup(resolve(tiny_config()), Kept(vocabulary, VOCABULARIES[1])).predictor
        for reading in (
            lambda p=predictor: list(p.predict({}, lines, 2)),
            lambda p=predictor: p.read_lines(lines),
            lambda p=predictor: p.read_pairs(Pairs(lines, ["", ""])),
        ):
            with pytest.raises(UserError, match="line 2: 2 tabs in a source; expected lemma TAB TAG;TAG"):
                reading()
        with pytest.raises(UserError, match=r"/lemmas and .*/forms, line 2: 2 tabs in a source"):
            predictor.read_files(str(tmp_path / "lemmas"), str(tmp_path / "forms"))
    assert setup().predictor.read_lines(lines) == lines[1:]  # words have no such form


def test_sources_without_tags_are_told(capsys):
    predictor = build_setup(resolve(tiny_config()), Kept(TaggedLemmas(["<N>", "a", "b"]), VOCABULARIES[1])).predictor
    predictor.report(["ab\tN", "b", "", "a"])
    assert "tags          2 of 4 sources have no tags; expected lemma TAB TAG;TAG" in capsys.readouterr().err
    predictor.report(["ab\tN", ""])
    assert "no tags" not in capsys.readouterr().err


def test_targets_that_training_has_not_seen_are_told(tmp_path, capsys):
    for name, text in (("source", "a bird\na\n"), ("target", "a zebra a\nzebra gnu\n")):
        (tmp_path / name).write_text(text)
    setup().predictor.read_files(str(tmp_path / "source"), str(tmp_path / "target"))
    assert capsys.readouterr().err == (
        "unknown       3 of 5 target tokens are not in the vocabulary; they count as unk in perplexity and accuracy: "
        "zebra gnu\n"
    )


def test_predictions_come_before_an_error_in_a_later_line(monkeypatch):
    """Also in the middle of a chunk."""
    predictor = build_setup(resolve(tiny_config()), Kept(TaggedLemmas(["<N>", "a", "b"]), VOCABULARIES[1])).predictor
    monkeypatch.setattr(predictor.translator, "translate", lambda _, texts, first: [[] for _ in texts])
    predicted = predictor.predict({}, ["ab\tN", "b\tN", "ab\ta\tN"], 100)
    assert next(predicted) == (["ab\tN", "b\tN"], ["", ""])
    with pytest.raises(UserError, match="line 3: 2 tabs"):
        next(predicted)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "beem"}, "unknown decode.method 'beem'; did you mean beam?"),
        ({"method": "beam", "method.beam_size": 0}, "decode.method.beam_size is 0; expected 1 to 10000"),
        ({"max_length": 0}, "decode.max_length is 0; expected 1 to 100000"),
        ({"batch_size": -1}, "decode.batch_size is -1; expected at least 1"),
        ({"method.n_best": 2}, "decode.method.n_best; it is an option of decode.method beam or sample"),
        (SAMPLED | {"method.seed": -1}, "decode.method.seed is -1; expected 0 to 4294967295"),
        (SAMPLED | {"method.seed": 2**32}, "decode.method.seed is 4294967296; expected integers of at most 4,294,967,"),
        ({"method": "beam", "method.beam_size": 2, "method.n_best": 3}, "n_best 3 needs a decode.method.beam_size"),
        (SAMPLED | {"method.temperature": -1.0}, "expected temperature >= 0"),
        (SAMPLED | {"method.top_k": -1}, "top_k >= 0"),
        (SAMPLED | {"method.top_p": 0.0}, "0 < top_p <= 1"),
    ],
)
def test_wrong_options(changes, words):
    with pytest.raises(UserError, match=words):
        resolve(change(tiny_config(), {f"decode.{key}": value for key, value in changes.items()}))


def test_wrong_metrics():
    with pytest.raises(UserError, match=r"unknown metric 'blue'; did you mean bleu?"):
        check_text_metrics(["chrf", "blue"], "13a")
    with pytest.raises(UserError, match="unknown BLEU tokenizer 'words'"):
        check_text_metrics(["bleu"], "words")


@pytest.mark.parametrize(("last", "rows"), [([0.0, 0.0], ["a"]), ([0.2, 0.8], ["a", "<eos>"])])
def test_a_row_of_the_eos_is_plotted_where_it_reads_something(last, rows, monkeypatch, tmp_path):
    plotted, predictor = [], mock.Mock(spec=TextPredictor)
    monkeypatch.setattr(plots, "plot_weights", lambda weights, source, target, *_: plotted.append((weights, target)))
    predictor.model, predictor.title = mock.Mock(num_queries=1), ""
    predictor.translator = mock.Mock(spec=Translator)
    predictor.translator.translated.return_value = Pairs(["x"], ["a"], target_ids=[(4,)])
    predictor.translator.target_tokens.return_value = ["a"]
    predictor.weights.return_value = [np.array([[0.5, 0.5], last])]
    vocabulary = mock.Mock(tokenize=str.split)
    predictor.translator.source_vocabulary = predictor.translator.target_vocabulary = vocabulary
    TextPredictor.plot(predictor, {}, Pairs(["x"], [""]), [tmp_path / "one.png"])
    [(weights, target)] = plotted
    assert target == rows and len(weights) == len(rows)
    written = {"source": ["x", "<eos>"], "target": rows, "weights": [[0.5, 0.5], last][: len(rows)]}
    assert json.loads((tmp_path / "one.json").read_text()) == written


@pytest.mark.slow
def test_each_query_of_a_classifier_has_a_row(tmp_path, monkeypatch):
    changes = {"model__name": "classifier", "model__pooling": "structured", "model__pooling__num_queries": 3}
    predictor = setup(**changes, model__attention__score="dot").predictor
    encoded = predictor.translator.encode(Pairs(TEXTS[:2], WORDS[:2]))
    batch = jax.tree.map(jax.numpy.asarray, encoded.batch(np.arange(2), (16, 16)))
    params = fill(jax.eval_shape(predictor.model.init, jax.random.key(0), batch), seed=1, scale=0.9)
    titles = []
    monkeypatch.setattr(plots, "plot_weights", lambda *arguments: titles.append(arguments[-1]))
    predictor.plot(params, Pairs(TEXTS[:2], ["", ""]), [tmp_path / "0.png", tmp_path / "1.png"])
    assert titles == [found[0].text for found in predictor.translator.translate(params, TEXTS[:2])]
    mean = predictor.weights(params, Pairs(TEXTS[:2], ["a", "a"]))
    for i, text in enumerate(TEXTS[:2]):
        shown = json.loads((tmp_path / f"{i}.json").read_text())
        assert shown["source"] == [*text.split(), "<eos>"] and shown["target"] == ["query 1", "query 2", "query 3"]
        assert not np.allclose(shown["weights"][0], shown["weights"][1])
        np.testing.assert_allclose(np.mean(shown["weights"], axis=0), mean[i][0], rtol=1e-5)


def test_a_very_long_line_is_said_once(capsys, monkeypatch):
    def without_model(**changes):
        predictor = build_setup(resolve(tiny_config(**changes)), VOCABULARIES).predictor
        empty = lambda params, texts, first: [[Translation("", 0.0, 0.0)] for _ in texts]  # noqa: E731
        monkeypatch.setattr(predictor.translator, "translate", empty)
        return predictor

    predictor = without_model(task__buckets="fixed", task__buckets__shapes=((12, 12),))
    assert len(list(predictor.predict({}, ["a " * 1000] * 3, 2))) == 2 and capsys.readouterr().err == ""
    list(predictor.predict({}, ["a", "a", "a " * 1001, "a " * 5000], 2))
    assert capsys.readouterr().err.startswith("long          line 3 has 1,001 source tokens: compiling takes long, and")
    list(predictor.predict({}, ["a " * 5000], 2))
    assert capsys.readouterr().err == ""
    list(without_model(task__buckets="fixed", task__buckets__shapes=(12, (6000, 12))).predict({}, ["a " * 5000], 2))
    assert capsys.readouterr().err == ""


def test_a_target_that_is_no_label_is_refused():
    """As unk it would be right wherever unk is predicted."""
    config = change(language_id_conv.get_config(), {"task.num_examples": 200, "task.valid_size": 20})
    task = build_task(resolve(config))
    predictor = build_setup(resolve(config), task.kept).predictor
    known = Pairs(["somzudak"], ["valu"])
    assert predictor.accept(known, "words.tsv") == known
    for label, message in (
        ("frisk", ", line 2: the target 'frisk' is no label of the training"),
        ("a b", ": the target 'a b' has 2 tokens"),
    ):
        with pytest.raises(UserError, match=f"^words.tsv{message}"):
            predictor.accept(Pairs(["somzudak"] * 3, ["valu", label, label]), "words.tsv")
