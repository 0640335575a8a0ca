"""A made-up language to inflect, with vowel harmony, voicing and prefixes:

- vowels are front (e i ö ü) or back (a o u);
- a noun's lemma is its stem, a verb's lemma is its stem with -nA. Stems have two or three syllables, and end in a
  vowel or in one of p t k s l r n m;
- a capital letter in a suffix depends on the letters before it. A O U are e ö ü if the last vowel before is front, and
  a o u if it is back. D is t after p t k s, and d elsewhere;
- before a suffix that begins with a vowel, a last p t k becomes b d g, and after a last vowel y is put in between.

Nouns take number, then case; the plural of the genitive is one suffix for both:

              NOM    ACC    DAT   GEN   LOC    INS
    N;...;SG  -      -Un    -A    -Or   -DA    -sU
    N;...;PL  -lO    -lO-Un -lO-A -Os   -lO-DA -lO-sU

Verbs take tense, then person and number; the third person singular of the present is one suffix for all:

               1;SG   2;SG   3;SG  1;PL    2;PL    3;PL
    V;PRS;...  -U-m   -U-s   -Ur   -U-mUk  -U-sUk  -U-lO
    V;PST;...  -DO-m  -DO-s  -DO   -DO-mUk -DO-sUk -DO-lO

    V;NFIN -nA    V;IMP;2;SG -    V;IMP;2;PL -kO    V.PTCP;PRS -An    V.PTCP;PST ge- and -Ut

So, in steps:

    sölkit   N;ACC;SG    sölkit-Un          sölkidün      i is front; t becomes d
    garo     N;DAT;PL    garo-lO-A          garoloya      o is back; y between the vowels
    tümak    N;GEN;PL    tümak-Os           tümagos       the last vowel counts, not the first
    medupna  V;PST;1;PL  medup-DO-mUk       meduptomuk    D is t after p
    vohirne  V;PRS;3;SG  vohir-Ur           vohirür
    kazelne  V.PTCP;PST  ge-kazel-Ut        gekazelüt     a prefix does not change
"""

import numpy as np

from attn_jax.data.pairs import Pairs
from attn_jax.data.splits import check_count
from attn_jax.errors import UserError

NUM_EXAMPLES = 10_000  # training forms by default, as many as in size "high" of the files
TEST_SIZE = 1000
NUM_LEMMAS = 12_000
HELD_OUT_SHARE = 0.05  # share of all lemmas for validation, and the same for the test
EXAMPLES = tuple(
    f"{lemma}\t{tags}"
    for lemma, tags in (
        ("sölkit", "N;ACC;SG"),
        ("garo", "N;DAT;PL"),
        ("tümak", "N;GEN;PL"),
        ("medupna", "V;PST;1;PL"),
        ("vohirne", "V;PRS;3;SG"),
        ("kazelne", "V.PTCP;PST"),
    )
)

FRONT, BACK = "eiöü", "aou"
VOWELS = FRONT + BACK
TO_FRONT, TO_BACK = str.maketrans("AOU", "eöü"), str.maketrans("AOU", "aou")
VOICED = {"p": "b", "t": "d", "k": "g"}
VOICELESS = "ptks"
ONSETS = "bdfghklmnprstvz"
CODAS = ("", "", "", "l", "n", "r", "s")  # codas of all syllables except the last
ENDINGS = ("", "", "p", "t", "k", "s", "l", "r", "n", "m")

INFINITIVE = "nA"
CASES = {"NOM": "", "ACC": "Un", "DAT": "A", "GEN": "Or", "LOC": "DA", "INS": "sU"}
TENSES = {"PRS": "U", "PST": "DO"}
PERSONS = {"1;SG": "m", "2;SG": "s", "3;SG": "", "1;PL": "mUk", "2;PL": "sUk", "3;PL": "lO"}
# tags -> suffixes in the order in which they follow the stem, separated by spaces
NOUN = (
    {f"N;{case};SG": suffix for case, suffix in CASES.items()}
    | {f"N;{case};PL": f"lO {suffix}" for case, suffix in CASES.items()}
    | {"N;GEN;PL": "Os"}
)
VERB = (
    {f"V;{tense};{who}": f"{first} {then}" for tense, first in TENSES.items() for who, then in PERSONS.items()}
    | {"V;PRS;3;SG": "Ur"}
    | {"V;NFIN": INFINITIVE, "V;IMP;2;SG": "", "V;IMP;2;PL": "kO", "V.PTCP;PRS": "An", "V.PTCP;PST": "Ut"}
)
PREFIXES = {"V.PTCP;PST": "ge"}


def inflect(lemma: str, tags: str) -> str:
    """Inflects a lemma of the made-up language. The tags are a key of NOUN or of VERB."""
    word, suffixes = (lemma, NOUN[tags]) if tags in NOUN else (lemma[: -len(INFINITIVE)], VERB[tags])
    for suffix in suffixes.split():
        word = attach(word, suffix)
    return PREFIXES.get(tags, "") + word


def attach(word: str, suffix: str) -> str:
    """Attaches a suffix by the rules above. The word must have a vowel, the suffix at least one letter."""
    last_vowel = next(letter for letter in reversed(word) if letter in VOWELS)
    if suffix[0] in "AOU":
        word = word + "y" if word[-1] in VOWELS else word[:-1] + VOICED.get(word[-1], word[-1])
    suffix = suffix.replace("D", "t" if word[-1] in VOICELESS else "d")
    return word + suffix.translate(TO_FRONT if last_vowel in FRONT else TO_BACK)


def make_splits(num_examples: int, valid_size: int, seed: int) -> dict[str, Pairs]:
    """Samples the splits of the made-up language. No lemma is in two splits, for any sizes."""
    rng = np.random.default_rng(seed)
    lexicon = _lexicon(rng)
    drawn = list(lexicon)
    lemmas = [drawn[i] for i in rng.permutation(len(drawn))]
    held_out = int(len(lemmas) * HELD_OUT_SHARE)
    parts = {"valid": lemmas[:held_out], "test": lemmas[held_out : 2 * held_out], "train": lemmas[2 * held_out :]}
    cells = {name: [(lemma, tags) for lemma in part for tags in lexicon[lemma]] for name, part in parts.items()}
    check_count(num_examples, len(cells["train"]), "forms", str(NUM_EXAMPLES))
    if not 1 <= valid_size <= len(cells["valid"]):
        raise UserError(
            f"task.valid_size {valid_size}: expected 1 to {len(cells['valid'])}, the validation forms there are"
        )
    sizes = {"train": num_examples or NUM_EXAMPLES, "valid": valid_size, "test": TEST_SIZE}
    splits = {}
    for name, count in sizes.items():
        # Shuffled as a whole, then cut: the size of one split does not change the forms of the others.
        chosen = [cells[name][i] for i in rng.permutation(len(cells[name]))[:count]]
        splits[name] = Pairs([f"{lemma}\t{tags}" for lemma, tags in chosen], [inflect(*cell) for cell in chosen])
    return splits


def _lexicon(rng: np.random.Generator) -> dict[str, dict[str, str]]:
    """Samples NUM_LEMMAS lemmas, none of them in EXAMPLES, and maps each to NOUN or VERB."""

    def pick(options):
        return options[rng.integers(len(options))]

    shown = {text.partition("\t")[0] for text in EXAMPLES}
    lexicon: dict[str, dict[str, str]] = {}
    while len(lexicon) < NUM_LEMMAS:
        syllables = [pick(ONSETS) + pick(VOWELS) for _ in range(pick((2, 3)))]
        stem = "".join(syllable + pick(CODAS) for syllable in syllables[:-1]) + syllables[-1] + pick(ENDINGS)
        paradigm = pick((NOUN, VERB))
        lemma = stem if paradigm is NOUN else attach(stem, INFINITIVE)
        if lemma not in shown:
            lexicon.setdefault(lemma, paradigm)
    return lexicon
