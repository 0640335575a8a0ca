"""An encoder and a class."""
