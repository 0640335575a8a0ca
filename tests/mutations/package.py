"""Faults in tasks, training, commands, models and attention."""

from mutation import Mutation

MUTATIONS = {
    # Tasks.
    "same_pairs_every_epoch": Mutation(
        "data/batching.py",
        "rng = np.random.default_rng((seed, number))",
        "rng = np.random.default_rng(seed)",
        "data/test_batching.py::test_every_epoch_deals_its_pairs_anew",
    ),
    "same_buckets_every_epoch": Mutation(
        "data/batching.py",
        "np.random.default_rng((ORDER, number)).permutation(steps)",
        "np.random.default_rng(ORDER).permutation(steps)",
        "data/test_batching.py::test_every_epoch_has_its_own_order_of_buckets_and_all_seeds_have_the_same",
    ),
    "bucket_side": Mutation(
        "data/batching.py",
        "fits = [(source <= s) & (target <= t) for s, t in buckets]",
        "fits = [(source <= s) & (target < t) for s, t in buckets]",
        "data/test_batching.py::test_first_bucket_in_order_of_area_that_holds_both_sides",
    ),
    "rows_of_tokens": Mutation(
        "data/batching.py",
        "return max(1, batch_size // target_length // row_multiple) * row_multiple",
        "return max(row_multiple, batch_size // target_length)",
        "data/test_batching.py::test_size_in_tokens_is_of_padded_target_positions",
    ),
    "tie_break": Mutation(
        "data/token_table.py",
        "key=lambda t: (-counts[t], t))",
        "key=lambda t: -counts[t])",
        "data/test_vocabulary.py::test_vocab_size_and_min_count",
    ),
    "min_count": Mutation(
        "data/token_table.py",
        "if counts[token] >= min_count)",
        "if counts[token] > min_count)",
        "data/test_vocabulary.py::test_vocab_size_and_min_count",
    ),
    # Training.
    "clipped_with_running_means": Mutation(
        "training/optimizers.py",
        "lambda path, u: jnp.zeros_like(u) if is_running(path) else u, updates)",
        "lambda path, u: u, updates)",
        "training/test_optimizers.py::test_the_gradient_of_a_baseline_is_clipped_by_itself",
    ),
    "nan_is_a_best": Mutation(
        "training/optimizers.py",
        "better |= np.isnan(self.best) & ~np.isnan(value)",
        "better |= np.isnan(self.best)",
        "training/test_optimizers.py::test_since_best_counts_on_where_there_never_was_a_number",
    ),
    "spent_at_once": Mutation(
        "training/optimizers.py",
        "(self.count > 0) & (self.count % patience == 0)",
        "self.count >= patience",
        "training/test_optimizers.py::test_since_best_counts_and_is_spent_every_patience",
    ),
    "decay_of_biases": Mutation(
        "training/optimizers.py",
        "optax.add_decayed_weights(weight_decay, mask=lambda params: jax.tree.map(lambda x: x.ndim >= 2, params))",
        "optax.add_decayed_weights(weight_decay)",
        "training/test_optimizers.py::test_optimizer_is_its_closed_form",
    ),
    "rows_leave_their_device": Mutation(
        "training/loop.py",
        "return x.reshape(rows // parts, parts, *x.shape[1:]).swapaxes(0, 1)",
        "return x.reshape(parts, rows // parts, *x.shape[1:])",
        "training/test_loop.py::test_each_device_keeps_its_rows_in_every_microbatch",
    ),
    "time_of_one_process": Mutation(
        "runs/run.py",
        'self.seconds, self.finished = extra["seconds"], extra["finished"] and',
        'self.seconds, self.finished = 0.0, extra["finished"] and',
        "runs/test_run_training.py::test_time_of_all_processes_is_added_up",
    ),
    "failed_with_a_result": Mutation(
        "sweeps/sweep.py",
        'if code or not (where / "result.json").exists() else',
        'if not (where / "result.json").exists() else',
        "sweeps/test_sweep.py::test_a_run_that_ends_with_an_error_has_failed_even_with_a_result",
    ),
    "first_override_counts": Mutation(
        "cli/command_line.py",
        'i for i, (name, _) in enumerate(map(split, arguments)) if name.startswith("config.")}',
        'i for i, (name, _) in reversed([*enumerate(map(split, arguments))]) if name.startswith("config.")}',
        "cli/test_command_line.py::test_of_a_key_given_twice_the_last_counts",
    ),
    "std_of_a_population": Mutation(
        "evaluation/metrics.py",
        "std = float(array.std(ddof=1))",
        "std = float(array.std())",
        "evaluation/test_metrics.py::test_summarize",
    ),
    "nothing_is_zero": Mutation(
        "models/metrics.py",
        "xp.where(nonzero, self.count, 1), xp.nan)",
        "xp.where(nonzero, self.count, 1), 0.0)",
        "evaluation/test_metrics.py::test_nothing_counted_is_nan",
    ),
    # Models.
    "linear_bridge": Mutation(
        "models/seq2seq/recurrent_stack.py",
        "h = self.activation(dense(encoded.last[min(index, len(encoded.last) - 1)][0]))",
        "h = dense(encoded.last[min(index, len(encoded.last) - 1)][-1])",
        "models/seq2seq/test_seq2seq.py::test_bridges",
    ),
    "distance_turned_round": Mutation(
        "attention/multi_head.py",
        "bias(key_positions[:, None] - positions[..., None])",
        "bias(positions[..., None] - key_positions[:, None])",
        "models/transformer/test_transformer.py::test_positions_by_blocks_are_those_of_all_scores_at_once",
    ),
    "empty_memories_too_old": Mutation(
        "models/memory_networks/memn2n.py",
        "older = ages[:, :, None] >= place[:, None, :]",
        "older = ages[:, :, None] > place[:, None, :]",
        "models/memory_networks/test_memn2n.py::test_empty_memories_stand_at_every_place_as_often",
    ),
    "no_dropout_between_layers": Mutation(
        "layers/rnn.py",
        "outputs = Dropout(rate=self.dropout)(outputs, deterministic=not train)",
        "outputs = Dropout(rate=self.dropout)(outputs, deterministic=True)",
        "layers/test_rnn.py::test_dropout_stands_between_the_layers",
    ),
    "ring_of_the_first_keys": Mutation(
        "attention/caches.py",
        "x[..., x.shape[-2] - number :, :]",
        "x[..., :number, :]",
        "attention/test_mixer.py",
    ),
    "a_masked_key_is_written": Mutation(
        "attention/caches.py",
        "jnp.where(here, memory.positions, -1)[..., None]",
        "memory.positions[..., None] * jnp.ones_like(here[..., None], int)",
        "attention/test_mixer.py",
    ),
    "queries_are_not_rotated": Mutation(
        "attention/rotary.py",
        "query=self._rotated(call.query, call.positions)",
        "query=call.query",
        "attention/test_multi_head.py::test_with_a_difference_rotary_scores_depend_on_distances_alone",
    ),
    "what_was_selected_is_forgotten": Mutation(
        "attention/selective.py",
        "selected = call.keys[0] + jnp.sum(self._selections(call), axis=-2)[..., None]",
        "selected = call.keys[0]",
        "attention/test_mixer.py",
    ),
    "context_before_the_source_norm": Mutation(
        "models/seq2seq/transformer_decoder.py",
        "self.last.after_source(hidden, context)",
        "self.last.feed_forward(hidden)",
        "models/seq2seq/test_transformer_decoder.py",
    ),
    "no_dropout_of_embeddings": Mutation(
        "layers/transformer.py",
        "x = self.drop(self.positions.embed(embedded, positions), deterministic=not train)",
        "x = self.positions.embed(embedded, positions)",
        "models/transformer/test_transformer.py::test_what_dropout_takes_out",
    ),
    "no_dropout_in_the_feed_forward": Mutation(
        "layers/transformer.py",
        "hidden = self.drop(self.activation(self.inner(inner)), deterministic=not train)",
        "hidden = self.activation(self.inner(inner))",
        "models/transformer/test_transformer.py::test_what_dropout_takes_out",
    ),
    "no_dropout_of_self_attention": Mutation(
        "layers/transformer.py",
        "self._add(self.self_norm, x, attended.context, train)",
        "self._add(self.self_norm, x, attended.context, False)",
        "models/transformer/test_transformer.py::test_what_dropout_takes_out",
    ),
    "no_dropout_of_source_attention": Mutation(
        "layers/transformer.py",
        "self._add(self.source_norm, x, context, train)",
        "self._add(self.source_norm, x, context, False)",
        "models/transformer/test_transformer.py::test_what_dropout_takes_out",
    ),
    "no_dropout_of_the_feed_forward": Mutation(
        "layers/transformer.py",
        "return self._add(self.feed_forward_norm, x, self.outer(hidden), train)",
        "return self._add(self.feed_forward_norm, x, self.outer(hidden), False)",
        "models/transformer/test_transformer.py::test_what_dropout_takes_out",
    ),
    "halted_moves_on": Mutation(
        "models/memory_networks/universal.py",
        "x = jnp.where(state.running[..., None], changed, previous)",
        "x = changed",
        "models/memory_networks/test_universal.py::test_adaptive_states_are_those_of_a_loop_in_which_a_halted_position_stays",
    ),
    "rate_of_running_means": Mutation(
        "attention/hard/baselines.py",
        "return 0.5 * jnp.square(self.mean - f)",
        "return jnp.square(self.mean - f)",
        "attention/hard/test_baselines.py::test_a_running_mean_moves_to_the_loss",
    ),
    "quotient_of_coordinates": Mutation(
        "attention/hard/baselines.py",
        "b = self.numerator / jnp.maximum(self.denominator, 1e-8)",
        "b = self.numerator * jnp.maximum(self.denominator, 1e-8)",
        "attention/hard/test_baselines.py::test_baselines_of_coordinates_are_quotients_of_running_means",
    ),
    "critic_without_importance_weights": Mutation(
        "attention/hard/baselines.py",
        "return jnp.sum(sample.importance_weights * jnp.square(chosen - losses), axis=-1)",
        "return jnp.sum(jnp.square(chosen - losses), axis=-1)",
        "attention/hard/test_baselines.py::test_a_critic_is_its_formula_and_learns_the_losses_that_were_seen",
    ),
    # Decoding.
    "beams_read_the_keys_of_other_beams": Mutation(
        "models/transformer/beams.py",
        "seen = (ancestors[..., None] == own)",
        "seen = (ancestors[..., None] >= 0 * own)",
        "models/transformer/test_beams.py::test_beams_share_a_prompt",
    ),
    "a_forbidden_word_hides_the_best_of_another_group": Mutation(
        "outputs/top_k.py",
        "searched = n + logits.shape[-2] * len({word // GROUP for word in forbidden})",
        "searched = n",
        "outputs/test_top_k.py::test_the_best_extensions_of_all_rows_are_those_of_a_search_among_all",
    ),
    # Attention.
    "critic_adds_nothing_back": Mutation(
        "attention/hard/estimators.py",
        "return gradient_only(jnp.sum(weights * g, axis=-1)) - jnp.sum(",
        "return -jnp.sum(",
        "attention/hard/test_estimators.py::test_mean_over_all_outcomes_is_the_enumeration",
    ),
    "no_baseline": Mutation(
        "attention/hard/estimators.py",
        "advantage = advantage - jax.lax.stop_gradient(baseline)[..., None]",
        "advantage = advantage + 0 * jax.lax.stop_gradient(baseline)[..., None]",
        "attention/hard/test_estimators.py::test_one_loss_for_all_is_the_value_and_as_baseline_leaves_no_gradient",
    ),
    "coupled_keys_weighted_as_independent_ones": Mutation(
        "attention/hard/coupled.py",
        "ratio = rest * next_rest * jnp.exp(-log_both)",
        "ratio = jnp.ones_like(rest)",
        "attention/hard/test_coupled.py::test_mean_over_all_pairs_is_the_enumeration",
    ),
    "reinmax_of_first_order": Mutation(
        "attention/hard/straight_through.py",
        "return _moved(log_weights, jax.lax.stop_gradient(hard + relax(log_weights, log_weights, temperature)) / 2)",
        "return _moved(log_weights, jax.lax.stop_gradient(relax(log_weights, log_weights, temperature)))",
        "attention/hard/test_straight_through.py::test_reinmax_is_exact_for_a_quadratic_loss_and_for_no_other",
    ),
    "moments_of_both_samplers_in_one": Mutation(
        "attention/hard/baselines.py",
        "chosen = jax.nn.one_hot(sample.sampler, 2, dtype=f.dtype)",
        "chosen = jnp.ones((*f.shape, 2), f.dtype)",
        "attention/hard/test_adaptive_estimator.py::test_moments_of_a_sampler_are_means_over_its_own_samples",
    ),
    "a_chain_through_masked_keys": Mutation(
        "attention/normalizers/structured.py",
        "log_alpha = jnp.where(kept[..., None], following - total[..., None], log_alpha)",
        "log_alpha = following - total[..., None]",
        "attention/normalizers/test_structured.py::"
        "test_log_z_and_marginals_are_the_sum_over_all_selections_of_the_keys_that_are_left",
    ),
    "dropped_weights_lose_mass": Mutation(
        "attention/dropout.py",
        "inputs / max(keep_probability(rate), 1 / LEVELS), 0)",
        "inputs, 0)",
        "attention/test_dropout.py::test_the_mean_is_the_input",
    ),
    "half_steps_of_newton": Mutation(
        "attention/normalizers/entmax.py",
        "newton = jnp.clip(d - excess / slope, low, d)",
        "newton = jnp.clip(d - 0.5 * excess / slope, low, d)",
        "attention/normalizers/test_entmax.py::test_newton_takes_no_more_steps_than_proven",
    ),
}
