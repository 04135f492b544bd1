"""Where a candidate stands, lab by lab: tasks done alone, what is remembered, and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from pathlib import Path

from fsrs import Card as Memory
from fsrs import Scheduler

from grader.errors import LabError
from grader.lab.manifest import Lab, Task, load_lab
from grader.learner import history, history_view, progress
from grader.learner.interview.roles import Role
from grader.learner.interview.store import RETENTION, known_memories, solved_in_interviews
from grader.status import TaskStatus
from grader.suite.questions import Bank

FEWEST_TIMED = 3  # tasks, before a speed is said
LATEST = timedelta(days=366)


@dataclass(frozen=True)
class Standing:
    """What is known of one lab. open: tasks that are not done, stretch tasks apart. alone, read:
    tasks that are done, without the reference (or in an interview) and after it was read. recall:
    the chance that a card that was asked is known on the day, one for each. deck: cards of the
    lab, bugs apart. spent, meant: minutes of the tasks that are done, one's own and the manifest's.
    """

    lab: Lab
    weight: int
    open: tuple[Task, ...]
    alone: tuple[Task, ...]
    read: tuple[Task, ...]
    recall: tuple[float, ...]
    due: int
    deck: int
    spent: float
    meant: float

    @property
    def tasks(self) -> int:
        return len(self.open) + len(self.alone) + len(self.read)

    @property
    def is_begun(self) -> bool:
        """Whether a task of the lab is done, so that its page was read."""
        return bool(self.alone or self.read)


def standings(root: Path, role: Role, on: date) -> list[Standing]:
    """Of the role's labs, those with the most weight first."""
    memories = known_memories(root)
    entries = history.read(root)
    worked = history_view.worked(entries).by_task
    written = solved_in_interviews(root)
    read = history.answers_read(root)
    order = sorted(role.labs, key=lambda lab: (-role.labs[lab], lab))
    return [
        _standing(load_lab(root, lab), role.labs[lab], memories, worked, read, written, on)
        for lab in order
    ]


def _standing(
    lab: Lab,
    weight: int,
    memories: Mapping[str, Memory],
    worked: Mapping[str, timedelta],
    read: set[str],
    written: set[str],
    on: date,
) -> Standing:
    rows = [row for row in progress.tasks_of(lab) if row.task.tier != "stretch"]
    done = [row.task for row in rows if row.status is TaskStatus.DONE or row.task.name in written]
    deck = [card.name for card in Bank(lab).cards if card.kind != "bug"]
    scheduler = Scheduler(desired_retention=RETENTION, enable_fuzzing=False)
    noon = datetime.combine(on, time(12)).astimezone()
    asked = [memories[name] for name in memories if name.startswith(f"{lab.id}/")]
    timed = [task for task in done if task.name in worked]
    return Standing(
        lab,
        weight,
        open=tuple(row.task for row in rows if row.task not in done),
        alone=tuple(task for task in done if task.name in written or task.name not in read),
        read=tuple(task for task in done if task.name in read and task.name not in written),
        recall=tuple(
            scheduler.get_card_retrievability(memory, _a_day_later(memory, noon))
            for memory in asked
        ),
        due=sum(memory.due <= noon for memory in asked),
        deck=len(deck),
        spent=sum(worked[task.name].total_seconds() / 60 for task in timed),
        meant=float(sum(task.minutes for task in timed)),
    )


def _a_day_later(memory: Memory, noon: datetime) -> datetime:
    """That noon, or a day after the last answer if that is later: an answer that was read a minute
    ago says nothing about memory."""
    last = memory.last_review
    return max(noon, last + timedelta(days=1)) if last else noon


def speed(rows: list[Standing]) -> float | None:
    """Own minutes by the manifests', where enough tasks were timed."""
    timed = sum(len(row.alone) + len(row.read) for row in rows if row.meant)
    meant = sum(row.meant for row in rows)
    return sum(row.spent for row in rows) / meant if meant and timed >= FEWEST_TIMED else None


def day(text: str, today: date) -> date:
    """A day that was typed, as in 2026-12-01; "" is today. Raises LabError for another notation,
    for the past, and for more than a year ahead."""
    if not text:
        return today
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise LabError(f"--date {text}: write year, month and day, as in {today}.") from None
    if found < today:
        raise LabError(f"--date {text}: that is past; today is {today}.")
    if found > today + LATEST:
        raise LabError(f"--date {text}: that is more than a year ahead; plan for the next year.")
    return found


def duration(minutes: float) -> str:
    whole = round(minutes)
    if whole < 60:
        return f"{whole} min"
    return f"{whole // 60} h {whole % 60} min" if whole % 60 else f"{whole // 60} h"
