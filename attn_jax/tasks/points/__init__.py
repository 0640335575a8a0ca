"""The task of a regression, from CSV files or curves."""
