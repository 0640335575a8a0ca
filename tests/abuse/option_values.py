"""Every option of every part with values that make no sense: a wrong type, negative, nan, huge, unknown, misspelt.

A value that is taken would start a training; the file or the bucket of each command leaves nothing to train on, so that
the command ends at once, with another line, which gives the value away as taken.
"""

from collections.abc import Iterator
from functools import cache

from case import Case
from sandbox import MAKERS, QUICKSTART, STORIES, labels, options, stories, table, words

from attn_jax.errors import UserError
from attn_jax.parts import Option, options_of
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import FAMILIES, TASKS, RunOptions, change
from attn_jax.runs.overrides import override

DECOYS = {  # (options that leave nothing to train on, words of the refusal)
    "words": ({"task__buckets__shapes": ((2, 2),)}, "no pair fits any"),
    "labels": ({"task__buckets__shapes": ((1, 2),)}, "no pair fits any"),
    "stories": ({"task__buckets": "fixed", "task__buckets__shapes": ((2, 2),)}, "no pair fits any"),
    "table": ({"task__valid_size": 40}, "there are 40 rows of data"),
    "made": ({"task__buckets": "fixed", "task__buckets__shapes": ((1, 1),)}, "no pair fits any"),
    "made_stories": ({"task__buckets": "fixed", "task__buckets__shapes": ((2, 2),)}, "no pair fits any"),
}
MADE = {"words": "made", "stories": "made_stories"}
# What is looked at later than the decoys, or instead of them.
LATE = ("task.buckets.shapes", "task.buckets.num_source", "task.batch_unit", "model.hidden_size", "train.microbatches")
# Beside these options anything may be refused or be taken: texts, and numbers that may well be negative.
TEXTS = ("name", "description", "data_dir", "task.language", "task.target", "train.start.source")
NEGATIVE = ("train.goal", "decode.method.length_penalty")
UNKNOWN = {  # tuples of names
    "eval.metrics": "('nonsense',)",
    "model.dropout_places": "('nonsense',)",
    "task.inputs": "('nonsense',)",
    "task.labels": "('nonsense',)",
}
TUPLES = {
    "seeds": ("(0, 0)", "(-1,)", "(4294967296,)", "(1.5,)", "('a',)", "((1,),)"),
    "task.buckets.shapes": ("(0,)", "(-4,)", "((4,),)", "((1, 2, 3),)", "('a',)", "(1.5,)", "((4, -4),)"),
    "task.vocab_size": ("(8000,)", "(8000, 8000, 8000)", "(-1, -1)", "('a', 'b')", "(1, 1)"),
    "task.train": ("('train.source',)", "('', '')", "('train.source', '')", "(1, 2)"),
    "task.valid": ("('test.source',)", "('test.source', '')", "(1, 2)"),
    "task.test": ("('test.source',)", "('', 'test.target')", "(1, 2)"),
    "task.numbers": ("(0,)", "(21,)", "(1, 1)", "('a',)", "(1.5,)"),
    "task.inputs": ("('a', 'a')", "('y',)", "(1,)", "('',)"),
    "model.output.cutoffs.words": ("(0,)", "(-1,)", "(9, 3)", "(3, 3)", "(100000,)", "('a',)", "(1.5,)", "((1,),)"),
    "model.dropout_places": ("(1,)", "('readout', 1)"),
    "model.degrees": ("()", "(-1,)", "(1.5,)", "('a',)"),
    "model.attention.score.width": ("(-1.0,)", "(0.0,)", "('a',)", "(1.0, 2.0, 3.0)", "(1e400,)"),
    "eval.metrics": ("(1,)", "('bleu', 1)"),
    "task.lengths": ("(0, 4)", "(5, 2)", "(4,)", "('a', 'b')"),
    "task.test_lengths": ("(0, 3)", "(-1,)", "('a',)"),
}
# Combinations, and numbers beyond what their neighbours allow. Keys: runs, or families.
BEAM, SAMPLE = "decode.method=beam --config.decode.method", "decode.method=sample --config.decode.method"
PIECES = "task.vocabulary=sentencepiece --config.task.vocab_size"
OTHERS = {
    "words": {
        "decode.ensemble=seeds": "needs a run of several seeds",
        "decode.ensemble=runs": "decode.ensemble.workdirs is ()",
        "train.best_metric=r2": "train.best_metric",
        "train.start=run": "train.start.workdir is empty",
        "train.start=vectors": "train.start vectors names no file",
        "task.vocabulary.min_count=1000": "seen 1000 times",
        "model.hidden_size=100000000": "memory|at most",
        "model.attention.score=__class__": "unknown",
        "model.attention.score=boxcar": "boxcar",
        "dtype=float64": "float64",
        "parallel=many": "unknown",
        "parallel.replicas=2": "it is an option of parallel fsdp",
    },
    "made": {
        "model=memn2n": "memn2n",
        "model=kernel_regression": "regression|kernel",
        "task=regression": "regression",
        "task.vocabulary=words": "it is an option of task parallel_text",
        "model.decoder=none --config.model.objective=hard": "it is for a model.decoder that attends",
        "model.decoder=none --config.model.penalties=entropy": "it is for a model.decoder that attends",
        "decode.unk=replace --config.model.decoder=none": "decode.unk",
        "model.attention.normalize=monotonic --config.model.decoder.extras=self_attention": "monotonic|self_attention",
        "model.objective=hard --config.model.objective.reading=systematic "
        "--config.model.objective.reading.num_samples=1000": "num_samples",
    },
    "seq2seq": {
        "model.output=sampled --config.model.output.normalizer=fixed": "nce",
        "model.output=full --config.model.output.chunk_size=3": "it is an option of model.output chunked",
    },
    "transformer": {
        "model.hidden_size=8 --config.model.decoder.num_heads=3": "heads",
        "model.decoder.num_kv_heads=3": "num_kv_heads|heads",
        "model.share_embeddings=true": "share_embeddings|vocabulary",
        "model.attention.read=hard": "hard|read",
        "model.attention.normalize=monotonic": "monotonic",
        "model.attention=delta --config.model.attention.score=dot": "it is an option of model.attention map",
    },
    "stories": {
        "model.encoding=none": "encoding",
        "task.vocabulary=characters": "task.vocabulary",
    },
    "table": {
        "model.attention.normalize=softmax --config.model.attention.score=boxcar": "boxcar|softmax",
        "model.attention.score=dot": "score|kernel",
        "model=seq2seq": "points",
    },
    "labels": {
        "model.pooling=max": "pooling",
        "model.encoder.kernel_size=0": "kernel_size",
    },
}


def cases() -> list[Case]:
    """Some thousand."""
    found = []
    for key, (option, run, chosen) in every_option().items():
        value, name = option.default, name_of(key)
        add = lambda *arguments, run=run, chosen=chosen: found.append(case(*arguments, run=run, chosen=chosen))  # noqa: E731
        slot = key.removesuffix(".name").removesuffix(".pattern")
        add("misspelt", key, f"{slot}{slot[-1]}=1", "unknown config key", f"did you mean {slot}?")
        if isinstance(value, bool):
            add("wrong_type", key, f"{key}=perhaps", "expected true or false")
        elif isinstance(value, int):
            add("wrong_type", key, f"{key}=many", "expected an integer")
            add("fraction", key, f"{key}=1.5", "expected an integer")
            more = " --config.eval.metrics=('loss',)" if key == "task.block" else ""  # of a text without sources
            add("negative", key, f"{key}=-7{more}", name)
            add("huge", key, f"{key}=10000000000000", name)
        elif isinstance(value, float):
            add("wrong_type", key, f"{key}=many", "expected a number")
            if key not in NEGATIVE:
                add("negative", key, f"{key}=-7.5", name)
            for word in ("nan", "inf", "-inf"):
                add("not_finite", f"{key}={word}", f"{key}={word}", name)
        elif isinstance(value, tuple):
            add("wrong_type", key, f"{key}=(1,", "expected a tuple")
            add("wrong_type", f"{key}=dict", f"{key}={{}}", "expected a tuple")
            if key in UNKNOWN or name == "pattern":
                add("unknown", key, f"{key}={UNKNOWN.get(key, 'nonsense')}", "nonsense|" + name)
        elif key not in TEXTS:
            more = " --config.eval.metrics=('bleu',)" if key == "task.tokenize" else ""  # which reads it
            add("unknown", key, f"{key}=nonsense{more}", "nonsense|" + name)
    for key, values in TUPLES.items():
        _, run, chosen = every_option()[key]
        for value in values:
            found.append(
                case("tuples", f"{key}={value}", f"{key}={value}", f"{name_of(key)}|bucket", run=run, chosen=chosen)
            )
    for run, others in OTHERS.items():
        for setting, word in others.items():
            short = setting.replace("--config.", "")
            chosen = {"model": run} if run in FAMILIES else {}
            own = "made" if chosen else run
            found.append(case("combinations", f"{run} {short[:80]}", setting, word, run=own, chosen=chosen))
    return found


def starts() -> Iterator[tuple[str, dict]]:
    """Yields (run, the overrides that choose a task and a family)."""
    for run in ("words", "labels", "stories", "table", "made", "made_stories"):
        yield run, {}
    yield "made", {"task": "scenes", "model": "glimpses"}
    for run in ("made", "made_stories"):
        for family in FAMILIES:
            yield run, {"model": family}
    for task in TASKS:
        yield "made", {"task": task}
        yield "made", {"task": task, "model": "language_model"}


@cache
def every_option() -> dict[str, tuple[Option, str, dict]]:
    """Every option of every part: key -> (option, a run, the choices that it is there with).

    Of options that are equal, and of slots of one name, the first.
    """
    found: dict[str, tuple[Option, str, dict]] = {}
    seen: set = set()
    waiting = list(starts())
    while waiting:
        run, chosen = waiting.pop(0)
        try:
            config = change(base_of(run), chosen)
        except UserError:  # a task and a family that do not fit
            continue
        for key, option in options_of(RunOptions, config).items():
            about = (*key.split(".")[-2:], option)
            if about in seen or key in found:
                continue
            seen.add(about)
            found[key] = option, run, chosen
            slot, _, last = key.rpartition(".")
            if not slot or last not in ("name", "pattern"):
                continue
            own = MADE.get(run, run)
            for name in option.choices if last == "name" else names_of(option):
                if not (run == "table" and slot == "task"):
                    waiting.append((own, {other: of for other, of in chosen.items() if other != slot} | {slot: name}))
    return found


def names_of(option: Option) -> list[str]:
    """The names that a pattern may have."""
    return option.meaning.rpartition("; of ")[2].split(", ")


@cache
def base_of(run: str):
    """The config of a run."""
    file, *overrides = maker_of(run, {})("" if run == "stories" else "data")
    return override(load_config_file(file.removeprefix("--config=")), overrides)


def maker_of(run: str, chosen: dict):
    """The function of (data, changes) that makes the command line of a run."""
    makers = {"words": words, "table": table, "stories": stories, "labels": labels}
    made_ones = {"made": QUICKSTART, "made_stories": STORIES}
    return (lambda _, **changes: made(made_ones[run], chosen, **changes)) if run in made_ones else makers[run]


def made(config: str, chosen: dict, **changes) -> list[str]:
    """A training of another task or family, on data that the package makes."""
    return options(config, chosen | {"task.num_examples": 100} | {k.replace("__", "."): v for k, v in changes.items()})


def name_of(key: str) -> str:
    """The last word of a key."""
    return key.rpartition(".")[2]


def case(family: str, name: str, setting: str, *told: str, run: str, chosen: dict) -> Case:
    """A training with this setting, which is to be refused with these words; "a=1 --config.b=2" are two settings."""
    changes, decoy = DECOYS[run]
    if setting.split("=")[0] in LATE:
        changes, decoy = {"train__num_steps": 1}, ""
    data = "" if run in (*MADE.values(), "stories") else f"{{{run}_data}}"
    settings = [f"--config.{part}" for part in setting.split(" --config.")]
    more = [] if run in MADE.values() else [f"--config.{key}={value}" for key, value in chosen.items()]
    argv = [*maker_of(run, chosen)(data, **changes), *more, *settings, "--workdir={here}/new"]
    return Case(f"options_{family}", name, argv, words=told, decoy=decoy)


assert set(DECOYS) == set(MAKERS) | set(MADE.values())
