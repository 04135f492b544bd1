"""Every lab of the course: `infralens grade` beside the limit, and where its jobs' time goes."""

from __future__ import annotations

import commands
import corpus as corpora
import worker_part
from corpus import Corpus
from settings import Settings, say, table

from grader.lab.manifest import all_labs

# Which stages of stages.py a column holds.
SHARES = {
    "calls into submissions": ("calls across the wall",),
    "tests' own code": ("tests' own code",),
    "diagnosis": ("diagnosis",),
    "a process for each submission": (
        *("open a backend", "fork a worker", "start a process"),
        *("worker gets ready, imports the files", "close the backend", "end what is left"),
    ),
    "checks of the suite": ("checks of the suite",),
    "staging, marks, record": ("staging, marks, record", "load the suites in a job"),
}


def part(settings: Settings) -> list[str]:
    """Two tables, a row a lab."""
    jobs = max(settings.jobs)
    ratios, shares = [], []
    for lab in all_labs(commands.ROOT):
        made = corpora.make(
            commands.ROOT, lab.id, settings.folder / f"every-{lab.id}", settings.every_lab
        )
        ratios.append(_ratio(settings, made, jobs))
        shares.append(_shares(settings, made, jobs))
        say(f"every lab, {lab.id}: grade {ratios[-1][2]} s, limit {ratios[-1][3]} s")
    units = settings.every_lab
    return [
        "## Every lab",
        "",
        *table(
            ("lab", "tests run", "grade (s)", "limit d (s)", "grade/d", "other verdicts"), ratios
        ),
        "",
        f"{units} submissions a lab, made as above, {jobs} jobs; one turn of each command. Both "
        "begin with start-up: `grade` has a process with the lab's modules and its jobs to start, "
        "which a larger class shares. Other verdicts: tests on which the two disagree; `grade` "
        "leaves a task alone that has run over its limits twice, or of which nothing is begun.",
        "",
        *table(("lab", "the jobs worked (s)", *SHARES), shares),
        "",
        "Seconds of both jobs together, waiting for the submissions' processes included, with "
        "timers in the grader, in another run; shares of them.",
    ]


def _ratio(settings: Settings, made: Corpus, jobs: int) -> list[str]:
    plain = commands.bare(commands.ROOT, made, jobs)
    graded = commands.ours(commands.ROOT, made, jobs, settings.tier)
    tests = sum(len(rows) for rows in plain.verdicts.values())
    return [
        *(made.lab, f"{tests:,}", f"{graded.seconds:.1f}", f"{plain.seconds:.1f}"),
        *(
            f"{graded.seconds / plain.seconds:.2f}",
            f"{commands.apart(graded.verdicts, plain.verdicts)}",
        ),
    ]


def _shares(settings: Settings, made: Corpus, jobs: int) -> list[str]:
    report = worker_part.staged(settings, made, jobs)
    seconds = {row["stage"]: row["seconds"] for row in report["rows"] if row["side"] == "job"}
    named = {stage for stages in SHARES.values() for stage in stages}
    if report["absent"] or named != seconds.keys():
        raise commands.CommandError(f"stages.py times other stages: {report['absent'] or seconds}")
    whole = sum(seconds.values())
    parts = (sum(seconds[stage] for stage in stages) for stages in SHARES.values())
    return [made.lab, f"{whole:.1f}", *(f"{part / whole:.0%}" for part in parts)]
