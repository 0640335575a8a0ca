"""Every option of every family with values that make no sense: a wrong type, negative, nan, huge, unknown, misspelt.

A value that is taken would start a training; the file or the bucket of each command leaves nothing to train on, so that
the command ends at once, with another line, which gives the value away as taken.
"""

from functools import partial

from case import Case
from sandbox import MAKERS, QUICKSTART, STORIES, labels, options, stories, table, words
from unread_options import ALL

from attn_jax.cli.options import schema
from attn_jax.models.families import FAMILIES
from attn_jax.options import options_of
from attn_jax.outputs import OUTPUTS
from attn_jax.tasks import TASKS

# The task and family of each run, and the other families that its data fits.
CHOICES = {
    "words": ("parallel_text", ("seq2seq", "transformer", "language_model")),
    "stories": (
        "babi",
        ("memn2n", *(name for name in FAMILIES if name not in ("memn2n", "kernel_regression", "glimpses"))),
    ),
    "table": ("regression", ("kernel_regression",)),
    "labels": ("labelled_text", ("classifier",)),
}
# Options that another run is asked for than the first that has it.
READERS = {
    "model.attention.width": "table",
    "model.attention.per_column": "table",
    "model.encoder": "labels",
    "model.kernel_size": "labels",
}
DECOYS = {  # (options that leave nothing to train on, words of the refusal)
    "words": ({"task__buckets": ((2, 2),)}, "no pair fits any"),
    "labels": ({"task__buckets": ((1, 2),)}, "no pair fits any"),
    "stories": ({"task__buckets": ((2, 2),)}, "no pair fits any"),
    "table": ({"task__valid_size": 40}, "there are 40 rows of data"),
    "made": ({"task__buckets": ((1, 1),)}, "no pair fits any"),
    "made_stories": ({"task__buckets": ((2, 2),)}, "no pair fits any"),
}
MADE = {"words": "made", "stories": "made_stories"}
# What is looked at later than the decoys, or instead of them.
LATE = ("task.buckets", "task.batch_unit", "model.hidden_size", "model.num_layers", "train.microbatches")
# Options of output layers that are read with other options alone.
OUTPUT_NEEDS = {
    "power": {"model.output.proposal": "unigram"},
    "smoothing": {"model.output.proposal": "unigram"},
    "num_classes": {"model.output.proposal": "learned"},
}
# Beside these options anything may be refused or be taken: texts, and numbers that may well be negative.
TEXTS = ("name", "description", "data_dir", "task.language", "task.target")
NEGATIVE = ("train.goal", "decode.length_penalty")
UNKNOWN = {  # tuples of names
    "eval.metrics": "('nonsense',)",
    "model.dropout_places": "('nonsense',)",
    "task.inputs": "('nonsense',)",
    "task.labels": "('nonsense',)",
}
TUPLES = {
    "seeds": ("(0, 0)", "(-1,)", "(4294967296,)", "(1.5,)", "('a',)", "((1,),)"),
    "task.buckets": ("(0,)", "(-4,)", "((4,),)", "((1, 2, 3),)", "('a',)", "(1.5,)", "((4, -4),)"),
    "task.vocab_size": ("(0, 0)", "(8000,)", "(8000, 8000, 8000)", "(-1, -1)", "('a', 'b')", "(1, 1)"),
    "task.train": ("('train.source',)", "('', '')", "('train.source', '')", "(1, 2)"),
    "task.valid": ("('test.source',)", "('test.source', '')", "(1, 2)"),
    "task.test": ("('test.source',)", "('', 'test.target')", "(1, 2)"),
    "task.numbers": ("(0,)", "(21,)", "(1, 1)", "('a',)", "(1.5,)"),
    "task.inputs": ("('a', 'a')", "('y',)", "(1,)", "('',)"),
    "model.output.cutoffs": ("(0,)", "(-1,)", "(9, 3)", "(3, 3)", "(100000,)", "('a',)", "(1.5,)", "((1,),)"),
    "model.dropout_places": ("(1,)", "('readout', 1)"),
    "model.degrees": ("()", "(-1,)", "(1.5,)", "('a',)"),
    "model.attention.width": ("(-1.0,)", "(0.0,)", "('a',)", "(1.0, 2.0, 3.0)", "(1e400,)"),
    "eval.metrics": ("(1,)", "('bleu', 1)"),
    "task.lengths": ("(0, 4)", "(5, 2)", "(4,)", "('a', 'b')"),
    "task.test_lengths": ("(0, 3)", "(-1,)", "('a',)"),
}
# Combinations, and numbers beyond what their neighbours allow.
OTHERS = {
    "words": {
        "decode.method=beam --config.decode.n_best=7 --config.decode.beam_size=5": "n_best",
        "decode.method=beam --config.decode.beam_size=0": "beam_size",
        "decode.method=beam --config.decode.beam_size=1000000000": "beam_size",
        "decode.method=sample --config.decode.temperature=-1": "temperature",
        "decode.method=sample --config.decode.top_p=1.5": "top_p",
        "decode.method=sample --config.decode.top_p=0": "top_p",
        "decode.n_best=3": "n_best",
        "decode.max_length=0": "max_length",
        "decode.max_length=3000000000": "max_length",
        "decode.replace_unk=true --config.model.decoder=none": "nothing reads|replace_unk|none",
        "optimizer.b1=1.0": "b1",
        "optimizer.b2=2.0": "b2",
        "train.num_steps=0 --config.train.num_epochs=0": "num_epochs",
        "train.microbatches=5": "microbatches",
        "train.best_metric=blue": "bleu",
        "train.best_metric=r2": "train.best_metric",
        "task.min_count=1000": "seen 1000 times",
        "task.valid_size=60": "expected 1 to 59",
        "task.valid_size=0": "task.valid_size",
        "task.num_examples=100000": "task.num_examples",
        "task.batch_unit=words": "sentences, tokens",
        "task.min_count=2 --config.task.vocabulary=sentencepiece --config.task.vocab_size=(5000,30)": "too large",
        "task.min_count=2 --config.task.vocabulary=sentencepiece --config.task.vocab_size=(1,1)": "vocab_size",
        "model.hidden_size=100000000": "memory|at most",
        "model.num_layers=100000000": "memory|at most|expected",
        f"model.hidden_size={10**400}": "model.hidden_size",
        f"optimizer.learning_rate={10**400}": "optimizer.learning_rate",
        f"seed={10**400}": "seed",
        f"seeds=({10**400},)": "seed",
        "model.attention.score=__class__": "unknown",
        "model.attention.read=hard --config.model.attention.num_samples=100": "num_samples|reading|read",
        "model.decoder=none --config.model.objective=hard": "objective|decoder",
        "model.self_attention=true --config.model.input_feeding=true": "self_attention|input_feeding",
        "model.bidirectional=true --config.model.hidden_size=9": "hidden_size",
        "model.tie_embeddings=true --config.model.embedding_size=16": "tie_embeddings|embedding_size",
        "model.share_embeddings=true": "share_embeddings|vocabulary",
        "model.attention.normalize=monotonic --config.model.self_attention=true": "monotonic|self_attention",
        "model.attention.score=boxcar": "boxcar",
        "model.name=memn2n": "memn2n",
        "model.name=classifier": "classifier",
        "model.name=kernel_regression": "regression|kernel",
        "task.name=regression": "regression",
        "dtype=float64": "float64",
        "parallel=many": "unknown",
        "seeds=(0,1) --config.model.objective=hard": "seeds|objective|no pair fits",
    },
    "seq2seq": {
        "model.output.num_samples=4": "nothing reads|sampled",
        "model.output.name=adaptiv": "did you mean adaptive",
        "model.output.name=sampled --config.model.output.num_samples=100000": "num_samples",
        "model.output.name=sampled --config.model.output.tree=balanced": "hierarchical",
        "model.output.name=sampled --config.model.output.power=0.5": "nothing reads|unigram",
        "model.output.name=sampled --config.model.output.normalizer=fixed": "nothing reads|nce",
        "model.output.name=sampled --config.train.label_smoothing=0.1": "label_smoothing",
        "model.output.name=hierarchical --config.model.output.frequencies=nowhere.tsv": "nowhere.tsv",
        "model.output.name=adaptive --config.model.output.cutoffs=(1,100000)": "cutoffs",
        "model.output.name=adaptive --config.model.tie_embeddings=true": "tie_embeddings|share",
        "model.output.name=full --config.model.output.chunk_size=3": "nothing reads|chunked",
    },
    "transformer": {
        "model.hidden_size=8 --config.model.num_heads=3": "heads",
        "model.num_kv_heads=3": "num_kv_heads|heads",
        "model.attention.read=hard": "hard|read",
        "model.attention.normalize=monotonic": "monotonic",
    },
    "stories": {
        "model.encoding=none": "encoding",
        "task.vocabulary=characters": "task.vocabulary",
        "task.max_sentences=-1": "max_sentences",
        "task.size=100k": "size",
        "task.num_examples=3": "task.num_examples 3",
    },
    "table": {
        "eval.metrics=('bleu',)": "metric",
        "model.attention.normalize=softmax --config.model.attention.score=boxcar": "boxcar|softmax",
        "model.attention.score=dot": "score|kernel",
        "task.noise=-1": "noise",
        "model.name=seq2seq": "regression",
        "train.best_metric=bleu": "best_metric",
    },
    "labels": {
        "model.pooling=max": "pooling",
        "model.encoder=lstm": "encoder",
        "eval.metrics=('blue',)": "bleu",
        "model.kernel_size=0": "kernel_size",
    },
}


def cases() -> list[Case]:
    """Some five hundred."""
    found = []
    for key, option in ALL.items():
        value = option.default
        add = found.append
        name = name_of(key)
        misspelt = f"{key}{name[-1]}"
        add(case("misspelt", key, f"{misspelt}=1", "unknown config key", f"did you mean {key}?"))
        if isinstance(value, bool):
            add(case("wrong_type", key, f"{key}=perhaps", "expected true or false"))
        elif isinstance(value, int):
            add(case("wrong_type", key, f"{key}=many", "expected an integer"))
            add(case("fraction", key, f"{key}=1.5", "expected an integer"))
            more = " --config.eval.metrics=('loss',)" if key == "task.block" else ""  # of a text without sources
            add(case("negative", key, f"{key}=-7{more}", name))
            add(case("huge", key, f"{key}=10000000000000", name))
        elif isinstance(value, float):
            add(case("wrong_type", key, f"{key}=many", "expected a number"))
            if key not in NEGATIVE:
                add(case("negative", key, f"{key}=-7.5", name))
            for word in ("nan", "inf", "-inf"):
                add(case("not_finite", f"{key}={word}", f"{key}={word}", name))
        elif isinstance(value, tuple):
            add(case("wrong_type", key, f"{key}=(1,", "expected a tuple"))
            add(case("wrong_type", f"{key}=dict", f"{key}={{}}", "expected a tuple"))
            if key in UNKNOWN:
                add(case("unknown", key, f"{key}={UNKNOWN[key]}", "nonsense|" + name))
        elif key not in TEXTS:
            more = " --config.eval.metrics=('bleu',)" if key == "eval.tokenize" else ""  # which reads it
            add(case("unknown", key, f"{key}=nonsense{more}", "nonsense|" + name))
    for key, values in TUPLES.items():
        found += [case("tuples", f"{key}={value}", f"{key}={value}", f"{name_of(key)}|bucket") for value in values]
    for run, others in OTHERS.items():
        for setting, word in others.items():
            short = setting.replace("--config.", "")
            chosen = {"model.name": run} if run in FAMILIES else {}
            own = "made" if chosen else run
            found.append(case("combinations", f"{run} {short[:80]}", setting, word, run=own, chosen=chosen))
    return found


def reader(key: str) -> tuple[str, dict]:
    """(A run that has an option, the overrides that choose the task and the family that have it)."""
    if key.startswith("model.output.") and key in ALL:
        name = name_of(key)
        layer = next(layer for layer, kind in OUTPUTS.items() if name == "name" or name in options_of(kind, ""))
        return "made", {"model.name": "seq2seq", "model.output.name": layer} | OUTPUT_NEEDS.get(name, {})
    preferred = READERS.get(key, "")
    for run in (preferred, *CHOICES) if preferred else CHOICES:
        task, families = CHOICES[run]
        for family in families:
            if key in schema(task, family):
                return (run, {}) if family == families[0] else (MADE[run], {"model.name": family})
    if key in schema("scenes", "glimpses"):
        return "made", {"task.name": "scenes", "model.name": "glimpses"}
    task = next(task for task in TASKS if task != "regression" and key in schema(task, "seq2seq"))
    return "made", {"task.name": task}


def made(config: str, chosen: dict, **changes) -> list[str]:
    """A training of another task or family, on data that the package makes."""
    return options(config, chosen | {"task.num_examples": 100} | {k.replace("__", "."): v for k, v in changes.items()})


def name_of(key: str) -> str:
    """The last word of a key."""
    return key.rpartition(".")[2]


def case(family: str, name: str, setting: str, *told: str, run: str = "", chosen: dict | None = None) -> Case:
    """A training with this setting, which is to be refused with these words; "a=1 --config.b=2" are two settings."""
    key = setting.split("=")[0]
    run, chosen = (run, chosen) if run else reader(key if key in ALL else key[:-1])
    changes, decoy = DECOYS[run]
    if key in LATE:
        changes, decoy = {"train__num_steps": 1}, ""
    data = chosen if chosen else "" if run == "stories" else f"{{{run}_data}}"
    makers = {"words": words, "table": table, "stories": stories, "labels": labels}
    makers |= {"made": partial(made, QUICKSTART), "made_stories": partial(made, STORIES)}
    maker = makers[run]
    settings = [f"--config.{part}" for part in setting.split(" --config.")]
    argv = [*maker(data, **changes), *settings, "--workdir={here}/new"]
    return Case(f"options_{family}", name, argv, words=told, decoy=decoy)


assert set(DECOYS) == set(MAKERS) | set(MADE.values())
