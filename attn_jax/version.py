"""The version of the package; a work directory keeps the one that made it."""

VERSION = "0.2.0.dev2"
