"""The runs of a sweep, and the folders that they have.

A name such as normalize=sparsemax-3fa2c1 has a label, the overrides that not all runs of the sweep share, and six
digits of the config. The digits leave out the seeds, so that a run is found again under any label, and more seeds of
its config become a run of the new seeds alone, beside it.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from attn_jax.errors import UserError
from attn_jax.notices import notice
from attn_jax.runs.config_files import load_config_file
from attn_jax.runs.options import resolve, schema_of
from attn_jax.runs.overrides import overridden_keys, override
from attn_jax.runs.python_files import load_file
from attn_jax.runs.tree import flatten
from attn_jax.runs.workdir import load_config
from attn_jax.sweeps.sweep_folder import NUM_DIGITS, named_alike

SEEDS = ("seed", "seeds")
LONGEST_LABEL = 160  # bytes


class Job(NamedTuple):
    """One run of a sweep."""

    name: str  # of its work directory
    config: str
    overrides: dict[str, Any]
    seeds: tuple[int, ...] = ()


def jobs(path: pathlib.Path, common: Sequence[str] = ()) -> list[Job]:
    """Returns the runs of sweep() in a file; for `common` see `named`."""
    runs = load_file(path, "sweep")
    if not isinstance(runs, Iterable):
        raise UserError(f"{path}: sweep() gave {runs!r}; expected dicts of overrides")
    return named(runs, path, common)


def named(runs: Iterable[Any], path: pathlib.Path, common: Sequence[str] = ()) -> list[Job]:
    """Returns the runs for the overrides that sweep() of a file yielded.

    Args:
        runs: {"config": file, key: value, ...} of each run.
        path: the file, for messages.
        common: overrides of all runs, as written on a command line.

    Raises:
        UserError: a run has no config, a wrong key or value, an option in common, or the config of another run.
    """
    rows = [_row(each, path) for each in runs]
    configs: dict[str, ConfigDict] = {}
    found: list[Job] = []
    for label, (config, own) in zip(labels(rows), rows, strict=True):
        if both := [key for key in overridden_keys(common) if key in own]:
            raise UserError(
                f"{label}: --config.{both[0]} is set by the sweep itself; leave it out, or change the sweep"
            )
        try:
            if config not in configs:
                configs[config] = load_config_file(config)
            options = resolve(override(configs[config], [*common, *_written(own)]))
        except UserError as error:
            raise UserError(f"{label}: {error}; nothing was run") from error
        job = Job(f"{label}-{digits_of(options.config, own)}", config, own, options.all_seeds)
        for other in found:
            if named_alike(other.name, job.name) and set(other.seeds) & set(job.seeds):
                raise UserError(f"{path}: the sweep has a run twice, {other.name} and {job.name}, with equal seeds")
        found.append(job)
    return found


def _row(overrides: Any, path: pathlib.Path) -> tuple[str, dict[str, Any]]:
    """Returns (config, other overrides) of what sweep() yielded."""
    if not isinstance(overrides, dict):
        raise UserError(f"{path}: sweep() yielded {overrides!r}; expected a dict of overrides")
    if wrong := [key for key in overrides if not isinstance(key, str)]:
        raise UserError(f"{path}: sweep() yielded the key {wrong[0]!r}; expected names of options")
    if not isinstance(overrides.get("config"), str):
        raise UserError(f'{path}: sweep() yielded {overrides} without a "config", the file of the run\'s config')
    return overrides["config"], {key: value for key, value in overrides.items() if key != "config"}


def labels(rows: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Returns a label of each (config, overrides): what not all of them share, without spaces, quotes or brackets."""
    keys = dict.fromkeys(key for _, own in rows for key in own)
    keys = [key for key in keys if len({repr(own[key]) if key in own else "" for _, own in rows}) > 1]
    last = {key: key.removesuffix(".name").removesuffix(".pattern").rpartition(".")[2] for key in keys}
    unique = {key: short if list(last.values()).count(short) == 1 else key for key, short in last.items()}
    several = len({config for config, _ in rows}) > 1
    found = []
    for config, own in rows:
        parts = [f"{unique[key]}={_plain(own[key])}" for key in keys if key in own]
        label = ",".join([*([pathlib.Path(config).stem] * (several or not parts)), *parts])
        found.append(label.encode()[:LONGEST_LABEL].decode(errors="ignore"))
    return found


def _plain(value: Any) -> str:
    """Writes a value so that it can be part of a name: (8000, 'a b') as 8000+ab."""
    text = re.sub(r"[\s'\"()\[\]{}]", "", str(value)).strip(",").replace(",", "+")
    return re.sub(r"[^\w.+-]", "_", text)


def digits_of(config: ConfigDict, own: Iterable[str] = ()) -> str:
    """Returns digits of the values of a whole config that are not defaults, without seeds.

    Options that change no number count only if `own` names them, such as the data_dir of a sweep over corpora.
    """
    values = flatten(config)
    counted = {
        key: values[key]
        for key, about in sorted(schema_of(config).items())
        if key not in SEEDS and values[key] != about.default and (about.affects != "nothing" or key in own)
    }
    return hashlib.blake2b(json.dumps(counted).encode(), digest_size=NUM_DIGITS // 2).hexdigest()


def begun(folder: pathlib.Path, job: Job) -> dict[pathlib.Path, tuple[int, ...]]:
    """Returns {work directory: seeds} of the runs in a folder that have the config of a job, and one of its seeds."""
    paths = [path.parent for path in sorted(folder.glob("*/config.json")) if named_alike(path.parent.name, job.name)]
    found = {path: _seeds_of(load_config(path)) for path in paths}
    return {path: seeds for path, seeds in found.items() if set(seeds) & set(job.seeds)}


def _seeds_of(config: ConfigDict) -> tuple[int, ...]:
    return tuple(config.seeds) or (config.seed,)


def placed(todo: Iterable[Job], folder: pathlib.Path) -> list[Job]:
    """Returns the jobs with the names under which a folder has their runs, where labels were others."""
    there = ((job, begun(folder, job)) for job in todo)
    return [
        job._replace(name=next((path.name for path, seeds in runs.items() if seeds == job.seeds), job.name))
        for job, runs in there
    ]


def planned(todo: Iterable[Job], folder: pathlib.Path) -> list[Job]:
    """Returns the jobs as the folder has them: runs that have begun there, and a new run of the seeds that none has."""
    found = []
    for job in todo:
        there = begun(folder, job)
        found += [_with_seeds(job, seeds)._replace(name=path.name) for path, seeds in there.items()]
        done = {seed for seeds in there.values() for seed in seeds}
        left = tuple(seed for seed in job.seeds if seed not in done)
        if not left:
            continue
        new = _with_seeds(job, left)
        if (folder / job.name / "config.json").exists():
            new = new._replace(name=f"{job.name}-seeds{_spelled(left)}")
        if there:
            before = ", ".join(str(seed) for seed in sorted(done))
            notice(f"{'seeds':<14}{job.name}: {before} are there, {', '.join(map(str, left))} are trained")
        found.append(new)
    return found


def _with_seeds(job: Job, seeds: tuple[int, ...]) -> Job:
    """Returns the job with these seeds."""
    if seeds == job.seeds:
        return job
    kept = {key: value for key, value in job.overrides.items() if key not in SEEDS}
    return job._replace(overrides=kept | {"seeds": seeds}, seeds=seeds)


def _spelled(seeds: tuple[int, ...]) -> str:
    """Writes seeds for a name: 2..5 for those from 2 to 5, else 2+4+7."""
    in_order = len(seeds) > 1 and seeds == tuple(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]}..{seeds[-1]}" if in_order else "+".join(map(str, seeds))


def config_of(job: Job, common: Sequence[str] = ()) -> ConfigDict:
    """Returns the config of a job."""
    return override(load_config_file(job.config), [*common, *overrides_of(job)])


def overrides_of(job: Job) -> list[str]:
    """Returns the overrides of a job as written on a command line."""
    return _written(job.overrides)


def _written(overrides: dict[str, Any]) -> list[str]:
    return [f"--config.{key}={value}" for key, value in overrides.items()]
