"""Faults in glimpses, in scenes, in positions of images and in where attention looks."""

from mutation import Mutation

GLIMPSES = "models/glimpses/test_glimpses.py"
WEIGHTED = f"{GLIMPSES}::test_a_place_is_weighted_by_the_cost_and_the_later_entropy_and_a_baseline_is_to_predict_both"

MUTATIONS = {
    "an_odd_crop_lies_beyond_the_border": Mutation(
        "layers/glimpses.py",
        "return jnp.minimum(nearest, size - (side + 1) // 2)",
        "return nearest",
        "layers/test_crops.py",
    ),
    "baseline_sees_its_own_place": Mutation(
        "models/glimpses/model.py",
        "value = self.baseline.value(path.before)",
        "value = self.baseline.value(path.after)",
        f"{GLIMPSES}::test_the_mean_of_the_sampled_gradients_is_the_exact_one",
    ),
    "entropy_of_earlier_places": Mutation(
        "models/glimpses/objective.py",
        "return jnp.cumsum(x[..., ::-1], axis=-1)[..., ::-1] - x",
        "return jnp.cumsum(x, axis=-1) - x",
        f"{GLIMPSES}::test_the_mean_of_the_sampled_gradients_is_the_exact_one",
    ),
    "entropy_of_its_own_place": Mutation(
        "models/glimpses/objective.py",
        "axis=-1)[..., ::-1] - x",
        "axis=-1)[..., ::-1]",
        WEIGHTED,
    ),
    "baseline_without_the_entropy": Mutation(
        "models/glimpses/objective.py",
        "return jax.lax.stop_gradient(cost[..., None] - self.entropy * later(entropy))",
        "return jax.lax.stop_gradient(cost[..., None] + 0 * entropy)",
        WEIGHTED,
    ),
    "column_before_row": Mutation(
        "layers/pictures.py",
        "return grid + jnp.concatenate(both, axis=-1)",
        "return grid + jnp.concatenate(both[::-1], axis=-1)",
        "layers/test_pictures.py::test_sinusoids_of_the_row_come_first_and_those_of_the_column_second",
    ),
    "exact_paths_without_the_policy": Mutation(
        "models/glimpses/objective.py",
        "gradient_only(jnp.sum(p * cost, axis=-1) - uncertain)",
        "gradient_only(-uncertain)",
        f"{GLIMPSES}::test_the_exact_gradient_of_the_likelihood_is_that_of_the_expected_loss",
    ),
    "a_place_is_column_and_row": Mutation(
        "layers/glimpses.py",
        "top, left = corner(place, pixels.shape[:2], side) + pad",
        "left, top = corner(place, pixels.shape[:2], side) + pad",
        f"{GLIMPSES}::test_a_crop_has_the_pixels_around_its_place_and_is_black_outside",
    ),
    "density_without_the_variance": Mutation(
        "models/glimpses/policies.py",
        "/ (2 * self.sigma**2) - constant",
        "/ 2 - constant",
        f"{GLIMPSES}::test_the_gaussian_score_differentiates_expectations",
    ),
    "training_digits_in_the_test": Mutation(
        "tasks/images/real_digits.py",
        "np.flatnonzero((self.labels == digit) & (self.held_out == held_out))",
        "np.flatnonzero(self.labels == digit)",
        "tasks/images/test_real_digits.py",
    ),
    "temperature_stays": Mutation(
        "models/seq2seq/objectives.py",
        "reading if self.cooling is None else reading",
        "reading if True else reading",
        "models/seq2seq/test_soft_steps.py::test_a_temperature_falls_in_equal_ratios_and_the_loss_is_that_of_the_temperature",
    ),
    "gate_of_half_the_query": Mutation(
        "models/seq2seq/decoder_base.py",
        "attended.context * nn.sigmoid(self.beta(query))",
        "attended.context * nn.sigmoid(self.beta(query) / 2)",
        "models/test_picture_gradients.py::test_the_deep_output_reads_the_word_the_state_and_the_gated_context",
    ),
}
