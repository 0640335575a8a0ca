"""Attention mechanisms by one formula, context = read(normalize(score(query, keys)), values).

    >>> attended = attn_jax.attend(query, keys, values, score="scaled_dot", normalize="sparsemax")

Scores, normalizers and readings with parameters or options are objects, and Attention combines them into a module:

    >>> attention = attn_jax.attention(score=attn_jax.Additive(features=32), normalize=attn_jax.entmax15)
    >>> variables = attention.init(rng, query, keys, values)
    >>> context = attention.apply(variables, query, keys, values).context

Every part with its options is in one of attn_jax.scores, normalizers, readings, attention (wrappers), recurrent and
outputs.

`get_config` returns a config, `train` trains its model, `load` loads a trained model from its work directory, and
`import_parameters` reads the parameters of an export. Names are imported at their first use, so importing the package
does not import jax.
"""

import importlib
from typing import Any

from attn_jax.version import VERSION

__version__ = VERSION

_MODULES = {
    "attn_jax.attention.core": ("Attended", "Attention", "Memory"),
    "attn_jax.attention.build": ("build_attention",),
    "attn_jax.attention.functional": ("attend",),
    "attn_jax.attention.masks": ("causal", "causal_mask"),
    "attn_jax.attention.multi_head": ("MultiHead",),
    "attn_jax.attention.blockwise": ("blockwise_attention",),
    "attn_jax.attention.local": ("LocalM", "LocalP"),
    "attn_jax.attention.scores": (
        *("SCORES", "Score", "Dot", "ScaledDot", "General", "Additive", "Concat", "Location"),
        *("Gaussian", "Epanechnikov"),
    ),
    "attn_jax.attention.normalizers": (
        *("NORMALIZERS", "softmax", "sparsemax", "entmax", "entmax15", "fusedmax", "sigmoid", "rela", "kernel_sum"),
        *("linear", "hardmax", "LearnedEntmax", "ScalableSoftmax"),
    ),
    "attn_jax.attention.hard.readings": (
        *("READINGS", "Reading", "expectation", "enumeration", "reinforce", "sum_and_sample", "unordered_set"),
        *("gumbel_softmax", "straight_through", "rebar", "top", "log_of"),
    ),
    "attn_jax.attention.hard.estimators": ("combine", "combine_marginal"),
    "attn_jax.cli.from_python": ("get_config", "train"),
    "attn_jax.runs.importing": ("import_parameters",),
    "attn_jax.runs.load": ("load",),
}
_PACKAGES = {  # modules of parts with their options, such as attn_jax.readings.reinmax(temperature=0.5)
    "attention": "attn_jax.attention",
    "normalizers": "attn_jax.attention.normalizers",
    "outputs": "attn_jax.outputs",
    "readings": "attn_jax.attention.hard.readings",
    "recurrent": "attn_jax.attention.recurrent",
    "scores": "attn_jax.attention.scores",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name in _PACKAGES:
        return importlib.import_module(_PACKAGES[name])
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as error:  # training needs more packages than the library
        raise ImportError(f"attn_jax.{name} needs {error.name}: pip install 'attn_jax[train]'") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES, "__version__"]
