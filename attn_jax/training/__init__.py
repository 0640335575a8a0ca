"""Training: steps, devices, optimizers, checkpoints."""
