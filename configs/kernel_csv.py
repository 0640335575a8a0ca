"""Kernel regression of your own table: a CSV file whose first line names the columns.

The last column is predicted from the others, or say --config.task.target=price --config.task.inputs="('rooms', 'age')";
a class with --config.task.classification=true --config.eval.metrics="('accuracy',)". A tenth of 1,000 rows are held out
as a test (task.valid_size), unless there is a file of them (task.test). Each column has a width of its own, learned
from the leave-one-out error; one that says nothing becomes wide.

    python launch.py --config=configs/kernel_csv.py --config.data_dir=data --config.task.train="('points.csv', '')"
"""

from ml_collections import ConfigDict

from configs import kernel_learned_width


def get_config() -> ConfigDict:
    config = kernel_learned_width.get_config()
    config.name = "kernel_csv"
    config.description = "Local lines with a Gaussian kernel, a width for each column of a CSV file"
    config.task.train = ("points.csv", "")
    config.task.valid_size = 100
    config.task.num_examples = 0
    config.task.batch_size = 256
    config.model.degrees = (1,)
    config.model.attention.per_column = True
    config.eval.metrics = ("rmse", "r2")
    return config
