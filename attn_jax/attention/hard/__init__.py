"""Hard attention: samplers, estimators of gradients through samples, baselines, and the readings that join them."""
