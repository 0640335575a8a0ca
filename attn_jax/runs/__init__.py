"""A work directory: options, training, results, loading and export."""
