"""Recurrent encoder-decoders with soft and hard attention."""
