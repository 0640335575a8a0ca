"""Every option of every family, set on the command line of a config of each family: refused unless something reads it.

    python tests/abuse/pairs.py --out=experiments/results/option_pairs.json

An option that the task and family of a config do not have is unknown there; one that they have and nothing reads, with
the config's other choices, is refused by name. What is accepted must be looked at while the model or the optimizer is
built, by task, training, decoding or measuring: attributes that are read are recorded, by another way than the check's
own, which compares two builds. About two minutes; nothing is trained.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(pathlib.Path(__file__).parent)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from unread_options import ALL, CONFIGS, another  # noqa: E402

from attn_jax.cli import options as run_options  # noqa: E402
from attn_jax.cli.overrides import load_file, override  # noqa: E402
from attn_jax.cli.unread import check_read  # noqa: E402
from attn_jax.errors import UserError  # noqa: E402
from attn_jax.options import flatten  # noqa: E402

FAMILY_CONFIGS = {
    "seq2seq": "quickstart",
    "transformer": "quickstart_transformer",
    "language_model": "sort_softmax",
    "classifier": "language_id_selfattentive",
    "memn2n": "babi_memn2n",
    "memnn": "babi_memnn",
    "dmn": "babi_dmn",
    "dmn_plus": "babi_dmn_plus",
    "entnet": "babi_entnet",
    "universal": "babi_universal",
    "kernel_regression": "kernel_regression",
}


def attributes_read(config) -> set[str]:
    """The options of model and optimizer that building them looks at."""
    options, seen = run_options.resolve(config), set()

    def watched(value, prefix):
        """A copy of a dataclass of options that records which fields are read."""
        fields = {field.name for field in dataclasses.fields(value)}

        class Watched(type(value)):
            def __getattribute__(self, name):
                if name in fields:
                    seen.add(prefix + name)
                return super().__getattribute__(name)

        copy = object.__new__(Watched)
        for name in fields:
            inner = getattr(value, name)
            nested = dataclasses.is_dataclass(inner)
            object.__setattr__(copy, name, watched(inner, f"{prefix}{name}.") if nested else inner)
        return copy

    options = options._replace(
        model=watched(options.model, "model."), optimizer=watched(options.optimizer, "optimizer.")
    )
    seen.clear()
    options.build_model()
    options.optimizer.build(1000)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path)
    out = parser.parse_args().out
    counts, wrong = {}, []
    for family, name in FAMILY_CONFIGS.items():
        config = load_file(CONFIGS / f"{name}.py", "get_config")
        own, given, count = run_options.schema_of(config), flatten(config), collections.Counter()
        for key, option in ALL.items():
            if key.endswith(".name"):
                continue
            value = another(own.get(key, option), given.get(key, option.default), key)
            try:
                changed = override(config, [f"--config.{key}={value}"])
            except UserError as error:
                kind = "unknown here" if "unknown config key" in str(error) else "refused value"
                if (kind == "unknown here" and key in own) or "\n" in str(error):
                    wrong.append((family, key, str(error)))
                count[kind] += 1
                continue
            if key not in own:
                wrong.append((family, key, "taken, though the family does not have it"))
            try:
                check_read(changed, [key])
            except UserError as error:
                count["nothing reads it"] += 1
                if key not in str(error) or "\n" in str(error):
                    wrong.append((family, key, str(error)))
                continue
            count["taken"] += 1
            try:
                read = key.partition(".")[0] not in ("model", "optimizer") or key in attributes_read(changed)
            except UserError:  # a value that does not fit the others
                read = True
            if not read:
                wrong.append((family, key, "taken, though building the model does not look at it"))
        counts[family] = dict(count)
        print(f"{family:<20}{dict(count)}", flush=True)
    total = sum(sum(count.values()) for count in counts.values())
    print(f"{total} pairs of a family and an option, {len(wrong)} wrong", *wrong, sep="\n")
    if out:
        commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
        found = {"pairs": total, "wrong": wrong, "families": counts, "commit": commit.stdout.strip()}
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
