"""Engines: where the runs of a sweep are processes. Each has start(task) -> a running process.

`local` needs nothing, `ray` and `slurm` a package each (pip install "attn_jax[ray]" or "attn_jax[slurm]") and a folder
for the work directories that all machines share.
"""

from collections.abc import Callable

from attn_jax.errors import UserError
from attn_jax.sweeps.engines.base import Engine


def local(address: str, options: dict[str, str]) -> Engine:
    from attn_jax.sweeps.engines.local import Local

    no_options("local", options)
    return Local()


def ray(address: str, options: dict[str, str]) -> Engine:
    from attn_jax.sweeps.engines.ray import Ray

    return Ray(address, options)


def slurm(address: str, options: dict[str, str]) -> Engine:
    from attn_jax.sweeps.engines.slurm import Slurm

    return Slurm(options)


def no_options(name: str, options: dict[str, str]) -> None:
    """Raises a UserError if there are options."""
    if options:
        raise UserError(f"--engine_options={','.join(options)}: the engine {name} has no options")


ENGINES: dict[str, Callable[[str, dict[str, str]], Engine]] = {"local": local, "ray": ray, "slurm": slurm}
HAVE_ADDRESS = ("ray",)


def make_engine(name: str, address: str = "", options: str = "") -> Engine:
    """Makes the engine of this name.

    Args:
        name: a key of ENGINES.
        address: of a Ray cluster, "host:port"; "": this machine alone.
        options: "key=value,key=value", see the engine.

    Raises:
        UserError: something that the engine has not, or a package or a cluster that is not there.
    """
    if address and name not in HAVE_ADDRESS:
        raise UserError(f"--address={address} is for --engine={' or '.join(HAVE_ADDRESS)}, not {name}")
    pairs = [pair.partition("=") for pair in filter(None, options.split(","))]
    if wrong := [key for key, equals, value in pairs if not (key and equals and value)]:
        raise UserError(f"--engine_options={options}: expected key=value,key=value, got {wrong[0]!r}")
    return ENGINES[name](address, {key.strip(): value.strip() for key, _, value in pairs})
