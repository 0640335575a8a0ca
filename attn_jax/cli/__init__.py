"""The command line: options, commands, runs, work directories, sweeps."""
