"""Tags beside a source are a set: their order says nothing, and no weight of the attention to the text is theirs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import BOS, EOS, PAD, SOURCE_VOCAB, TARGET_VOCAB, build, random_params

from attn_jax.data.sizes import TextSizes
from attn_jax.data.vocabulary import TaggedLemmas, from_json
from attn_jax.errors import UserError
from attn_jax.models.tags import split_tags
from attn_jax.runs.options import change, resolve
from configs.base import get_config

SOURCE = np.array(
    [
        [4, 5, 6, EOS, 10, 11, EOS, PAD],
        [7, EOS, 12, 10, 11, EOS, PAD, PAD],
        [4, 5, EOS, EOS, PAD, PAD, PAD, PAD],  # no tags
        [PAD] * 8,
    ],
    np.int32,
)
TEXT = np.array([[1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0], [0] * 8], bool)
TAGS = np.array([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0, 0, 0], [0] * 8, [0] * 8], bool)
TURNED = SOURCE.copy()
TURNED[0, 4:6], TURNED[1, 2:5] = (11, 10), (11, 12, 10)
OTHER = SOURCE.copy()
OTHER[0, 4], OTHER[1, 2] = 12, 11
TARGET_IN = np.array([[BOS, 4, 5], [BOS, 6, PAD], [BOS, 7, 8], [PAD] * 3], np.int32)
TARGET_OUT = np.array([[4, 5, EOS], [6, EOS, PAD], [7, 8, EOS], [PAD] * 3], np.int32)
BATCH = {"source": SOURCE, "target_in": TARGET_IN, "target_out": TARGET_OUT}
SIDES = ("encoder", "decoder")
MODELS = {
    "none, fed": dict(decoder="none", tags="fed"),
    "luong, fed": dict(decoder="luong", tags="fed"),
    "luong, attended": dict(decoder="luong", tags="attended"),
    "luong without feeding, itself": dict(
        decoder="luong", decoder__input_feeding=False, decoder__extras=("self_attention",), tags="attended"
    ),
    "bahdanau, attended": dict(decoder="bahdanau", tags="attended", attention=dict(score="additive")),
    "monotonic of first order, fed": dict(decoder="luong", decoder__input_feeding=False, tags="fed")
    | dict(objective="markov", objective__jump_size=5, attention=dict(score="general")),
    "transformer": dict(name="transformer", encoder="transformer", hidden_size=8, tags="invariant")
    | {f"{side}__{key}": x for side in SIDES for key, x in (("feed_forward_size", 8), ("num_heads", 2))},
}


def test_text_and_tags_are_found():
    text, tags = split_tags(jnp.asarray(SOURCE), eos=EOS, pad=PAD)
    np.testing.assert_array_equal(text, TEXT)
    np.testing.assert_array_equal(tags, TAGS)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_tags_are_a_set_beside_the_text(name):
    """Their order says nothing, they do say something, and steps are the pass that is given the targets."""
    model = build(**MODELS[name])
    wider = np.pad([SOURCE, TURNED, OTHER], ((0, 0), (0, 0), (0, 2)))
    targets = {key: jnp.asarray(BATCH[key]) for key in ("target_in", "target_out")}

    @compiled
    def run(params, sources):
        def of_source(source):
            batch = targets | {"source": source}
            return model.score(params, batch), model.attention_weights(params, batch)

        memory, state = model.start(params, jnp.asarray(SOURCE))
        _, log_probs = jax.lax.scan(functools.partial(model.step, params, memory), state, targets["target_in"].T)
        return jax.vmap(of_source)(sources), log_probs

    (scores, weights), log_probs = run(random_params(model, BATCH), wider)
    own = np.take_along_axis(log_probs.swapaxes(0, 1), TARGET_OUT[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose((own * (TARGET_OUT != PAD)).sum(1), scores[0], rtol=1e-4)
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-5)
    np.testing.assert_allclose(scores[2, 2:], scores[0, 2:], rtol=1e-6)
    assert np.all(np.abs(scores[2, :2] - scores[0, :2]) > 1e-3)
    seen = np.pad(TEXT if name != "transformer" else TEXT | TAGS, ((0, 0), (0, 2)))
    assert np.all(np.where(seen[:, None], 0, weights[0]) == 0)
    if name != "transformer":
        np.testing.assert_allclose(weights[1], weights[0], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_gradient_reaches_the_tags():
    model = build(**MODELS["luong, attended"])
    params = random_params(model, BATCH)
    batch = jax.tree.map(jnp.asarray, BATCH)
    found = compiled(jax.grad(lambda params: model.loss_fn(params, batch, jax.random.key(0))[0]))(params)
    assert np.all(np.abs(found["source_embedding"]["embedding"][10:13]).max(-1) > 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["luong, attended", "bahdanau, attended"])
def test_weights_of_the_attention_to_tags_are_dropped_in_training(name):
    """No other part of these models has dropout."""
    options = MODELS[name] | dict(tags__attention="map", tags__attention__dropout=0.5)
    attention = options.get("attention", {})
    options |= {f"tags__attention__{key}": value for key, value in attention.items()}
    model = build(**options)
    params = random_params(model, BATCH)
    loss = compiled(lambda batch, rng: model.loss_fn(params, batch, rng)[0])
    one, other, same = (loss(BATCH, jax.random.key(seed)) for seed in (0, 1, 0))
    assert one == same and abs(one - other) > 1e-3


@pytest.mark.parametrize("changes", [dict(tags="fed"), dict(name="transformer", tags="invariant")])
def test_a_source_without_tags_is_refused(changes):
    config = change(
        get_config(task="inflection", model=changes.get("name", "seq2seq")), {"model.tags": changes["tags"]}
    )
    with pytest.raises(UserError, match=r"needs a source with tags beside it: task.name inflection with task.tags"):
        resolve(config).build_model(TextSizes(SOURCE_VOCAB, TARGET_VOCAB))


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            dict(decoder="none", tags="attended"),
            "needs model.decoder luong or bahdanau, and attention to all keys.*expected model.tags fed",
        ),
        (dict(tags="attended", attention=dict(wrappers=("local_p",))), "no window, not monotonic"),
        (dict(tags="attended", attention=dict(normalize="monotonic")), "no window, not monotonic"),
        (
            dict(
                name="transformer", encoder="transformer", hidden_size=8, encoder__positions="rotary", tags="invariant"
            ),
            "model.encoder.positions none, sinusoidal, learned",
        ),
        (dict(name="transformer", encoder="lstm", tags="invariant"), "needs model.encoder transformer"),
    ],
)
def test_what_cannot_read_tags_is_told(changes, message):
    with pytest.raises(UserError, match=message):
        build(**changes)


def test_a_vocabulary_of_lemmas_and_tags():
    vocabulary = TaggedLemmas.train(["gehen\tV;PST", "auf\tV.PTCP;PST"], vocab_size=100)
    assert vocabulary.tokenize("geh\tV;PST") == ["g", "e", "h", "<eos>", "<V>", "<PST>"]
    ids = [*vocabulary.encode("geh\tV;PST"), EOS]
    assert ids.count(EOS) == 2 and ids[3] == EOS
    assert vocabulary.decode([*ids, PAD]) == "geh\tV;PST"
    assert vocabulary.decode(vocabulary.encode("geh")) == "geh"
    assert from_json(vocabulary.to_json()).encode("geh\tV;PST") == ids[:-1]
