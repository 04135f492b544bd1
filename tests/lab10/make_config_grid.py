"""The goodput of every configuration of GRID, as `config_grid.json`.

    python tests/lab10/make_config_grid.py

About a minute. The suite runs the best of them again beside a learner's, so a stale file is seen.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(__file__).with_name("config_grid.json")


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "exercises" / "lab10")]
    from workload_lab10 import GRID, PROBLEM

    config_file = importlib.import_module("tests.lab10.config_file")
    trace = PROBLEM.trace()
    rows = []
    for values in itertools.product(*GRID.values()):
        made = dict(zip(GRID, values, strict=True))
        util, budget, seqs = values
        blocks = config_file.blocks_of(PROBLEM, util, budget, seqs)
        goodput, preemptions = config_file.served(PROBLEM, trace, blocks, made)
        rows.append([util, budget, seqs, blocks, round(goodput, 4), preemptions])
    rows.sort(key=lambda row: -row[4])
    head = [*GRID, "num_blocks", "goodput", "preemptions"]
    lines = ",\n".join(json.dumps(row) for row in rows)
    text = f'{{"columns": {json.dumps(head)},\n"rows": [\n{lines}\n]}}\n'
    TARGET.write_text(text, encoding="utf-8")
    print(f"best: {dict(zip(head, rows[0], strict=True))}")


if __name__ == "__main__":
    main()
