"""Hard attention: samplers, gradient estimators, baselines, and readings, which combine them."""
