"""Nadaraya-Watson regression with a width learned by gradient descent on the leave-one-out error.

This error is self-attention among the training points with the diagonal masked: one matrix product for all n refits.

    python launch.py --config=configs/kernel_learned_width.py
"""

from ml_collections import ConfigDict

from configs import kernel_regression


def get_config() -> ConfigDict:
    config = kernel_regression.get_config()
    config.name = "kernel_learned_width"
    config.description = "Gaussian kernel, its width by gradient descent on the leave-one-out error"
    config.model.degrees = (0,)
    config.model.num_widths = 1
    config.model.criterion = "leave_one_out"
    config.train.num_steps = 200
    config.train.eval_every = 50
    config.optimizer.learning_rate = 0.05
    return config
