"""Fixtures and hooks of every test; see suite.py."""

from suite import *  # noqa: F403
