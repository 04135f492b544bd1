"""What an interview came to: in a terminal, and as one HTML page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader import readable
from grader.lab import lab_page
from grader.lab.manifest import load_lab
from grader.learner import paint
from grader.learner.interview.asking import Answered, wrapped
from grader.learner.interview.store import Kept, StepAnswer

SHOWN_LINES = 6
MOST_CODE = 40_000
_WORD = {
    "number": "figure",
    "count": "count",
    "case": "design",
    "bug": "bug",
    "why": "reason",
    "say": "said aloud",
    "code": "code",
}

_TYPED = ("number", "count", "case", "code")


@dataclass(frozen=True)
class ReportRow:
    """One step that was reached, for people to read. seconds, expected: what it took, and what it
    is meant to take. name: the lab or the task. points: of 1. verified: whether this machine could
    check it."""

    kind: str
    topic: str
    name: str
    points: float
    seconds: float
    expected: float
    question: str
    said: str
    right: str
    sentences: tuple[str, ...]
    working: tuple[str, ...]
    passage: str
    verified: bool = True
    code: str = ""


@dataclass(frozen=True)
class InterviewReport:
    """count: the steps that were planned; `rows` are those that were reached."""

    kept: Kept
    rows: tuple[ReportRow, ...]
    count: int
    say_next: tuple[str, str] | None = None
    topics: dict[str, list[ReportRow]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows)

    @property
    def missed(self) -> list[ReportRow]:
        return [row for row in self.rows if row.points < 1 and row.verified]


def of_answer(answer: Answered) -> dict[str, Any]:
    """What is kept of a question, as JSON can hold it."""
    card = answer.card
    return {
        "kind": card.kind,
        "topic": card.topic,
        "name": f"{card.lab}.{card.tasks[0]}" if card.kind == "bug" else card.lab,
        "minutes": card.minutes,
        "said": answer.said,
        "question": answer.question,
        "right": answer.right,
        "sentences": list(answer.sentences),
        "working": list(answer.working),
        "passage": answer.passage,
    }


def build(root: Path, kept: Kept, answers: Sequence[StepAnswer], count: int) -> InterviewReport:
    rows = tuple(_answer(row) for row in answers)
    topics: dict[str, list[ReportRow]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(row)
    return InterviewReport(kept, rows, count, _say_next(root, rows), topics)


def _answer(row: StepAnswer) -> ReportRow:
    said: dict[str, Any] = json.loads(row.said)
    if said["kind"] != "code":
        return ReportRow(
            said["kind"], said["topic"], said["name"], row.points, row.seconds,
            60 * said["minutes"], said["question"], said["said"], said["right"],
            tuple(said["sentences"]), tuple(said["working"]), said["passage"],
        )  # fmt: skip
    check = said.get("check") or {"state": "not checked", "message": ""}
    message = tuple(check["message"].split("\n")) if check["message"] else ()
    lab, _, task = said["task"].partition(".")
    return ReportRow(
        "code", said.get("topic", ""), said["task"], row.points, row.seconds,
        60 * said.get("minutes", 0), f"{said['task']}, from a blank file", check["state"],
        "", (), message, f"exercises/{lab}/README.md, task {task}",
        check.get("verified", True), said.get("text", ""),
    )  # fmt: skip


def _say_next(root: Path, rows: Sequence[ReportRow]) -> tuple[str, str] | None:
    """A heading to say aloud, and its page: of the lab with most misses, one not said just now."""
    misses: dict[str, float] = {}
    for row in rows:
        lab = row.name.partition(".")[0]
        misses[lab] = misses.get(lab, 0.0) + 1 - row.points
    said = {row.question for row in rows if row.kind == "say"}
    for lab in sorted(misses, key=lambda lab: -misses[lab]):
        for heading, _ in lab_page.spoken(lab_page.text(load_lab(root, lab))):
            shown = heading.strip().strip('"')
            if not any(shown in question for question in said):
                return shown, f"exercises/{lab}/README.md"
    return None


# -- in a terminal --------------------------------------------------------------------------------


def lines(report: InterviewReport, colours: bool) -> Iterator[str]:
    yield ""
    yield paint.painted(title(report), "bold", colours)
    yield wrapped(_how_it_went(report))
    yield ""
    yield f" {'topic':<10} {'points':>9}   {'time':>6}   expected"
    for topic, points, spent, meant in _topic_rows(report):
        slow = "   slow" if spent > 1.5 * meant else ""
        yield f" {topic:<10} {points:>9}   {clock(spent):>6}   {clock(meant):>6}{slow}"
    for number, row in enumerate(report.missed, start=1):
        yield ""
        head = f"{number}. {_WORD[row.kind]}, {row.name}: {_points(row.points)} of 1"
        yield paint.painted(head, "red", colours)
        yield from _miss(row)
    yield ""
    yield from map(wrapped, _what_next(report))


def _miss(row: ReportRow) -> Iterator[str]:
    question, *code = row.question.split("\n")
    yield wrapped(question, "   ")
    yield from (f"       {line}" for line in code[1 : 1 + SHOWN_LINES])
    if len(code) > 1 + SHOWN_LINES:
        yield "       ..."
    if row.kind in _TYPED:
        right = f"; right: {row.right}" if row.right else ""
        said = "not known" if row.said == "?" else row.said
        label = "the suite says" if row.kind == "code" else "yours"
        yield wrapped(f"{label}: {said}{right}", "   ")
    if row.kind == "bug":  # a reason's sentences say the answer, and more
        yield wrapped(f"Right: {row.right}", "   ")
    for sentence in row.sentences:
        yield wrapped(sentence, "   ")
    for step in filter(str.strip, row.working):
        yield wrapped(step, " " * 7, 4)
    yield wrapped(f"Read: {row.passage}", "   ")


def _what_next(report: InterviewReport) -> Iterator[str]:
    if report.say_next:
        heading, page = report.say_next
        yield f'Say next: "{heading}" ({page})'
    cards = [row for row in report.missed if row.kind != "code"]
    if cards:
        noun = "question comes" if len(cards) == 1 else "questions come"
        yield f"{len(cards)} missed {noun} back in `infralens drill`."


def title(report: InterviewReport) -> str:
    kept = report.kept
    return f"Interview for {kept.role}, {kept.minutes:g} minutes, {kept.at[:10]}"


def _how_it_went(report: InterviewReport) -> str:
    kept = report.kept
    points = sum(row.points for row in report.rows)
    text = f"{_points(points)} of {report.count} points in {clock(report.seconds)}."
    if unreached := report.count - len(report.rows):
        text += f" {unreached} of the questions {'was' if unreached == 1 else 'were'} not reached."
    if kept.pauses:
        text += " Paused once."
    if kept.returns:
        times = "once" if kept.returns == 1 else f"{kept.returns} times"
        text += f" Interrupted {times}: the clock did not run meanwhile."
    if any(row.kind == "say" for row in report.rows):
        text += " What was said aloud only you have judged."
    unsure = [row.name for row in report.rows if not row.verified]
    if unsure:
        text += f" {', '.join(unsure)} could not be checked on this machine."
    return text


def _topic_rows(report: InterviewReport) -> Iterator[tuple[str, str, float, float]]:
    """Of each topic its name, its points as a text, and the seconds it took and was meant to."""
    for topic, rows in report.topics.items():
        points = f"{_points(sum(row.points for row in rows))} of {len(rows)}"
        spent, meant = (sum(row.seconds for row in rows), sum(row.expected for row in rows))
        yield topic or "other", points, spent, meant


def _points(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def clock(seconds: float) -> str:
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


# -- a page ---------------------------------------------------------------------------------------

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1f24; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .3rem 1rem .3rem 0; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr { border-bottom: 1px solid #d8dee4; }
section { border-left: 4px solid #c93c37; padding: .1rem 0 .1rem 1rem; margin: 1.2rem 0; }
section.right { border-color: #2a7d3c; }
pre { background: #f4f6f8; padding: .7rem; white-space: pre-wrap; overflow-wrap: anywhere;
      font-size: .85rem; }
.quiet { color: #57606a; }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117; } pre { background: #161b22; }
  tr { border-color: #30363d; } .quiet { color: #9198a1; }
}
"""


def html(report: InterviewReport) -> str:
    """The page, as text of HTML."""
    quoted = readable.html
    body = [f"<h1>{quoted(title(report))}</h1>", f"<p>{quoted(_how_it_went(report))}</p>"]
    body += ["<table><thead><tr><th>topic</th><th class=n>points</th><th class=n>time</th>"]
    body += ["<th class=n>expected</th></tr></thead><tbody>"]
    for topic, points, spent, meant in _topic_rows(report):
        cells = [points, clock(spent), clock(meant)]
        numbers = "".join(f"<td class=n>{cell}</td>" for cell in cells)
        body.append(f"<tr><td>{quoted(topic)}</td>{numbers}</tr>")
    body.append("</tbody></table>")
    for heading, rows in (
        ("Missed", report.missed),
        ("Right", [row for row in report.rows if row.points == 1]),
    ):
        if rows:
            body.append(f"<h2>{heading}</h2>")
            body += [_section(row) for row in rows]
    body.append("<h2>Next</h2>")
    body += [f"<p>{quoted(text)}</p>" for text in _what_next(report)]
    head = f'<meta charset="utf-8"><title>{quoted(title(report))}</title><style>{_STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return f'<!doctype html>\n<html lang="en"><head>{view}{head}</head><body>\n' + (
        "\n".join(body) + "\n</body></html>\n"
    )


def _section(row: ReportRow) -> str:
    quoted = readable.html
    question, _, code = row.question.partition("\n\n")
    took = f"{clock(row.seconds)}, expected {clock(row.expected)}"
    parts = [f"<p class=quiet>{quoted(_WORD[row.kind])}, {quoted(row.name)}, {took}</p>"]
    parts.append(f"<p>{quoted(question)}</p>")
    if code:
        parts.append(f"<pre>{quoted(code)}</pre>")
    if row.kind in _TYPED:
        label = "The suite says" if row.kind == "code" else "Yours"
        parts.append(f"<p>{label}: {quoted('not known' if row.said == '?' else row.said)}</p>")
    if row.right:
        parts.append(f"<p>Right: <strong>{quoted(row.right)}</strong></p>")
    for sentence in row.sentences:
        parts.append(f"<p>{quoted(sentence)}</p>")
    if row.working:
        parts.append(f"<pre>{quoted(chr(10).join(row.working))}</pre>")
    if row.code:
        written = readable.html(row.code, MOST_CODE)
        parts.append(f"<details><summary>What you wrote</summary><pre>{written}</pre></details>")
    if row.points < 1:
        page, _, section = quoted(row.passage).partition(", *")
        where = f", <em>{section.removesuffix('*')}</em>" if section else ""
        parts.append(f"<p class=quiet>Read: {page}{where}</p>")
    kind = " class=right" if row.points == 1 else ""
    return f"<section{kind}>{''.join(parts)}</section>"
