"""The batches of a task, what a run says about them, and what is refused."""

from functools import partial

import pytest

from attn_jax.data.batching import encode_pairs
from attn_jax.data.facts import Stories
from attn_jax.data.pairs import Pairs
from attn_jax.data.vocabulary import StoryWords, Words
from attn_jax.errors import UserError
from attn_jax.evaluation.kinds import KINDS
from attn_jax.tasks import TASKS, PictureTask, PointsTask, Task
from attn_jax.tasks.stories.encoding import encode_stories
from attn_jax.token_ids import PAD

WORDS = "a bird can dance".split()


def task_of(source, target):
    return Task("dates", {"train": Pairs(source, target)}, Words(WORDS), Words(WORDS))


def test_a_classifier_needs_targets_that_are_labels():
    labels = task_of(["a bird", "a"], ["a", "dance"])
    assert labels.batches(buckets=(20,), batch_size=2, labels=True).num_pairs == 2
    task = task_of(["a bird", "a"], ["a", "can dance"])
    with pytest.raises(UserError, match=r"^task dates: the target 'can dance' has 2 tokens; the model needs labels"):
        task.batches(buckets=(20,), batch_size=2, labels=True)
    assert task.batches(buckets=(20,), batch_size=2).num_pairs == 2


def test_training_on_much_that_is_unknown_is_said():
    task = task_of(["a bird can zebra", "a"], ["a a a a", "a"])
    assert task.batches(buckets=(20,), batch_size=1).messages == []
    task = task_of(["a bird can zebra", "zebra"], ["a b a", "a"])
    words = "% of the training tokens are unk; see task.vocab_size and min_count"
    expected = [("vocabulary", f"source: 40 {words}"), ("vocabulary", f"target: 25 {words}")]
    assert task.batches(buckets=(20,), batch_size=1).messages == expected


def test_pairs_that_fit_no_bucket_are_counted():
    task = task_of(["a bird can dance a bird", "a"], ["a", "a"])
    words = "1 of 2 training pairs are longer than any bucket and left out; see task.buckets"
    assert task.batches(buckets=(4,), batch_size=1).messages == [("data", words)]
    assert task.batches(batch_size=1).messages == []  # buckets chosen by the lengths


def test_a_pair_much_longer_than_the_others_is_told():
    """One such pair makes a bucket of its own, which may not fit into memory."""
    texts = ["a b"] * 99 + ["a " * 2000]
    task = Task("mine", {"train": Pairs(texts, ["a"] * 100)}, *[Words.train(["a b"], vocab_size=9)] * 2)
    ((topic, message),) = task.batches(batch_size=4).messages
    assert topic == "data" and message.startswith("batches of the longest pairs are 4 x 2,0")
    assert "the mean pair has 23;" in message
    assert message.endswith("; smaller task.buckets.shapes leave out what is longer")


def test_statements_shorter_than_in_training_get_as_many_tokens():
    vocabulary = StoryWords([".", "?", "mary", "went", "home", "where", "is"])
    facts = Stories(shortest=4)
    longer = partial(encode_stories, facts=facts)
    pairs = Pairs(["mary went . mary . where is mary ?", "mary went home . where is mary ?"], ["home", "home"])
    plain, padded = (encode(pairs, vocabulary, vocabulary) for encode in (encode_pairs, longer))
    assert plain.source.lengths.tolist() == [10, 9] and padded.source.lengths.tolist() == [10, 9]
    pairs = Pairs(["mary . mary . mary . where ?"], ["home"])
    assert encode_pairs(pairs, vocabulary, vocabulary).source.lengths.tolist() == [9]
    found = longer(pairs, vocabulary, vocabulary).source
    assert found.lengths.tolist() == [12] and found.tokens[-3:].tolist() == [PAD] * 3
    task = Task("babi", {"train": pairs}, vocabulary, vocabulary, facts)
    assert task.batches(batch_size=1, encode=longer).batch_at(0)["source"].shape == (1, 12)


def test_each_task_has_its_class():
    classes = {name: {KINDS[kind].task_class for kind in options.data_kinds} for name, options in TASKS.items()}
    images = {"scenes", "pictures"}
    assert classes.pop("regression") == {PointsTask}
    assert all(classes.pop(name) == {PictureTask} for name in images)
    assert all(found == {Task} for found in classes.values())
