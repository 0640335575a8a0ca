"""Glimpses: a recurrent network that sees one crop of an image at a time and learns where to look."""
