"""From the options of a sequence-to-sequence model to a Transformer decoder."""

from attn_jax.attention import WINDOWS
from attn_jax.errors import UserError
from attn_jax.models.encoder_options import StackOptions
from attn_jax.models.seq2seq.transformer_decoder import TransformerDecoder
from attn_jax.models.setting import Setting


def build_transformer_decoder(options: StackOptions, setting: Setting) -> TransformerDecoder:
    """Builds a decoder whose last layer reads the source with one head; its attention is added later.

    Raises:
        UserError: options that act on another decoder; widths that do not fit each other.
    """
    if options.embedded_size != options.hidden_size:
        raise UserError(
            "model.decoder transformer needs model.embedding_size and model.hidden_size to be equal, got "
            f"{options.embedded_size} and {options.hidden_size}"
        )
    attention = options.attention
    refused = {
        "model.selector": options.selector,
        "model.self_attention": options.self_attention,
        "model.pointer.coverage": options.pointer.coverage,
        "model.tags": options.tags if options.tags == "attended" else "",
        "model.attention.feed": attention.feed if attention.feed != "mean" else "",
        "model.attention.normalize": attention.normalize if attention.is_monotonic else "",
        "model.attention.window": attention.window if attention.window in WINDOWS else "",
    }
    if found := [f"{name} {value}" for name, value in refused.items() if value]:
        raise UserError(f"{found[0]} is of a recurrent decoder; model.decoder transformer does not have it")
    stack = options.build_stack(
        setting, options.decoder_attention.over(attention), source_attention=attention, causal=True
    )
    return TransformerDecoder(
        stack=stack.clone(num_layers=stack.num_layers - 1, norm_first=False),
        make_layer=stack.make_layer,
        features=options.hidden_size,
    )
