"""Batches are a function of (seed, step), and an epoch is every pair once."""

import itertools

import numpy as np
import pytest

from attn_jax.data.batching import FILL, ROUND_UP, Batches, assign, encode_pairs, eval_batches, round_up
from attn_jax.data.buckets import make_buckets
from attn_jax.data.vocabulary import Words
from attn_jax.errors import UserError
from attn_jax.tasks.task import Pairs
from attn_jax.token_ids import BOS, EOS, PAD

BUCKETS = ((4, 4), (4, 6), 8)


def make_pairs(n, longest=9, seed=0):
    """Pairs whose source words tell their index: the first word of pair i is wi."""
    rng = np.random.default_rng(seed)
    source = [" ".join([f"w{i}", *["s"] * int(rng.integers(0, longest - 1))]) for i in range(n)]
    target = [" ".join([f"w{i}", *["t"] * int(rng.integers(0, longest - 1))]) for i in range(n)]
    return Pairs(source, target)


@pytest.fixture(scope="module")
def pairs():
    return make_pairs(100)


@pytest.fixture(scope="module")
def vocabulary(pairs):
    return Words.train(pairs.source + pairs.target, vocab_size=1000)


@pytest.fixture(scope="module")
def encoded(pairs, vocabulary):
    return encode_pairs(pairs, vocabulary, vocabulary)


def texts(batch, vocabulary):
    """The pairs of a batch as text, checking that its three arrays agree."""
    found = []
    for source, target_in, target_out in zip(batch["source"], batch["target_in"], batch["target_out"], strict=True):
        if not source.any():
            assert not target_in.any() and not target_out.any()
            continue
        length = int((target_out != PAD).sum())
        assert target_out[length - 1] == EOS and target_in[0] == BOS
        np.testing.assert_array_equal(target_in[1:length], target_out[: length - 1])
        assert not target_in[length:].any() and not target_out[length:].any()
        assert EOS in source and not source[list(source).index(EOS) + 1 :].any()
        found.append((vocabulary.decode(source), vocabulary.decode(target_out)))
    return found


def equal(a, b):
    return all(np.array_equal(a[name], b[name]) for name in ("source", "target_in", "target_out"))


def test_first_bucket_in_order_of_area_that_holds_both_sides(vocabulary):
    buckets = make_buckets((8, (4, 6), (6, 4), (4, 4)))
    assert buckets == ((4, 4), (4, 6), (6, 4), (8, 8))
    sides = [(3, 3), (3, 4), (4, 3), (4, 4), (5, 3), (7, 7), (8, 7), (7, 8)]  # without eos
    pairs = Pairs(["s " * s for s, _ in sides], ["t " * t for _, t in sides])
    assert assign(encode_pairs(pairs, vocabulary, vocabulary), buckets).tolist() == [0, 1, 2, 3, 2, 3, 4, 4]


def test_an_epoch_has_every_pair_that_fits_once(pairs, encoded, vocabulary):
    batches = Batches(encoded, BUCKETS, 16)
    fits = assign(encoded, make_buckets(BUCKETS)) < len(BUCKETS)
    expected = sorted((s, t) for s, t, fit in zip(pairs.source, pairs.target, fits, strict=True) if fit)
    assert batches.num_pairs == len(expected) and batches.dropped == len(pairs) - len(expected) > 0
    steps = batches.steps_per_epoch
    for epoch in range(3):
        found = [texts(batches.batch_at(step), vocabulary) for step in range(epoch * steps, (epoch + 1) * steps)]
        assert sorted(itertools.chain(*found)) == expected


def test_the_shares_of_real_positions_are_those_of_an_epoch(encoded):
    batches = Batches(encoded, BUCKETS, 16)
    every = [batches.batch_at(step) for step in range(batches.steps_per_epoch)]
    real = [sum(np.sum(b[n] != PAD) for b in every) / sum(b[n].size for b in every) for n in ("source", "target_out")]
    np.testing.assert_allclose(batches.real, real)


def test_every_epoch_deals_its_pairs_anew(encoded, vocabulary):
    """Whatever the order of the batches: no two epochs have a full batch of the same pairs."""
    batches = Batches(encoded, (16,), 16)
    steps = batches.steps_per_epoch
    dealt = [frozenset(texts(batches.batch_at(step), vocabulary)) for step in range(3 * steps)]
    full = [{pairs for pairs in dealt[n * steps : (n + 1) * steps] if len(pairs) == 16} for n in range(3)]
    assert len(full[0]) == len(encoded) // 16
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(full, 2))


def test_every_epoch_has_its_own_order_of_buckets_and_all_seeds_have_the_same(encoded):
    one, other = (Batches(encoded, BUCKETS, 16, seeds=(seed,)) for seed in (0, 5))
    steps = one.steps_per_epoch
    shapes, same = ([b.batch_at(step)["source"].shape for step in range(4 * steps)] for b in (one, other))
    orders = [tuple(shapes[start : start + steps]) for start in range(0, 4 * steps, steps)]
    assert len(set(orders)) > 1 and len({tuple(sorted(order)) for order in orders}) == 1
    assert shapes == same


def test_a_batch_is_a_function_of_seed_and_step(encoded):
    batches = Batches(encoded, BUCKETS, 16, seeds=(3,))
    steps = 3 * batches.steps_per_epoch
    in_order = [batches.batch_at(step) for step in range(steps)]
    for step in np.random.default_rng(0).permutation(steps):
        assert equal(batches.batch_at(int(step)), in_order[step])
    assert equal(Batches(encoded, BUCKETS, 16, seeds=(3,)).batch_at(steps - 1), in_order[-1])
    other = Batches(encoded, BUCKETS, 16, seeds=(4,))
    assert not all(equal(other.batch_at(step), in_order[step]) for step in range(steps))


def test_several_seeds_are_the_single_ones_stacked(encoded):
    seeds = (0, 7, 2)
    together = Batches(encoded, BUCKETS, 16, seeds=seeds)
    alone = [Batches(encoded, BUCKETS, 16, seeds=(seed,)) for seed in seeds]
    for step in range(2 * together.steps_per_epoch):
        batch = together.batch_at(step)
        for i, one in enumerate(alone):
            single = one.batch_at(step)
            assert single["source"].ndim == 2
            assert equal({name: array[i] for name, array in batch.items()}, single)


def test_shapes_are_few_and_fixed(encoded):
    batches = Batches(encoded, BUCKETS, 16)
    shapes = set()
    for step in range(2 * batches.steps_per_epoch):
        batch = batches.batch_at(step)
        assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}
        assert batch["target_in"].shape == batch["target_out"].shape
        shapes.add((*batch["source"].shape, batch["target_in"].shape[1]))
    assert shapes == set(batches.shapes) == {(16, 4, 4), (16, 4, 6), (16, 8, 8)}
    assert [shape for shape in Batches(encoded, (1, *BUCKETS), 16).shapes if shape[1] == 1] == []  # without pairs


def test_rows_that_fill_up_are_all_pad(vocabulary):
    batches = Batches(encode_pairs(make_pairs(3, longest=3), vocabulary, vocabulary), (8,), 5)
    assert batches.steps_per_epoch == 1
    for step in range(4):
        batch = batches.batch_at(step)
        real = batch["source"].any(axis=1)
        assert real.sum() == 3 and batch["source"].shape == (5, 8)
        assert all(np.array_equal(array.any(axis=1), real) for array in batch.values())


def test_size_in_tokens_is_of_padded_target_positions(encoded):
    shapes = Batches(encoded, BUCKETS, 50, "tokens").shapes
    assert shapes == [(12, 4, 4), (8, 4, 6), (6, 8, 8)]
    shapes = Batches(encoded, BUCKETS, 50, "tokens", row_multiple=4).shapes
    assert shapes == [(12, 4, 4), (8, 4, 6), (4, 8, 8)]
    assert {shape[0] for shape in Batches(encoded, BUCKETS, 1, "tokens", row_multiple=4).shapes} == {4}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"buckets": ()}, "no buckets; expected"),
        ({"buckets": (0,)}, "bucket 0: expected a length"),
        ({"buckets": (8, (8, -1))}, r"bucket \(8, -1\): expected"),
        ({"buckets": (8, (8, 8, 8))}, r"bucket \(8, 8, 8\): expected"),
        ({"buckets": ("8",)}, "bucket '8': expected"),
        ({"buckets": (8.0,)}, "bucket 8.0: expected"),
        ({"buckets": (True,)}, "bucket True: expected"),
        ({"buckets": (1,)}, r"no pair fits any of the buckets \(\(1, 1\),\): the shortest source has 2 tokens"),
        ({"batch_size": 0}, "batch_size 0: expected at least 1"),
        ({"batch_unit": "words"}, "unknown batch_unit 'words'; known: sentences, tokens"),
        ({"batch_size": 10, "row_multiple": 4}, "batch_size 10 cannot be shared equally by 4 devices; .* is 12"),
        ({"seeds": (-1,)}, r"seeds \(-1,\): expected"),
        ({"seeds": ()}, r"seeds \(\): expected"),
    ],
)
def test_wrong_options(encoded, options, message):
    with pytest.raises(UserError, match=message):
        Batches(encoded, **({"buckets": BUCKETS, "batch_size": 16} | options))


@pytest.mark.parametrize("buckets", [(), BUCKETS])
@pytest.mark.parametrize("batch_size", [16, 1000, 1])
def test_evaluation_sees_every_pair_once_and_can_restore_the_order(pairs, encoded, vocabulary, buckets, batch_size):
    restored, rows = [None] * len(pairs), set()
    for indices, batch in eval_batches(encoded, batch_size, buckets):
        found = texts(batch, vocabulary)
        assert len(found) == len(indices)
        assert batch["source"][: len(indices)].any(axis=1).all()  # rows that fill up come last
        rows.add(len(batch["source"]))
        for i, pair in zip(indices, found, strict=True):
            assert restored[i] is None
            restored[i] = pair
    assert restored == list(zip(pairs.source, pairs.target, strict=True))
    assert len(rows) == 1


def test_evaluation_shapes_are_buckets_or_rounded_up(vocabulary):
    pairs = Pairs(["s", "s " * 40, "s s", "s"], ["t", "t", "t " * 6, "t " * 100])
    encoded = encode_pairs(pairs, vocabulary, vocabulary)
    shapes = [(batch["source"].shape[1], batch["target_in"].shape[1]) for _, batch in eval_batches(encoded, 1, BUCKETS)]
    assert shapes == [(4, 4), (8, 8), (ROUND_UP, 7 * ROUND_UP), (3 * ROUND_UP, ROUND_UP)]


def test_lengths_up_to_those_of_the_largest_batch_are_not_rounded_beyond_it(vocabulary):
    rounded = {(15, 5): (16, 11), (16, 11): (16, 11), (17, 11): (24, 11), (24, 12): (24, 16), (25, 17): (32, 32)}
    for lengths, expected in rounded.items():
        assert round_up(lengths, (24, 11)) == expected
        assert round_up(lengths) == tuple(ROUND_UP * int(np.ceil(n / ROUND_UP)) for n in lengths)
    pairs = Pairs(["s", "s " * 16, "s " * 19, "s " * 30], ["t", "t " * 10, "t " * 11, "t " * 40])
    batches = eval_batches(encode_pairs(pairs, vocabulary, vocabulary), 1, largest=(20, 11))
    shapes = [(batch["source"].shape[1], batch["target_in"].shape[1]) for _, batch in batches]
    assert shapes == [(16, 11), (20, 11), (20, 16), (32, 48)]


def test_sources_without_targets(vocabulary):
    encoded = encode_pairs(Pairs(["s s", "s"], ["", ""]), vocabulary, vocabulary)
    ((indices, batch),) = eval_batches(encoded, 8, BUCKETS)
    assert indices.tolist() == [1, 0] and batch["target_out"][:, 0].tolist() == [EOS, EOS]
    assert list(eval_batches(encode_pairs(Pairs([], []), vocabulary, vocabulary), 8)) == []


def test_evidence_goes_with_its_pair(pairs, encoded, vocabulary):
    """As many columns as the most pieces of evidence of the split, in every batch; all else as without evidence."""
    evidence = [tuple(range(i + 1, i + 1 + i % 4)) for i in range(len(pairs))]
    supported = encode_pairs(Pairs(pairs.source, pairs.target, evidence), vocabulary, vocabulary)
    seeds = (0, 7)
    batches, plain = Batches(supported, BUCKETS, 16, seeds=seeds), Batches(encoded, BUCKETS, 16, seeds=seeds)
    for step in range(batches.steps_per_epoch):
        batch = batches.batch_at(step)
        assert "evidence" not in plain.batch_at(step) and equal(batch, plain.batch_at(step))
        assert batch["evidence"].shape == (2, 16, 3) and batch["evidence"].dtype == np.int32
        for source, found in zip(batch["source"].reshape(32, -1), batch["evidence"].reshape(32, 3), strict=True):
            own = ()
            if source.any():  # the first word is the pair's index
                own = evidence[int(vocabulary.decode(source).split()[0].removeprefix("w"))]
            assert found.tolist() == [*own, *[0] * (3 - len(own))]
    for indices, batch in eval_batches(supported, 16, BUCKETS):
        for i, row in zip(indices, batch["evidence"], strict=False):
            assert tuple(row[row > 0].tolist()) == evidence[i]
    none = encode_pairs(Pairs(["s", "s s"], ["t", "t"], [(), ()]), vocabulary, vocabulary)
    assert none.batch(np.array([1, 0, FILL]), (4, 4))["evidence"].tolist() == [[0], [0], [0]]
