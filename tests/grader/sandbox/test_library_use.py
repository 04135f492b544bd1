"""What student code uses of a library is noted: named, in disguise, in ranks, and not otherwise."""

from __future__ import annotations

import importlib
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from grader.sandbox import codec, library_use
from grader.sandbox.server import CodeSpec, Server

# A library of one file, imported from a folder of its own, stands for torch.
LIBRARY = """
import functools

def mean(values):
    total, count = 0.0, 0
    for value in values:
        if value is None:
            continue
        if value != value:
            raise ArithmeticError("not a number: " + repr(values))
        total, count = total + float(value), count + 1
    if count == 0:
        raise ValueError("no values: " + repr(values))
    return round(total / count, 12)

def _told(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

@_told
def wrapped(values):
    return mean(values)

def short(values):
    return values[0]

class Mean:
    def __init__(self, values):
        self.values = list(values)
    def result(self):
        return mean(self.values)

STARTED = mean([1, 2])
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "libs" / "stats_of_a_test"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from math import fsum as Fast")
    (folder / "means.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder.parent))
    for name in [n for n in sys.modules if n.startswith("stats_of_a_test")]:
        monkeypatch.delitem(sys.modules, name)
    return folder / "means.py"


FORBIDS = ("stats_of_a_test.means", "stats_of_a_test.Fast")
PROBES = """
from stats_of_a_test import means

def both(student, values):
    return [student.answer(values), means.mean(values)]

def hands_over(student, values):
    return student.answer(means.Mean(values))
"""


def asked(
    tmp_path: Path,
    source: str,
    *args: Any,
    op: str = "call",
    name: str = "answer",
    prepared: bool = False,
) -> tuple[list[list[str]], Any]:
    """What a request noted, and its value."""
    tmp_path = tmp_path / "own"
    tmp_path.mkdir()
    (tmp_path / "mine.py").write_text(textwrap.dedent(source))
    import stats_of_a_test  # noqa: F401  a worker has imported the library before

    server = Server(CodeSpec(tmp_path, ("mine.py",), (), probes=PROBES, forbids=FORBIDS))
    return answered(server, *args, op=op, name=name, prepared=prepared)


def answered(
    server: Server, *args: Any, op: str = "call", name: str = "answer", prepared: bool = False
) -> tuple[list[list[str]], Any]:
    before = threading.getprofile()
    if prepared:  # as in a worker
        server.prepare()
    side = codec.Side({}, lambda _: 1, lambda _number, _name: object())
    tree, buffers = codec.encode((args, {}), side)
    with server.files.visible():
        status, out, more = server.answer(op, name, 0, tree, buffers)
    threading.setprofile(before)
    rows, out = out if status == "changed" else ([], out)
    return rows, codec.decode(out, more, side)


NAMED = ["", "stats_of_a_test.means", "library", ""]
USES = {
    "by its name": """
        from stats_of_a_test.means import mean
        def answer(values): return mean(values)
    """,
    "imported in the call": """
        def answer(values):
            from stats_of_a_test import means
            return means.mean(values)
    """,
    "through a wrapper": """
        from stats_of_a_test import means
        def answer(values): return means.wrapped(values)
    """,
    "handed in as it is": """
        from stats_of_a_test.means import mean as answer
    """,
    "as a partial": """
        import functools
        from stats_of_a_test import means
        answer = functools.partial(means.mean)
    """,
    "as a base class": """
        from stats_of_a_test import means
        class Own(means.Mean):
            pass
        def answer(values): return Own(values).result()
    """,
    "by getattr": """
        import importlib
        def answer(values):
            module = importlib.import_module("stats_of" + "_a_test.means")
            return getattr(module, "me" + "an")(values)
    """,
    "in a lambda of map": """
        from stats_of_a_test import means
        def answer(values): return list(map(means.mean, [values]))[0]
    """,
    "in a thread": """
        import threading
        from stats_of_a_test import means
        def answer(values):
            found = []
            def work(): found.append(means.mean(values))
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            return found[0]
    """,
    "its source under another name": """
        from stats_of_a_test import means
        text = open(means.__file__).read()
        names = {"__name__": "mine"}
        exec(compile(text, "other.py", "exec"), names)
        def answer(values): return names["mean"](values)
    """,
    "its source without its docstring and with other lines": """
        from stats_of_a_test import means
        text = open(means.__file__).read()
        text = text.replace("def mean(values):", chr(10) * 9 + "def mine(x):")
        text = text.replace("mean(", "mine(")
        text = text.replace("in values", "in x").replace("(values))", "(x))")
        names = {"__name__": "mine"}
        exec(text, names)
        def answer(values): return names["mine"](values)
    """,
    "its code in a function of one's own": """
        import types
        from stats_of_a_test import means
        own = types.FunctionType(means.mean.__code__, {"__builtins__": __builtins__})
        def answer(values): return own(values)
    """,
    "copied into the file": LIBRARY.replace("STARTED", "BEGAN")
    + "\ndef answer(values): return mean(values)\n",
}


@pytest.mark.parametrize("way", USES)
def test_a_use_is_noted_whatever_its_way(library: Path, tmp_path: Path, way: str) -> None:
    rows, value = asked(tmp_path, USES[way], [1, 2, 6])
    assert rows == [NAMED]
    assert value == 3.0


HONEST = {
    "an own loop": """
        def answer(values): return sum(values) / len(values)
    """,
    "importing it": """
        from stats_of_a_test import means
        def answer(values):
            import stats_of_a_test.means
            return sum(values) / len(values)
    """,
    "importing it first in the call": """
        def answer(values):
            import stats_of_a_test.means
            return sum(values) / len(values)
    """,
    "a short function that anybody would write": """
        def short(values):
            return values[0]
        def answer(values): return sum(values) / (short(values) * len(values))
    """,
}


@pytest.mark.parametrize("way", HONEST)
def test_nothing_is_noted_otherwise(library: Path, tmp_path: Path, way: str) -> None:
    rows, value = asked(tmp_path, HONEST[way], [1, 2, 6])
    assert (rows, value) == ([], 3.0)


def test_a_probe_may_use_it(library: Path, tmp_path: Path) -> None:
    source = "def answer(values): return sum(values) / len(values)"
    rows, value = asked(tmp_path, source, [1, 2, 6], op="probe", name="both")
    assert (rows, value) == ([], [3.0, 3.0])


def test_an_object_of_the_librarys_that_a_probe_hands_over_counts_where_student_code_calls_it(
    library: Path, tmp_path: Path
) -> None:
    source = "def answer(given): return given.result()"
    rows, _ = asked(tmp_path, source, [1, 2, 6], op="probe", name="hands_over")
    assert rows == [NAMED]


OF_WORKERS = {
    "a function in C": (
        "Fast",
        """
        from stats_of_a_test import Fast
        def answer(values): return Fast(values) / 3
        """,
    ),
    "a function in C, called from C": (
        "Fast",
        """
        from stats_of_a_test import Fast
        def answer(values): return list(map(Fast, [values]))[0] / 3
        """,
    ),
    "in a thread that began at import": (
        "means",
        """
        from concurrent.futures import ThreadPoolExecutor
        from stats_of_a_test import means
        pool = ThreadPoolExecutor(1)
        pool.submit(int).result()
        def answer(values): return pool.submit(means.mean, values).result()
        """,
    ),
}


@pytest.mark.parametrize("way", OF_WORKERS)
def test_a_worker_sees_what_is_written_in_c_and_older_threads(
    library: Path, tmp_path: Path, way: str
) -> None:
    name, source = OF_WORKERS[way]
    library_use._wrap.cache_clear()
    rows, value = asked(tmp_path, source, [1, 2, 6], prepared=True)
    assert rows == [["", f"stats_of_a_test.{name}", "library", ""]]
    assert value == 3.0


def test_a_function_in_c_is_found_where_it_was_and_where_it_came_later(
    library: Path, tmp_path: Path
) -> None:
    """Who forks workers looks for its places before; a worker looks through what it has loaded
    since."""
    import stats_of_a_test

    name = "stats_of_a_test.Fast"
    library_use._wrap.cache_clear()
    library_use.prepare([name])
    original = stats_of_a_test.Fast
    (library.parent / "later.py").write_text("from stats_of_a_test import Fast")
    later = importlib.import_module("stats_of_a_test.later")
    library_use._wrap(name)
    assert stats_of_a_test.Fast is later.Fast is not original
    assert stats_of_a_test.Fast([1.0, 2.0]) == 3.0


TAMPERED = {
    "taken off": """
        import sys
        from stats_of_a_test import means
        def answer(values):
            sys.setprofile(None)
            return means.mean(values)
    """,
    "taken off and put back": """
        import sys
        from stats_of_a_test import means
        def answer(values):
            see = sys.getprofile()
            sys.setprofile(None)
            value = means.mean(values)
            sys.setprofile(see)
            return value
    """,
}


@pytest.mark.parametrize("way", TAMPERED)
def test_whoever_takes_the_watch_off_is_told_on(library: Path, tmp_path: Path, way: str) -> None:
    rows, _ = asked(tmp_path, TAMPERED[way], [1, 2, 6])
    assert "disturbed" in [row[2] for row in rows]


@pytest.mark.parametrize("which", ["mine.py", "given.py"])
def test_a_file_that_another_one_rewrites_is_watched(
    library: Path, tmp_path: Path, which: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    copy = LIBRARY.replace("STARTED", "BEGAN") + "\ndef answer(values): return mean(values)\n"
    (own / "first.py").write_text(f"open({str(own / which)!r}, 'w').write({copy!r})")
    (own / "given.py").write_text("def answer(values): return 0.0")
    (own / "mine.py").write_text("from given import answer")
    import stats_of_a_test  # noqa: F401

    spec = CodeSpec(own, ("first.py", "mine.py"), ("given.py",), forbids=FORBIDS)
    rows, value = answered(Server(spec), [1, 2, 6])
    assert (rows, value) == ([NAMED], 3.0)


def test_a_forked_process_writes_into_the_same_memory(library: Path, tmp_path: Path) -> None:
    source = """
    import os
    from stats_of_a_test import means
    def answer(values):
        child = os.fork()
        if child == 0:
            try:
                means.mean(values)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return 3.0
    """
    rows, _ = asked(tmp_path, source, [1, 2, 6])
    assert rows == [NAMED]


def test_the_profile_function_of_the_caller_stays(library: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def mine(_frame: object, event: str, _arg: object) -> None:
        seen.append(event)

    sys.setprofile(mine)
    try:
        asked(tmp_path, HONEST["an own loop"], [1, 2, 6])
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)


def test_without_names_nothing_is_watched() -> None:
    use = library_use.LibraryUse((), ())
    with use.watching():
        assert sys.getprofile() is None
    assert use.take() == ([], False)
