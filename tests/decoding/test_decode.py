"""Decoding identities, on a random model whose next token depends on the last two.

The model's log-probabilities are a table [v, v, v] for each sentence, so that every sentence and every step can be
checked in plain numpy. pad and bos have probabilities too: they must never come out, and must not change the scores.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import tiny_seq2seq
from arrays import compiled, fill
from tiny_run import tiny_config

from attn_jax.data.facts import Kept
from attn_jax.data.vocabulary import Words
from attn_jax.decoding import decode
from attn_jax.decoding.beam_search import beam_search
from attn_jax.decoding.options import METHODS, DecodeOptions
from attn_jax.decoding.translate import Translator
from attn_jax.models.base import best_tokens
from attn_jax.runs.build import build_setup
from attn_jax.runs.options import resolve

PAD, UNK, BOS, EOS, VOCAB = 0, 1, 2, 3, 6
WORDS = [t for t in range(VOCAB) if t not in (PAD, BOS, EOS)]
IDS = dict(bos=BOS, eos=EOS, pad=PAD)
BATCH, LENGTH = 12, 6
STACK = dict(num_heads=2, feed_forward_size=8, num_layers=1)
DECODER = {f"decoder__{key}": value for key, value in STACK.items()}
ENCODER = {"encoder": "transformer"} | {f"encoder__{key}": value for key, value in STACK.items()}
OPTIONS = {
    "transformer": dict(hidden_size=8, encoder__num_layers=1, **DECODER),
    "seq2seq": dict(decoder="luong", decoder__input_feeding=False, decoder__extras=("self_attention",)),
}
LEARNED = {f"{side}__positions": "learned" for side in ("encoder", "decoder")}
LEARNED |= {f"{side}__positions__max_length": 24 for side in ("encoder", "decoder")}


def step(memory, state, token):
    rows = jnp.arange(token.shape[0])
    return {"last": token}, memory["table"][rows, state["last"], token]


def best_of(step):
    """A step that returns the k most probable tokens."""

    def best(memory, state, token, k):
        state, log_probs = step(memory, state, token)
        return state, *best_tokens(log_probs, k)

    return best


def initial(batch):
    return {"last": jnp.full((batch,), BOS, jnp.int32)}


def tables(batch, seed=0, sharpness=1.5):
    logits = sharpness * np.random.default_rng(seed).normal(size=(batch, VOCAB, VOCAB, VOCAB))
    return np.asarray(jax.nn.log_softmax(logits.astype(np.float32)))


def teacher_forced(table, tokens):
    """The log-probability of tokens, up to the first pad."""
    total, previous, last = 0.0, BOS, BOS
    for token in tokens:
        if token == PAD:
            break
        total += table[previous, last, token]
        previous, last = last, token
    return total


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


@functools.partial(
    jax.jit, static_argnames=("method", "max_length", "beam_size", "temperature", "top_k", "top_p", "forbidden")
)
def run(method, table, limits, *, max_length=LENGTH, **options):
    batch = table.shape[0]
    return METHODS[method].search(
        best_of(step), {"table": table}, initial(batch), max_length=max_length, limits=limits, **options, **IDS
    )


def options_of(method, rows=slice(None)):
    """Arguments of a method for these sentences."""
    if method == "sample":
        return dict(rngs=jax.random.split(jax.random.key(7), BATCH)[rows])
    return dict(beam_size=3, length_penalty=jnp.float32(0.7)) if method == "beam" else {}


def beam(table, limits, beam_size, alpha, **options):
    return run("beam", table, limits, beam_size=beam_size, length_penalty=jnp.float32(alpha), **options)


TABLES = tables(BATCH)
LIMITS = np.array([0, 1, 2, 3, 4, 5, 6, 6, 6, 6, 6, 9], np.int32)  # 9: more than there is room for


def strip(tokens):
    return tuple(int(t) for t in tokens if t != PAD)


def sentences(limit):
    """Every sentence that ends within the limit, and every one that is cut off there."""
    for length in range(limit):
        for words in itertools.product(WORDS, repeat=length):
            yield (*words, EOS), True
    for words in itertools.product(WORDS, repeat=limit):
        yield words, False


def assert_same(actual, expected):
    np.testing.assert_array_equal(actual.tokens, expected.tokens)
    np.testing.assert_array_equal(actual.length, expected.length)
    np.testing.assert_allclose(actual.log_prob, expected.log_prob, rtol=1e-6)
    np.testing.assert_allclose(actual.score, expected.score, rtol=1e-6)


def reference_beam(table, limit, k, alpha):
    """Beam search of one sentence without any early stop: [(tokens, score)], those that ended first."""
    alive, ended = [((), 0.0)], []
    for length in range(1, limit + 1):
        extensions = []
        for tokens, log_prob in alive:
            previous, last = (BOS, BOS, *tokens)[-2:]
            for token in [*WORDS, EOS]:
                extensions.append(((*tokens, token), log_prob + table[previous, last, token]))
        extensions.sort(key=lambda x: -x[1])
        ended += [(t, s / penalty(length, alpha)) for t, s in extensions[:k] if t[-1] == EOS]
        alive = [(t, s) for t, s in extensions if t[-1] != EOS][:k]
    ended = sorted(ended, key=lambda x: -x[1])[:k]
    return (ended + [(t, s / penalty(limit, alpha)) for t, s in alive])[:k]


# --- greedy


def test_greedy_takes_the_best_token_up_to_eos_or_the_limit():
    decoded = run("greedy", TABLES, LIMITS)
    for row in range(BATCH):
        expected = ()
        while len(expected) < min(LIMITS[row], LENGTH) and EOS not in expected:
            scores = TABLES[row][(BOS, BOS, *expected)[-2:]]
            expected += (max([*WORDS, EOS], key=lambda t: scores[t]),)
        assert strip(decoded.tokens[row]) == expected
        assert decoded.length[row] == len(expected)
    assert {int(n) for n in decoded.length} >= {0, 1, 2, 6}  # some end, some are cut off


@pytest.mark.slow
@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_a_sentence_depends_on_no_companion_and_no_room(method):
    def decoded_of(rows, **options):
        return run(method, TABLES[rows], LIMITS[rows], **options_of(method, rows), **options)

    together = decoded_of(np.arange(BATCH))
    order = np.random.default_rng(1).permutation(BATCH)
    assert_same(decoded_of(order), jax.tree.map(lambda x: x[order], together))
    for row in range(BATCH):
        alone = decoded_of(np.array([row]))
        assert_same(alone, jax.tree.map(lambda x: x[row : row + 1], together))  # noqa: B023
    short = np.flatnonzero(LIMITS <= LENGTH)
    roomy = decoded_of(short, max_length=LENGTH + 3)
    assert not np.any(np.asarray(roomy.tokens)[..., LENGTH:])
    assert_same(roomy._replace(tokens=roomy.tokens[..., :LENGTH]), jax.tree.map(lambda x: x[short], together))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_a_forbidden_token_never_comes_out_and_the_others_keep_their_probabilities(method):
    impossible = TABLES.copy()
    impossible[..., UNK] = -np.inf
    found = run(method, TABLES, LIMITS, forbidden=DecodeOptions(unk="forbid").forbidden, **options_of(method))
    without, free = (run(method, table, LIMITS, **options_of(method)) for table in (impossible, TABLES))
    np.testing.assert_array_equal(found.tokens, without.tokens)
    assert not np.any(np.asarray(found.tokens) == UNK) and np.any(np.asarray(free.tokens) == UNK)
    tokens = np.asarray(found.tokens).reshape(BATCH, -1, LENGTH)[:, 0]
    log_prob = np.asarray(found.log_prob).reshape(BATCH, -1)[:, 0]
    np.testing.assert_allclose(
        log_prob, [teacher_forced(*pair) for pair in zip(TABLES, tokens, strict=True)], atol=1e-4
    )


@pytest.mark.parametrize("method", ["greedy", "sample"])
def test_log_prob_is_the_teacher_forced_one(method):
    options = {} if method == "greedy" else dict(rngs=jax.random.split(jax.random.key(0), BATCH))
    if method == "sample":
        options |= dict(temperature=1.7, top_k=3, top_p=0.9)
    decoded = run(method, TABLES, LIMITS, **options)
    for row in range(BATCH):
        tokens = np.asarray(decoded.tokens[row])
        np.testing.assert_allclose(decoded.log_prob[row], teacher_forced(TABLES[row], tokens), rtol=1e-5)
        assert BOS not in tokens and PAD not in tokens[: decoded.length[row]]
        assert not np.any(tokens[decoded.length[row] :])


def test_the_loops_stop_when_all_sentences_are_done():
    calls = []

    def counted(memory, state, token):
        jax.debug.callback(lambda: calls.append(0))
        return step(memory, state, token)

    table = np.full((2, VOCAB, VOCAB, VOCAB), -20.0, np.float32)
    table[..., EOS], table[..., WORDS[0]] = np.log(0.6), np.log(0.4)
    limits = np.array([9, 0], np.int32)
    arguments = (best_of(counted), {"table": jnp.asarray(table)}, initial(2))
    decode.greedy(*arguments, max_length=20, limits=limits, **IDS)
    jax.effects_barrier()
    assert len(calls) == 1
    # Two have to end: the empty sentence and "a". With a large penalty, longer ones could still be better.
    search = jax.jit(functools.partial(beam_search, arguments[0], beam_size=2, max_length=20, **IDS))
    for alpha, steps in [(0.0, 2), (-1.0, 2), (3.0, 9)]:
        calls.clear()
        search(*arguments[1:], length_penalty=jnp.float32(alpha), limits=limits)
        jax.effects_barrier()
        assert len(calls) == steps, alpha


# --- beam search


@pytest.mark.slow
def test_a_wide_beam_is_an_exhaustive_search():
    limit, k = 4, 128
    for alpha in (-1.0, 0.0, 0.6, 2.0):
        decoded = jax.device_get(beam(TABLES[:3], np.full(3, limit, np.int32), k, alpha))
        for row in range(3):
            every = sorted(
                (not ended, -teacher_forced(TABLES[row], tokens) / penalty(len(tokens), alpha), tokens)
                for tokens, ended in sentences(limit)
            )
            assert len(every) == 121
            np.testing.assert_allclose(decoded.score[row, :121], [-score for _, score, _ in every], rtol=1e-5)
            assert [strip(tokens) for tokens in decoded.tokens[row, :121]] == [tokens for *_, tokens in every]
            assert np.all(decoded.score[row, 121:] == -np.inf) and not np.any(decoded.tokens[row, 121:])
            assert not np.any(decoded.length[row, 121:])


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_early_stopping_changes_nothing(beam_size):
    table = np.concatenate([tables(30, seed=3), tables(70, seed=4, sharpness=5.0)])
    limits = np.tile(np.array([1, 2, 4, 8, 9], np.int32), 20)
    for alpha in (-1.0, 0.0, 0.6, 1.0, 3.0):
        decoded = jax.device_get(beam(table, limits, beam_size, alpha, max_length=9))
        for row in range(100):
            expected = reference_beam(table[row], limits[row], beam_size, alpha)
            exists = len(expected)
            assert [strip(t) for t in decoded.tokens[row, :exists]] == [t for t, _ in expected]
            np.testing.assert_allclose(decoded.score[row, :exists], [s for _, s in expected], rtol=1e-5)
            assert np.all(decoded.score[row, exists:] == -np.inf)
            assert decoded.length[row, :exists].tolist() == [len(t) for t, _ in expected]
            log_probs = [teacher_forced(table[row], tokens) for tokens, _ in expected]
            np.testing.assert_allclose(decoded.log_prob[row, :exists], log_probs, rtol=1e-5)


def test_beam_of_one_is_greedy():
    decoded = beam(TABLES, LIMITS, 1, 0.0)
    assert_same(jax.tree.map(lambda x: x[:, 0], decoded), run("greedy", TABLES, LIMITS))


def test_impossible_continuations_are_not_returned():
    table = np.full((1, VOCAB, VOCAB, VOCAB), -np.inf, np.float32)
    table[..., EOS] = 0.0
    decoded = beam(table, np.array([6], np.int32), 3, 1.0)
    assert strip(decoded.tokens[0, 0]) == (EOS,)
    np.testing.assert_array_equal(decoded.log_prob[0], [0.0, -np.inf, -np.inf])
    np.testing.assert_array_equal(decoded.length[0], [1, 0, 0])


# --- wrong arguments


@pytest.fixture
def unchecked():
    """Leaves out the checks of annotations, which the tests alone have."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_a_room_or_limits_that_cannot_be_used_are_errors(method, unchecked):
    for limits, max_length, message in (
        (LIMITS, 0, "max_length is 0; expected at least 1"),
        (np.int32(3), 6, r"limits have the shape \(\); expected \[b\]"),
        (LIMITS[:, None], 6, r"limits have the shape \(12, 1\); expected \[b\]"),
    ):
        arguments = best_of(step), {"table": jnp.asarray(TABLES)}, initial(BATCH)
        options = dict(max_length=max_length, limits=limits, **options_of(method), **IDS)
        with pytest.raises(ValueError, match=message):
            METHODS[method].search(*arguments, **options)
    with pytest.raises(ValueError, match="beam_size is 0; expected at least 1"):
        beam(TABLES, LIMITS, 0, 0.0)


# --- sampling


def sample(table, limits, seed=0, **options):
    rngs = jax.random.split(jax.random.key(seed), table.shape[0])
    return run("sample", table, limits, rngs=rngs, **options)


@pytest.mark.slow
@pytest.mark.parametrize(  # temperatures around the smallest numbers of float32
    "options", [dict(top_k=1), dict(top_p=1e-6), *(dict(temperature=x) for x in (0.0, 1e-4, 1.2e-38, 1e-45))], ids=str
)
def test_the_sharpest_sample_is_greedy(options):
    assert_same(sample(TABLES, LIMITS, **options), run("greedy", TABLES, LIMITS))


@pytest.mark.slow
@pytest.mark.parametrize("options", [dict(), dict(top_p=0.7), dict(temperature=0.5, top_k=3, top_p=0.99)], ids=str)
def test_frequencies_are_probabilities(options):
    n = 4000
    table = np.broadcast_to(TABLES[:1], (n, *TABLES.shape[1:]))
    decoded = sample(table, np.full(n, 2, np.int32), max_length=2, **options)

    def probabilities(history):
        tempered = np.exp(TABLES[0][history].astype(np.float64) / options.get("temperature", 1.0))
        tempered[[PAD, BOS]] = 0
        best = np.argsort(-tempered)[: options.get("top_k") or VOCAB]
        probs = np.zeros(VOCAB)
        for token in best:
            if probs.sum() / tempered[best].sum() < options.get("top_p", 1.0):
                probs[token] = tempered[token]
        return probs / probs.sum()

    expected = {}
    first = probabilities((BOS, BOS))
    for a in range(VOCAB):
        if a == EOS:
            expected[(a,)] = first[a]
        else:
            second = probabilities((BOS, a))
            expected |= {(a, b): first[a] * second[b] for b in range(VOCAB)}
    counts = dict.fromkeys(expected, 0)
    for tokens in np.asarray(decoded.tokens):
        counts[strip(tokens)] += 1
    chi_square = sum((counts[s] - n * p) ** 2 / (n * p) for s, p in expected.items() if p > 0)
    assert all(counts[s] == 0 for s, p in expected.items() if p == 0)
    freedom = sum(p > 0 for p in expected.values()) - 1
    assert chi_square < freedom + 3.5 * np.sqrt(2 * freedom) + 1e-9


def test_samples_in_a_program_with_64_bits_are_those_of_one_without():
    with jax.enable_x64(True):
        found = sample(TABLES, LIMITS)
    assert found.tokens.dtype == np.int32
    assert_same(found, sample(TABLES, LIMITS))


WRONG = [dict(temperature=value) for value in (-1.0, float("nan"), float("inf"))]


@pytest.mark.parametrize("options", [*WRONG, dict(top_p=0.0), dict(top_p=1.5), dict(top_k=-1)], ids=str)
def test_wrong_sampling_options_are_errors(options):
    with pytest.raises(ValueError, match="expected temperature >= 0, top_k >= 0 and 0 < top_p <= 1, got"):
        sample(TABLES, LIMITS, **options)


# --- lengths


@pytest.mark.slow
def test_a_model_decodes_sources_that_are_as_long_as_those_of_its_training():
    """Up to its 24 positions: not rounded up to 32."""
    config = tiny_config(
        model__name="transformer",
        decode__max_length=11,
        **{f"model__{key}": value for key, value in (DECODER | ENCODER | LEARNED).items()},
    )
    assert config.task.buckets.shapes == ((24, 11),)
    setup = build_setup(resolve(config), Kept(Words("0123456789 "), Words("0123456789-")))
    params = fill(jax.eval_shape(setup.model.init, jax.random.key(0), setup.example))
    assert all(setup.predictor.translator.outputs(params, ["1 " * 20, "2 " * 23]))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_caches_have_room_for_the_longest_output_of_a_batch_and_no_more(name):
    """A source of three tokens has an output of at most 2 * 3 + 10; a longer cache gives the same tokens."""
    model, words = tiny_seq2seq.build(name=name, **OPTIONS[name]), Words("abcdefg")
    batch = tiny_seq2seq.sentences([(3, 3), (2, 4)], 8, 7)
    params = tiny_seq2seq.random_params(model, batch, scale=0.5)
    params["output"]["dense"]["bias"][EOS] = -1e9
    translator = Translator(model, words, words, DecodeOptions(max_length=40))
    source, limits = jnp.asarray(batch["source"])[:, :3], np.array([16, 16], np.int32)
    found = translator._decode(params, source, limits, np.zeros(2, np.uint32))
    assert found.tokens.shape == (2, 1, 16) and np.all(np.asarray(found.length) == 16)
    options = dict(max_length=40, limits=limits, **IDS)
    decoded = lambda p: decode.greedy(functools.partial(model.step_top_k, p), *model.start(p, source, 40), **options)  # noqa: E731
    longer = compiled(decoded)(params)
    np.testing.assert_array_equal(found.tokens[:, 0], longer.tokens[:, :16])
    np.testing.assert_allclose(found.log_prob[:, 0], longer.log_prob, rtol=1e-5)


@pytest.mark.slow
def test_unknown_words_are_replaced_in_outputs_that_are_as_long_as_those_of_the_training():
    words = Words("abcdefg")
    options = DECODER | ENCODER | LEARNED
    model = tiny_seq2seq.build(name="transformer", hidden_size=8, source_vocab=len(words), **options)
    params = tiny_seq2seq.random_params(model, tiny_seq2seq.sentences([(5, 3), (2, 4)], 8, 7))
    params["output"]["dense"]["bias"] = np.where(np.arange(len(words)) == UNK, 50.0, 0.0).astype(np.float32)
    translator = Translator(model, words, words, DecodeOptions(max_length=20, unk="replace"), buckets=((24, 24),))
    (output,) = translator.outputs(params, [" ".join("abcde" * 4)])
    assert len(output.split()) == 20 and set(output.split()) <= set("abcde")
