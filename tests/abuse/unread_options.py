"""Options that the chosen model, task or method does not read: they are refused, not ignored."""

from case import Case
from command_line import empty_file

from attn_jax.cli.options import RunOptions, schema_of
from attn_jax.cli.overrides import config_folder, load_file
from attn_jax.evaluation.options import DecodeOptions, EvalOptions
from attn_jax.models.families import FAMILIES, family
from attn_jax.options import Option, flatten, options_of
from attn_jax.tasks import TASKS
from attn_jax.training.options import OptimizerOptions, TokenTrainOptions

CONFIGS = config_folder()
STORIES = tuple(
    f"model.{name}"
    for name in (
        *("memory_size", "num_hops", "encoding", "tying", "nonlinear", "attend_empty", "noise", "linear_steps"),
        *("margin", "num_grams", "roles", "adaptive", "episode", "gate_weight", "gate_steps", "fact_dropout"),
        *("sentence_size", "num_slots", "halting", "threshold", "ponder_weight"),
    )
)
# Config -> options that have no meaning there.
UNREAD = {
    "quickstart": (
        *STORIES,
        "model.degrees",
        "model.num_widths",
        "model.criterion",
        "model.projection_size",
        "model.chunk",
        "model.positions",
        "model.norm",
        "model.activation",
        "model.num_heads",
        "model.num_kv_heads",
        "model.feed_forward_size",
        "model.remat",
        "model.pooling",
        "model.num_queries",
        "model.penalty",
        "model.continue_source",
        "model.inference_size",
        "model.kernel_size",
        "model.attention.width",
        "model.attention.per_column",
        "model.attention.alpha",
        "model.attention.fusion",
        "model.attention.temperature",
        "model.attention.num_samples",
        "model.attention.transition",
        "model.attention.jump_size",
        "model.attention.window_size",
        "task.language",
        "task.size",
        "task.labels",
        "task.operation",
        "task.num_symbols",
        "task.lengths",
        "task.test_lengths",
        "task.numbers",
        "task.max_sentences",
        "task.block",
        "task.inputs",
        "task.target",
        "task.classification",
        "task.noise",
        "task.joint_vocabulary",
        "decode.beam_size",
        "decode.length_penalty",
        "decode.top_k",
        "decode.top_p",
        "decode.temperature",
        "decode.seed",
        "optimizer.momentum",
        "optimizer.weight_decay",
        "optimizer.plateau_patience",
        "optimizer.halve_after",
    ),
    "quickstart_transformer": (
        "model.cell",
        "model.bidirectional",
        "model.bridge",
        "model.decoder",
        "model.input_feeding",
        "model.feed_summary",
        "model.recurrent_dropout",
        "model.self_attention",
        "model.readout_size",
        *STORIES,
        "model.pooling",
        "model.degrees",
        "model.objective",
        "model.max_length",
    ),
    "babi_memn2n": (
        "model.cell",
        "model.encoder",
        "model.num_layers",
        "model.num_heads",
        "model.readout_size",
        "model.decoder",
        "model.input_feeding",
        "model.pooling",
        "model.num_slots",
        "model.halting",
        "model.episode",
        "model.num_grams",
        "model.margin",
        "task.valid_size",
        "decode.beam_size",
    ),
    "kernel_regression": (
        "model.hidden_size",
        "model.embedding_size",
        "model.cell",
        "model.encoder",
        "model.decoder",
        "model.dropout",
        *STORIES,
        "task.vocabulary",
        "task.vocab_size",
        "task.buckets",
        "task.min_count",
        "decode.method",
        "decode.max_length",
        "train.label_smoothing",
    ),
    "language_id_conv": (
        "model.cell",
        "model.decoder",
        "model.bridge",
        "model.input_feeding",
        "model.num_queries",
        "model.penalty",
        *STORIES,
        "task.operation",
    ),
    "enja_none": ("model.attention.score", "model.attention.normalize", "model.input_feeding", *STORIES),
}


def all_options() -> dict[str, Option]:
    """Every option that a run of some task and family has."""
    found = options_of(TokenTrainOptions, "train.") | options_of(DecodeOptions, "decode.")
    found |= options_of(EvalOptions, "eval.") | options_of(OptimizerOptions, "optimizer.") | options_of(RunOptions)
    for kind in TASKS.values():
        found |= options_of(kind, "task.")
    for name in FAMILIES:
        found |= options_of(family(name), "model.")
    return found


ALL = all_options()


def cases() -> list[Case]:
    """One for each of these options, with a value other than its default; all are known to be sound elsewhere."""
    found = []
    for config, unread in UNREAD.items():
        base = load_file(CONFIGS / f"{config}.py", "get_config")
        given, own = flatten(base), schema_of(base)
        for key in unread:
            value = another(own.get(key, ALL[key]), given.get(key, ALL[key].default), key)
            argv = [f"--config={CONFIGS}/{config}.py", f"--config.{key}={value}"]
            # Below a file there is no place for a run: so an option that is taken is known at once.
            case = Case("unread", f"{config} {key}", [*argv, "--workdir={here}/file/new"], prepare=empty_file)
            found.append(case._replace(words=(key,), decoy="cannot write"))
    return found


def another(option: Option, value: object, key: str) -> object:
    """A value that is neither the one of the config nor the default."""
    default, choices = option.default, option.choices
    if choices:
        return next((choice for choice in choices if choice not in (value, default)), choices[0])
    if isinstance(value, bool):
        return not default
    if isinstance(value, float):
        return 0.75 if 0.75 not in (value, default) else 0.5
    if isinstance(value, int):
        return next(n for n in (3, 5, 7) if n not in (value, default))
    if isinstance(value, tuple):
        kind = {"eval.metrics": ("accuracy",), "task.buckets": (40,), "model.attention.width": (2.0,)}
        return kind.get(key, ("x", "y") if option.each is str else (2, 3))
    return "nonsense"
