"""What a start of a run imports: nothing slow that it does not need."""

import subprocess
import sys

import pytest

SLOW = "torch scipy.stats matplotlib.figure sacrebleu ray sphinx pandas sklearn".split()
CODE = """
import sys, tempfile
from attn_jax.evaluation import points, text
assert not {m for m in sys.modules if "plots" in m}  # nor does measuring import plots
import attn_jax.cli.commands
from attn_jax.training.metrics_writer import MetricsWriter
MetricsWriter(tempfile.mkdtemp(), log_to=("tensorboard",)).close()
print(*[name for name in sys.argv[1:] if name in sys.modules])
"""


@pytest.mark.slow
def test_a_start_imports_nothing_slow():
    """tensorboardX would import torch, and scipy.stats takes a second."""
    pytest.importorskip("tensorboardX")
    done = subprocess.run([sys.executable, "-c", CODE, *SLOW], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
