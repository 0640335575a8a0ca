"""Faults in the output layers."""

from mutation import Mutation

MUTATIONS = {
    "sum_with_the_target": Mutation(
        "outputs/criteria.py",
        "-jnp.inf, scored.words - scored.log_count[None])\n    return jax.nn.logsumexp",
        "scored.words, scored.words - scored.log_count[None])\n    return jax.nn.logsumexp",
        "outputs/test_sampled.py::test_a_sampled_word_that_is_the_target_counts_for_nothing_in_blackout_and_importance_sampling",
    ),
    "uncorrected_words": Mutation(
        "outputs/criteria.py",
        "-jnp.inf, scored.words - scored.log_count[None])\n    return jax.nn.logsumexp",
        "-jnp.inf, scored.words)\n    return jax.nn.logsumexp",
        "outputs/test_sampled.py::test_the_normalizer_is_unbiased_and_the_loss_too_small",
    ),
    "noise_without_its_count": Mutation(
        "outputs/criteria.py",
        "scored._replace(target=scored.target - scored.log_count_of_target, words",
        "scored._replace(target=scored.target, words",
        "outputs/test_sampled.py::test_the_gradient_of_noise_contrastive_estimation_tends_to_that_of_the_likelihood",
    ),
    "blackout_of_the_target": Mutation(
        "outputs/criteria.py",
        "others = jnp.where(scored.is_target, 0.0, log1m_exp",
        "others = jnp.where(scored.is_target, 1.0, log1m_exp",
        "outputs/test_sampled.py::test_a_sampled_word_that_is_the_target_counts_for_nothing_in_blackout_and_importance_sampling",
    ),
    "blackout_unweighted": Mutation(
        "outputs/criteria.py",
        "target = scored.target - scored.log_count_of_target",
        "target = scored.target",
        "outputs/test_sampled.py::test_blackout_weighs_words_by_one_over_q",
    ),
    "log1m_exp_swapped": Mutation(
        "outputs/criteria.py",
        "far = x < -0.6931472",
        "far = x > -0.6931472",
        "outputs/test_sampled.py::test_log1m_exp",
    ),
    "alias_ignored": Mutation(
        "outputs/proposals.py",
        "return jnp.where(keep, entry, jnp.asarray(self.alias)[entry])\n\n    def classes",
        "return entry\n\n    def classes",
        "outputs/test_sampled.py::test_samples_have_the_probabilities_that_are_returned_with_them",
    ),
    "classes_uniform_within": Mutation(
        "outputs/proposals.py",
        "within[order] = probs[order] / total[index]",
        "within[order] = 1 / self.size[index]",
        "outputs/test_sampled.py::test_within_a_class_words_have_the_proportions_of_all",
    ),
    "mean_class_unnormalized": Mutation(
        "outputs/proposals.py",
        "- jnp.log(jnp.sum(real)))",
        "+ 0.0 * jnp.log(jnp.sum(real)))",
        "outputs/test_sampled.py::test_samples_have_the_probabilities_that_are_returned_with_them",
    ),
    "proposal_moves_the_model": Mutation(
        "outputs/proposals.py",
        "(jax.lax.stop_gradient(wide(hidden)))",
        "(wide(hidden))",
        "outputs/test_sampled.py::test_a_learned_proposal_trains_itself_and_leaves_the_model_alone",
    ),
    "alias_threshold": Mutation(
        "outputs/frequencies.py",
        "threshold[high] -= 1 - threshold[low]",
        "threshold[high] -= threshold[low]",
        "outputs/test_sampled.py::test_an_alias_table_holds_the_distribution",
    ),
    "power_of_counts": Mutation(
        "outputs/frequencies.py",
        "np.asarray(counts, np.float64) ** power",
        "np.asarray(counts, np.float64)",
        "outputs/test_sampled.py::test_proposals_are_distributions",
    ),
    "log_uniform_by_number": Mutation(
        "outputs/frequencies.py",
        "probs[frequencies.order] = np.log1p",
        "probs[:] = np.log1p",
        "outputs/test_sampled.py::test_proposals_are_distributions",
    ),
    "shared_samples": Mutation(
        "outputs/sampled.py",
        "log_k = math.log(self.num_samples)",
        "log_k = 0.0",
        "outputs/test_sampled.py::test_the_loss_tends_to_the_full_one",
    ),
    "normalizer_of_the_words_alone": Mutation(
        "outputs/sampled.py",
        "scored._replace(target=scored.target - log_z, words=scored.words - log_z)",
        "scored._replace(words=scored.words - log_z)",
        "outputs/test_sampled.py::test_a_learned_normalizer_is_a_parameter_of_noise_contrastive_estimation",
    ),
    "left_is_right": Mutation(
        "outputs/hierarchical.py",
        "jax.nn.log_sigmoid(jnp.where(right, scores, -scores))",
        "jax.nn.log_sigmoid(jnp.where(right, -scores, scores))",
        "outputs/test_hierarchical.py::test_probabilities_are_products_of_decisions_and_sum_to_one",
    ),
    "edges_not_doubled": Mutation(
        "outputs/hierarchical.py",
        "sums = sums + jnp.take(sums, above, axis=-1)",
        "sums = sums + jnp.take(edges, above, axis=-1)",
        "outputs/test_hierarchical.py::test_probabilities_are_products_of_decisions_and_sum_to_one",
    ),
    "flat_search_gives_up": Mutation(
        "outputs/hierarchical.py",
        "(values, words, jnp.any(count > size)))[:2]",
        "(values, words, jnp.zeros((), bool)))[:2]",
        "outputs/test_hierarchical.py::test_a_search_without_enough_room_computes_all_words",
    ),
    "huffman_joins_the_largest": Mutation(
        "outputs/trees.py",
        "heapq.heappush(heap, (low + high, size + inner))",
        "heapq.heappush(heap, (high, size + inner))",
        "outputs/test_hierarchical.py::test_no_tree_is_better_than_huffmans",
    ),
    "cut_in_the_middle": Mutation(
        "outputs/trees.py",
        "cut -= int(half - before[cut - 1] < before[cut] - half)",
        "cut -= 0",
        "outputs/test_hierarchical.py::test_groups_by_frequency_have_the_most_equal_counts",
    ),
    "unscaled_chunks": Mutation(
        "outputs/chunked.py",
        "return new, total * jnp.exp(largest - new) + jnp.sum",
        "return new, total + jnp.sum",
        "outputs/test_chunked.py::test_values_and_gradients_are_those_of_the_full_softmax",
    ),
    "no_last_chunk": Mutation(
        "outputs/chunked.py",
        "carry = step(carry, Chunk(table, bias, axis, whole * chunk, rest))",
        "pass",
        "outputs/test_chunked.py::test_values_and_gradients_are_those_of_the_full_softmax",
    ),
    "smoothed_gradient": Mutation(
        "outputs/chunked.py",
        "d_logits = d_logits - of_all if smoothing else d_logits",
        "d_logits = d_logits",
        "outputs/test_chunked.py::test_values_and_gradients_are_those_of_the_full_softmax",
    ),
    "bias_gradient": Mutation(
        "outputs/chunked.py",
        "jnp.sum(d_logits, axis=0), part.start, 0)",
        "jnp.sum(probs, axis=0), part.start, 0)",
        "outputs/test_chunked.py::test_values_and_gradients_are_those_of_the_full_softmax",
    ),
    "later_of_equal_words": Mutation(
        "outputs/chunked.py",
        "jnp.concatenate([values, best], axis=1), k)\n"
        "        words = jnp.concatenate([words, (part.start + index).astype(jnp.int32)], axis=1)",
        "jnp.concatenate([best, values], axis=1), k)\n"
        "        words = jnp.concatenate([(part.start + index).astype(jnp.int32), words], axis=1)",
        "outputs/test_chunked.py::test_of_equal_words_the_first_are_taken",
    ),
    "all_logits_at_once": Mutation(
        "outputs/chunked.py",
        "chunk = min(chunk, vocab_size)\n    whole",
        "chunk = vocab_size\n    whole",
        "outputs/test_chunked.py::test_memory_does_not_grow_with_the_vocabulary",
    ),
    "cluster_without_its_head": Mutation(
        "outputs/adaptive.py",
        "parts.append(first[..., size + i, None] + self._tail_log_probs(tail, hidden))",
        "parts.append(self._tail_log_probs(tail, hidden))",
        "outputs/test_adaptive.py::test_probabilities_sum_to_one_and_the_methods_agree",
    ),
    "ranks_unsorted": Mutation(
        "outputs/adaptive.py",
        "self.rank[self.word] = np.arange(len(order))",
        "self.rank[:] = np.arange(len(order))",
        "outputs/test_adaptive.py::test_the_order_of_the_vocabulary_does_not_matter",
    ),
    "tail_never_needed": Mutation(
        "outputs/adaptive.py",
        "needed = jnp.any(cluster > best[0][..., -1])",
        "needed = jnp.all(cluster > best[0][..., -1])",
        "outputs/test_adaptive.py::test_probabilities_sum_to_one_and_the_methods_agree",
    ),
    "a_block_too_few": Mutation(
        "outputs/adaptive.py",
        "(jnp.sum(own) + size - 1) // size",
        "jnp.sum(own) // size",
        "outputs/test_adaptive.py::test_for_rows_is_the_function_on_its_own_rows_and_zero_elsewhere",
    ),
    "gradient_of_foreign_rows": Mutation(
        "outputs/adaptive.py",
        "jnp.where(some < len(x), cotangent[at], 0.0)",
        "cotangent[at]",
        "outputs/test_adaptive.py::test_for_rows_is_the_function_on_its_own_rows_and_zero_elsewhere",
    ),
    "clusters_always_computed": Mutation(
        "outputs/clusters.py",
        "probs * words, np.inf",
        "1.0 * words, np.inf",
        "outputs/test_adaptive.py::test_cut_points_are_the_cheapest",
    ),
    "smoothing_of_the_likelihood": Mutation(
        "outputs/full.py",
        "smooth = log_normalizer - jnp.mean(logits, axis=-1)",
        "smooth = log_normalizer - jnp.max(logits, axis=-1)",
        "outputs/test_full.py::test_label_smoothing_is_the_cross_entropy_with_the_smoothed_distribution",
    ),
}
