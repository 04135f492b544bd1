"""`infralens lint --questions`: each question of an interview is asked by machine, and counted.

A figure is drawn 200 times: it has an answer, a second way confirms it, the working ends in it, and
whoever types it is right. A design can be found and missed. A sample of the bugs is asked, or, on
request, all of them: asking one runs its other options on the suite's cases and shows that they
behave differently from the code that is shown.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import repeat
from pathlib import Path
from random import Random

from grader.author import printed_sums, processes
from grader.author.lint_report import measured_with
from grader.durable import write_atomically
from grader.errors import LabError
from grader.lab import capabilities, lab_page
from grader.lab.manifest import load_lab
from grader.suite import questions, why_questions
from grader.suite.quantities import Figure, NotAFigure, exactly, figure
from grader.suite.questions import Bank, Card, as_fraction, is_right, is_same, rounds_to

SEEDS = 200
SEEDS_OF_SLOW = 20  # where each draw compiles a program or runs a simulator
FEWEST = {"number": 8, "why": 6, "say": 1}
REASONS = 0.6  # of written questions, those that ask why or what changes
BUGS = 3  # of a lab, that are asked where not all are
_KINDS = ("number", "count", "bug", "why", "case", "say")
_ONE_OF_MANY = re.compile(
    r"(?<![\w.,^/*+-])(?<![-+] )(?<!rank )(?<!stage )1 (?!has\b|is\b|[munp]?s\b)[A-Za-z-]+s\b"
)
_FIGURE = re.compile(r"[0-9][0-9,.]*(?: ?(?:[KMGT]i?B|bytes|ms|us|s|%)\b| %)?")


@dataclass
class QuestionReport:
    """What was found in one lab. counts: questions by kind. asked: bugs that were asked, left_out:
    those that could not be."""

    lab: str
    counts: Counter[str]
    reasons: int = 0
    asked: int = 0
    left_out: int = 0
    faults: list[str] = field(default_factory=list)


def check(root: Path, lab_id: str, every_bug: bool) -> QuestionReport:
    lab = load_lab(root, lab_id)
    bank = Bank(lab)
    report = QuestionReport(lab.id, Counter(card.kind for card in bank.cards))
    report.reasons = sum(row.asks != "what" for row in why_questions.written(lab))
    for kind, fewest in FEWEST.items():
        if report.counts[kind] < fewest:
            report.faults.append(f"{report.counts[kind]} questions are {kind}; write {fewest}.")
    for card in bank.cards:
        report.faults += [f"{card.name}: {fault}" for fault in faults(bank, card)]
    for row in why_questions.written(lab):
        for text in (row.question, row.right, row.because):
            report.faults += [f"why.toml: {row.id}: {said}" for said in printed_sums.faults(text)]
    bugs = [card for card in bank.cards if card.kind == "bug"]
    if not every_bug:
        bugs = Random(lab.id).sample(bugs, min(BUGS, len(bugs)))
    for card in bugs:
        try:
            bank.bug(card, 0)
            report.asked += 1
        except LabError:
            report.left_out += 1
    return report


def faults(bank: Bank, card: Card) -> Iterator[str]:
    """What is wrong with one question, in sentences; of a bug nothing is tried."""
    page = lab_page.text(bank.lab)
    if card.section and f"\n## {card.section}\n" not in page:
        yield f"the page has no section *{card.section}*"
    if capabilities.first_missing(card.needs):
        return
    if card.kind in questions.MADE and len(card.hint.split()) < 4:
        yield "its docstring is the hint: say what to think of"
    if card.kind in questions.DRAWN:
        yield from _figure_faults(bank, card)
    elif card.kind == "case":
        yield from _case_faults(bank, card)


def _figure_faults(bank: Bank, card: Card) -> Iterator[str]:
    seen = set()
    for seed in range(SEEDS_OF_SLOW if card.needs else SEEDS):
        ask = bank.ask(card, seed)
        right = bank.answer(card, ask)
        if ask.check is None:
            yield "it has no second way: check="
            return
        second = as_fraction(ask.check)
        room = max(Fraction(ask.within), Fraction(1, 10**9))
        if abs(right - second) > abs(second) * room:
            yield f"seed {seed}: the reference has {float(right)}, the second way {float(second)}"
            return
        if not is_right(exactly(right), right, ask.within):
            yield f"seed {seed}: the right answer, {float(right)}, is not taken"
        if is_right(exactly(right * 3 + 1), right, ask.within):
            yield f"seed {seed}: a wrong answer is taken"
        near = max(ask.within, 0.005)
        ends = _last(ask.working[-1], card.unit)
        if not any(is_same(each, right, near) or rounds_to(each, right) for each in ends):
            yield f"seed {seed}: the working does not end in {float(right)}: {ask.working[-1]}"
            return
        if wrong := next(_said_wrong([ask.text, *ask.working]), ""):
            yield f"seed {seed}: {wrong}"
            return
        if card.kind == "count" and not ask.code:
            yield "it counts what a program does, and shows none: code="
            return
        seen.add(ask.text + ask.code)
    if len(seen) < 3:
        yield f"it is always the same: {len(seen)} texts"


def _case_faults(bank: Bank, card: Card) -> Iterator[str]:
    for seed in range(SEEDS_OF_SLOW):
        ask = bank.case(card, seed)
        good = bank.good(card, ask)
        best = bank.judge_case(card, ask, good)
        if best.points != 1:
            yield f"seed {seed}: {good} does not earn all"
        if wrong := next(_said_wrong([ask.text, *best.lines]), ""):
            yield f"seed {seed}: {wrong}"
            return
        if bank.judge_case(card, ask, ask.poor).points == 1:
            yield f"seed {seed}: {ask.poor} earns all"


def _said_wrong(texts: Sequence[str]) -> Iterator[str]:
    """Sums whose printed operands do not give the printed result, and one thing in the plural."""
    for text in texts:
        yield from printed_sums.faults(text)
        if found := _ONE_OF_MANY.search(text):
            yield f"one of a thing is not several: {found[0]!r} in {text!r}"


def _last(step: str, unit: str) -> list[Figure]:
    """All figures of a line of working, with the unit behind them or without."""
    found = []
    for match in _FIGURE.finditer(step):
        for text in (match[0].rstrip(",."), re.split(r"[ %a-zA-Z]", match[0])[0].rstrip(",.")):
            try:
                found.append(figure(text, unit))
            except NotAFigure:
                continue
    return found


def run(root: Path, labs: Sequence[str], every_bug: bool, write: bool, jobs: int) -> int:
    """The command; its exit status. `jobs`: labs that are checked at a time, each in a process."""
    if jobs < 1:
        raise LabError(f"--jobs is {jobs}; give at least 1.")
    began = time.monotonic()
    reports = []
    with processes.pool(jobs, tasks_each=1) as pool:
        asked = pool.map(check, repeat(root), labs, repeat(every_bug))
        for report in asked:
            reports.append(report)
            for fault in report.faults:
                print(f"{report.lab}: {fault}")
            counts = ", ".join(f"{report.counts[kind]} {kind}" for kind in _KINDS)
            print(f"{report.lab}: {counts}; {report.asked} bugs asked", flush=True)
    written = sum(report.counts["why"] for report in reports)
    reasons = sum(report.reasons for report in reports)
    if reasons < REASONS * written:
        reports[-1].faults.append(f"{reasons} of {written} written ones ask why")
        print(reports[-1].faults[-1])
    every = " --all" if every_bug else ""
    text = table(reports, written, reasons, time.monotonic() - began, every)
    if write:
        path = root / "benchmarks" / "results" / "questions.md"
        write_atomically(path, text)
        print(f"table: {path.relative_to(root)}")
    bad = sum(bool(report.faults) for report in reports)
    total = sum(report.counts.total() for report in reports)
    print(f"{total:,} questions, {f'{bad} labs with faults' if bad else 'all clean'}")
    return 1 if bad else 0


def table(
    reports: Sequence[QuestionReport], written: int, reasons: int, seconds: float, every: str = ""
) -> str:
    rows = [
        "# Questions of an interview",
        "",
        f"`infralens lint --questions{every} --write`, {seconds:.0f} s: {measured_with()}.",
        "",
        f"Figures are drawn {SEEDS} times each (those that compile a program {SEEDS_OF_SLOW} "
        "times). A bug that was asked has other options, each refused by a case of the suite that "
        "accepts the code shown; left out are those for which none was found in 10 s. Of "
        f"{written} written questions {reasons} ask why or what changes.",
        "",
        f"| lab | {' | '.join(_KINDS)} | bugs asked | left out |",
        "|---" * (len(_KINDS) + 3) + "|",
    ]
    for report in reports:
        counts = " | ".join(str(report.counts[kind]) for kind in _KINDS)
        rows.append(f"| {report.lab} | {counts} | {report.asked} | {report.left_out} |")
    totals = " | ".join(f"{sum(r.counts[kind] for r in reports):,}" for kind in _KINDS)
    asked, left = (sum(r.asked for r in reports), sum(r.left_out for r in reports))
    rows.append(f"| all | {totals} | {asked:,} | {left:,} |")
    return "\n".join(rows) + "\n"
