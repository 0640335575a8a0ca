"""Recurrent language models: one stack of recurrent layers, without attention."""
