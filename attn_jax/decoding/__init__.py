"""Greedy decoding, sampling and beam search, independent of the model."""
