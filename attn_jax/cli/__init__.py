"""Command line: options, commands, runs, work directories, sweeps."""
