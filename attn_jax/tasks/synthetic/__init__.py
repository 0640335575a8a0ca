"""Tasks whose examples are generated."""
