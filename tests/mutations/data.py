"""Faults in made training data, data that is read from files, tags beside sources, and ensembles of runs."""

from mutation import Mutation

MUTATIONS = {
    "stems_with_spaces": Mutation(
        "tasks/text/made_forms.py",
        "if not lemma[block.a + i].isspace()",
        "if lemma",
        "tasks/test_made_forms.py::test_stems_are_the_long_common_parts",
    ),
    "random_stem_of_the_lemma_alone": Mutation(
        "tasks/text/made_forms.py",
        "lemma[i] = form[j] = alphabet[letter]",
        "lemma[i] = alphabet[letter]",
        "tasks/test_made_forms.py::test_only_stems_change_and_alike_in_lemma_and_form",
    ),
    "splits_of_every_step_alike": Mutation(
        "data/sampled_pieces.py",
        "sampled = self._sampler.sample(side, real, (seed, step))",
        "sampled = self._sampler.sample(side, real, (seed,))",
        "data/test_sampled_pieces.py::test_each_seed_and_each_step_splits_anew",
    ),
    "splits_of_every_seed_alike": Mutation(
        "data/sampled_pieces.py",
        "sampled = self._sampler.sample(side, real, (seed, step))",
        "sampled = self._sampler.sample(side, real, (step,))",
        "data/test_sampled_pieces.py::test_each_seed_and_each_step_splits_anew",
    ),
    "splits_that_are_cut": Mutation(
        "data/sampled_pieces.py",
        "best_of(self._best, side, i) if row is None or len(row) > length else row",
        "row[:length]",
        "data/test_sampled_pieces.py::test_a_split_that_does_not_fit_gives_way_to_the_best",
    ),
    "generator_without_a_seed": Mutation(
        "data/pieces.py",
        "sentencepiece.set_random_generator_seed(seed)",
        "pass",
        "data/test_sampled_pieces.py::test_a_batch_is_a_function_of_seed_and_step",
    ),
    "tags_with_ids_of_texts": Mutation(
        "data/vocabulary.py",
        "self._ids = {tag: len(texts) + i for i, tag in enumerate(tags)}",
        "self._ids = {tag: len(texts) - 1 + i for i, tag in enumerate(tags)}",
        "data/test_tag_files.py::test_a_vocabulary_of_texts_and_tags",
    ),
    "shares_of_models_not_of_members": Mutation(
        "models/ensemble.py",
        "counts = np.array([len(jax.tree.leaves(own)[0]) for own in params], np.float32)",
        "counts = np.ones(len(params), np.float32)",
        "models/test_ensemble.py::test_it_does_not_matter_how_members_are_grouped",
    ),
    "quotes_that_are_not_closed": Mutation(
        "data/tables.py",
        "if quoted is None and bare.lstrip",
        "if quoted is not None and bare.lstrip",
        "tasks/test_points.py::test_what_is_wrong_is_told_with_its_place",
    ),
    "numbers_with_underscores": Mutation(
        "data/tables.py",
        'if "_" in text:',
        'if "__" in text:',
        "tasks/test_points.py::test_what_is_wrong_is_told_with_its_place",
    ),
    "short_lines_of_vectors": Mutation(
        "data/word_vectors.py",
        "if width < 1 or not word:",
        "if width < 1:",
        "data/test_word_vectors.py::test_a_wrong_file_is_named_with_its_line",
    ),
    "spaces_in_tags": Mutation(
        "data/tags.py",
        'tags = [tag.strip() for tag in line.split(";")]',
        'tags = line.split(";")',
        "data/test_tag_files.py::test_spaces_around_tags_make_no_other_tags",
    ),
    "last_of_equal_buckets": Mutation(
        "data/buckets.py",
        "below[j] = np.argmin(costs)",
        "below[j] = j - 1 - np.argmin(costs[::-1])",
        "data/test_buckets.py::test_choices_of_equal_padding_are_made_in_the_order_of_lists",
    ),
    "errors_of_lines": Mutation(
        "data/pieces.py",
        "if raised:",
        "if not raised and raised:",
        "data/test_vocabulary.py::test_what_is_wrong_with_a_line_is_no_fault_of_sentencepiece",
    ),
    "rows_of_recall_by_their_number": Mutation(
        "tasks/synthetic/recall.py",
        "rows = max(1, AT_ONCE // size)",
        "rows = AT_ONCE",
        "tasks/test_recall.py::test_numbers_are_chosen_in_parts_that_are_those_of_one_matrix",
    ),
}
