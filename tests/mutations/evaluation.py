"""Faults in predictions and in the measures of attention."""

from mutation import Mutation

POINTS = "evaluation/test_point_evaluation.py"

MUTATIONS = {
    "bos_before_eos": Mutation(
        "inspection/attention_measures.py",
        "order = [*range(2, n + 2), 0, 1, *range(n + 2, len(one.columns))]",
        "order = [*range(2, n + 2), 1, 0, *range(n + 2, len(one.columns))]",
        "inspection/test_attention_measures.py::test_a_source_that_follows_eos_and_bos_is_read_without_them",
    ),
    "samples_without_empty_lines": Mutation(
        "decoding/translate.py",
        "[first + filled[i] for i in indices]",
        "[first + i for i in indices]",
        "evaluation/test_text_evaluation.py::test_empty_lines_stay_empty_and_count_in_the_numbers_that_samples_depend_on",
    ),
    "probabilities_beyond_0_and_1": Mutation(
        "evaluation/regressor.py",
        "found = np.clip(found, 0, 1)",
        "pass",
        f"{POINTS}::test_probabilities_of_a_local_line_are_cut_off_at_0_and_1",
    ),
    "density_of_inverse_units": Mutation(
        "evaluation/regressor.py",
        "np.concatenate(density) - units",
        "np.concatenate(density) + units",
        f"{POINTS}::test_the_density_of_the_inputs_is_in_their_units",
    ),
}
