"""Greedy decoding, sampling and beam search, which know no model."""
