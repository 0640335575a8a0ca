"""The task of a regression."""
