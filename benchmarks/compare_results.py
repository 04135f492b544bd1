"""Are the results of two grading runs the same?

    python benchmarks/compare_results.py RUN OTHER [--messages] [--renamed FILE]

Compares every `results/<student>/<lab>.json` of two runs of the same submissions, as before and
after a change of the grader: marks, statuses of tests and tasks, notes, digests of files. Left out
is what two runs never share: keys, seconds, and the instructor's detail. `--messages` also compares
what students read, and prints each message that differs, once. `--renamed`: a JSON object of test
ids, old to new, for tests that changed their name. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_OF_A_RUN = {"key", "mechanisms"}
_OF_A_TEST = {"seconds", "detail"}
SHOWN = 20


def load(run: Path) -> dict[str, dict[str, Any]]:
    """Results by `student/lab`. Raises SystemExit where the folder holds none."""
    found = {
        f"{path.parent.name}/{path.stem}": json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((run / "results").glob("*/*.json"))
    }
    if not found:
        raise SystemExit(f"{run / 'results'} holds no result: give the folder of a grading run.")
    return found


def comparable(result: dict[str, Any], renamed: dict[str, str], messages: bool) -> dict[str, Any]:
    """A result without what two runs never share; its tests by id."""
    left_out = _OF_A_TEST if messages else {*_OF_A_TEST, "message"}
    tests = {
        renamed.get(row["id"], row["id"]): {k: v for k, v in row.items() if k not in left_out}
        for row in result["tests"]
    }
    for name, row in tests.items():
        row["id"] = name
    kept = {name: value for name, value in result.items() if name not in _OF_A_RUN}
    return {**kept, "tests": tests, "tasks": {row["id"]: row for row in result["tasks"]}}


def differences(one: Any, other: Any, place: str) -> Iterator[str]:
    """Where two values differ, a line each."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one.keys() | other.keys():
            if name not in one or name not in other:
                yield f"{place} {name}: only in the {'first' if name in one else 'second'}"
            else:
                yield from differences(one[name], other[name], f"{place} {name}")
    elif one != other:
        yield f"{place}: {one!r} and {other!r}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--messages", action="store_true")
    parser.add_argument("--renamed", type=Path)
    given = parser.parse_args(arguments)
    renamed = json.loads(given.renamed.read_text(encoding="utf-8")) if given.renamed else {}
    first, second = load(given.run), load(given.other)
    found = [f"{name}: only in {given.run}" for name in first.keys() - second.keys()]
    found += [f"{name}: only in {given.other}" for name in second.keys() - first.keys()]
    for name in sorted(first.keys() & second.keys()):
        one = comparable(first[name], renamed, given.messages)
        other = comparable(second[name], {}, given.messages)
        found += sorted(differences(one, other, name))
    if given.messages:  # one sentence may stand in hundreds of results
        found = list({line.partition(" message: ")[2] or line: line for line in found}.values())
    shown = found if given.messages else found[:SHOWN]
    print("\n".join(shown))
    if len(found) > len(shown):
        print(f"... and {len(found) - len(shown)} more")
    tests = sum(len(result["tests"]) for result in first.values())
    verdict = f"{len(found)} differences" if found else "the same"
    print(f"{len(first)} and {len(second)} results, {tests:,} tests in the first: {verdict}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
