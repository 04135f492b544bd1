"""`infralens wrong-answers`: known wrong answers as submissions, one a folder.

    infralens wrong-answers FAKES lab02.LossScaler lab03
    infralens grade FAKES --out RUN

Each submission is the reference with one misconception in it, so it loses that task, and its
feedback says why in the misconception's own sentence. It is written from `solutions/` and `tests/`,
which only an instructor's kit has; keys and results of a course are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.errors import LabError
from grader.lab import skeleton
from grader.lab.manifest import Lab, Task, load_lab
from grader.suite.model import load_suite
from grader.suite.splice import Misconception


@dataclass(frozen=True)
class Answer:
    """One wrong answer, written: `task` is what it loses, `sentence` what its feedback says."""

    lab: str
    task: Task
    name: str
    sentence: str


def write(root: Path, folder: Path, wanted: list[str]) -> list[Answer]:
    """Write `folder/<misconception>/<lab>/` for each misconception that is wanted: of a lab
    (`lab03`), of a task (`lab03.BucketedDDP`), or one (`lab03.BucketedDDP.gradients_are_summed`).

    The folder is made; one that holds anything is refused. `LabError` says what cannot be."""
    chosen = list(dict.fromkeys(pair for text in wanted for pair in _chosen(root, text)))
    if not chosen:
        raise LabError("Name what is wanted: a lab, as in lab03, or a task, as in lab03.no_sync.")
    texts = [(lab, wrong, files(lab, wrong)) for lab, wrong in chosen]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise LabError(f"{folder} is not empty: give a new folder, so that nothing is lost.")
        for lab, wrong, found in texts:
            place = folder / wrong.name / lab.id
            place.mkdir(parents=True)
            for name, text in found.items():
                (place / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"{folder} cannot be written: {error.strerror or error}.") from error
    return [Answer(lab.id, lab.task(w.task), w.name, w.sentence) for lab, w in chosen]


def _chosen(root: Path, text: str) -> Iterator[tuple[Lab, Misconception]]:
    """What one of the texts asks for."""
    lab_id, *rest = text.split(".")
    lab = load_lab(root, lab_id)
    if not lab.has_solution:
        raise LabError(
            f"{lab.id} has no reference here: {lab.solution} is missing, and a wrong answer is a "
            "copy of it with one mistake."
        )
    if len(rest) > 2:
        raise LabError(f"{text!r} is not a lab, task or misconception: write it as lab03.no_sync.")
    tasks = [lab.task(rest[0])] if rest else list(lab.tasks)
    suite = load_suite(lab)
    known = [wrong for task in tasks for wrong in suite.misconceptions_of(task.id)]
    found = [wrong for wrong in known if wrong.name == rest[1]] if len(rest) == 2 else known
    if not found:
        names = ", ".join(wrong.name for wrong in known) or "none"
        raise LabError(f"{text} names no known misconception; those of {tasks[0].name}: {names}.")
    yield from ((lab, wrong) for wrong in found)


def files(lab: Lab, wrong: Misconception) -> dict[str, str]:
    """The files of a submission that makes this mistake and no other: name to text."""
    return combined(lab, [wrong], [])


def combined(lab: Lab, wrongs: list[Misconception], not_started: list[str]) -> dict[str, str]:
    """The files of a submission that makes several mistakes, of different tasks, and has not begun
    some others. ValueError for mistakes that do not go together: two that change the same lines,
    or one that brings its own of what has not been begun."""
    texts = {name: (lab.solution / name).read_text(encoding="utf-8") for name in lab.edit}
    for wrong in wrongs:
        if wrong.replaces is None:
            texts[wrong.file] = wrong.text(texts[wrong.file])
    for name, text in texts.items():
        texts[name] = skeleton.undone(lab, name, text, not_started)
    for wrong in wrongs:
        if wrong.replaces is not None:
            before, spliced = texts[wrong.file], wrong.text(texts[wrong.file])
            for task in not_started:
                todo = f"TODO({lab.task(task).name})"
                if spliced.count(todo) != before.count(todo):
                    raise ValueError(f"{wrong.name} brings its own {task}, which is not begun.")
            texts[wrong.file] = spliced
    return {name: _without_marks(text) for name, text in texts.items()}


def _without_marks(text: str) -> str:
    """Without the lines that say where a reference's solutions begin and end."""
    kept = (
        line
        for line in text.split("\n")
        if not (skeleton.BEGIN.match(line) or skeleton.END.match(line))
    )
    return "\n".join(kept)
