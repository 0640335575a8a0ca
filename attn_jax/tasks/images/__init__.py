"""Image tasks: files with captions or questions, and generated scenes with true boxes."""
