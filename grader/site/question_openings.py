"""What the question bank asks: the openings of a lab's questions, and never an answer."""

from __future__ import annotations

import html
from pathlib import Path

from grader.errors import LabError
from grader.lab.manifest import Lab, all_labs
from grader.learner.interview.roles import roles
from grader.site import markup
from grader.site.lab_section import treatment
from grader.site.markup import Heading, Rendered
from grader.site.site_pages import SitePage
from grader.suite.questions import DRAWN, Bank, Card

_SEED = 1  # one fixed set of figures: the same page twice is the same bytes
_KINDS = {
    "say": "To say aloud",
    "why": "Reasons",
    "number": "Figures, drawn anew each time",
    "count": "What a program does",
    "case": "A design to find",
}


def interview_pages(root: Path) -> list[SitePage]:
    """The paths of the roles, and what each lab is asked about."""
    pages = [
        _lab_questions(lab) for lab in all_labs(root) if (lab.suite / "questions.py").is_file()
    ]
    return [_role_paths(root), *pages]


def _role_paths(root: Path) -> SitePage:
    """Which labs and tasks serve which role: `exercises/roles.toml`."""
    labs = {lab.id: lab for lab in all_labs(root)}
    lines = [
        "# Role paths",
        "",
        "An interview draws its questions from these labs, in proportion to",
    ]
    lines += ["their weights, and may ask to write these tasks from a blank file.", ""]
    for role in roles(root).values():
        lines += [
            f"## {role.title}",
            "",
            f"`infralens interview --role {role.id} --minutes 45`",
            "",
        ]
        lines += ["| lab | weight | from a blank file |", "|---|---|---|"]
        for id, weight in role.labs.items():
            tasks = [f"[`{task.id}`](lab:{id}#{task.id})" for task in role.code if task.lab == id]
            lines.append(f"| [{id} {labs[id].title}](lab:{id}) | {weight} | {', '.join(tasks)} |")
        lines.append("")
    treated = treatment(root, "exercises/roles.toml")
    treated.link = lambda target: (
        "kit:exercises/"
        + target.removeprefix("lab:").replace(
            target.removeprefix("lab:")[:5], target.removeprefix("lab:")[:5] + "/README.md", 1
        )
    )
    return SitePage(
        "interview/roles.md", "Role paths", markup.render("\n".join(lines), treated),
        "exercises/roles.toml",
    )  # fmt: skip


def _lab_questions(lab: Lab) -> SitePage:
    bank = Bank(lab)
    groups: dict[str, list[str]] = {}
    left = 0
    for card in bank.cards:
        if card.kind not in _KINDS:
            left += 1
            continue
        try:
            groups.setdefault(card.kind, []).append(_opening(bank, card))
        except LabError:
            left += 1
    headings = [Heading(1, lab.id, f"{lab.id}: {lab.title}")]
    parts = [f'<h1 id="{lab.id}">{lab.id}: {html.escape(lab.title)}</h1>\n']
    parts.append(
        f"<p>What an interviewer asks first. Answer aloud, then hear what was wrong: "
        f"<code>infralens drill {lab.id}</code> asks these and {left:,} more, most of them about "
        "functions with a bug.</p>\n"
    )
    for kind, title in _KINDS.items():
        if rows := groups.get(kind):
            headings.append(Heading(2, kind, title))
            parts.append(f'<h2 id="{kind}">{title}</h2>\n<ul class="asked">\n')
            parts += [f"<li>{row}</li>\n" for row in rows] + ["</ul>\n"]
    return SitePage(
        f"interview/{lab.id}.md", f"{lab.id.removeprefix('lab')} {lab.title}",
        Rendered("".join(parts), headings), f"tests/{lab.id}/questions.py",
    )  # fmt: skip


def _opening(bank: Bank, card: Card) -> str:
    if card.kind in DRAWN:
        ask = bank.ask(card, _SEED)
        code = markup.code_block(ask.code, "python") if ask.code else ""
        return f"<p>{markup.inline(ask.text)}</p>{code}"
    if card.kind == "case":
        return f"<p>{markup.inline(bank.case(card, _SEED).text)}</p>"
    return f"<p>{markup.inline(card.heading)}</p>"
