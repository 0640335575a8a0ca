"""Pictures of attention weights, curves and points."""
