"""Kernel regression of your own table: a CSV file whose first line names the columns.

By default the last column is predicted from the others; --config.task.target=price
--config.task.inputs="('rooms', 'age')" chooses columns. For a class add --config.task.classification=true
--config.eval.metrics="('accuracy',)". 100 rows are held out as a test (task.valid_size), unless task.test names a file.
Each column has its own width, learned on the leave-one-out error; an uninformative column gets a large width.

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
    config.model.attention.score.per_column = True
    config.eval.metrics = ("rmse", "r2")
    return config
