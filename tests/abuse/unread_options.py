"""Options that the chosen model, task or method does not read: they are refused, not ignored."""

from case import Case
from command_line import empty_file

from attn_jax.cli.overrides import CONFIGS, keys, load_file
from configs import base

BASE = base.get_config()
# Config -> options that have no meaning there: a name, or the beginning of names that ends in a dot.
UNREAD = {
    "quickstart": (
        "model.",
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
        "model.",
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
        "model.",
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
        "model.",
        "task.operation",
    ),
    "enja_none": ("model.attention.score", "model.attention.normalize", "model.input_feeding", "model."),
}
OTHER_VALUES = {"score": "dot", "normalize": "sparsemax", "method": "beam", "decoder": "bahdanau", "cell": "gru"}


def cases() -> list[Case]:
    """One for each of these options, with a value other than its default; all are known to be sound elsewhere."""
    found = []
    for config, prefixes in UNREAD.items():
        given = load_file(CONFIGS / f"{config}.py", "get_config")
        for key in keys(BASE):
            if any(key == prefix or (prefix.endswith(".") and key.startswith(prefix)) for prefix in prefixes):
                argv = [f"--config={CONFIGS}/{config}.py", f"--config.{key}={another(key, given[key])}"]
                # Below a file there is no place for a run: so an option that is taken is known at once.
                case = Case("unread", f"{config} {key}", [*argv, "--workdir={here}/file/new"], prepare=empty_file)
                found.append(case._replace(words=(key,), decoy="cannot write"))
    return found


def another(key: str, value: object) -> object:
    """A value that is neither the one of the config nor the default."""
    if isinstance(value, bool):
        return not BASE[key]
    if isinstance(value, float):
        return 0.75 if 0.75 not in (value, BASE[key]) else 0.5
    if isinstance(value, int):
        return next(n for n in (3, 5, 7) if n not in (value, BASE[key]))
    if isinstance(value, tuple):
        kind = {"task.labels": ("german",), "task.inputs": ("x",)}
        return kind.get(key, (2, 3))
    return next((other for name, other in OTHER_VALUES.items() if key.endswith(f".{name}")), "nonsense")
