"""The families of models, one folder each."""
