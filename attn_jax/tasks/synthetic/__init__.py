"""Tasks with generated examples."""
