"""Sweeps: many runs described by one file."""
