"""The table of the families of models. A family is imported when it is chosen."""

import importlib

from attn_jax.errors import check_known

# model.name -> the class of its options, whose `build(sizes, setting)` makes the model.
FAMILIES = {
    "seq2seq": "attn_jax.models.seq2seq.options:Seq2SeqOptions",
    "transformer": "attn_jax.models.transformer.options:TransformerOptions",
    "language_model": "attn_jax.models.transformer.options:LanguageModelOptions",
    "recurrent_language_model": "attn_jax.models.recurrent.options:RecurrentOptions",
    "classifier": "attn_jax.models.classifier.options:ClassifierOptions",
    "glimpses": "attn_jax.models.glimpses.options:GlimpseOptions",
    "memn2n": "attn_jax.models.memory_networks.options:MemN2NOptions",
    "memnn": "attn_jax.models.memory_networks.options:MemNNOptions",
    "dmn": "attn_jax.models.memory_networks.options:DMNOptions",
    "dmn_plus": "attn_jax.models.memory_networks.options:DMNPlusOptions",
    "entnet": "attn_jax.models.memory_networks.options:EntNetOptions",
    "universal": "attn_jax.models.memory_networks.options:UniversalOptions",
    "kernel_regression": "attn_jax.models.kernel_regression.options:KernelRegressionOptions",
}


def family(name: str) -> type:
    """Returns the class of a family's options.

    Raises:
        UserError: there is no family of this name.
    """
    check_known(name, FAMILIES, "model.name")
    module, _, kind = FAMILIES[name].partition(":")
    return getattr(importlib.import_module(module), kind)
