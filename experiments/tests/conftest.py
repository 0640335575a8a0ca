"""Fixtures and hooks of every test; see tests/suite.py."""

from suite import *  # noqa: F403
