"""How grading grows with the number of submissions, and with the number of tests."""

from __future__ import annotations

import statistics
from pathlib import Path

import commands
import corpus as corpora
import small_kit
from settings import Settings, say, table


def part(settings: Settings) -> list[str]:
    kit = small_kit.make(settings.folder / "scaling" / "kit")
    jobs = max(settings.jobs)
    lines = ["## More submissions", ""]
    head = [
        "lab",
        "submissions",
        f"grade with {jobs} jobs (s)",
        "ms a submission",
        "of the first's",
    ]
    rows = _growth(settings, kit, small_kit.LAB, settings.scaling, jobs)
    if settings.scaling_lab01:
        rows += _growth(settings, commands.ROOT, "lab01", settings.scaling_lab01, jobs)
    return [*lines, *table(head, rows)]


def _growth(
    settings: Settings, kit: Path, lab: str, counts: tuple[int, ...], jobs: int
) -> list[list[str]]:
    """Each size once, the smallest again at the end: its median is what the others are held
    against."""
    made = {
        count: corpora.make(kit, lab, settings.folder / "scaling" / f"{lab}-{count}", count)
        for count in counts
    }
    first = counts[0]
    times: dict[int, list[float]] = {count: [] for count in counts}
    for count in [*counts, first]:
        seconds = commands.ours(kit, made[count], jobs, settings.tier).seconds
        times[count].append(seconds)
        say(f"{lab}, {count} submissions: {seconds:.1f} s")
    each = {count: statistics.median(row) / count for count, row in times.items()}
    return [
        [
            *(lab, f"{count:,}", f"{each[count] * count:.1f}", f"{1000 * each[count]:.0f}"),
            f"{each[count] / each[first]:.2f}",
        ]
        for count in counts
    ]


def tests_part(settings: Settings) -> list[str]:
    """A generated lab with 1, 10, 40 tests, graded in turns."""
    made = {}
    for tests in settings.tests:
        folder = settings.folder / f"tests-{tests}"
        kit = small_kit.make(folder / "kit", tests)
        made[tests] = (kit, corpora.make(kit, small_kit.LAB, folder, settings.other_sample))
    times: dict[int, list[float]] = {tests: [] for tests in settings.tests}
    for _ in range(max(settings.repeats, 1) + 1):
        for tests, (kit, corpus) in made.items():
            seconds = commands.ours(kit, corpus, 1, settings.tier).seconds
            times[tests].append(seconds / settings.other_sample)
    say(f"{len(settings.tests)} numbers of tests: done")
    each = {tests: statistics.median(row) for tests, row in times.items()}
    first = settings.tests[0]
    rows = [
        [
            f"{tests}",
            f"{1000 * each[tests]:.1f}",
            f"{1000 * (each[tests] - each[first]) / (tests - first):.2f}" if tests > first else "",
        ]
        for tests in settings.tests
    ]
    head = ["tests", "ms a submission", "ms for each further test"]
    return [
        "## More tests",
        "",
        *table(head, rows),
        "",
        f"The minimal lab with so many tests, {settings.other_sample} submissions, 1 job, start-up "
        "included; wrong answers among them are diagnosed.",
    ]


_ENDLESS = """

def add(a, b):
    while True:
        pass
"""


def endless_part(settings: Settings) -> list[str]:
    """The same submissions with and without one that never answers, in turns."""
    folder, jobs = settings.folder / "endless", max(settings.jobs)
    kit = small_kit.make(folder / "kit")
    sound = corpora.make(kit, small_kit.LAB, folder / "sound", settings.other_sample)
    looping = corpora.make(kit, small_kit.LAB, folder / "looping", settings.other_sample)
    with looping.files()[0].open("a", encoding="utf-8") as file:
        file.write(_ENDLESS)
    without = [commands.ours(kit, sound, jobs, settings.tier).seconds]
    found = commands.ours(kit, looping, jobs, settings.tier)
    without.append(commands.ours(kit, sound, jobs, settings.tier).seconds)
    say(f"one endless loop: {found.seconds:.1f} s")
    first = sorted(found.verdicts[looping.plans[0].student].values())
    if first != ["not_run", "timeout", "timeout"]:
        raise commands.CommandError(f"the endless loop's tests ended as {first}.")
    return [
        "## An endless loop",
        "",
        f"The minimal lab, {settings.other_sample} submissions, {jobs} jobs: "
        f"{statistics.mean(without):.1f} s; with an endless loop in one of them "
        f"{found.seconds:.1f} s. Its first two tests end at their deadline of 20 s, and its third "
        "is not run; the other job goes on meanwhile.",
    ]
