"""Faults put into the package on purpose, each of which the test named beside it has to notice.

    python tests/mutations                    all of them
    python tests/mutations tie_break halting  these

Each is made in a copy of the repository, in a temporary folder, where its test is then run. It is "killed" where the
test fails, and "survived" where it passes or does not run; "not found" is a text that is no longer in its file, or
there more than once. First all tests have to pass without a fault. The exit status is 1 if anything is not as it should
be. For a change to the tests or to what they cover; pytest does not run it.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import blockwise
import data
import images
import mechanisms
import outputs
import package
import sources
from mutation import Mutation

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".jax_cache", ".venv*", "__pycache__", ".*_cache", "data", "runs")
FAILED = 1  # pytest's exit status where tests ran and some failed
MUTATIONS = package.MUTATIONS | outputs.MUTATIONS | blockwise.MUTATIONS | images.MUTATIONS
MUTATIONS |= mechanisms.MUTATIONS | data.MUTATIONS | sources.MUTATIONS


def run_tests(root: pathlib.Path, tests: list[str]) -> tuple[int, str]:
    """(pytest's exit status, what it printed) in this copy of the repository."""
    environment = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache")} | os.environ
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(f"tests/{t}" for t in tests)]
    output = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    done = subprocess.run(command, cwd=root, env=environment, **output)
    return done.returncode, done.stdout


def result_of(root: pathlib.Path, mutation: Mutation) -> str:
    """Put the fault into the copy, run its test, take it out again."""
    path = root / "attn_jax" / mutation.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(mutation.before) != 1:
        return "not found"
    path.write_text(text.replace(mutation.before, mutation.after), encoding="utf-8")
    status, _ = run_tests(root, [mutation.test])
    path.write_text(text, encoding="utf-8")
    return "killed" if status == FAILED else "survived"


def main(names: list[str]) -> int:
    """The exit status of the program."""
    unknown = [name for name in names if name not in MUTATIONS]
    if unknown:
        print(f"mutations: unknown {', '.join(unknown)}; known: {', '.join(MUTATIONS)}", file=sys.stderr)
        return 2
    chosen = {name: MUTATIONS[name] for name in names or MUTATIONS}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "repository"
        shutil.copytree(ROOT, root, ignore=LEFT_OUT)
        status, printed = run_tests(root, sorted({mutation.test for mutation in chosen.values()}))
        if status:
            print(printed, "mutations: these tests have to pass without a fault", sep="\n", file=sys.stderr)
            return 1
        results = {}
        for name, mutation in chosen.items():
            results[name] = result_of(root, mutation)
            print(f"{results[name]:<10}{name:<32}{mutation.file}  {mutation.test}", flush=True)
    counts = {kind: list(results.values()).count(kind) for kind in ("killed", "survived", "not found")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()), f"of {len(results)}")
    return int(counts["killed"] < len(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
