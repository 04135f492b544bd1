"""What suite modules are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_TASK = "__infralens_task__"
F = TypeVar("F", bound=Callable[..., Any])


def task(
    *task_ids: str, gate: bool = True, extra: tuple[str, ...] = (), holds: tuple[str, ...] = ()
) -> Callable[[F], F]:
    """Marks a test of a task, or of each of several: then its argument `task` is the id of the one
    that it runs for. `gate`: the task earns nothing unless it passes; otherwise it is a step.
    `extra`: modules or `gpu` that it needs; such a test is shown, never scored. `holds`: the
    clauses of the task's contract (`clauses.toml`) that an answer must keep to pass it."""
    if not task_ids:
        raise TypeError("@task() names no task, so the test would never run")
    if isinstance(extra, str):
        raise TypeError(f"extra is a tuple of names: write extra=({extra!r},)")
    if isinstance(holds, str):
        raise TypeError(f"holds is a tuple of clauses: write holds=({holds!r},)")

    def mark(function: F) -> F:
        setattr(function, _TASK, (task_ids, gate, tuple(extra), tuple(holds)))
        return function

    return mark


def property_settings(max_examples: int = 60) -> Any:
    """Settings for `@given` in a suite: no deadline, no database, the same examples every time."""
    from hypothesis import HealthCheck, Phase, settings

    return settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        # Several faults in one exception group would hide the first one's message.
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
