"""Import of the parameters of an export (see attn_jax.runs.export) into a model of this package."""

import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from ml_collections import ConfigDict

from attn_jax.data.files import check_links, load_json
from attn_jax.data.token_index import checksum_of
from attn_jax.errors import UserError, nearest
from attn_jax.paths import user_path
from attn_jax.runs.build import build_setup
from attn_jax.runs.options import resolve
from attn_jax.types import Params


def import_parameters(folder: str | os.PathLike, config: ConfigDict) -> Params:
    """Reads params.safetensors and vocabularies.json of an export, and checks that they fit a config.

        loaded = attn_jax.load("runs/quickstart")
        params = attn_jax.import_parameters("runs/quickstart/export", loaded.config)
        loaded.predictor.predict(params, ["令和8年11月21日"], 1)

    Parameters of other programs are read in the same way if their names are the paths of the parameters, joined with
    "/". A parameter gets the dtype of the model.

    Args:
        folder: folder of the export.
        config: config of the model.

    Returns:
        The nested dict of parameters of the model of the config.

    Raises:
        UserError: a file is missing, cannot be read or belongs to another export, the names or shapes of the parameters
            differ from the model, or the package safetensors is not installed.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError:
        raise UserError("import_parameters needs the package safetensors: pip install safetensors") from None
    folder = user_path(folder)
    path = folder / "params.safetensors"
    if not path.is_file():
        raise UserError(f"{path} does not exist; expected a folder that --mode=export has written")
    check_links(folder)
    about = load_json(folder / "export.json") if (folder / "export.json").exists() else {}
    kept = about["crc32"] if isinstance(about.get("crc32"), dict) else {}
    for name in kept.keys() & {path.name, "vocabularies.json"}:
        if checksum_of(folder / name) != kept[name]:
            raise UserError(
                f"{folder / name} is not of this export (wrong checksum): one was interrupted, or a file was changed; "
                "export again, or remove export.json"
            )
    options = resolve(config)
    setup = build_setup(options, options.kind.load(folder))
    example = jax.tree.map(jnp.asarray, setup.example)
    shapes = jax.eval_shape(setup.model.init, jax.random.key(0), example)
    arrays = {"/".join(names): shape for names, shape in flatten_dict(shapes).items()}
    try:
        found = load_file(path)
    except SafetensorError as error:
        raise UserError(f"cannot read {path}: {error}") from None
    check_names(found, arrays, path)
    return unflatten_dict({tuple(name.split("/")): jnp.asarray(x, arrays[name].dtype) for name, x in found.items()})


def check_names(found: dict[str, np.ndarray], expected: dict[str, jax.ShapeDtypeStruct], path: pathlib.Path) -> None:
    """Checks that two sets of arrays have the same names and shapes.

    Raises:
        UserError: names or shapes differ; the message names the first difference.
    """
    if others := sorted(found.keys() - expected.keys()):
        raise UserError(f"{path}: the model has no parameter {others[0]}; {nearest(others[0], expected)}")
    if missing := sorted(expected.keys() - found.keys()):
        raise UserError(f"{path}: the parameter {missing[0]} of the model is not there")
    for name, shape in expected.items():
        if found[name].shape != shape.shape:
            raise UserError(f"{path}: {name} has the shape {found[name].shape}; the model has {shape.shape}")
