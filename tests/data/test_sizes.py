"""The target id of each source id, which a pointer copies."""

from attn_jax.data.sizes import copies_of, text_sizes
from attn_jax.data.vocabulary import Characters, Inflections, Words
from attn_jax.token_ids import SPECIAL, UNK


def test_tokens_are_copied_by_what_they_are_written_as():
    source, target = Inflections(["<V>", "a", "b", "c"]), Characters(["c", "V", "a"])
    copies = copies_of(source, target)
    assert copies[: len(SPECIAL)] == (0, 1, 2, 3)
    assert copies[len(SPECIAL) :] == (UNK, *target.encode("a"), UNK, *target.encode("c"))
    assert text_sizes(source, target).copies == copies


def test_one_vocabulary_needs_no_table():
    assert copies_of(Words(["a", "b"]), Words(["a", "b"])) == ()
    assert text_sizes(Words(["a", "b"]), Words(["b", "a"])).copies == (0, 1, 2, 3, 5, 4)
