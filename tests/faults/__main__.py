"""Faults put to runs of launch.py on purpose, and a table of what was done, how often, and what survived.

    python tests/faults [--kills=50] [--only=kills,points,damage,disks,others,together,processes] [--out=FILE.json]
    python tests/faults --render            writes the table of the JSON file into docs/faults.md

With the default file, experiments/results/faults.json, groups that are not run keep their earlier rows. The exit status
is 1 if anything did not survive. About twenty minutes on two idle cores.
"""

import argparse
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(pathlib.Path(__file__).parent)]

import files_damaged  # noqa: E402
import machine_faults  # noqa: E402
import runs_killed  # noqa: E402
from launch_server import Server  # noqa: E402

from attn_jax.evaluation.provenance import provenance  # noqa: E402

OUT = ROOT / "experiments" / "results" / "faults.json"
PAGE = ROOT / "docs" / "faults.md"
BLOCK = re.compile(r"(<!-- faults -->\n).*?(<!-- end -->)", re.DOTALL)
SEED = 2026


def run(groups: list[str], kills: int, folder: pathlib.Path, out: pathlib.Path) -> None:
    """Writes the rows of each group to a JSON file, one group after the other."""
    with Server(folder) as server:
        whole = folder / "whole"
        began = runs_killed.time.monotonic()
        first = server.run(*runs_killed.command(whole))
        longest = runs_killed.since(began)
        if first.code:
            raise SystemExit(f"the run without a fault fails: {first.err[-2000:]}")
        makers = {
            "kills": lambda: runs_killed.killed(
                server, folder, whole, count=kills, rng=random.Random(SEED), longest=longest
            ),
            "points": lambda: runs_killed.killed_at_points(server, folder, whole),
            "damage": lambda: files_damaged.outcomes(whole, folder),
            "disks": lambda: machine_faults.full_and_read_only(server, folder, whole),
            "others": lambda: [
                runs_killed.beside_another(server, folder, whole),
                runs_killed.with_wrong_clock(server, folder, whole),
            ],
            "together": lambda: machine_faults.together(folder, whole),
            "processes": lambda: machine_faults.one_of_two_killed(folder, max(1, kills // 10), random.Random(SEED)),
        }
        for group in groups:
            rows = [outcome._asdict() for outcome in makers[group]()]
            for row in rows:
                print(f"{row['survived']}/{row['times']}  {row['fault']}  {'; '.join(row['notes'])}", flush=True)
            content = json.loads(out.read_text()) if out.exists() else {"groups": {}}
            content["groups"][group] = {"rows": rows, **provenance()}
            out.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


GROUPS = ("kills", "points", "damage", "disks", "others", "together", "processes")


def table(content: dict) -> str:
    """The rows as Markdown."""
    lines = ["| fault | times | survived | expected |", "|---|---|---|---|"]
    for group in GROUPS:
        for row in content["groups"].get(group, {}).get("rows", ()):
            lines.append(f"| {row['fault']} | {row['times']} | {row['survived']} | {row['expected']} |")
    return "\n".join(lines)


def render(content: dict, page: str) -> str:
    """The page with the table of this content."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{table(content)}\n\n{match[2]}", page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="kill -9 at random moments")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, separated by commas")
    parser.add_argument("--out", default=str(OUT), help="a JSON file for the results")
    parser.add_argument("--render", action="store_true", help="write docs/faults.md from the JSON file alone")
    arguments = parser.parse_args()
    out = pathlib.Path(arguments.out)
    if not arguments.render:
        groups = arguments.only.split(",")
        if unknown := set(groups) - set(GROUPS):
            parser.error(f"unknown {', '.join(unknown)}; expected some of {', '.join(GROUPS)}")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="faults"))
        try:
            run(groups, arguments.kills, folder, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    content = json.loads(out.read_text(encoding="utf-8"))
    if arguments.render:
        PAGE.write_text(render(content, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    every = [row for group in content["groups"].values() for row in group["rows"]]
    return int(any(row["survived"] < row["times"] for row in every))


if __name__ == "__main__":
    sys.exit(main())
