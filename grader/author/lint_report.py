"""What a check of labs found, and how it is printed."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from dataclasses import dataclass, field

ALL_SEEDS = 20
THREADS = (1, 2)


@dataclass
class LintReport:
    """What was found about one lab. `faults` are sentences; no fault means clean."""

    lab: str
    faults: list[str] = field(default_factory=list)
    tasks: int = 0
    tests: int = 0
    clauses: int | None = None
    """Of the contracts; None where nobody has listed them."""
    figures: int | None = None
    """Of the page, each of them claimed; None where nobody has claimed any."""
    misconceptions: int = 0
    variants: int = 0
    fakes: int = 0
    runs: int = 0
    suite_seconds: float = 0.0
    seconds: float = 0.0
    not_verified: int = 0
    cached: bool = False
    notes: list[str] = field(default_factory=list)
    """What is not a fault, but may be mended."""
    messages: list[dict[str, str]] = field(default_factory=list)
    """The `message` that each misconception gives a learner, with its `task` and `name`."""
    mutants: int = 0

    @property
    def and_mutants(self) -> str:
        """For the line of a lab that lists its judged mutants."""
        return f", {self.mutants} mutants" if self.mutants else ""


@dataclass(frozen=True)
class Thoroughness:
    """How thorough a check is. `cache`: whether it may take over what former ones found. `mutants`:
    how many of each task, in labs that list their judged survivors. `variants`: how many of each
    lab, None for all. `every`: wrong answers to one task in so many, by turns."""

    everything: bool
    cache: bool = True
    mutants: int = 30
    variants: int | None = None
    every: int = 1

    def runs(self, number: int = 0) -> list[tuple[int, int]]:
        """(threads, seed) of each run of the reference (0) or a variant (1, 2, ...). A quick check
        gives each right answer a seed of its own. A thorough one gives the reference every seed
        with each number of threads; a variant has every seed once, the numbers of threads by
        turns, so that the next variant has them the other way round. Only with the first seed
        do ranks compare their collectives (torch's DETAIL)."""
        if not self.everything:
            return [(1, number)]
        if not number:
            return [(threads, seed) for threads in THREADS for seed in range(ALL_SEEDS)]
        turns = [(THREADS[(seed + number) % len(THREADS)], seed) for seed in range(ALL_SEEDS)]
        return sorted(turns)


def line(report: LintReport) -> str:
    kept = ", from cache" if report.cached else ""
    missing = f", {report.not_verified} cases not verified here" if report.not_verified else ""
    clauses = "clauses not listed" if report.clauses is None else f"{report.clauses} clauses"
    figures = "" if report.figures is None else f"{report.figures} figures, "
    return (
        f"{report.lab}: {report.tasks} tasks, {clauses}, {figures}{report.tests} tests, "
        f"{report.misconceptions} misconceptions, {report.fakes} fakes, "
        f"{report.variants} variants, {report.runs} runs{report.and_mutants}{missing}: "
        f"{f'{len(report.faults)} faults' if report.faults else 'clean'} "
        f"({report.seconds:.1f} s{kept})"
    )


def table(reports: list[LintReport], plan: Thoroughness, former: str = "", pages: str = "") -> str:
    """What thorough checks found. `former`: the table as it was; the rows of labs that were not
    checked now stay. `pages`: which labs' pages have their figures checked."""
    rows = [
        "# The suites against themselves",
        "",
        f"`infralens lint --all`: the reference and every variant on {ALL_SEEDS} seeds with "
        f"{' and '.join(map(str, THREADS))} threads (the reference each seed with both, a variant "
        "by turns); every misconception must die at a gate (with `gate=False` at a step) with its "
        "own sentence, every fake must earn nothing.",
        "",
        "A lab's row is of the day when it was checked, which takes an hour and more where a suite "
        f"takes long. The last: {measured_with()}.",
        *(["", pages] if pages else []),
        "",
        "| lab | tasks | clauses | tests | misconceptions | fakes | variants | runs of the suite "
        "| one run of the reference (s) | cases not verified here | faults | day |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    labs = former_rows(former, columns=rows[-1].count("|"))
    for r in reports:
        clauses = "-" if r.clauses is None else r.clauses
        labs[r.lab] = (
            f"| {r.lab} | {r.tasks} | {clauses} | {r.tests} | {r.misconceptions} | {r.fakes} | "
            f"{r.variants} | {r.runs} | {r.suite_seconds:.2f} | "
            f"{r.not_verified} | {len(r.faults)} | {time.strftime('%Y-%m-%d')} |"
        )
    return "\n".join([*rows, *(labs[lab] for lab in sorted(labs))]) + "\n"


def former_rows(table: str, columns: int) -> dict[str, str]:
    """The rows of a table of labs, by lab, if it has as many columns as now."""
    return {
        row.split("|")[1].strip(): row
        for row in table.splitlines()
        if row.startswith("| lab") and row.count("|") == columns and not row.startswith("| lab |")
    }


def messages_table(report: LintReport) -> str:
    rows = [
        f"# {report.lab}",
        "",
        "| task | misconception | what the learner reads |",
        "|---|---|---|",
    ]
    for row in sorted(report.messages, key=lambda row: (row["task"], row["name"])):
        text = row["message"].replace("|", "\\|").replace("\n", "<br>")
        rows.append(f"| {row['task']} | {row['name']} | {text} |")
    return "\n".join([*rows, ""])


def _versions() -> str:
    found = []
    for name in ("torch", "numpy", "pytest", "hypothesis", "transformers"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} absent")
    return ", ".join(found)


def measured_with() -> str:
    """What a table's figures depend on, for its head."""
    return f"Python {platform.python_version()}, {_versions()}, {platform.machine()}"
