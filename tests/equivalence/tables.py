"""What has another name since the tag `before-parts`: keys of configs and paths of parameters."""

import re

# A pattern of old paths -> the new path, applied in this order. A path that no pattern matches keeps its name.
OF_ATTENTION = r"(?<![^/])(attention|self_attention|tag_attention|read|write)/"  # a module that is an Attention
PATHS = {
    r"(?<![^/])alignment/": "objective/",
    OF_ATTENTION + r"(score|fit)/": r"\1/map/\2/",
    OF_ATTENTION + r"normalize/": r"\1/map/normalize/function/",
    OF_ATTENTION + r"window/": r"\1/map/normalize/window/",
    OF_ATTENTION + r"monotonic/": r"\1/map/normalize/selection/",
    OF_ATTENTION + r"difference/": r"\1/map/subtract/",
    r"(?<![^/])attention/context_gate/": r"attention/read/context_gate/",
    r"(?<![^/])forget_gates/": r"attention/map/gates/",
    r"(?<![^/])head_norm/": r"attention/map/norm/",
}
# Configs in which a program has another text, and why; their losses, tokens and maps are equal.
OF_POSITIONS = "order, rotations and biases of Transformers are read from the positions of keys, not from their places"
TRANSFORMERS = """
    addition babi_universal enja_transformer flip_flop inflection_transformer inflection_transformer_tags
    jaen_transformer language_id_transformer multi30k_bpe_dropout multi30k_transformer quickstart_transformer recall
    scenes_patches scenes_questions sort_asentmax sort_entmax sort_softmax
"""
OTHER_TEXT = dict.fromkeys(TRANSFORMERS.split(), OF_POSITIONS)
# Configs whose numbers are others each time, or on another processor; their programs and names of maps are compared.
NOT_REPEATABLE = {
    "multi30k_bpe_dropout": "sentencepiece trains a little differently each time",
    "kernel_regression": "the widths that it finds differ between processors by 1e-5",
}


def new_path(old: str) -> str:
    """Returns the path that a parameter has now."""
    for pattern, replacement in PATHS.items():
        old = re.sub(pattern, replacement, old)
    return old
