"""Faults in the mechanisms of 2020 to 2026: sinks, bounded scores, selection, Hopfield, features, gates, signs."""

from mutation import Mutation

SINKS, SIGNED = "attention/normalizers/test_sinks.py", "attention/test_signed.py"
SEGMENTS = "attention/normalizers/test_structured.py"
ENTMAX, FUSEDMAX = "attention/normalizers/test_entmax.py", "attention/normalizers/test_fusedmax.py"
CONTEXTUAL = "attention/normalizers/test_contextual.py"

MUTATIONS = {
    "sink_is_zero": Mutation(
        "attention/normalizers/sinks.py",
        "jnp.zeros_like(scores[..., :1]) + jnp.asarray(sink, scores.dtype)",
        "jnp.zeros_like(scores[..., :1])",
        SINKS,
    ),
    "sigmoid_without_bias": Mutation(
        "attention/normalizers/sinks.py", "jnp.where(keep, scores, 0.0) - jnp.log(number)", "scores", SINKS
    ),
    "softpick_of_positive_scores_alone": Mutation(
        "attention/normalizers/sinks.py", "jnp.sum(jnp.abs(raised)", "jnp.sum(jax.nn.relu(raised)", SINKS
    ),
    "softpick_cancels_near_zero": Mutation(
        "attention/normalizers/sinks.py", "small = jnp.abs(scores) < 0.5", "small = jnp.abs(scores) < 0.0", SINKS
    ),
    "stick_from_the_first_key": Mutation(
        "attention/normalizers/sinks.py", "axis=after.ndim - 1, reverse=True", "axis=after.ndim - 1", SINKS
    ),
    "steps_between_groups_do_not_pull": Mutation(
        "attention/normalizers/fusedmax.py",
        "jnp.where(goes_on, total, fusion * new)",
        "jnp.where(goes_on, total, 0.0)",
        FUSEDMAX,
    ),
    "groups_above_the_threshold_are_left_together": Mutation(
        "attention/normalizers/fusedmax.py", "fusion, -(1 + 2 * fusion)), mask)", "fusion, -0.5), mask)", FUSEDMAX
    ),
    "least_threshold_is_zero": Mutation(
        "attention/normalizers/entmax.py",
        "-jnp.asarray(eps, one.dtype), least)",
        "-jnp.asarray(eps, one.dtype), 0)",
        ENTMAX,
    ),
    "products_are_rounded": Mutation(
        "attention/scores/base.py",
        "query, keys, preferred_element_type=widest(query, keys))",
        "query, keys)",
        "attention/test_types.py",
    ),
    "masked_keys_have_positions": Mutation(
        "attention/local.py",
        "positions = jnp.cumsum(key_mask, axis=-1) - 1",
        "positions = jnp.cumsum(jnp.ones_like(key_mask), axis=-1) - 1",
        "attention/test_local.py",
    ),
    "distances_from_the_origin": Mutation(
        "attention/scores/kernels.py",
        "query - point, projected_keys - point",
        "query, projected_keys",
        "attention/scores/test_kernels.py",
    ),
    "distances_from_the_least_query": Mutation(
        "attention/scores/kernels.py",
        "point = jnp.maximum(least, 0) + jnp.minimum(largest, 0)",
        "point = least",
        "attention/scores/test_kernels.py",
    ),
    "a_segment_follows_another_at_once": Mutation(
        "attention/normalizers/structured.py",
        "[apart, parts[..., :-1] + score[..., None]]",
        "[apart, parts[..., :-1].at[..., 0].set(apart[..., 0]) + score[..., None]]",
        SEGMENTS,
    ),
    "masked_keys_end_a_segment": Mutation(
        "attention/normalizers/structured.py",
        "parts = jnp.where(kept[..., None], following - total, parts)",
        "parts = following - total",
        SEGMENTS,
    ),
    "positions_counted_from_the_first_key": Mutation(
        "attention/normalizers/contextual.py", "axis=gates.ndim - 1, reverse=True", "axis=gates.ndim - 1", CONTEXTUAL
    ),
    "positions_without_a_line_between": Mutation(
        "attention/normalizers/contextual.py", "(position - below) * (upper - lower)", "0 * upper", CONTEXTUAL
    ),
    "share_without_sink": Mutation(
        "attention/normalizers/forms.py",
        "jax.nn.sigmoid(tau - sink)",
        "jax.nn.sigmoid(tau)",
        "attention/test_blockwise.py::test_attention_by_blocks_is_attention",
    ),
    "log_number_moves_with_scores": Mutation(
        "attention/blockwise.py",
        "if form.solve is None or form.of_mask:",
        "if form.solve is None:",
        "attention/test_blockwise.py::test_the_context_and_all_gradients_are_those_of_the_formula",
    ),
    "cosine_of_the_query_as_it_is": Mutation(
        "attention/scores/bounded.py", "* unit(query)", "* query", "attention/scores/test_bounded.py"
    ),
    "cap_without_its_factor": Mutation(
        "attention/scores/bounded.py",
        "return self.softcap * jnp.tanh",
        "return jnp.tanh",
        "attention/scores/test_bounded.py",
    ),
    "one_key_more": Mutation(
        "attention/selection.py", "(rank < number)", "(rank <= number)", "attention/test_selection.py"
    ),
    "masked_keys_are_selected": Mutation(
        "attention/selection.py", "-scores, jnp.inf", "-scores, -jnp.inf", "attention/test_selection.py"
    ),
    "the_query_stays": Mutation(
        "attention/maps.py",
        "call._replace(query=weighted_sum(self.of(call), keys).astype(call.query.dtype))",
        "call",
        "attention/test_hopfield.py",
    ),
    "float64_is_fused": Mutation(
        "attention/core.py",
        "== values.dtype != jnp.float64",
        "== values.dtype",
        "attention/test_hopfield.py",
    ),
    "features_without_their_norm": Mutation(
        "attention/random_features.py", "- square / 2 -", "-", "attention/test_random_features.py"
    ),
    "variance_of_one_direction": Mutation(
        "attention/random_features.py",
        "jnp.expm1(apart) / number",
        "jnp.expm1(apart)",
        "attention/test_random_features.py",
    ),
    "orthogonal_directions_of_length_one": Mutation(
        "attention/random_features.py",
        "return turns * lengths[:, None]",
        "return turns",
        "attention/test_random_features.py",
    ),
    "later_keys_are_not_forgotten": Mutation(
        "attention/forgetting.py",
        "-jnp.abs(at_query[..., :, None] - total[..., None, :])",
        "at_query[..., :, None] - total[..., None, :]",
        "attention/test_gates.py",
    ),
    "gates_are_open": Mutation(
        "attention/forgetting.py",
        "return gates[..., None], self.of.prepare",
        "return 0 * gates[..., None], self.of.prepare",
        "attention/test_gates.py",
    ),
    "gate_of_the_context": Mutation(
        "attention/mixer.py",
        "self.context_gate(contexts, x)",
        "self.context_gate(contexts, contexts)",
        "attention/test_gates.py",
    ),
    "line_without_covariance": Mutation(
        "attention/signed.py",
        'jnp.einsum("...qk,...qki,...qkj->...qij", share',
        'jnp.einsum("...qk,...qki,...qkj->...qij", 0 * share',
        SIGNED,
    ),
    "line_at_the_mean": Mutation("attention/signed.py", "(query - mean)[..., None]", "query[..., None]", SIGNED),
    "parallax_of_the_other_sign": Mutation("attention/signed.py", "slope * mean, axis", "-slope * mean, axis", SIGNED),
    "lambda_without_its_start": Mutation("attention/signed.py", " + self.initial", "", SIGNED),
    "both_maps_of_the_same_half": Mutation(
        "attention/maps.py",
        "zip(halves(call.query), call.keys, strict=True)",
        "[(halves(call.query)[0], call.keys[0])] * 2",
        SIGNED,
    ),
}
