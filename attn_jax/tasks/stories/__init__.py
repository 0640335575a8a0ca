"""The twenty bAbI tasks of stories with questions: their file format, and a generator."""
