"""Attention weights of every place of a model: measures, and reports."""
