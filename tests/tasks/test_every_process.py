"""What the package makes is the same in every process, whatever the order of its sets."""

import hashlib
import os
import subprocess
import sys

import pytest
from tasks_by_name import make

from attn_jax.tasks.stories.worlds import generate

MADE = {"sequences": {"num_examples": 2000}, "plain_text": {"train": ("", "")}, "language_id": {"labels": ()}}


def digest():
    """Of the splits of these tasks, and of stories of each kind."""
    splits = [make(name, valid_size=20, **options).splits for name, options in MADE.items()]
    return hashlib.sha256(repr([splits, [generate(n, 30, 0) for n in range(1, 21)]]).encode()).hexdigest()


@pytest.mark.slow
def test_what_is_made_is_the_same_in_another_process():
    command = [sys.executable, "-c", f"from {__name__} import digest; print(digest())"]
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest()
