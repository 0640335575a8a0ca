"""Tasks of images: files with captions or questions, and generated scenes with true boxes."""
