"""Export of a trained text model for programs without this package, as a folder with

    params.safetensors     parameters; the names are their paths, joined with "/"
    start.jax, step.jax    start(parameters, source) -> (memory, state) and
                           step(parameters, memory, state, token) -> (state, log_probs),
                           by jax.export; parameters, memory and state are lists of arrays
    export.json            names of the parameters in order, shapes, special tokens, checksums of the files, versions
    vocabularies.json      as in the work directory
    decode.py              greedy decoding with these files

Shapes are fixed: batch_size rows of source_length tokens. Padding changes nothing, so shorter sources are padded.
"""

import operator
import pathlib
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from attn_jax.data.buckets import make_buckets
from attn_jax.data.files import save_json, write
from attn_jax.errors import UserError
from attn_jax.evaluation.provenance import provenance
from attn_jax.models.base import Model
from attn_jax.runs.build import Setup, build_task
from attn_jax.runs.options import RunOptions, schema_of
from attn_jax.token_ids import BOS, EOS, NEVER_GENERATED, PAD, UNK
from attn_jax.types import Array, Params

PLATFORMS = ("cpu", "cuda", "tpu")
CARRIED = tuple(f"decode.{name}" for name in ("batch_size", "max_length", "ensemble"))
READ_AS_TEXT = ("words", "characters", "sentencepiece")  # kinds of vocabularies, see exported_decoder.vocabulary
DECODER = pathlib.Path(__file__).with_name("exported_decoder.py")  # never imported: it needs optional packages


def export_model(
    model: Model,
    params: Params,
    folder: pathlib.Path,
    *,
    vocabularies: pathlib.Path,
    source_vocab_size: int,
    batch_size: int,
    source_length: int,
    max_length: int,
    forbidden: Sequence[int] = NEVER_GENERATED,
) -> None:
    """Writes the folder.

    Args:
        model: functions of (params, batch).
        params: parameters of the model.
        folder: created if missing; files of an earlier export are replaced.
        vocabularies: file to copy.
        source_vocab_size: number of tokens of the source vocabulary.
        batch_size, source_length: shape of the sources.
        max_length: largest number of target tokens.
        forbidden: tokens that are never generated.

    Raises:
        UserError: a package for the files is not installed.
    """
    try:
        import flatbuffers  # noqa: F401, needed by jax.export
        from safetensors.numpy import save
    except ImportError as error:
        raise UserError(f"--mode=export needs the package {error.name}: pip install flatbuffers safetensors") from None
    flat = {"/".join(path): np.asarray(x) for path, x in sorted(flatten_dict(params).items())}
    start, step = exported(model, list(flat), list(flat.values()), batch_size, source_length, max_length)
    files = {
        "params.safetensors": save(flat),
        "start.jax": bytes(start.serialize()),
        "step.jax": bytes(step.serialize()),
    }
    files |= {"vocabularies.json": vocabularies.read_bytes(), "decode.py": DECODER.read_bytes()}
    for name, content in files.items():
        write(folder / name, content)
    about: dict[str, Any] = {
        "parameters": list(flat),
        "source_vocab_size": source_vocab_size,
        "batch_size": batch_size,
        "source_length": source_length,
        "max_length": max_length,
        "pad": PAD,
        "unk": UNK,
        "bos": BOS,
        "eos": EOS,
        "forbidden": list(forbidden),
        "platforms": list(PLATFORMS),
        "crc32": {name: zlib.crc32(content) for name, content in files.items()},
    }
    save_json(folder / "export.json", about | provenance())


def source_length_of(options: RunOptions, setup: Setup, kept: Any) -> int:
    """Returns the length of the longest training sources, eos included.

    A model that continues a prompt is trained without sources: its prompts are as long as the longest texts. The
    lengths come from task.buckets or, where buckets are chosen automatically, from the training data.

    Raises:
        UserError: the training data is needed, but missing or wrong.
    """
    longest = max if setup.model.continues_source else operator.itemgetter(0)  # of (source, target)
    if buckets := setup.batch_options["buckets"]:
        return max(map(longest, make_buckets(buckets)))
    try:
        batches = build_task(options, kept).batches(**setup.batch_options)
    except UserError as error:
        raise UserError(
            f"{error}; the longest source of training is not known without its data: set it with "
            "--config.task.buckets=fixed --config.task.buckets.shapes='((SOURCE, TARGET),)'"
        ) from error
    return max(longest(lengths) for _, *lengths in batches.shapes)


def left_behind(options: RunOptions) -> list[str]:
    """Returns the options of decoding that the exported script ignores, as "decode.KEY=VALUE"."""
    config, known = options.config, schema_of(options.config)
    changed = [key for key in known if key.startswith("decode.") and config[key] != known[key].default]
    left = [key for key in changed if not key.startswith(CARRIED) and config[key] != "forbid"]
    return [f"{key.removesuffix('.name')}={config[key]}" for key in left]


def exported(
    model: Model,
    names: list[str],
    params: list[np.ndarray],
    batch_size: int,
    source_length: int,
    max_length: int,
) -> tuple[jax.export.Exported, jax.export.Exported]:
    """Exports start and step as functions of a list of parameters."""
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in params]
    source = jax.ShapeDtypeStruct((batch_size, source_length), jnp.int32)
    trees = {}  # structures of memory and state, known once start has been traced

    def nested(params: list[Array]) -> Params:
        return unflatten_dict({tuple(name.split("/")): x for name, x in zip(names, params, strict=True)})

    def start(params: list[Array], source: Array) -> tuple[list[Array], list[Array]]:
        memory, state = model.start(nested(params), source, max_length)
        memory, trees["memory"] = jax.tree.flatten(memory)
        state, trees["state"] = jax.tree.flatten(state)
        return memory, state

    def step(params: list[Array], memory: list[Array], state: list[Array], token: Array) -> tuple[list[Array], Array]:
        memory, state = jax.tree.unflatten(trees["memory"], memory), jax.tree.unflatten(trees["state"], state)
        state, log_probs = model.step(nested(params), memory, state, token)
        return jax.tree.leaves(state), log_probs

    memory, state = jax.eval_shape(start, shapes, source)
    token = jax.ShapeDtypeStruct((batch_size,), jnp.int32)
    return (
        jax.export.export(jax.jit(start), platforms=PLATFORMS)(shapes, source),
        jax.export.export(jax.jit(step), platforms=PLATFORMS)(shapes, memory, state, token),
    )
