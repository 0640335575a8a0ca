"""Texts, vocabularies, batches and files, without a model: numpy alone."""
