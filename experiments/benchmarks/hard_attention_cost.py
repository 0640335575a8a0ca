"""What a training step of hard attention costs next to the soft one, on the same batch.

    python experiments/benchmarks/hard_attention_cost.py [--config=configs/inflection_soft.py] [--data_dir=DIR --language=german]

Each variant is compiled, then all take turns over windows of steps; the table gives the median time of a step and
its ratio to soft attention. Only what happens in training is timed: forward, backward and the optimizer.
"""

import argparse
import pathlib
import sys
import time

import jax
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from attn_jax.arguments import load_file
from attn_jax.build import MODELS, build_evaluator, build_task
from attn_jax.optimizers import make_optimizer
from attn_jax.tasks.batching import Batches
from attn_jax.tasks.buckets import choose_buckets
from attn_jax.training import TrainState, make_train_step
from experiments.benchmarks.machine import machine
from experiments.soft_vs_hard import VARIANTS, with_variant
