"""Sweeps: many runs of one file."""
