"""The version of the package; a work directory stores the version that created it."""

VERSION = "0.2.0.dev2"
