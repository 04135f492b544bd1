"""Known wrong answers: the forms they are written in, and the code of the file that is made."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from grader.errors import LabError
from grader.lab.manifest import load_lab
from grader.suite.model import load_suite
from grader.suite.pieces import Pieces
from grader.suite.replays import Replays
from grader.suite.splice import Misconception, SpliceError

from ..conftest import MiniKit

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = '''"""Means."""

SCALE = 1


def running_mean(values):
    # BEGIN SOLUTION running_mean
    total = SCALE
    # END SOLUTION
    means = []
    # BEGIN SOLUTION running_mean
    return means, total
    # END SOLUTION
'''


def misconceptions(kit: MiniKit, text: str, reference: str = REFERENCE) -> list[Misconception]:
    (kit.solution / "running_mean.py").write_text(reference, encoding="utf-8")
    head = "from grader.suite import block, lines, misconception\n"
    (kit.suite / "misconceptions/running_mean.py").write_text(head + text, encoding="utf-8")
    return load_suite(load_lab(kit.root, "lab90")).misconceptions_of("running_mean")


def test_lines_are_exchanged_in_the_task_s_blocks_only(kit: MiniKit) -> None:
    text = 'wrong = lines("""Two\n    lines.""", ("SCALE", "2 * SCALE"), ("= 2", "= 3"))'
    (wrong,) = misconceptions(kit, text)
    assert (wrong.task, wrong.name, wrong.file) == ("running_mean", "wrong", "running_mean.py")
    assert wrong.sentence == "Two lines."
    assert wrong.text(REFERENCE) == REFERENCE.replace("= SCALE", "= 3 * SCALE")


@pytest.mark.parametrize(
    ("old", "places"),
    [("means", 1), ("nothing", 0), ("t", 5), ("means = []", 0), ("SCALE = 1", 0)],
)
def test_an_old_text_stands_once(kit: MiniKit, old: str, places: int) -> None:
    (wrong,) = misconceptions(kit, f'wrong = lines("One.", ({old!r}, "other"))')
    if places == 1:
        assert "other" in wrong.text(REFERENCE)
        return
    with pytest.raises(SpliceError) as caught:
        wrong.text(REFERENCE)
    assert str(caught.value) == (
        "The misconception wrong of `running_mean` does not fit into running_mean.py: "
        f"{places} places in the reference read {old!r}."
    )


def test_a_block_takes_the_place_of_all_of_the_task_s_blocks(kit: MiniKit) -> None:
    (wrong,) = misconceptions(kit, 'wrong = block("One.", "\\n    return SCALE\\n")')
    made = wrong.text(REFERENCE)
    assert made.count("SOLUTION") == 4
    assert "    return SCALE\n    # END SOLUTION\n    means = []\n" in made
    assert "return means" not in made


def test_a_definition_without_a_place_says_so(kit: MiniKit) -> None:
    text = '@misconception(replaces="Mean.of")\ndef wrong(self):\n    """One."""\n'
    (wrong,) = misconceptions(kit, text)
    with pytest.raises(LabError, match=r"it replaces Mean\.of, which is not there\.$"):
        wrong.text(REFERENCE)


def test_only_the_task_s_own_file_is_read() -> None:
    suite = load_suite(load_lab(ROOT, "lab01"))
    prefix = f"{suite.package}.misconceptions."
    before = {name for name in sys.modules if name.startswith(prefix)}
    assert suite.misconceptions_of("audit")
    after = {name for name in sys.modules if name.startswith(prefix)}
    assert after - before <= {f"{prefix}audit"}
    assert f"{prefix}audit" in after


def test_what_is_loaded_is_what_is_written(kit: MiniKit) -> None:
    (wrong,) = misconceptions(kit, 'wrong = lines("One.", ("total = SCALE", "total = 7"))')
    suite = load_suite(load_lab(kit.root, "lab90"))
    replays = Replays(suite)
    folder = replays.wrong_folder(wrong)
    assert (folder / "running_mean.py").read_text(encoding="utf-8") == wrong.text(REFERENCE)
    backend = replays.wrong_backend(wrong)
    backend.load()
    module = backend.server.files.modules["running_mean"]
    assert module.running_mean([]) == ([], 7)
    assert module.running_mean.__code__.co_filename == str(folder / "running_mean.py")


# -- compiled in pieces ---------------------------------------------------------------------------


def functions(codes: list[CodeType]) -> Iterator[tuple[object, ...]]:
    """What there is to run, apart from line numbers. Instructions are not compared: Python calls a
    method of a module otherwise where it sees its import."""
    for code in codes:
        for part in code.co_consts:
            if isinstance(part, CodeType):
                plain = [value for value in part.co_consts if not isinstance(value, CodeType)]
                yield part.co_qualname, part.co_names, part.co_varnames, part.co_flags, repr(plain)
                yield from functions([part])


@pytest.mark.parametrize("lab_id", ["lab01", "lab07"])
def test_a_change_is_compiled_as_the_whole_file_would_be(lab_id: str) -> None:
    lab = load_lab(ROOT, lab_id)
    suite = load_suite(lab)
    wrongs = [wrong for task in lab.tasks for wrong in suite.misconceptions_of(task.id)]
    assert len(wrongs) > 50
    pieces = {name: Pieces(lab.solution / name) for name in lab.edit}
    texts = {name: (lab.solution / name).read_text(encoding="utf-8") for name in lab.edit}
    for wrong in wrongs:
        text = wrong.text(texts[wrong.file])
        whole = compile(text, "whole", "exec", dont_inherit=True)
        made = pieces[wrong.file].changed(Path("wrong"), text)
        assert list(functions(made)) == list(functions([whole])), wrong.name


FILE = '''"""Doc."""
from __future__ import annotations; import math
A = 1; B = 2

@property
def first(x: Unknown): return A

class Last:
    def method(self): return """
    text """
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("Doc", "Other"),
        ("import math", "import math, sys"),
        ("B = 2", "B = 3; C = 4"),
        ("\n@property\ndef first", "\ndef first"),
        ("return A", "return B\ndef second(y: Unknown): return A"),
        ("    text", "    text\n\n    more"),
        ('text """\n', 'text """\n    def added(self): return 1\n'),
        ('text """\n', 'text """'),
        ("class Last:", "class Last:\n    def before(self): return 2\n"),
        ("A = 1; B = 2\n", ""),
        ("@property\ndef first(x: Unknown): return A\n\n", ""),
    ],
)
def test_any_place_may_change(tmp_path: Path, old: str, new: str) -> None:
    assert FILE.count(old) == 1 or not old
    path = tmp_path / "file.py"
    path.write_text(FILE, encoding="utf-8")
    text = FILE.replace(old, new) if old else FILE
    whole = compile(text, str(path), "exec", dont_inherit=True)
    made = Pieces(path).changed(path, text)
    assert list(functions(made)) == list(functions([whole]))
    one: dict[str, object] = {"Unknown": None}
    other: dict[str, object] = {"Unknown": None}
    exec(whole, one)
    for code in made:
        exec(code, other)
    assert list(one) == list(other)
    assert one["__doc__"] == other["__doc__"]


def test_a_text_that_is_no_python_is_a_syntax_error(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text(FILE, encoding="utf-8")
    with pytest.raises(SyntaxError):
        Pieces(path).changed(path, FILE.replace("return A", "return ("))
