"""Kernel regression: attention over the training points."""
