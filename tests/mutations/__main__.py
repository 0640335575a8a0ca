"""Faults put into the package on purpose, each of which the test named beside it has to notice.

    python tests/mutations                    all of them
    python tests/mutations tie_break halting  these
    python tests/mutations --generated=100 --seed=0 --out=experiments/results/mutations.json
                                              a random sample of those that generated.py makes by rule
    python tests/mutations --generated=30 --seed=3 --files=training/loop.py,models/glimpses --own
                                              of these files and folders, by the tests of each file alone
    python tests/mutations --again=experiments/results/mutations.json --out=experiments/results/mutations.json
                                              the survivors of a sample, after its tests were mended
    python tests/mutations --coverage=experiments/results/coverage.json
                                              no faults: runs all tests, and counts lines and branches they never reach

Each is made in a copy of the repository, in a temporary folder, where its test is then run. It is "killed" where the
test fails, and "survived" where it passes or does not run; "not found" is a text that is no longer in its file, or
there more than once. First all tests have to pass without a fault. The exit status is 1 if anything is not as it should
be: of generated faults, if fewer than nine in ten are noticed or explained (EXPLAINED in generated.py). For a change to
the tests or to what they cover; pytest does not run it.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import blockwise
import data
import evaluation
import generated
import images
import mechanisms
import outputs
import package
import sources
from mutation import Mutation

ROOT = pathlib.Path(__file__).resolve().parents[2]
AT_THE_TOP = {"data", "runs"}  # what users put there, not attn_jax/data and attn_jax/runs
ANYWHERE = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache")
LEAST = 0.9  # of generated faults, noticed or explained
LONGEST = 1800  # seconds of tests; a fault may let a loop go on for ever
FIRST_FAILED = re.compile(r"^(?:FAILED|ERROR) tests/([^\s\[]+)", re.MULTILINE)
FAILED = 1  # pytest's exit status where tests ran and some failed
MUTATIONS = package.MUTATIONS | outputs.MUTATIONS | blockwise.MUTATIONS | images.MUTATIONS
MUTATIONS |= mechanisms.MUTATIONS | data.MUTATIONS | sources.MUTATIONS | evaluation.MUTATIONS


def left_out(folder: str, names: list[str]) -> set[str]:
    """Names that a copy of the repository does without."""
    return ANYWHERE(folder, names) | (AT_THE_TOP & set(names) if pathlib.Path(folder) == ROOT else set())


def run_tests(root: pathlib.Path, tests: list[str], seconds: float | None = None) -> tuple[int, str]:
    """(pytest's exit status, what it printed) in this copy of the repository; tests that take longer have failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(f"tests/{t}" for t in tests)]
    output = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        done = subprocess.run(command, cwd=root, timeout=seconds, **output)
    except subprocess.TimeoutExpired:
        return FAILED, f"no end after {seconds} s"
    return done.returncode, done.stdout


def is_there(root: pathlib.Path, mutation: Mutation) -> bool:
    """Whether the text of a fault is in its file once."""
    path = root / "attn_jax" / mutation.file
    return path.is_file() and path.read_text(encoding="utf-8").count(mutation.before) == 1


def result_of(root: pathlib.Path, mutation: Mutation) -> str:
    """Put the fault into the copy, run its test, take it out again."""
    if not is_there(root, mutation):
        return "not found"
    path = root / "attn_jax" / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutation.before, mutation.after), encoding="utf-8")
    status, _ = run_tests(root, [mutation.test])
    path.write_text(text, encoding="utf-8")
    return "killed" if status == FAILED else "survived"


def about() -> dict:
    """Where and of what the results are."""
    sys.path.insert(0, str(ROOT))
    from attn_jax.evaluation.provenance import provenance

    return provenance()


def noticed_by(root: pathlib.Path, fault: generated.Fault, own: bool = False) -> str:
    """The test that notices a fault, with `own` of its file; nothing if none does. It has to pass without the fault."""
    path = root / "attn_jax" / fault.file
    text = path.read_text(encoding="utf-8")
    for tests in fault.tests[:1] if own else fault.tests:
        path.write_text(generated.mutated(text, fault.begin, fault.end, fault.new), encoding="utf-8")
        status, printed = run_tests(root, list(tests), LONGEST)
        path.write_text(text, encoding="utf-8")
        if status == 0:
            continue
        first = FIRST_FAILED.search(printed)  # none where nothing was collected, or where nothing came to an end
        failed = [first[1]] if first else list(tests)
        if run_tests(root, failed)[0]:
            raise SystemExit(f"mutations: {' '.join(failed)} fails without a fault")
        return " ".join(failed)
    return ""


def run_generated(count: int, seed: int, targets: tuple[str, ...], own: bool, out: str) -> int:
    """A random sample of generated faults; the exit status."""
    results = []
    with copied() as root:
        for fault in generated.sample(count, seed, targets):
            test = noticed_by(root, fault, own)
            state = "killed" if test else "explained" if generated.explanation(fault) else "survived"
            why = {"why": generated.explanation(fault)} if state == "explained" else {}
            results.append({"result": state, **fault._asdict(), "noticed_by": test, **why})
            print(f"{state:<10}{fault.name:<52}{test or fault.line}", flush=True)
    sampled = {"of": len(generated.all_mutations(targets)), "seed": seed, "files": targets, "own": own}
    return summary(sampled | {"results": results, **about()}, out)


def run_again(path: str, out: str) -> int:
    """The survivors of an earlier sample; one that is noticed now is "mended", which is no part of the rate."""
    record = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    now = generated.all_mutations(tuple(record.get("files", generated.TARGETS)))
    with copied() as root:
        for found in record["results"]:
            if found["result"] != "survived":
                continue
            before = found["file"], found["line"], found["new"], place(found["name"])  # its line may have several
            fault = next((f for f in now if (f.file, f.line, f.new, place(f.name)) == before), None)
            if fault is None:
                print(f"changed   {found['name']:<52}{found['line']}", flush=True)
                continue
            if why := generated.explanation(fault):
                found |= {"result": "explained", "why": why}
            elif test := noticed_by(root, fault, record.get("own", False)):
                found |= {"result": "mended", "noticed_by": test}
            print(f"{found['result']:<10}{fault.name:<52}{found['noticed_by'] or fault.line}", flush=True)
    return summary(record | {"again": about()}, out)


def place(name: str) -> str:
    """The column and the rule of a named fault."""
    return name.rsplit(":", 1)[1]


def summary(record: dict, out: str) -> int:
    """Prints and writes the counts of a sample; the exit status."""
    results = record["results"]
    counts = collections.Counter(found["result"] for found in results)
    rate = (counts["killed"] + counts["explained"]) / max(1, len(results))
    print(f"{dict(counts)} of a sample of {len(results)} of {record['of']} faults: ", end="")
    print(f"{100 * rate:.0f} % noticed or explained")
    if out:
        content = {"counts": counts, "rate": rate} | {k: v for k, v in record.items() if k not in ("counts", "rate")}
        pathlib.Path(out).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return int(rate < LEAST)


@contextlib.contextmanager
def copied() -> Iterator[pathlib.Path]:
    """A copy of the repository in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "repository"
        shutil.copytree(ROOT, root, ignore=left_out)
        yield root


def run_coverage(out: str) -> int:
    """All tests with coverage of lines and branches, by folder of the package; the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        settings = pathlib.Path(folder) / "coveragerc"
        lines = ("[run]", "branch = True", "parallel = True", "source = attn_jax", f"data_file = {folder}/data")
        # Counts of processes that are started, that are forks, and that end at once are written, too.
        settings.write_text("\n".join((*lines, "patch = subprocess, fork, _exit", "")))
        coverage = [sys.executable, "-m", "coverage"]
        options = [f"--rcfile={settings}"]
        pytest = ["-m", "pytest", "-q", "-p", "save_coverage", "-n", "auto", "--dist", "loadfile"]
        paths = os.pathsep.join(filter(None, (str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": paths}
        tested = subprocess.run([*coverage, "run", *options, *pytest], cwd=ROOT, env=environment).returncode
        subprocess.run([*coverage, "combine", "-q", *options], cwd=ROOT, check=True)
        subprocess.run([*coverage, "json", "-q", *options, "-o", f"{folder}/all.json"], cwd=ROOT, check=True)
        found = json.loads(pathlib.Path(folder, "all.json").read_text())
    rows: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for file, about_file in found["files"].items():
        parts = pathlib.PurePath(file).parts
        for row in (parts[1] if len(parts) > 2 else ".", "all"):
            rows[row].update({k: v for k, v in about_file["summary"].items() if isinstance(v, int)})
    percents = {}
    for row, n in sorted(rows.items()):
        whole = n["num_statements"] + n["num_branches"]
        percents[row] = round(100 * (n["covered_lines"] + n["covered_branches"]) / max(1, whole), 1)
        print(f"{row:<14}{percents[row]:>6} % of {n['num_statements']} lines and {n['num_branches']} branches")
    content = {"percent": percents, "tests": tested, **about()}
    pathlib.Path(out).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return int(tested != 0 or percents["all"] < 92)


def main(arguments: list[str]) -> int:
    """The exit status of the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of listed faults; none: all of them")
    parser.add_argument("--check", action="store_true", help="only tell which listed faults are not in their files")
    parser.add_argument("--generated", type=int, default=0, help="number of generated faults")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--files", default=",".join(generated.TARGETS), help="of the sample: files and folders")
    parser.add_argument("--own", action="store_true", help="ask only the tests of the file of each fault")
    parser.add_argument("--again", default="", help="the JSON file of a sample: what survived, with the tests of now")
    parser.add_argument("--out", default="", help="a JSON file for the generated faults")
    parser.add_argument("--coverage", default="", help="a JSON file for the coverage of all tests")
    options = parser.parse_args(arguments)
    if options.check:
        lost = [name for name, mutation in MUTATIONS.items() if not is_there(ROOT, mutation)]
        print(f"{len(lost)} of {len(MUTATIONS)} not found", *lost, sep="\n")
        return int(bool(lost))
    if options.coverage:
        return run_coverage(options.coverage)
    if options.again:
        return run_again(options.again, options.out)
    if options.generated:
        files = tuple(options.files.split(","))
        return run_generated(options.generated, options.seed, files, options.own, options.out)
    names = options.names
    unknown = [name for name in names if name not in MUTATIONS]
    if unknown:
        print(f"mutations: unknown {', '.join(unknown)}; known: {', '.join(MUTATIONS)}", file=sys.stderr)
        return 2
    chosen = {name: MUTATIONS[name] for name in names or MUTATIONS}
    with copied() as root:
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
