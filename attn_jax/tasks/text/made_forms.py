"""Artificial training forms made from training forms: forms with stems of random letters, and words to copy.

With few forms a model learns which letters occur together in the training words, but not to copy a stem. Artificial
forms have random stems, so they teach only copying and inflection.
"""

import difflib

import numpy as np

from attn_jax.data.pairs import Pairs
from attn_jax.errors import UserError

SHORTEST = 3  # least number of letters of a common part of lemma and form that counts as stem
REPLACED = 0.5  # probability that a letter of a stem is replaced
COPY = "COPY"  # tag of a word to copy


def hallucinate(pairs: Pairs, count: int, *, seed: int) -> Pairs:
    """Makes `count` forms with random stems, after Anastasopoulos & Neubig 2019 (arXiv 1908.05838).

        spielen gespielt  ->  spotlen gespotlt

    A stem is each part of SHORTEST letters or more that a lemma and its form have in common. Each of its letters is
    replaced with probability REPLACED, in lemma and form alike, by a uniform letter from the alphabet of all lemmas and
    forms. The tags do not change. A smaller count gives the beginning of a larger one.

    Args:
        pairs: training forms, with sources `lemma TAB tags`.
        count: number of forms to make.
        seed: seed of the random numbers.

    Raises:
        UserError: no lemma shares SHORTEST neighbouring letters with its form.
    """
    rows = [(*text.split("\t"), form) for text, form in zip(pairs.source, pairs.target, strict=True)]
    found = [(*row, stem) for row in rows if (stem := stem_of(row[0], row[2]))]
    if count and not found:
        raise UserError(
            f"task.hallucinated {count}: no training lemma has {SHORTEST} neighbouring letters in common with its form"
        )
    alphabet = sorted({letter for lemma, _, form in rows for letter in lemma + form if not letter.isspace()})
    rng = np.random.default_rng(seed)
    source, target = [], []
    for _ in range(count):
        lemma, tags, form, stem = found[rng.integers(len(found))]
        lemma, form = list(lemma), list(form)
        letters = rng.integers(len(alphabet), size=len(stem))
        for (i, j), letter, replaced in zip(stem, letters, rng.random(len(stem)) < REPLACED, strict=True):
            if replaced:
                lemma[i] = form[j] = alphabet[letter]
        source.append(f"{''.join(lemma)}\t{tags}")
        target.append("".join(form))
    return Pairs(source, target)


def stem_of(lemma: str, form: str) -> list[tuple[int, int]]:
    """Returns the places of the letters of a stem: (in the lemma, in the form). Stems have no white space."""
    blocks = difflib.SequenceMatcher(None, lemma, form, autojunk=False).get_matching_blocks()
    return [
        (block.a + i, block.b + i)
        for block in blocks
        if block.size >= SHORTEST
        for i in range(block.size)
        if not lemma[block.a + i].isspace()
    ]


def copies(pairs: Pairs) -> Pairs:
    """Makes a form for each word among lemmas and forms: the word, with the tag COPY."""
    lemmas = [text.partition("\t")[0] for text in pairs.source]
    words = list(dict.fromkeys([*lemmas, *pairs.target]))
    return Pairs([f"{word}\t{COPY}" for word in words], words)
