"""All calculators, and the one call that the browser makes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Any

from grader.site.calculators.declaration import Labs, WrongInput, exact, rounded, written
from grader.site.calculators.format_bits import FORMAT_BITS
from grader.site.calculators.kv_blocks import KV_BLOCKS
from grader.site.calculators.memory_ledgers import INFERENCE, TRAINING
from grader.site.calculators.parallel_plan import PLAN
from grader.site.calculators.zero_by_rank import ZERO

CALCULATORS = (TRAINING, INFERENCE, ZERO, KV_BLOCKS, FORMAT_BITS, PLAN)


def answer(name: str, texts: Mapping[str, str], labs: Labs) -> dict[str, Any]:
    """What a page shows: lines and notes, or the input that is wrong and why."""
    calculator = next(one for one in CALCULATORS if one.name == name)
    try:
        result = calculator.compute(calculator.read(texts), labs)
    except WrongInput as wrong:
        return {"wrong": wrong.name, "sentence": wrong.sentence}
    lines = [
        {
            "label": line.label,
            "exact": exact(line.value),
            "rounded": rounded(line.value, line.unit),
            "unit": line.unit,
            "words": line.words,
            "filled": written(line.filled),
            "section": line.section,
            "group": line.group,
            "share": line.share,
            "headline": line.headline,
        }
        for line in result.lines
    ]
    return {"lines": lines, "notes": result.notes}


def answer_in_browser(name: str, texts: str) -> str:
    """`answer` from JSON to JSON, with the labs' modules as they were sent along."""
    return json.dumps(answer(name, json.loads(texts), importlib.import_module))
