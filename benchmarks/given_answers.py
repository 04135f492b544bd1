"""Wrong answers that were given on purpose, and which names of their mistakes are right.

    benchmarks/wrong_answers/labNN/<edit files>   a right answer, written from the page alone
    benchmarks/wrong_answers/labNN/answers.toml   [[answer]] task, name, mistake (one sentence),
                                                  changes = [[old, new], ...], file if it is not
                                                  the task's, weak if the contract may admit it,
                                                  wrong_for (an input, for readers); above
                                                  them right, the folder whose right answer is
                                                  changed, if it is not this one
    benchmarks/wrong_answers/labNN/judged.toml    [task.name] "<misconception>" = "right" | "wrong"

An old text stands exactly once in the file that is changed, after the changes before it. A file
that is not there is the reference's; a task that the right answer leaves as it was shipped is
given whole by its wrong answers. A person judges, by both sentences.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.errors import LabError
from grader.lab.manifest import Lab, load_lab

VERDICTS = ("right", "wrong")


@dataclass(frozen=True)
class GivenAnswer:
    """One wrong answer: the file that is changed, and its text."""

    task: str
    name: str
    mistake: str
    file: str
    text: str
    weak: bool = False

    @property
    def key(self) -> str:
        return f"{self.task}.{self.name}"


@dataclass(frozen=True)
class GivenLab:
    """The wrong answers to one lab. `base`: the right answer's files; `judged`: verdicts by answer
    and misconception."""

    lab: Lab
    base: dict[str, str]
    answers: tuple[GivenAnswer, ...]
    judged: dict[tuple[str, str], str]


def read(root: Path, folder: Path) -> GivenLab:
    """The wrong answers in `folder`, called as its lab (`lab07`, or `lab07-second` for those of a
    second person). LabError says what is not so."""
    lab = load_lab(root, folder.name.partition("-")[0])
    path = folder / "answers.toml"
    table = _table(path)
    right = folder.parent / str(table.get("right", folder.name))
    if not right.is_dir():
        raise LabError(f"{path}: there is no folder {right.name} with a right answer.")
    base = {}
    for name in lab.edit:
        own = right / name
        base[name] = (own if own.is_file() else lab.solution / name).read_text(encoding="utf-8")
    rows = table.get("answer", [])
    answers = tuple(_answer(lab, base, row, path) for row in rows)
    keys = [answer.key for answer in answers]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise LabError(f"{path}: {', '.join(twice)} stands there more than once.")
    return GivenLab(lab, base, answers, _judged(folder / "judged.toml", keys))


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LabError(f"{path}: {error}.") from None


def _answer(lab: Lab, base: Mapping[str, str], row: Any, path: Path) -> GivenAnswer:
    texts = [row.get(name) for name in ("task", "name", "mistake")]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise LabError(f"{path}: an answer lacks `task`, `name` or `mistake`: {row}.")
    task, name, mistake = texts
    where = f"{path}: {task}.{name}"
    file = row.get("file", lab.task(task).file)
    if file not in base:
        raise LabError(f"{where} changes {file}, which is not in `edit`.")
    text = base[file]
    if not row.get("changes"):
        raise LabError(f"{where} changes nothing.")
    for old, new in row["changes"]:
        if (count := text.count(old)) != 1:
            raise LabError(f"{where}: {old!r} stands {count} times in {file}, not once.")
        text = text.replace(old, new)
    return GivenAnswer(task, name, " ".join(mistake.split()), file, text, row.get("weak", False))


def _judged(path: Path, keys: list[str]) -> dict[tuple[str, str], str]:
    if not path.is_file():
        return {}
    found = {}
    for task, answers in _table(path).items():
        for name, verdicts in answers.items():
            if f"{task}.{name}" not in keys:
                raise LabError(f"{path}: answers.toml has no answer {task}.{name}.")
            for misconception, verdict in verdicts.items():
                if verdict not in VERDICTS:
                    raise LabError(f"{path}: {verdict!r} is not one of {', '.join(VERDICTS)}.")
                found[f"{task}.{name}", misconception] = verdict
    return found
