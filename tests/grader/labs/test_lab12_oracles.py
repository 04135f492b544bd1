"""What lab 12 recorded of torch is what torch does: groups of a DeviceMesh, orders of schedules."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SUITE = Path(__file__).resolve().parents[2] / "lab12"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the records are of torch"
)


def _recorded_now(module: str, cases: str) -> Any:
    """What the script's `record` says now of some cases, in a process of its own."""
    code = f"import json, {module} as m; print(json.dumps(m.record({cases})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=SUITE, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["cases"]


def test_a_device_mesh_groups_64_ranks_as_recorded() -> None:
    recorded = json.loads((SUITE / "device_mesh.json").read_text(encoding="utf-8"))["cases"]
    assert _recorded_now("make_rank_groups", "m.CASES[4:]") == recorded[4:]


def test_pipelining_schedules_ask_for_work_as_recorded() -> None:
    recorded = json.loads((SUITE / "schedules.json").read_text(encoding="utf-8"))["cases"]
    assert _recorded_now("make_schedules", "m.CASES") == recorded
