"""Faults in attention block by block."""

from mutation import Mutation

MUTATIONS = {
    "context_not_rescaled": Mutation(
        "attention/blockwise.py",
        "context * shrunk + _product(w, block.values)",
        "context + _product(w, block.values)",
        "attention/test_blockwise.py::test_the_context_and_all_gradients_are_those_of_the_formula",
    ),
    "threshold_is_constant": Mutation(
        "attention/blockwise.py",
        "dtau = dw / jnp.maximum(total, NEGLIGIBLE)",
        "dtau = jnp.zeros_like(dw)",
        "attention/test_blockwise.py::test_the_context_and_all_gradients_are_those_of_the_formula",
    ),
    "values_do_not_move": Mutation(
        "attention/blockwise.py",
        "_product(dw, moving[1]) + _product(w, along[1])",
        "_product(dw, moving[1])",
        "attention/test_blockwise.py::test_the_context_and_all_gradients_are_those_of_the_formula",
    ),
    "softmax_mean_is_free": Mutation(
        "attention/blockwise.py",
        "(moved - dw * context, dw)",
        "(moved, dw)",
        "attention/test_blockwise.py::test_the_context_and_all_gradients_are_those_of_the_formula",
    ),
    "bias_left_out": Mutation(
        "attention/blockwise.py",
        "scores = jnp.add(*same_axes(scores, bias))\n",
        "scores = scores\n",
        "attention/test_blockwise.py::test_masks_and_biases_by_position_and_parts_of_the_weights",
    ),
    "second_key_is_first": Mutation(
        "attention/blockwise.py",
        "block.positions == 0",
        "block.positions == 1",
        "attention/test_blockwise.py::test_masks_and_biases_by_position_and_parts_of_the_weights",
    ),
    "padding_has_weight": Mutation(
        "attention/blockwise.py",
        "[..., : self._of.num_keys]",
        "[..., -self._of.num_keys :]",
        "attention/test_blockwise.py::test_masks_and_biases_by_position_and_parts_of_the_weights",
    ),
    "rows_of_other_queries": Mutation(
        "attention/blockwise.py",
        "return self(query[..., rows, :], rows[:, None], block)",
        "return self(query[..., rows, :], jnp.arange(len(rows))[:, None], block)",
        "attention/test_blockwise.py::test_masks_and_biases_by_position_and_parts_of_the_weights",
    ),
    "empty_rows": Mutation(
        "attention/blockwise.py",
        "return context / total, jnp.where(empty, 0.0, largest + jnp.log(total))",
        "return context / total, largest + jnp.log(total)",
        "attention/test_blockwise.py::test_the_context_and_all_gradients_are_those_of_the_formula",
    ),
    "memory_of_all_blocks": Mutation(
        "attention/blockwise.py",
        "jax.checkpoint(part)(block)), None)  # noqa",
        "part(block)), None)  # noqa",
        "attention/test_blockwise.py::test_memory_grows_with_the_number_of_keys_alone",
    ),
    "positions_stay_in_their_trace": Mutation(
        "attention/blockwise.py",
        "traced = [i for i, x in enumerate(closed.consts) if isinstance(x, Tracer)]",
        "traced = [i for i, x in enumerate(closed.consts) if jnp.issubdtype(x.dtype, jnp.inexact)]",
        "attention/test_blockwise.py::test_functions_of_positions_in_what_is_traced_before_it_is_differentiated",
    ),
    "positions_of_all_pairs": Mutation(
        "attention/multi_head.py",
        "if not self.attention.block_size:",
        "if True:",
        "models/transformer/test_transformer.py::test_positions_by_blocks_need_no_array_of_all_pairs",
    ),
    "newton_stops_early": Mutation(
        "attention/normalizers/entmax.py",
        "(excess > tolerance) & (newton < d)",
        "(excess > 1e-2) & (newton < d)",
        "attention/test_blockwise.py::test_weights_of_entmax_sum_to_one_to_the_last_digits",
    ),
}
