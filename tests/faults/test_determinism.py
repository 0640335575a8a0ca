"""The same seed gives the same bits in another process, and with NPROC on another number of cores."""

import os
import shutil
import subprocess
import sys

import pytest
from runs_killed import command, differs


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits(server, whole, tmp_path):
    result = server.run(*command(tmp_path / "again"))
    assert result.code == 0, result.err
    assert differs(whole, tmp_path / "again") == ""


@pytest.mark.slow
def test_another_seed_is_another_run(server, whole, tmp_path):
    """What `differs` compares can differ."""
    shutil.copytree(whole, tmp_path / "again")
    path = max((tmp_path / "again" / "checkpoints").iterdir(), key=lambda path: int(path.name))
    result = server.run(*command(tmp_path / "other", seed=1, train__num_steps=2))
    assert result.code == 0, result.err
    shutil.rmtree(path)
    (tmp_path / "other" / "checkpoints" / "2").rename(path)
    assert "arrays differ" in differs(whole, tmp_path / "again")


SUMS = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
import jax
a, b = (jax.random.normal(jax.random.key(seed), (20000, 64)) for seed in (0, 1))
print([x.tobytes().hex() for x in jax.device_get(jax.jit(lambda a, b: (a.T @ b, a.sum(0)))(a, b))])
"""


def sums(cores, threads):
    """What a process on so many cores prints of a long inner product and of sums."""
    environment = os.environ | {"NPROC": str(threads), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    command = [sys.executable, "-c", SUMS, str(cores)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_with_the_same_number_of_threads_another_number_of_cores_gives_the_same_bits():
    two = sums(2, 2)
    assert sums(1, 2) == two
    assert sums(1, 1) != two
