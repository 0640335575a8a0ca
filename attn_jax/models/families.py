"""The table of model families. A family is imported when it is chosen."""

import importlib
from collections.abc import Iterator, Mapping

from attn_jax.models.family import Family

# model.name -> the class of its options, whose `build(sizes, setting)` makes the model.
PLACES = {
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


class Table(Mapping[str, type[Family]]):
    """The classes of options by name, each imported at its first use."""

    def __getitem__(self, name: str) -> type[Family]:
        place = PLACES[name]
        if not isinstance(place, str):
            return place
        module, _, kind = place.partition(":")
        return getattr(importlib.import_module(module), kind)

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


FAMILIES = Table()
