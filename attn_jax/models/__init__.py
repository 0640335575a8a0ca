"""Models: each builds a memory and reads it."""
