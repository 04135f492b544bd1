"""`infralens plan`: pages, tasks, drills and interviews, day by day, up to the day of an interview.

Nothing is kept: each call plans what is left on that day, from what is done by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from grader.errors import LabError
from grader.lab import lab_page
from grader.learner import paint
from grader.learner.interview.asking import wrapped
from grader.learner.interview.roles import role
from grader.learner.interview.standing import Standing, duration, speed, standings

WORDS_A_MINUTE = 180
LEAST_HOURS, MOST_HOURS = 0.25, 16.0
DRILL = (0.15, 20.0)  # of a day, and the most minutes
INTERVIEW = (0.4, 45.0)
INTERVIEW_EVERY = 3  # days, counted from the last one back
SLOWEST, FASTEST = 3.0, 0.5  # of the manifest's minutes, what a plan reckons with
SHORTEST = 5.0  # minutes of a part
NAMED = 3


@dataclass(frozen=True)
class Item:
    """Something to do. minutes: at the candidate's speed."""

    what: str
    text: str
    minutes: float


@dataclass(frozen=True)
class PlannedDay:
    """One day and what is done on it."""

    day: date
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Plan:
    """left: what does not fit, the most important first. pace: of the candidate, if known."""

    days: tuple[PlannedDay, ...]
    left: tuple[Item, ...]
    pace: float | None
    done: int
    tasks: int


def plan(root: Path, role_id: str, on: date, today: date, hours: float) -> Plan:
    """Raises LabError for hours that a day does not have."""
    if not LEAST_HOURS <= hours <= MOST_HOURS:
        raise LabError(f"--hours {hours:g}: give hours a day, from {LEAST_HOURS} to {MOST_HOURS}.")
    rows = standings(root, role(root, role_id), on)
    pace = speed(rows)
    count = max(1, (on - today).days)
    budget = 60 * hours
    fixed = [list(_fixed(role_id, budget, count - number)) for number in range(count)]
    room = [budget - sum(item.minutes for item in items) for items in fixed]
    to_do = _in_order(rows, min(SLOWEST, max(FASTEST, pace or 1.0)), sum(room))
    days, left = _laid_out(to_do, room)
    made = tuple(
        PlannedDay(today + timedelta(days=number), (*items, *of_day))
        for number, (items, of_day) in enumerate(zip(fixed, days, strict=True))
    )
    done = sum(row.tasks - len(row.open) for row in rows)
    return Plan(made, tuple(left), pace, done, sum(row.tasks for row in rows))


def _fixed(role_id: str, budget: float, days_left: int) -> Iterator[Item]:
    """What a day has whatever else: a drill, and now and then an interview; always on the last."""
    share, most = DRILL
    minutes = float(max(5, round(min(most, share * budget) / 5) * 5))
    yield Item("drill", f"infralens drill --role {role_id} --minutes {minutes:g}", minutes)
    share, most = INTERVIEW
    minutes = float(max(5, round(min(most, share * budget) / 5) * 5))
    if (days_left - 1) % INTERVIEW_EVERY == 0:
        text = f"infralens interview --role {role_id} --minutes {minutes:g}"
        yield Item("interview", text, minutes)


def _in_order(rows: Sequence[Standing], pace: float, room: float) -> list[Item]:
    """Pages and core tasks by the labs' weights, then hard tasks. Where core tasks do not all fit,
    all pages come before them: a page alone helps more than a task without one."""
    pages = {row.lab.id: [] if row.is_begun else [_page(row)] for row in rows}
    core, hard = (
        {
            row.lab.id: [
                Item("task", f"{task.name}  {task.title}", pace * task.minutes)
                for task in row.open
                if task.tier == tier
            ]
            for row in rows
        }
        for tier in ("core", "hard")
    )
    labs = [row.lab.id for row in rows]
    first = [item for lab in labs for item in (*pages[lab], *core[lab])]
    if sum(item.minutes for item in first) > room:
        first = [item for part in (pages, core) for lab in labs for item in part[lab]]
    return [*first, *(item for lab in labs for item in hard[lab])]


def _page(row: Standing) -> Item:
    minutes = len(lab_page.text(row.lab).split()) / WORDS_A_MINUTE
    return Item("page", f"exercises/{row.lab.id}/README.md  {row.lab.title}", max(1.0, minutes))


def _laid_out(to_do: Sequence[Item], room: Sequence[float]) -> tuple[list[list[Item]], list[Item]]:
    """The items on the days, one after the other; what is cut by a day's end goes on the next day.
    The last one is cut off only where less than half of it fits."""
    days: list[list[Item]] = [[] for _ in room]
    free, at = list(room), 0
    left: list[Item] = []
    for item in to_do:
        least = min(SHORTEST, item.minutes)
        if sum(minutes for minutes in free[at:] if minutes >= least) < item.minutes / 2:
            left.append(item)
            continue
        missing = item.minutes
        for number in range(at, len(days)):
            if missing < 0.5 or free[number] < min(SHORTEST, missing):
                continue
            part = min(missing, free[number])
            text = item.text if part == item.minutes else f"{item.text} (a part)"
            days[number].append(Item(item.what, text, part))
            free[number] -= part
            missing -= part
            at = number
    return days, left


def lines(made: Plan, role_id: str, on: date, hours: float, colours: bool) -> Iterator[str]:
    count = len(made.days)
    pace = ""
    if made.pace:
        pace = f" You take {made.pace:.1f} x the tasks' minutes, which is reckoned with."
    yield wrapped(
        f"{role_id}, {on:%a %d %b %Y}: {count} day{'s' if count > 1 else ''} of "
        f"{duration(60 * hours)}; {made.done} of {made.tasks} tasks of its labs are done.{pace}"
    )
    for day in made.days:
        yield ""
        whole = duration(sum(item.minutes for item in day.items))
        yield paint.painted(f"{day.day:%a %d %b}   {whole}", "bold", colours)
        for item in day.items:
            yield f"   {item.what:<10} {duration(item.minutes):>10}   {item.text}"
    yield ""
    if made.left:
        minutes = sum(item.minutes for item in made.left)
        names = ", ".join(item.text.partition("  ")[0] for item in made.left[:NAMED])
        more = f" and {len(made.left) - NAMED} more" if len(made.left) > NAMED else ""
        yield wrapped(
            f"Not in it, for want of time ({duration(minutes)}): {names}{more}. Ask again when "
            "something is done: each call plans what is left."
        )
    else:
        yield wrapped("All of it fits. Ask again when something is done.")
