"""Texts, vocabularies, batches and files; independent of models, with numpy only."""
