"""Tasks of sentences in files."""
