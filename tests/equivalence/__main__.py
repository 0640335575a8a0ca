"""Does this checkout compute what the one tagged `before-parts` did? Every config, at the sizes of test_configs.py.

    python tests/equivalence                       compares all configs; at most ten minutes on two cores
    python tests/equivalence quickstart recall     compares these
    python tests/equivalence --record              writes before_parts.json, in a checkout of the tag
    python tests/equivalence --texts DIRECTORY     writes the lowered programs there as well, to be compared by hand

Keys and parameters that changed their names since are in tables.py; one that is in no table is an error.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]
RECORDED = HERE / "before_parts.json"

from tables import NOT_REPEATABLE, OTHER_TEXT  # noqa: E402
from worker import prepare, recorded  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="of configs; none: all")
    parser.add_argument("--record", action="store_true", help="write what is found instead of comparing it")
    parser.add_argument("--texts", type=pathlib.Path, help="a folder for the lowered programs")
    args = parser.parse_args()
    prepare()
    from differences import differences

    configs = sorted(path.stem for path in (HERE.parents[1] / "configs").glob("*.py") if path.stem != "base")
    names = args.names or configs
    if unknown := sorted(set(names) - set(configs)):
        raise SystemExit(f"no such config: {', '.join(unknown)}")
    before = {} if args.record else json.loads(RECORDED.read_text())
    found, failed, changed = {}, [], []
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context, initializer=prepare) as pool:
        old = [before[name]["parameters"] if before else None for name in names]
        for name, one in pool.map(recorded, names, old, [args.texts] * len(names)):
            found[name] = one
            if isinstance(one, str):
                wrong, texts = [one], []
            else:
                wrong, texts = (
                    ([], []) if args.record else differences(before[name], one, numbers=name not in NOT_REPEATABLE)
                )
            changed += [name] if texts else []
            wrong += ["another text, and no reason in tables.py"] if texts and name not in OTHER_TEXT else []
            failed += [name] if wrong else []
            print(f"{name:<32}", "; ".join(wrong) or (f"equal, another text: {', '.join(texts)}" if texts else "equal"))
            sys.stdout.flush()
    missing = sorted(set(before) - set(found)) if not args.names else []
    print(f"{len(found)} configs: {len(failed)} differ, {len(changed)} have another text; missing: {missing or 'none'}")
    if args.record and not failed:
        rows = (f"{json.dumps(name)}: {json.dumps(found[name], separators=(',', ':'))}" for name in sorted(found))
        RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    raise SystemExit(bool(failed or missing))


if __name__ == "__main__":
    main()
