"""`infralens progress`: minutes and points over time and by topic, as text and as a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

from grader.durable import state_folder, write_atomically
from grader.lab.manifest import TOPICS, Lab, all_labs
from grader.learner import history, paint, progress
from grader.learner.history import HistoryLine
from grader.status import TaskStatus, points_text

PAUSE = timedelta(minutes=15)
"""A longer gap between two rounds is not counted as work."""
FIRST = timedelta(minutes=2)
"""What is counted for the work before a round that follows a pause."""
_BAR = 20


@dataclass(frozen=True)
class Worked:
    """Time spent, by task (as in lab07.merge) and by local day."""

    by_task: Mapping[str, timedelta]
    by_day: Mapping[date, timedelta]


def worked(entries: Iterable[HistoryLine]) -> Worked:
    """The time between each round and the one before it, shared by the tasks that were touched.
    Of a gap longer than `PAUSE` only `FIRST` is counted, since nobody knows the rest."""
    by_task: defaultdict[str, timedelta] = defaultdict(timedelta)
    by_day: defaultdict[date, timedelta] = defaultdict(timedelta)
    last: datetime | None = None
    for entry in entries:
        if entry.how == "compare":
            continue
        gap = FIRST if last is None or entry.at - last > PAUSE else entry.at - last
        last = entry.at
        by_day[entry.at.astimezone().date()] += gap
        for name in entry.touched:
            by_task[f"{entry.lab}.{name}"] += gap / len(entry.touched)
    return Worked(by_task, by_day)


def points_by_day(entries: Iterable[HistoryLine]) -> list[tuple[date, float]]:
    """The sum of points at the end of each day with a round, by each task's last state."""
    state: dict[tuple[str, str], float] = {}
    found: dict[date, float] = {}
    for entry in entries:
        for name, (_, points) in entry.tasks.items():
            state[entry.lab, name] = points
        if entry.tasks:
            found[entry.at.astimezone().date()] = sum(state.values())
    return sorted(found.items())


def lines(root: Path, width: int, colours: bool, unicode: bool) -> list[str]:
    """A block by topic, then one by day."""
    labs = all_labs(root)
    entries = history.read(root)
    time = worked(entries)
    found = []
    for topic in (*TOPICS, ""):
        of_topic = [lab for lab in labs if lab.topic == topic]
        if of_topic:
            found.append(paint.painted(topic or "other labs", "bold", colours))
            found += [_lab_line(lab, time, unicode, colours) for lab in of_topic]
    if not entries:
        return [*found, "", "No round is noted yet. Type: infralens watch lab01"]
    found += ["", paint.painted("by day", "bold", colours)]
    points = dict(points_by_day(entries))
    most = max(max(time.by_day.values(), default=timedelta()), timedelta(minutes=1))
    for day in sorted(time.by_day)[-14:]:
        bar = _bar(time.by_day[day] / most, unicode)
        reached = f"  {points_text(points[day])} points" if day in points else ""
        found.append(f"  {day:%Y-%m-%d}  {bar} {_minutes(time.by_day[day]):>8}{reached}")
    return [*found, *_causes(entries, width)]


def _lab_line(lab: Lab, time: Worked, unicode: bool, colours: bool) -> str:
    rows = progress.tasks_of(lab)
    points, most = sum(row.points for row in rows), sum(row.task.points for row in rows)
    spent = sum((time.by_task.get(row.task.name, timedelta()) for row in rows), timedelta())
    planned = sum(row.task.minutes for row in rows if row.status is TaskStatus.DONE)
    said = f"{_minutes(spent):>8}" if spent else " " * 8
    if planned and spent:
        said += f"  (its done tasks: about {planned} min)"
    bar = paint.painted(_bar(points / most, unicode), "green" if points else "dim", colours)
    return f"  {lab.id}  {bar} {points_text(points):>5}/{most:<4g} {said}  {lab.title}"


def _bar(part: float, unicode: bool) -> str:
    full = min(_BAR, round(part * _BAR))
    filled, empty = ("█", "·") if unicode else ("#", ".")
    return filled * full + empty * (_BAR - full)


def _minutes(time: timedelta) -> str:
    minutes = round(time.total_seconds() / 60)
    return f"{minutes // 60} h {minutes % 60:02d}" if minutes >= 60 else f"{minutes} min"


def _causes(entries: Sequence[HistoryLine], width: int) -> list[str]:
    """The likely causes that were named in most rounds."""
    rounds: defaultdict[tuple[str, str], int] = defaultdict(int)
    for entry in entries:
        for task, named in entry.causes.items():
            for cause in named:
                rounds[f"{entry.lab}.{task}", cause] += 1
    most = sorted(rounds.items(), key=lambda item: (-item[1], item[0]))[:5]
    if not most:
        return []
    found = ["", "likely causes that were named most often"]
    for (task, cause), count in most:
        text = f"  {task} ({count} round{'s' if count > 1 else ''}): {cause}"
        found.append(text if len(text) <= width else f"{text[: width - 3]}...")
    return found


def picture(root: Path) -> Path | None:
    """Write points and hours over days as `.infralens/progress.html`; None without two days."""
    from grader.learner.pictures.lines import Lines, Series
    from grader.learner.pictures.svg import css, to_svg

    entries = history.read(root)
    points, time = points_by_day(entries), worked(entries)
    if len(points) < 2:
        return None
    first = points[0][0]
    hours, total = [], timedelta()
    for day, spent in sorted(time.by_day.items()):
        total += spent
        hours.append((float((day - first).days), total.total_seconds() / 3600))
    reached = [(float((day - first).days), value) for day, value in points]
    charts = [
        Lines(
            [Series("points", reached)],
            f"Points go from {points[0][1]:g} to {points[-1][1]:g} in "
            f"{(points[-1][0] - first).days} days.",
            x_name=f"days since {first:%Y-%m-%d}",
            y_name="points",
        ),
        Lines(
            [Series("hours", hours)],
            f"{total.total_seconds() / 3600:.1f} hours of work in all.",
            x_name=f"days since {first:%Y-%m-%d}",
            y_name="hours, in all",
        ),
    ]
    drawn = "\n".join(to_svg(chart) for chart in charts)
    path = state_folder(root) / "progress.html"
    write_atomically(
        path,
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Progress</title>"
        f"<style>{css()} body{{font-family:system-ui,sans-serif;margin:2em}}</style>"
        f"<h1>Points and hours</h1>\n{drawn}\n</html>\n",
    )
    return path
