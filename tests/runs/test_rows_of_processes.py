"""A process reads the rows of its own devices, where these are neighbours in the mesh."""

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from attn_jax.errors import UserError
from attn_jax.evaluation.kinds import share_of_rows
from attn_jax.runs.run import check_processes
from attn_jax.tasks import TASKS


def test_a_process_reads_the_rows_of_its_devices():
    assert [share_of_rows([0, 0, 1, 1, 2, 2], process) for process in range(3)] == [(0, 3), (1, 3), (2, 3)]
    assert share_of_rows([1, 0], 0) == (1, 2)  # in the order of the mesh
    assert share_of_rows([0] * 8, 0) == (0, 1)


def test_a_process_reads_all_rows_where_its_devices_are_apart_or_more_than_others():
    assert share_of_rows([0, 1, 0, 1], 1) == (0, 1)
    assert share_of_rows([0, 0, 0, 1], 1) == (0, 1)


def test_processes_that_read_other_files_of_the_same_names_are_told(monkeypatch):
    task = TASKS["dates"](num_examples=20, valid_size=5).build(data_dir="", kept=None, seeds=(0,))
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    for others, told in ((0, False), (1, True)):
        monkeypatch.setattr(multihost_utils, "process_allgather", lambda x, k=others: np.array([x, x, x + k]))
        if not told:
            check_processes(task)
            continue
        with pytest.raises(UserError, match="process 2 reads other data than process 0"):
            check_processes(task)
