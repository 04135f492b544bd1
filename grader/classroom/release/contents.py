"""What a release holds: name to bytes, made from the kit's files and from nothing that only lies
beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from grader.classroom.release import learner_readme
from grader.errors import LabError
from grader.lab import handed_out, lab_page, skeleton, task_hints
from grader.lab.handed_out import Tests
from grader.lab.manifest import Lab, lab_ids
from grader.suite.model import load_suite
from grader.suite.reachable import PUBLISHED, Closure, all_tests, public_tests

KNOWN_MISTAKES = "known-mistakes.md"
_PACKAGE_FILES = (".py", ".h", ".cpp")
_SITE = "site"  # its calculators say in formulas what the references compute
_TEXTS = (".py", ".md", ".toml", ".cu", ".sh", ".yaml", ".json", ".svg")
_FROM_THE_ROOT = ("conftest.py", "LICENSE", ".gitignore")
_TEST_PATHS = re.compile(r"^testpaths = .*$", re.MULTILINE)
_LAB_ROW = re.compile(r"^\| \[(lab\d\d)\]\(lab\d\d/README\.md\).*\n", re.MULTILINE)
_LAB_WEIGHT = re.compile(r"\b(lab\d\d) = \d+,? ?")

Files = dict[str, bytes]


def build(root: Path, labs: Sequence[Lab], tests: Tests) -> Files:
    """Every file of a release, by its path in it."""
    found: Files = {}
    for name in _FROM_THE_ROOT:
        found[name] = _text(root / name)
    found["pyproject.toml"] = _project(root).encode()
    found[handed_out.FILE] = handed_out.note(tests).encode()
    found["README.md"] = learner_readme.text(labs, tests).encode()
    found |= dict(_package(root))
    found |= dict(_about_all_labs(root, labs))
    for lab in labs:
        found |= dict(_exercise(lab))
        found |= dict(_suite(lab, tests))
    return dict(sorted(found.items()))


def _text(path: Path) -> bytes:
    """A text file's bytes. LabError if it is missing, a link or not UTF-8."""
    _refuse_links(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise LabError(f"{path} is missing; restore it, then release again.") from None
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LabError(
            f"{path} is not UTF-8 (byte {error.start}); save it as UTF-8, then release again."
        ) from None
    return data


def refuse_what_is_not_text(folder: Path) -> None:
    """LabError for a source, a page or a table below a folder that is not UTF-8."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in _TEXTS and path.is_file() and "__pycache__" not in path.parts:
            _text(path)


def _refuse_links(path: Path) -> None:
    if path.is_symlink():
        raise LabError(
            f"{path} is a link; what is handed out must be a file of its own: copy it there."
        )


def _project(root: Path) -> str:
    """A learner has no tests of the kit itself; a bare `pytest` runs the labs."""
    text = _text(root / "pyproject.toml").decode()
    changed, count = _TEST_PATHS.subn('testpaths = ["exercises"]', text)
    if count != 1:
        raise LabError(f"{root / 'pyproject.toml'} has {count} lines `testpaths = ...`; write one.")
    return changed


def _package(root: Path) -> Iterator[tuple[str, bytes]]:
    package = root / "grader"
    _refuse_links(package)
    for path in sorted(package.rglob("*")):
        left_out = {"__pycache__", _SITE}.intersection(path.relative_to(package).parts)
        if path.suffix in _PACKAGE_FILES and not left_out:
            yield path.relative_to(root).as_posix(), _text(path)


def _about_all_labs(root: Path, labs: Sequence[Lab]) -> Iterator[tuple[str, bytes]]:
    """The list of the labs and of the roles, without the labs that are left out."""
    kept = {lab.id for lab in labs}
    page = _text(root / "exercises" / "README.md").decode()
    page = _LAB_ROW.sub(lambda match: match[0] if match[1] in kept else "", page)
    yield "exercises/README.md", page.encode()
    roles = root / "exercises" / "roles.toml"
    if roles.is_file() and kept == set(lab_ids(root)):
        yield "exercises/roles.toml", _text(roles)


def _exercise(lab: Lab) -> Iterator[tuple[str, bytes]]:
    folder = f"exercises/{lab.id}"
    _refuse_links(lab.exercise)
    for path in sorted(lab.exercise.rglob("*")):
        _refuse_links(path)
    names = [lab_page.FILE, "lab.toml", task_hints.FILE, *lab.given, *lab_page.pictures(lab)]
    for name in names:
        yield f"{folder}/{name}", _text(lab.exercise / name)
    for path in sorted((lab.exercise / "reports").glob("*.md")):
        yield f"{folder}/reports/{path.name}", _text(path)
    for name, text in skeleton.wanted(lab).items():
        _text(lab.exercise / name)
        yield f"{folder}/{name}", text.encode()
        yield f"{handed_out.SKELETONS}/{lab.id}/{name}", text.encode()


def handed_out_tests(lab: Lab, tests: Tests) -> Closure:
    """What of a lab's suite goes along."""
    if tests == "none":
        return Closure(lab, [])
    return Closure(lab, public_tests(lab) if tests == "public" else all_tests(lab))


def suite_texts(lab: Lab, tests: Tests) -> list[str]:
    """The texts of a lab's suite that go along."""
    return [data.decode("utf-8", "replace") for _, data in _suite(lab, tests)]


def _suite(lab: Lab, tests: Tests) -> Iterator[tuple[str, bytes]]:
    if tests == "none":
        return
    folder = f"tests/{lab.id}"
    closure = handed_out_tests(lab, tests)
    for name, text in closure.texts().items():
        whole = _text(lab.suite / name)
        yield f"{folder}/{name}", whole if tests == "all" else text.encode()
    for name in closure.data_files():
        _refuse_links(lab.suite / name)
        if name == PUBLISHED and tests == "public":
            yield f"{folder}/{name}", closure.published().encode()
        else:
            yield f"{folder}/{name}", (lab.suite / name).read_bytes()
    if tests == "all":
        yield f"{folder}/{KNOWN_MISTAKES}", _known_mistakes(lab).encode()


def _known_mistakes(lab: Lab) -> str:
    """The sentences of the known wrong answers, without their code."""
    suite = load_suite(lab)
    lines = [f"# Known mistakes in {lab.id}", ""]
    for task in lab.tasks:
        said = [" ".join(each.sentence.split()) for each in suite.misconceptions_of(task.id)]
        if said:
            lines += [f"## {task.id}", "", *(f"- {text}" for text in dict.fromkeys(said)), ""]
    return "\n".join(lines)
