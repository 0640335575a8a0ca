"""Layers that several models share: recurrent, Transformer, convolution, positions, embeddings, pooling."""
