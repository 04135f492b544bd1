"""Published figures of labs 02 and 03: each row is what some test holds an answer against."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("lab_id", ["lab02", "lab03"])  # others make ids of parts
def test_every_published_row_is_used(lab_id: str) -> None:
    folder = ROOT / "tests" / lab_id
    path = folder / "published.json"
    rows = json.loads(path.read_text()) if path.is_file() else []
    suite = "\n".join(each.read_text() for each in sorted(folder.glob("test_*.py")))
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(ids)
    assert [name for name in ids if f'"{name}"' not in suite] == []
    for row in rows:
        assert set(row) >= {"id", "expected", "unit", "source", "tol_rel"}
        assert row["unit"]
        assert row["source"]
