"""Reading a submission's text in a fork with limits: what comes back, and what ends it."""

import os
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from grader.suite import apart, markdown_answers
from grader.suite.expect import Failure


class Odd(Exception):
    """An exception whose arguments are not those of its `__init__`."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True)
class Row:
    name: str
    cells: tuple[int, ...]


def rows(text, more=1):
    return [Row(line, (more, len(line))) for line in text.splitlines()]


def raises(text):
    raise Odd(3, text)


def backtracks(text):
    return re.match(r"(a+)+$", text)


def for_ever(text):
    while True:
        pass


def sleeps(text):
    time.sleep(600)


def large(text):
    return [bytearray(2**20) for _ in range(8192)]


def aliased(text):
    return yaml.safe_load(text)


def dies(text):
    os._exit(0)


def says_much(text):
    return dict.fromkeys(range(2000), "x" * 1000)


def leaves_a_mark(text):
    LEFT.append(text)
    return os.getpid()


def nests(text):
    value = []
    for _ in range(100_000):
        value = [value]
    return value


LEFT: list[str] = []
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(8)
)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(apart, "_known", type(apart._known)())


def test_the_value_is_the_readers():
    assert apart.read(rows, "ab\nc", 7) == rows("ab\nc", 7)
    assert apart.read(rows, "") == []


def test_an_exception_arrives_whole():
    with pytest.raises(Odd, match="said") as caught:
        apart.read(raises, "said")
    assert caught.value.line == 3


def test_it_runs_elsewhere_and_once():
    first = apart.read(leaves_a_mark, "x")
    assert first != os.getpid()
    assert LEFT == []
    assert apart.read(leaves_a_mark, "x") == first
    assert apart.read(leaves_a_mark, "y") != first


def test_what_is_changed_afterwards_is_not_remembered():
    apart.read(rows, "a\nb").clear()
    assert len(apart.read(rows, "a\nb")) == 2


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (backtracks, "a" * 60 + "b"),
        (for_ever, ""),
        (sleeps, ""),
        (large, ""),
        (aliased, BOMB),
        (dies, ""),
        (says_much, ""),
        (nests, ""),
    ],
)
def test_a_text_beyond_a_limit_is_refused(reader, text, monkeypatch):
    """Time of the processor, time on the wall, memory, values, characters, depth, a silent end."""
    monkeypatch.setattr(apart, "CPU_SECONDS", 1)
    monkeypatch.setattr(apart, "WALL_SECONDS", 4.0)
    for _ in range(2):
        with pytest.raises(apart.TooMuch, match="any answer"):
            apart.read(reader, text)


def test_this_process_keeps_its_limits_and_its_memory():
    before = resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(apart.TooMuch):
        apart.read(aliased, BOMB)
    after = resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU)
    assert after == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 64 * 1024


def test_no_child_is_left():
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    apart.read(rows, "a")
    assert children.read_text() == before


def test_a_learner_reads_which_file_it_was():
    with pytest.raises(Failure) as caught:
        markdown_answers.judged_text("because", "plan.md", aliased, BOMB)
    assert caught.value.lines[0].startswith("plan.md: it holds more values")


def test_a_table_of_many_columns_is_refused_at_once():
    wide = "|" + "a|" * 60_000 + "\n|" + "-|" * 60_000 + "\n"
    with pytest.raises(markdown_answers.AnswerFault, match="60,000 columns"):
        markdown_answers.tables("plan.md", wide)


def test_a_debugger_sees_the_reader(monkeypatch):
    monkeypatch.setattr(apart.sys, "gettrace", lambda: print)
    assert apart.read(leaves_a_mark, "here") == os.getpid()
    LEFT.clear()
