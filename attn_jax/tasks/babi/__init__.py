"""The twenty bAbI tasks: their format, and stories that the package makes."""
