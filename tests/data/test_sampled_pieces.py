"""Random splits spell the same text, a batch is a function of (seed, step), and without randomness it is the best."""

import numpy as np
import pytest
from tiny_run import WORDS, write_pairs

from attn_jax.data.batching import Batches, encode_pairs
from attn_jax.data.pairs import Pairs
from attn_jax.data.pieces import SentencePiece
from attn_jax.data.sampled_pieces import PieceSampler, SampledBatches
from attn_jax.data.vocabulary import Words
from attn_jax.errors import UserError
from attn_jax.runs.build import build_task
from attn_jax.runs.options import change, resolve
from attn_jax.runs.overrides import override
from attn_jax.token_ids import EOS, PAD
from configs.base import get_config

NAMES = ("source", "target_in", "target_out")


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    rows = [" ".join(rng.choice(WORDS, 2 + i % 5, replace=False)) for i in range(70)]
    return Pairs(rows, [row.upper() for row in reversed(rows)])


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def vocabularies(request, pairs):
    options = {"vocab_size": 45, "model_type": request.param}
    return SentencePiece.train(pairs.source, **options), SentencePiece.train(pairs.target, **options)


def batches(pairs, vocabularies, alpha, seeds=(0,), buckets=(8, 16, 64)):
    best = encode_pairs(pairs, *vocabularies)
    sampler = PieceSampler(pairs, vocabularies, alpha)
    options = {"seeds": seeds, "sampler": sampler, "best": best}
    return SampledBatches(sampler.longest(best), buckets, 16, **options)


def epoch(made, vocabularies):
    """All pairs of the first epoch as text, sorted, and the ids of their sources."""
    texts, ids = [], []
    for step in range(made.steps_per_epoch):
        batch = made.batch_at(step)
        for source, target_in, target_out in zip(*(batch[name] for name in NAMES), strict=True):
            if source.any():
                length = int((target_out != PAD).sum())
                assert target_out[length - 1] == EOS and not target_in[length:].any()
                np.testing.assert_array_equal(target_in[1:length], target_out[: length - 1])
                texts.append((vocabularies[0].decode(source), vocabularies[1].decode(target_out)))
                ids.append(tuple(source))
    return sorted(texts), set(ids)


def test_every_split_spells_its_text_and_an_epoch_has_every_pair(pairs, vocabularies):
    made = batches(pairs, vocabularies, 0.3)
    texts, ids = epoch(made, vocabularies)
    assert texts == sorted(zip(pairs.source, pairs.target, strict=True))
    best = {tuple([*vocabularies[0].encode(text), EOS]) for text in pairs.source}
    others = [row for row in ids if tuple(i for i in row if i != PAD) not in best]
    assert others  # how many depends on the vocabulary, which sentencepiece trains a little differently each time


def test_a_batch_is_a_function_of_seed_and_step(pairs, vocabularies):
    first, again = (batches(pairs, vocabularies, 0.3) for _ in range(2))
    steps = [0, 3, first.steps_per_epoch + 1]
    expected = [first.batch_at(step) for step in steps]
    for step, batch in reversed(list(zip(steps, expected, strict=True))):
        SentencePiece.sample(vocabularies[0], pairs.source, alpha=0.5, seed=9)  # who else uses the generator
        for name in NAMES:
            np.testing.assert_array_equal(again.batch_at(step)[name], batch[name])
    # With another seed the same pairs are split in another way, most short ones of a unigram model apart.
    splits = [epoch(batches(pairs, vocabularies, 0.3, (seed,)), vocabularies)[1] for seed in (0, 1)]
    assert splits[0] != splits[1]


def test_several_seeds_are_each_seed_by_itself(pairs, vocabularies):
    together = batches(pairs, vocabularies, 0.3, seeds=(3, 5))
    for place, seed in enumerate((3, 5)):
        alone = batches(pairs, vocabularies, 0.3, seeds=(seed,))
        for step in (1, alone.steps_per_epoch + 2):
            for name in NAMES:
                np.testing.assert_array_equal(together.batch_at(step)[name][place], alone.batch_at(step)[name])


def test_each_seed_and_each_step_splits_anew(pairs, vocabularies):
    """Of pairs that are all alike, in one bucket, so that no batch is empty and their order changes nothing."""
    longest = max(pairs.source, key=len)
    alike = Pairs([longest] * 32, [longest.upper()] * 32)
    made = batches(alike, vocabularies, 0.1, seeds=(3, 5), buckets=(64,))
    rows = [made.batch_at(step)["source"][place] for step in (0, 1) for place in (0, 1)]
    found = {tuple(map(tuple, batch)) for batch in rows}
    assert len(found) == len(rows)


def test_bpe_that_leaves_out_no_merge_is_the_best_split_and_all_gives_letters(pairs):
    vocabularies = (SentencePiece.train(pairs.source, vocab_size=45, model_type="bpe"),) * 2
    same = Pairs(pairs.source, pairs.source)
    plain = Batches(encode_pairs(same, *vocabularies), (8, 16, 64), 16)
    made = batches(same, vocabularies, 0.0)
    for step in range(plain.steps_per_epoch + 1):
        for name in NAMES:
            np.testing.assert_array_equal(made.batch_at(step)[name], plain.batch_at(step)[name])
    (letters,) = vocabularies[0].sample(["perhaps quite"], alpha=1.0, seed=0)
    assert vocabularies[0].tokens(letters) == ["▁", *"perhaps", "▁", *"quite"]
    assert len(vocabularies[0].encode("perhaps quite")) < len(letters)


def test_unigram_splits_are_sampled_by_their_probabilities(pairs):
    vocabulary = SentencePiece.train(pairs.source, vocab_size=45, model_type="unigram")
    text, alpha, count = "looking perhaps more", 0.02, 4000
    drawn = [tuple(row) for row in vocabulary.sample([text] * count, alpha=alpha, seed=1)]
    times = {split: drawn.count(split) for split in set(drawn)}
    often = [split for split, n in times.items() if n > 200]  # the deviation of a logarithm is at most 0.07
    scores = np.array([sum(vocabulary._processor.get_score(i) for i in split) for split in often])
    logs = np.log([times[split] for split in often])
    assert len(often) > 5
    np.testing.assert_allclose(logs - logs[0], alpha * (scores - scores[0]), atol=0.25)


def test_a_split_that_does_not_fit_gives_way_to_the_best(pairs, vocabularies):
    best = encode_pairs(pairs, *vocabularies)
    sampler = PieceSampler(pairs, vocabularies, 0.9)
    tight = tuple((int(s), int(t)) for s, t in zip(best.source.lengths, best.target.lengths, strict=True))
    made = SampledBatches(best, tight, 16, sampler=sampler, best=best)
    assert epoch(made, vocabularies)[0] == sorted(zip(pairs.source, pairs.target, strict=True))


def test_words_have_one_split(pairs, vocabularies):
    words = Words.train(pairs.source, vocab_size=100)
    with pytest.raises(UserError, match=r"^task.vocabulary.sample 0.1 needs vocabularies of sentencepiece"):
        PieceSampler(pairs, (words, words), 0.1)
    mixed = batches(pairs, (words, vocabularies[1]), 0.3)
    assert epoch(mixed, (words, vocabularies[1]))[0] == sorted(zip(pairs.source, pairs.target, strict=True))


def test_the_option_reaches_the_batches_and_not_the_evaluation(tmp_path):
    write_pairs(tmp_path)
    config = get_config()
    changes = {"vocabulary": "sentencepiece", "vocabulary.model": "bpe", "vocab_size": (45, 45), "valid_size": 5}
    config = change(config, {f"task.{name}": value for name, value in changes.items()} | {"data_dir": str(tmp_path)})
    plain, made = (build_task(resolve(change(config, {"task.vocabulary.sample": alpha}))) for alpha in (0.0, 0.2))
    assert plain.kept[0].to_json() == made.kept[0].to_json() and plain.splits == made.splits
    options = {"batch_size": 16, "seeds": (0,)}
    assert type(plain.batches(**options)) is Batches and type(made.batches(**options)) is SampledBatches
    for vocabulary in ("words", "characters"):
        with pytest.raises(UserError, match=r"vocabulary.sample; it is an option of task.vocabulary sentencepiece"):
            override(get_config(), [f"--config.task.vocabulary={vocabulary}", "--config.task.vocabulary.sample=0.1"])
