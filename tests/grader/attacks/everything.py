"""All attacks, from the modules that each hold one kind."""

from __future__ import annotations

from . import bombs, forged, machine, measured, shadows, verdicts

ATTACKS = (
    *verdicts.ATTACKS,
    *shadows.ATTACKS,
    *machine.ATTACKS,
    *bombs.ATTACKS,
    *forged.ATTACKS,
    *measured.ATTACKS,
)
