"""Kernel classification of three spiral arms in the plane: values are one-hot rows, predictions are probabilities.

python launch.py --config=configs/kernel_classification.py
"""

from ml_collections import ConfigDict

from configs import kernel_learned_width


def get_config() -> ConfigDict:
    config = kernel_learned_width.get_config()
    config.name = "kernel_classification"
    config.description = "Gaussian kernel, three spiral arms, its width learned"
    config.task.classification = True
    config.task.num_examples = 300
    config.task.noise = 0.05
    config.eval.metrics = ("accuracy",)
    return config
