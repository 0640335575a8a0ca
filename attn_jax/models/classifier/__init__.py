"""Text classifiers: an encoder, pooling, a softmax over the classes."""
