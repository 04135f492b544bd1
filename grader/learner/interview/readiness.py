"""`infralens ready`: by topic what is done, what is remembered and how fast, and what would help
most. It gives no overall percentage, since one topic does not make up for a gap in another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from grader.learner import paint
from grader.learner.interview.asking import wrapped
from grader.learner.interview.roles import role
from grader.learner.interview.standing import Standing, duration, speed, standings

MOST_ADVICE = 3
NAMED = 4


@dataclass(frozen=True)
class Advice:
    """Something to do. gain: the part of a lab's tasks or cards that it would fill, times the
    lab's part in the role."""

    gain: float
    text: str


def lines(root: Path, role_id: str, on: date, today: date, colours: bool) -> Iterator[str]:
    """The table by topic and the three steps."""
    wanted = role(root, role_id)
    rows = standings(root, wanted, on)
    when = "today" if on == today else f"on {on:%a %d %b %Y}"
    yield paint.painted(f"Ready for {wanted.id}, {when}?", "bold", colours)
    yield ""
    yield f" {'topic':<10} {'tasks alone':>12}   {'cards asked':>12}   {'recall':>6}   {'speed':>7}"
    topics: dict[str, list[Standing]] = {}
    for row in rows:
        topics.setdefault(row.lab.topic or "other", []).append(row)
    for topic, of_topic in topics.items():
        yield _line(topic, of_topic)
    yield ""
    yield wrapped(
        "Tasks alone: done without reading the reference. Recall: the chance that a card that was "
        "asked is known on that day, tomorrow at the earliest. Speed: your minutes by those of the "
        "tasks."
    )
    if steps := sorted(_steps(rows, role_id), key=lambda step: -step.gain)[:MOST_ADVICE]:
        yield ""
        yield paint.painted("What would help most", "bold", colours)
        for number, step in enumerate(steps, start=1):
            yield wrapped(f"{number}. {step.text}", " ", 3)


def _line(topic: str, rows: Sequence[Standing]) -> str:
    alone, tasks = sum(len(row.alone) for row in rows), sum(row.tasks for row in rows)
    recall = [value for row in rows for value in row.recall]
    known = f"{sum(recall) / len(recall):.2f}" if recall else "-"
    asked = f"{len(recall)} of {sum(row.deck for row in rows)}"
    pace = speed(list(rows))
    said = f"{pace:.1f} x" if pace else "-"
    done = f"{alone} of {tasks}"
    return f" {topic:<10} {done:>12}   {asked:>12}   {known:>6}   {said:>7}"


def _steps(rows: Sequence[Standing], role_id: str) -> Iterator[Advice]:
    whole = sum(row.weight for row in rows)
    for row in rows:
        part = row.weight / whole
        core = [task for task in row.open if task.tier == "core"]
        to_do = core or list(row.open)
        if to_do:
            names = ", ".join(task.id for task in to_do[:NAMED])
            more = f" and {len(to_do) - NAMED} more" if len(to_do) > NAMED else ""
            minutes = duration(sum(task.minutes for task in to_do))
            tier = "core tasks" if core else "hard tasks"
            text = f"{row.lab.id}, {row.lab.title}: its open {tier} {names}{more} ({minutes})."
            yield Advice(part * len(to_do) / max(1, row.tasks), text)
        unknown = row.deck - sum(row.recall)
        if row.deck and unknown > 0:
            due = "1 card is" if row.due == 1 else f"{row.due or 'no'} cards are"
            rest = max(0, row.deck - len(row.recall))
            was = "was" if rest == 1 else "were"
            text = f"infralens drill {row.lab.id}: {due} due, {rest} {was} not asked yet."
            yield Advice(part * min(1.0, unknown / row.deck), text)
        if row.read:
            names = ", ".join(task.id for task in row.read[:NAMED])
            text = (
                f"{row.lab.id}: once more without the reference: {names}. "
                f"(infralens interview --role {role_id} asks some of them from a blank file.)"
            )
            yield Advice(0.5 * part * len(row.read) / max(1, row.tasks), text)
