"""`benchmarks/results/mutants.md`: what each suite notices, a row a lab."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from grader.author.lint_report import former_rows, measured_with
from grader.author.mutants.task_survey import TaskSurvey, Verdicts

_HEAD = (
    "mutants made | run | killed by a gate | by a step only | on other inputs only "
    "| survive, not judged | equivalent | arguable | rate"
)


@dataclass
class MutantCounts:
    """How many mutants came to what."""

    made: int = 0
    run: int = 0
    by_gate: int = 0
    by_step: int = 0
    by_seed: int = 0
    unlisted: int = 0
    equivalent: int = 0
    arguable: int = 0

    @property
    def rate(self) -> str:
        """Of those that are not equivalent, the share that a test refuses."""
        killed = self.by_gate + self.by_step
        all_of_them = killed + self.unlisted + self.arguable
        return f"{100 * killed / all_of_them:.1f} %" if all_of_them else "-"

    @property
    def cells(self) -> str:
        numbers = (self.made, self.run, self.by_gate, self.by_step, self.by_seed, self.unlisted)
        return " | ".join(map(str, (*numbers, self.equivalent, self.arguable, self.rate)))


@dataclass
class LabRow:
    """One lab's counts, in all and by operator."""

    lab: str
    tasks: int = 0
    seconds: float = 0.0
    faults: int = 0
    counts: MutantCounts = field(default_factory=MutantCounts)
    operators: dict[str, Counter[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, found: TaskSurvey, verdicts: Verdicts) -> None:
        self.tasks += 1
        self.seconds += found.seconds
        self.faults += len(verdicts.faults)
        if found.note:
            self.notes.append(f"`{found.task.name}`: {found.note}")
        counts = self.counts
        counts.made += found.made
        counts.run += len(found.ran)
        counts.unlisted += len(verdicts.unlisted)
        counts.equivalent += verdicts.equivalent
        counts.arguable += verdicts.arguable
        unlisted = set(map(id, verdicts.unlisted))
        for mutant, fate in found.ran:
            row = self.operators.setdefault(mutant.edit.operator, Counter())
            row["run"] += 1
            row["survive"] += id(mutant) in unlisted
            if not fate.survived:
                counts.by_gate += fate.gate
                counts.by_step += not fate.gate
                counts.by_seed += fate.seed > 0

    @property
    def weak_operators(self) -> str:
        """Those that a survivor without a judgement comes from, with how many of how many."""
        return ", ".join(
            f"{name} {row['survive']} of {row['run']}"
            for name, row in sorted(self.operators.items())
            if row["survive"]
        )

    @property
    def line(self) -> str:
        counts = self.counts
        return (
            f"{self.lab}: {self.tasks} tasks, {counts.run} of {counts.made} mutants run, "
            f"{counts.by_gate + counts.by_step} killed, {counts.equivalent} equivalent, "
            f"{counts.arguable} arguable, {counts.unlisted} survive: {counts.rate} "
            f"({self.seconds:.1f} s)"
        )


def table(rows: list[LabRow], count: int | None, former: str = "") -> str:
    """What was found. `former`: the table as it was; the rows of labs that were not surveyed now
    stay, each with its day."""
    lines = [
        "# Automatic mutants",
        "",
        "`infralens lint --mutants --write [--sample N] [labs]`: small changes of the references, "
        "each run until a test of its task refuses it, on three seeds. A sample takes N of each "
        "task, as many of each rare operator. The rate is that of refused ones among those that "
        "are not judged equivalent. It is a floor: people think of wrong answers that no operator "
        "makes.",
        "",
        f"A lab's row is of the day when it was surveyed. The last: {measured_with()}.",
        "",
        f"| lab | tasks | of each task | operators | {_HEAD} | seconds | day |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    labs = former_rows(former, columns=lines[-1].count("|"))
    for row in rows:
        drawn = f"up to {count}" if count else "all"
        labs[row.lab] = (
            f"| {row.lab} | {row.tasks} | {drawn} | {len(row.operators)} | {row.counts.cells} | "
            f"{row.seconds:.0f} | {time.strftime('%Y-%m-%d')} |"
        )
    lines += [labs[lab] for lab in sorted(labs)]
    weak = [f"- {row.lab}: {found}" for row in rows if (found := row.weak_operators)]
    notes = [f"- {note}" for row in rows for note in row.notes]
    lines += ["", "Operators whose survivors nobody has judged:", "", *weak] if weak else []
    lines += ["", "Not run:", "", *notes] if notes else []
    return "\n".join([*lines, ""])
