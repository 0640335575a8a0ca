"""Objectives, readings and baselines inside the decoder: each against the enumeration of what it samples."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import compiled
from tiny_seq2seq import build, random_params, sentences

from attn_jax.attention.estimators import kl_divergence
from attn_jax.attention.readings import READINGS, log_of
from attn_jax.build import build_alignment
from attn_jax.errors import UserError
from attn_jax.models.alignments import mixture
from configs.base import get_config

LENGTHS = [(4, 3), (3, 2), (0, 0)]  # source, target; the last row is padding
BATCH = sentences(LENGTHS, 4, 3)
REAL = BATCH["target_out"] != 0
LUONG = dict(decoder="luong", cell="gru", bidirectional=False)
