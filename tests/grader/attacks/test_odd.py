"""Honest submissions that look odd lose nothing, at any tier that they can be run at."""

from __future__ import annotations

import pytest

from .conftest import Scenes
from .odd import ODD, Odd

pytestmark = pytest.mark.attack

EVERY = [pytest.param(tier, odd, id=f"{tier}-{odd.id}") for odd in ODD for tier in odd.tiers]


@pytest.mark.parametrize(("tier", "odd"), EVERY)
def test_an_odd_submission_has_full_marks(scenes: Scenes, tier: str, odd: Odd) -> None:
    scene = scenes(tier, odd.group)
    record, control = scene.of(odd.id), scene.of(odd.lab)
    reasons = [(row.id, row.status, row.detail) for row in record.tests if row.status != "passed"]
    assert record.tasks == control.tasks, reasons
    assert [row.status for row in record.tests] == [row.status for row in control.tests]
    assert record.notes == control.notes == []
    assert control.score + control.not_verified == (
        5.0 if odd.lab == "lab07" else control.max_score
    )


def test_there_are_enough_of_them() -> None:
    assert len({odd.id for odd in ODD}) == len(ODD) >= 20
