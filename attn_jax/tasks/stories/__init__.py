"""The twenty bAbI tasks: their file format, and a generator of stories."""
