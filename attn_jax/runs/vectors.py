"""Initialization of embeddings with pretrained word vectors: train.start vectors."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from attn_jax.data.word_vectors import WordVectors, read_vectors
from attn_jax.errors import UserError
from attn_jax.runs.checks import start_of
from attn_jax.runs.options import RunOptions
from attn_jax.training.pytrees import flatten
from attn_jax.types import Params

TABLES = {"source": {"source_embedding", "embedding", "words"}, "target": {"target_embedding"}}  # modules of embeddings
SCALED = "table"  # in the path of an embedding that is multiplied by sqrt(d), see layers/embedding.py


def vectors_of(options: RunOptions, kept: Any) -> dict[str, WordVectors]:
    """Reads the files that the options of a run name, by side; `kept` begins with two vocabularies.

    Raises:
        UserError: see `read_vectors`.
    """
    names = start_of(options).vectors
    if not names:
        return {}
    found = {}
    for side, vocabulary in zip(("source", "target"), kept[:2], strict=True):
        if name := names.get(side):
            tokens = list(vocabulary.tokens(range(len(vocabulary))))
            try:
                found[side] = read_vectors(pathlib.Path(options.data_dir) / name, tokens)
            except UserError as error:
                raise UserError(f"train.start.{side}: {error}") from None
    return found


def with_vectors(params: Params, vectors: dict[str, WordVectors]) -> Params:
    """Returns parameters whose embeddings contain the vectors that were found; other rows are unchanged.

    Raises:
        UserError: the model has no embedding of a side, or its width differs.
    """
    arrays = flatten(params)
    for side, (rows, found) in vectors.items():
        paths = [path for path in arrays if path[-1] == "embedding" and TABLES[side] & set(path[:-1])]
        if not paths:
            raise UserError(
                f"train.start.{side}: this model has no embedding of {side} tokens of its own; it has "
                f"{', '.join(sorted({path[0] for path in arrays}))}"
            )
        for path in paths:
            size, width = arrays[path].shape
            if rows.shape != (size, width):
                raise UserError(
                    f"train.start.{side}: the file has vectors of {rows.shape[1]} numbers, and the embedding has "
                    f"{width}; expected model.embedding_size {rows.shape[1]} (model.hidden_size in a Transformer)"
                )
            scale = width**-0.5 if SCALED in path else 1.0
            arrays[path] = jnp.where(found[:, None], scale * rows, arrays[path]).astype(arrays[path].dtype)
    return jax.tree.unflatten(jax.tree.structure(params), list(arrays.values()))
