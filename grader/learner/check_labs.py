"""`infralens check`: every lab once, several at a time, in one table that stays to be read."""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from pathlib import Path

import typer

from grader.lab import handed_out
from grader.lab.manifest import Lab, lab_ids, load_lab
from grader.learner import paint
from grader.learner.watch import files
from grader.learner.watch.link import Link
from grader.learner.watch.watched_lab import WatchedLab, case_table
from grader.status import TaskStatus, points_text


class _Running:
    """A lab that is being checked."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.link = Link(lab)
        self.live: WatchedLab | None = None
        self.began = time.monotonic()
        self.fault = ""
        self.lost = 0
        self.over = False

    def begin(self) -> None:
        self.link.start()
        self.link.ask()

    def hear(self) -> None:
        for event in self.link.receive():
            kind = event["event"]
            if kind == "ready":
                if self.live is None:
                    self.live = WatchedLab(self.lab, case_table(self.lab, event["cases"]))
            elif kind == "fault" or (kind == "lost" and self.live is None):
                self.fault, self.over = event["text"], True
            elif self.live is not None:
                self.live.hear(event)
                self.over = self.over or kind in ("end", "lost")
                if kind == "lost":
                    self.fault = "your code ended the process that ran it"


def run(root: Path, names: list[str], jobs: int | None, plain: bool) -> int:
    """Check the labs and print a line each as it ends, then the sum. The exit status: 0 if every
    task that can be verified here is done, 1 if not, 130 after Ctrl-C."""
    labs = [load_lab(root, name) for name in dict.fromkeys(names or lab_ids(root))]
    colours = paint.wants_colours(plain=plain)
    waiting = deque(labs)
    running: list[_Running] = []
    ended: dict[str, _Running] = {}
    most = jobs or max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
    width = max(len(lab.title) for lab in labs)
    selector = selectors.DefaultSelector()
    try:
        while waiting or running:
            while waiting and len(running) < most:
                one = _Running(waiting.popleft())
                if text := files.fault(one.lab):
                    one.fault = text
                    ended[one.lab.id] = one
                    typer.echo(_line(one, width, colours), color=True)
                    continue
                one.begin()
                running.append(one)
            _wait(selector, running)
            for one in [each for each in running if each.over]:
                running.remove(one)
                one.link.close()
                ended[one.lab.id] = one
                typer.echo(_line(one, width, colours), color=True)
    except KeyboardInterrupt:
        typer.echo("Stopped; the labs above are noted.", err=True)
        return 130
    finally:
        for one in running:
            one.link.close()
    rows = [each.live.view().score for each in ended.values() if each.live]
    points, most_points = sum(row.score for row in rows), sum(row.max_score for row in rows)
    apart = sum(row.not_verified for row in rows)
    more = f", {points_text(apart)} not verified here" if apart else ""
    if any(handed_out.tests(lab.root) == "public" for lab in labs):
        typer.echo(f"       {handed_out.PUBLIC_TESTS_SAID}")
    else:
        typer.echo(f"       {points_text(points)} of {most_points:g} points{more}")
    done = all(_is_done(each) for each in ended.values())
    return 0 if done else 1


def _wait(selector: selectors.BaseSelector, running: list[_Running]) -> None:
    by_descriptor = {one.link.descriptor: one for one in running}
    for descriptor in by_descriptor:
        selector.register(descriptor, selectors.EVENT_READ)
    try:
        found = [key.fd for key, _ in selector.select()] if by_descriptor else []
    finally:
        for descriptor in by_descriptor:
            selector.unregister(descriptor)
    for descriptor in found:
        by_descriptor[descriptor].hear()


def _is_done(one: _Running) -> bool:
    if one.live is None or one.fault:
        return False
    return not any(row.status.asks_for_work for row in one.live.view().score.tasks)


def _line(one: _Running, width: int, colours: bool) -> str:
    lab = one.lab
    if one.live is None or one.fault:
        return paint.painted(f" x {lab.id}  {lab.title:<{width}}  {one.fault}", "red", colours)
    score = one.live.view().score
    said = one.live.note("check")
    counts = {
        status: sum(row.status is status for row in score.tasks)
        for status in TaskStatus
        if any(row.status is status for row in score.tasks)
    }
    states = ", ".join(f"{count} {status.words}" for status, count in counts.items())
    worst = next((s for s in (TaskStatus.WRONG, TaskStatus.PARTIAL) if s in counts), None)
    shown = worst or (TaskStatus.DONE if _is_done(one) else TaskStatus.NOT_STARTED)
    points = f"{points_text(score.score)}/{score.max_score:g}"
    seconds = time.monotonic() - one.began
    text = f" {shown.mark} {lab.id}  {lab.title:<{width}} {points:>7}  {seconds:>4.0f} s  {states}"
    return paint.painted(text + (f"  {said}" if said else ""), paint.COLOUR_OF[shown], colours)
