"""Metrics and statistics, and each kind of data with its evaluator and its predictor."""
