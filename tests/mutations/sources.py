"""Faults in what the lecture notes ask for beside attention: word vectors, sources that are read backwards."""

from mutation import Mutation

MUTATIONS = {
    "last_vector_of_a_word": Mutation("data/word_vectors.py", "exact.add(index)", "pass", "data/test_word_vectors.py"),
    "vectors_without_scale": Mutation(
        "runs/vectors.py",
        "width**-0.5 if SCALED in path else 1.0",
        "1.0",
        "runs/test_vectors.py::test_found_rows_are_taken_and_others_stay",
    ),
    "end_token_first": Mutation(
        "models/seq2seq/model.py",
        "keepdims=True) - 1",
        "keepdims=True)",
        "models/seq2seq/test_seq2seq.py::test_a_source_is_read_backwards_with_its_end_last",
    ),
}
