"""Command line: flags, modes and commands."""
