"""Measuring and using trained models: decoding, metrics, pictures."""
