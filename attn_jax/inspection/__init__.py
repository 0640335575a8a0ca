"""Measures and reports of the attention weights of every layer, head and hop of a model."""
