"""Scenes: small generated images of coloured digits, letters and shapes, with captions, questions and true boxes."""
