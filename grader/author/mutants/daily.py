"""The part of `infralens lint` that runs a sample of a lab's mutants, drawn once for all: only labs
that list their judged survivors are held to it."""

from __future__ import annotations

from grader.author.mutants.equivalents import judged, path_of
from grader.author.mutants.task_survey import SurveyPlan, judge, survey
from grader.lab.manifest import Lab, Task
from grader.suite.model import Suite


def is_held_to_mutants(lab: Lab) -> bool:
    return path_of(lab).is_file()


def daily_mutants(suite: Suite, task: Task, count: int, cache: bool) -> tuple[int, list[str]]:
    """How many of `count` mutants of a task there are, and a sentence for each that shows a
    fault."""
    entries = judged(suite.lab)
    found = survey(suite, task, entries, SurveyPlan(count, cache=cache))
    return len(found.ran), judge(found, entries).faults
