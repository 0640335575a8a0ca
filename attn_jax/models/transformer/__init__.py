"""Transformers: encoder-decoder, and language model."""
