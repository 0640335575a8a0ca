"""Data sets of `python -m attn_jax.data.download`: their addresses and the SHA-256 of their files."""

import dataclasses
from collections.abc import Callable, Sequence

from attn_jax.data import unpack

LANGUAGES = "arabic english finnish french german hebrew hungarian russian spanish turkish".split()


@dataclasses.dataclass(frozen=True)
class Remote:
    """A file on a server. With sha256=None the first download is trusted and its checksum is stored."""

    path: str  # below the base URL of the data set
    name: str  # below the data folder
    sha256: str | None = None
    mirrors: tuple[str, ...] = ()  # complete URLs to try if the base URL does not have the file


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Files of one data set, and the function of attn_jax.data.unpack that turns them into text files."""

    title: str
    base_url: str
    files: tuple[Remote, ...]
    unpack: Callable[..., Sequence]  # (archives, folder) -> the files written


def _plain(*names_and_sums: tuple[str, str | None]) -> tuple[Remote, ...]:
    return tuple(Remote(name, name, checksum) for name, checksum in names_and_sums)


# Short English-Japanese sentences, tokenized, 50,000 / 500 / 500 pairs, from the Tanaka corpus, CC BY 2.0.
ENJA = Dataset(
    "small_parallel_enja",
    "https://raw.githubusercontent.com/odashi/small_parallel_enja/master/",
    _plain(
        ("train.en", "148b05dcd28638fe20ee84f2b1127001c80982be352007dda241fb759adadc76"),
        ("train.ja", "fc81a1434349ec98a449d7ae9cd2530057f689637684ecfed3501ea6a8a07ecc"),
        ("dev.en", "04a2673449770657fd5e3b963cb856be3130923212b6db8ac7eaeef18f06c041"),
        ("dev.ja", "cd534f56b8639dc130f86a365e5ec0aa70042000bdd740a622fbbf8b6be4acca"),
        ("test.en", None),
        ("test.ja", None),
    ),
    unpack.nothing,
)

# Captions of Flickr30K, English-German, 29,000 / 1,014 / 1,000 pairs (Elliott et al. 2016, arXiv 1605.00459).
MULTI30K = Dataset(
    "Multi30k, task 1, English and German",
    "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/",
    _plain(
        ("train.en.gz", "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
        ("train.de.gz", "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
        ("val.en.gz", "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
        ("val.de.gz", "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
        ("test_2016_flickr.en.gz", "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
        ("test_2016_flickr.de.gz", "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
    ),
    unpack.gunzip,
)

# Talks, 223,108 Japanese-English pairs for training (Cettolo et al., IWSLT 2017), CC BY-NC-ND 4.0.
IWSLT2017 = Dataset(
    "IWSLT 2017, Japanese and English",
    "https://huggingface.co/datasets/IWSLT/iwslt2017/resolve/main/data/2017-01-trnted/texts/ja/en/",
    _plain(("ja-en.zip", "a923cdaa5632e55a94e799d31468c58fd2eab290a34f8b950a562f6ff20046b6")),
    unpack.tagged_zip,
)

# The twenty tasks of Weston et al. 2015, arXiv 1502.05698, in English: en (1,000 questions) and en-10k. CC BY 3.0.
BABI = Dataset(
    "bAbI tasks 1.2",
    "https://s3.amazonaws.com/text-datasets/",
    (
        Remote(
            "babi_tasks_1-20_v1-2.tar.gz",
            "tasks_1-20_v1-2.tar.gz",
            mirrors=("http://www.thespermwhale.com/jaseweston/babi/tasks_1-20_v1-2.tar.gz",),
        ),
    ),
    unpack.babi_tar,
)

SIGMORPHON_SUMS = dict(
    reversed(line.split())
    for line in """
2782027b9f446f782874e628f1ba11ead3015937e5042a5c8729ba8d4c9f5df8 arabic-dev
53a82e82c2e29f0cf5d7b5360b328aa295bc79348304d62b2d39a211ad0ee551 arabic-train-high
95df7333b6e8b3c8977e5a78eca0fc83031f04311891ea3ad70aaf18d938baf9 arabic-train-medium
10c860546b862493820625fb851040c9c4b3238a27d8c174e3fd3b6368e78615 english-dev
e6c87ce340eaec2df80aa51d6c1ef9571361cdfdf2b21029711d8bc6bee3ce05 english-train-high
d51ac31f44c81363706f791f34fc84557081a65be93347c2844924875ec83179 english-train-medium
dd31327aefec2e8862f19df3bc4a083e51f634a5acc599b6683b612528dc4e19 finnish-dev
32a7bbb2e963ffd89a75a1a2d64f2cd348e1a870fda500433b93b397774a7901 finnish-train-high
e6fa59613defc301a19c28eb1a44d920738e513e328c14336979b9d16ca93a84 finnish-train-medium
d5d5647385492137cb9eb39a2739169f5d1aa2b72d257436bc31acefebcaea21 french-dev
05cb1762fc55bc426a119888126055dd487b4f67fc0f78b0557ce5cce41604b7 french-train-high
742b5db24a1b11781d4e92230f7ca7fa9059fa818665444e6b06e1a6b8680047 french-train-medium
fdcf14c88f046c2a42933a447c62482c562d76f1fc4f78981ff9b5476fa4ef9a german-dev
765e7fa395d3fe4267f17c0e644cec3b3c480fc7a5b9f67bc7a13febec60b594 german-train-high
bc13a266c7ffe71ff58aa047c430e9e0062bd5e8ae108bffd604a5586e422e73 german-train-medium
9c040750cd2aa9bbeb8314ad5713cb540f21258d14c5147439a7abc8d2d3ef24 hebrew-dev
edd1ebce1e07365bc8d20b98a7dcdaf057dcf5b77adebd3510722a6df24e6977 hebrew-train-high
411c26c6e621fb0c4a76565ec9f4b3078eabddc1d4bedd3e5d53e176cc2e01d9 hebrew-train-medium
c12c4ebd58cf48f0d2ec086d40ade07743b1f64cd46fefcf675b4927e978fee4 hungarian-dev
b34d7c26fc9dbdfc1db530fe5ac019ab64ab7b9132693fcade8baba1f737d803 hungarian-train-high
20392999d87a6898652719e643033e7cf2d3f2c84ca27ac997960f0de334bd85 hungarian-train-medium
e6842eda6612537689724d0561dc46167c589b3185c4684da370b96685944ecf russian-dev
b2ed85de1cbbb38628d246c12d608ed3f228dd647da922392404e6999c2c13e4 russian-train-high
ac4eef045b9a9c7d784da10b500c7424422197d73312a01333ae6b130d00c38d russian-train-medium
cc753aee03574022f43ac6218ae83cf88420aeb3c5070a6a9fd5529f1f643b77 spanish-dev
9957f941019d6fcfc7ecc349233ed109b96db449774d77515a0ec6d0d5e25b93 spanish-train-high
a57b487622071a40f4bcf610ba71d0768e480ac452c1969e70ed76e10f8073b8 spanish-train-medium
e95f58d34dc49973b26fd9f78d859290917e646ac68536c2b1459711ce4fa42d turkish-dev
1e6be2ea3368bb403342bb2f6433456c3608e9df44b08266e4ca3e5a57ed9347 turkish-train-high
644f104f693f49f6e9fbef677f8ae347aded1b4e984cbf006c44bcbb9329ea35 turkish-train-medium
""".strip().splitlines()
)

# Inflection: lemma, form and features with tabs between them (Cotterell et al. 2017, arXiv 1706.09031), CC BY-SA 3.0.
SIGMORPHON2017 = Dataset(
    "CoNLL-SIGMORPHON 2017, task 1, ten languages",
    "https://raw.githubusercontent.com/sigmorphon/conll2017/master/",
    tuple(
        Remote(f"all/task1/{language}-{split}", f"{language}-{split}", SIGMORPHON_SUMS.get(f"{language}-{split}"))
        for language in LANGUAGES
        for split in ("train-low", "train-medium", "train-high", "dev")
    )
    + tuple(Remote(f"answers/task1/{language}-uncovered-test", f"{language}-test") for language in LANGUAGES),
    unpack.nothing,
)

DATASETS = {
    "enja": ENJA,
    "multi30k": MULTI30K,
    "iwslt2017-ja-en": IWSLT2017,
    "babi": BABI,
    "sigmorphon2017": SIGMORPHON2017,
}
