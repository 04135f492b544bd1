"""`infralens interview`: what is asked, what is kept, what is checked, and the report."""

from __future__ import annotations

import ast
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.errors import LabError
from grader.lab.manifest import Lab, Task, all_labs, load_lab
from grader.learner.interview import answer_check, blank_file, mock, mock_report
from grader.learner.interview.mock import (
    AskStep,
    CodeStep,
    Interview,
    InterviewStep,
    Planner,
    TimeIsUp,
    from_json,
    to_json,
)
from grader.learner.interview.roles import Role, role, roles
from grader.learner.interview.store import Store
from grader.suite.questions import Bank, Card
from tests.grader.learner.conftest import infralens

ROOT = Path(__file__).resolve().parents[3]
START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
KV = "lab01/number/kv_of_a_token"
MLP = "lab01/number/layer_of_mlp"
SAY = "lab01/say/how-much-memory-does-it-take-to-train-a-7-b-model-with-adam"
CODE = sorted({task.name for row in roles(ROOT).values() for task in row.code})

PYTHON = [name for name in CODE if not name.startswith(("lab04", "lab05.transpose"))]


@pytest.fixture
def store(kit_root: Path) -> Iterator[Store]:
    opened = Store(kit_root)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def bank() -> Bank:
    return Bank(load_lab(ROOT, "lab01"))


def named(name: str) -> tuple[Lab, Task]:
    return mock.task_of(ROOT, name)


def reference_answer(lab: Lab, task: Task) -> str:
    """What a candidate would write who knows the reference by heart, and its imports."""
    text = (lab.solution / task.file).read_text(encoding="utf-8")
    if task.file.endswith(".cu"):
        empty = blank_file.blank(lab, task)
        heads = [row for row in empty.split("\n") if row and row[0].isalpha()]
        return "\n\n".join(text[text.index(head) :].split("\n}", 1)[0] + "\n}" for head in heads)
    names = blank_file._names(lab, task, text)
    rows = [
        ast.unparse(node)
        for node in ast.parse(text).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names)
    ]
    return "\n\n".join(rows)


# -- a blank file, and the answer in it -----------------------------------------------------------


@pytest.mark.parametrize("name", CODE)
def test_a_blank_file_says_what_is_asked_and_not_how(name: str) -> None:
    """Compared with the lines of the reference's blocks, as they stand."""
    lab, task = named(name)
    text = blank_file.blank(lab, task)
    lines = (lab.solution / task.file).read_text(encoding="utf-8").split("\n")
    assert "BEGIN SOLUTION" not in text
    assert task.name in text
    given = "\n".join(lines)
    for block in blank_file.skeleton.blocks(lab.solution / task.file):
        if block.task == task.id:
            for row in lines[block.first : block.last - 1]:
                is_own = len(row.strip()) > 20 and given.count(row) == 1
                assert not is_own or row not in text.split("\n"), row
    if task.file.endswith(".py"):
        compile(text, task.file, "exec")


@pytest.mark.parametrize("name", PYTHON)
def test_the_reference_put_back_is_the_reference(name: str) -> None:
    """Each definition of the whole file, once more and no other."""
    lab, task = named(name)
    text = (lab.solution / task.file).read_text(encoding="utf-8")
    put = blank_file.put(lab, task, reference_answer(lab, task))

    def definitions(of: str) -> Counter[str]:
        rows = ast.parse(of).body
        return Counter(
            ast.unparse(row) for row in rows if not isinstance(row, ast.Import | ast.ImportFrom)
        )

    assert set(definitions(put.text)) == set(definitions(text))


@pytest.mark.parametrize(
    "name",
    ["lab01.attention_params", "lab04.reduce_warp", "lab05.conflict_degree", "lab10.BlockPool"],
)
def test_the_reference_earns_all(name: str) -> None:
    lab, task = named(name)
    found = answer_check.check(lab, task, reference_answer(lab, task))
    assert (found.points, found.state, found.message) == (1.0, "done", "")


WRONG = '''"""A row."""

from __future__ import annotations


def busy_time(intervals):
    return float(sum(end - start for start, end in intervals))
'''


def test_a_wrong_answer_is_told_its_cause_and_its_own_lines() -> None:
    lab, task = named("lab09.busy_time")
    found = answer_check.check(lab, task, WRONG)
    assert (found.points, found.state) == (0.0, "wrong")
    assert "Likely cause:" in found.message
    raises = WRONG.replace("return float", "return undefined")
    found = answer_check.check(lab, task, raises)
    assert "undefined" in found.message
    line = raises.split("\n").index(next(row for row in raises.split("\n") if "undefined" in row))
    assert f"trace_analysis.py:{line + 1}" in found.message, found.message


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("def busy_time(:", "does not parse"),
        ("\0", "does not parse"),
        ("", "wrong"),
        ("import os\nos._exit(3)\n", "wrong"),
        ("class busy_time: pass\n", "wrong"),
        ("busy_time = None\n", "wrong"),
        ("raise SystemExit\n", "wrong"),
        ("def busy_time(intervals):\n    print('x' * 10**6)\n    return 0.0\n", "wrong"),
    ],
)
def test_an_answer_that_is_broken_costs_its_points_only(
    text: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, task = named("lab09.busy_time")
    found = answer_check.check(lab, task, text)
    assert found.points < 0.5
    assert found.state in (state, "partial", "not started"), found
    assert len(found.message) <= answer_check.MOST_TEXT


def test_nothing_written_is_not_started() -> None:
    lab, task = named("lab09.busy_time")
    found = answer_check.check(lab, task, blank_file.blank(lab, task))
    assert (found.points, found.state) == (0.0, "not started")


def test_a_task_within_another_cannot_be_asked() -> None:
    with pytest.raises(LabError, match="cannot be asked alone: its definition holds"):
        blank_file.blank(*named("lab03.no_sync"))
    with pytest.raises(LabError, match="no code is asked there"):
        blank_file.blank(*named("lab10.config"))


# -- what is asked --------------------------------------------------------------------------------


def test_every_lab_serves_a_role() -> None:
    table = roles(ROOT)
    assert set(table) == {"training", "serving", "kernels", "all"}
    assert set(table["all"].labs) == {lab.id for lab in all_labs(ROOT)}
    for row in table.values():
        assert len(row.code) >= 10
        assert {task.lab for task in row.code} <= set(row.labs)
        assert min(task.minutes for task in row.code) <= 10, "for an interview of 15 minutes"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[x", "is not valid TOML"),
        ('[x]\ntitle = "x"\nlabs = { lab01 = 1 }\n', "write title, labs and code"),
        ('[x]\ntitle = "x"\nlabs = { lab99 = 1 }\ncode = []\n', "weights of labs that there are"),
        ('[x]\ntitle = "x"\nlabs = { lab01 = 0 }\ncode = []\n', "a whole number above 0"),
        ('[x]\ntitle = "x"\nlabs = { lab01 = 1 }\ncode = ["lab01.x"]\n', "lab01 has no task `x`"),
        ('[x]\ntitle = "x"\nlabs = { lab01 = 1 }\ncode = ["kv"]\n', "as in lab10.block_hashes"),
    ],
)
def test_a_fault_of_the_table_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / "lab01").symlink_to(ROOT / "exercises" / "lab01")
    (tmp_path / "exercises" / "roles.toml").write_text(text)
    with pytest.raises(LabError, match=sentence) as caught:
        roles(tmp_path)
    assert "roles.toml" in str(caught.value)


def test_an_unknown_role() -> None:
    with pytest.raises(LabError, match="'cook' is not a role; the roles are training, serving"):
        role(ROOT, "cook")


def planned(wanted: Role, minutes: float, seed: int, bank: Bank) -> list[InterviewStep]:
    banks = dict.fromkeys(wanted.labs, bank)
    return Planner(banks, wanted, lambda _: 0, [], random.Random(seed)).steps(minutes)


def cost(steps: list[InterviewStep], bank: Bank) -> float:
    return sum(
        named(step.task)[1].minutes if isinstance(step, CodeStep) else bank.card(step.card).minutes
        for step in steps
    )


@pytest.mark.parametrize("minutes", [5, 15, 45, 90])
def test_a_plan_fills_the_minutes(
    minutes: float, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mock, "_can_ask", lambda *_: True)
    for id, wanted in roles(ROOT).items():
        steps = planned(wanted, minutes, 1, bank)
        asked = [step.card for step in steps if isinstance(step, AskStep)]
        assert len(asked) == len(set(asked))
        assert minutes <= cost(steps, bank) <= minutes + 4, (id, steps)
        assert any(isinstance(step, CodeStep) for step in steps) == (minutes >= 15), id
        assert asked[-1].startswith("lab01/say/"), "what is said aloud comes last"
        assert from_json(to_json(steps)) == steps


def test_a_task_that_was_written_before_comes_last(bank: Bank) -> None:
    wanted = role(ROOT, "serving")
    banks = dict.fromkeys(wanted.labs, bank)
    written: list[str] = []
    for _ in range(3):
        planner = Planner(banks, wanted, lambda _: 0, written, random.Random(4))
        task = planner._task(15)
        assert task is not None
        assert task.name not in written
        written.append(task.name)


# -- the interview --------------------------------------------------------------------------------


class Candidate:
    """Typed lines for an interview, what it said, and an editor: lines that are functions."""

    def __init__(self, *typed: str | Callable[[], str]) -> None:
        self.typed, self.lines = list(typed), list[str]()

    def read(self, prompt: str) -> str:
        self.lines.append(prompt)
        if not self.typed:
            raise EOFError
        line = self.typed.pop(0)
        return line if isinstance(line, str) else line()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def held(
    kit_root: Path, store: Store, bank: Bank, candidate: Candidate, *steps: InterviewStep,
    minutes: float = 15, feedback: bool = False,
) -> Interview:  # fmt: skip
    kept = store.open_interview() or store.begin_interview(
        START, "all", minutes, "interviews/2026-03-02-all", to_json(steps), feedback
    )
    return Interview(kit_root, store, kept, lambda _: bank, candidate.read, candidate.lines.append)


def right(bank: Bank, name: str, seed: int = 0) -> str:
    card = bank.card(name)
    return str(bank.answer(card, bank.ask(card, seed)))


def reported(kit_root: Path, store: Store) -> mock_report.InterviewReport:
    (kept,) = store.interviews()
    return mock_report.build(
        kit_root, kept, store.step_answers(kept.id), len(from_json(kept.steps))
    )


def test_one_who_knows_scores_full(kit_root: Path, store: Store, bank: Bank) -> None:
    lab, task = named("lab01.kv_bytes_per_token")
    path = kit_root / "interviews" / "2026-03-02-all" / task.file

    def write() -> str:
        assert (path.parent / "types_lab01.py").is_file(), "so that the file can be tried out"
        path.write_text(reference_answer(lab, task))
        return ""

    candidate = Candidate(right(bank, KV), right(bank, MLP, 3), write, "", "")
    steps = (AskStep(KV, 0), AskStep(MLP, 3), CodeStep(task.name), AskStep(SAY, 0))
    interview = held(kit_root, store, bank, candidate, *steps)
    assert interview.run()
    assert "Right" not in candidate.text, "no word on how it went"
    said: list[str] = []
    mock._check_code(kit_root, store, interview.kept, said.append)
    report = reported(kit_root, store)
    assert [row.points for row in report.rows] == [1.0] * 4
    assert report.missed == []
    assert {row["card"] for row in store.answers()} == {KV, MLP, SAY}


def test_every_kind_of_question_stands_in_the_report(kit_root: Path, store: Store) -> None:
    """A missed design beside the rest: each kind that a card can be has its word there."""
    asked = {card.kind for lab in all_labs(kit_root) for card in Bank(lab).cards}
    assert "case" in asked
    assert asked <= set(mock_report._WORD)
    lab = load_lab(kit_root, "lab01")
    candidate = Candidate("?")
    held(kit_root, store, Bank(lab), candidate, AskStep("lab01/case/users_of_a_card", 0)).run()
    report = reported(kit_root, store)
    text = "\n".join(mock_report.lines(report, colours=False))
    assert "1. design, lab01: 0 of 1" in text
    assert "yours: not known; right: " in text
    assert "design, lab01" in mock_report.html(report)


def test_misses_are_told_at_the_end_and_come_back(kit_root: Path, store: Store, bank: Bank) -> None:
    card = bank.card(KV)
    figure = bank.answer(card, bank.ask(card, 0)) / 2
    candidate = Candidate(str(figure), "?", "", "1 2")
    interview = held(
        kit_root, store, bank, candidate, AskStep(KV, 0), AskStep(MLP, 0), AskStep(SAY, 0)
    )
    assert interview.run()
    report = reported(kit_root, store)
    text = "\n".join(mock_report.lines(report, colours=False))
    sentences = {
        wrong.sentence for value, wrong in bank.wrong_figures(card, bank.ask(card, 0))
        if value == figure
    }  # fmt: skip
    assert any(sentence[:60] in " ".join(text.split()) for sentence in sentences)
    assert "yours: not known; right:" in text
    assert "Left out:" in text
    assert "What was said aloud only you have judged." in " ".join(text.split())
    assert "Say next:" in text
    assert "3 missed questions come back in `infralens drill`." in text
    due = store.memories()
    assert set(due) == {KV, MLP, SAY}


def test_feedback_is_for_practice(kit_root: Path, store: Store, bank: Bank) -> None:
    candidate = Candidate("?", right(bank, MLP))
    interview = held(
        kit_root, store, bank, candidate, AskStep(KV, 0), AskStep(MLP, 0), feedback=True
    )
    assert interview.run()
    assert "It is " in candidate.text
    assert "Right: " in candidate.text


def test_feedback_goes_on_after_an_interruption(kit_root: Path, store: Store, bank: Bank) -> None:
    steps = (AskStep(KV, 0), AskStep(MLP, 0))
    first = Candidate("?", "q")
    assert not held(kit_root, store, bank, first, *steps, feedback=True).run()
    second = Candidate("?")
    assert held(kit_root, store, bank, second, *steps).run()
    assert "It is " in second.text


def test_an_impossible_figure_is_asked_back_once(kit_root: Path, store: Store, bank: Bank) -> None:
    optimizer = "lab01/number/optimizer_of_training"
    steps = [AskStep(KV, 0), AskStep(optimizer, 0), AskStep(MLP, 0), AskStep(optimizer, 1)]
    typed = ("-128", right(bank, KV), "3", right(bank, optimizer), "-5", "-5", "96", "96")
    candidate = Candidate(*typed)
    assert held(kit_root, store, bank, candidate, *steps).run()
    told = " ".join(candidate.text.split())
    assert told.count("That is less than none. Type the figure once more.") == 2
    asked_back = "That has no unit. Type it once more, as a figure in bytes, KB, MiB, ..."
    assert told.count(asked_back) == 2
    assert [row.points for row in store.step_answers(1)] == [1.0, 1.0, 0.0, 0.0]


def test_another_question_stands_in_for_one_that_cannot_be_asked(
    kit_root: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = Bank(load_lab(ROOT, "lab10"))
    cards = [card for card in bank.cards if card.kind == "bug"][:2]
    ask = bank.bug(cards[1], 0)

    def bug(self: Bank, card: Card, seed: int) -> object:
        if card.name != cards[1].name:
            raise LabError("no mistake was found")
        return ask

    monkeypatch.setattr(Bank, "bug", bug)
    candidate = Candidate("?")
    assert held(kit_root, store, bank, candidate, AskStep(cards[0].name, 0)).run()
    assert "no mistake was found" not in candidate.text
    assert candidate.text.count("1 of 1") == 1
    assert [row["card"] for row in store.answers()] == [cards[1].name]


def test_hints_are_not_given(kit_root: Path, store: Store, bank: Bank) -> None:
    candidate = Candidate("h", "?")
    assert held(kit_root, store, bank, candidate, AskStep(KV, 0)).run()
    assert bank.card(KV).hint not in candidate.text


def test_it_is_paused_once(kit_root: Path, store: Store, bank: Bank) -> None:
    def slow() -> str:
        clock[0] += 1000.0  # the pause is not on the clock, however long it takes
        return ""

    clock = [0.0]
    candidate = Candidate("t", "p", slow, "p", "?")
    interview = held(kit_root, store, bank, candidate, AskStep(KV, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mock.time, "monotonic", lambda: clock[0])
        assert interview.run()
    assert "15:00 left." in candidate.text
    assert "Paused, 15:00 left." in candidate.text
    assert "It was paused once; the clock goes on." in candidate.text
    assert interview.left == 15 * 60
    assert store.interviews()[0].pauses == 1
    again = held(kit_root, store, bank, Candidate("p"), AskStep(KV, 0))
    assert again._paused, "and not once more after an interruption"


@pytest.mark.parametrize("ends", ["q", None])
def test_it_goes_on_from_the_last_answer(
    kit_root: Path, store: Store, bank: Bank, ends: str | None
) -> None:
    steps = (AskStep(KV, 0), AskStep(MLP, 0))
    first = Candidate("?", *([ends] if ends else []))
    assert not held(kit_root, store, bank, first, *steps).run()
    assert "`infralens interview` goes on from here." in first.text
    second = Candidate("?")
    assert held(kit_root, store, bank, second, *steps).run()
    assert "2 of 2" in second.text
    assert "1 of 2" not in second.text
    assert len(store.step_answers(1)) == 2


def test_time_of_an_interrupted_question_is_spent(
    kit_root: Path, store: Store, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one could leave with a question, and come back with its answer and a full clock."""
    clock = [0.0]
    monkeypatch.setattr(mock.time, "monotonic", lambda: clock[0])

    def after(seconds: float, typed: str) -> Callable[[], str]:
        def line() -> str:
            clock[0] += seconds
            return typed

        return line

    steps = (AskStep(KV, 0), AskStep(MLP, 0))
    assert not held(kit_root, store, bank, Candidate(after(10, "?"), after(200, "q")), *steps).run()
    again = held(kit_root, store, bank, Candidate(after(5, "?")), *steps)
    assert again.left == 15 * 60 - 210
    assert again.run()
    assert [row.seconds for row in store.step_answers(1)] == [10.0, 205.0]
    assert again.left == 15 * 60 - 215


def test_the_minutes_end_it(kit_root: Path, store: Store, bank: Bank) -> None:
    """In the middle of a question, by a signal that ends the waiting for a line."""

    def wait() -> str:
        signal.pause()
        return "12"

    candidate = Candidate("?", wait)
    steps = (AskStep(KV, 0), AskStep(MLP, 0), AskStep(SAY, 0))
    interview = held(kit_root, store, bank, candidate, *steps, minutes=0.005)
    assert interview.run()
    assert "Time is up." in candidate.text
    assert len(store.step_answers(1)) == 1
    text = "\n".join(mock_report.lines(reported(kit_root, store), colours=False))
    assert "2 of the questions were not reached." in text
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_code_counts_as_it_stands_when_time_is_up(kit_root: Path, store: Store, bank: Bank) -> None:
    path = kit_root / "interviews" / "2026-03-02-all" / "trace_analysis.py"

    def wait() -> str:
        path.write_text(WRONG)
        signal.pause()
        return ""

    candidate = Candidate(wait)
    interview = held(kit_root, store, bank, candidate, CodeStep("lab09.busy_time"), minutes=0.005)
    assert interview.run()
    mock._check_code(kit_root, store, interview.kept, candidate.lines.append)
    (row,) = reported(kit_root, store).rows
    assert (row.said, row.points) == ("wrong", 0.0)


def test_a_file_that_cannot_be_read_is_asked_for_again(
    kit_root: Path, store: Store, bank: Bank
) -> None:
    path = kit_root / "interviews" / "2026-03-02-all" / "trace_analysis.py"

    def lose() -> str:
        path.unlink()
        return ""

    def grow() -> str:
        path.write_bytes(b"#" * (blank_file.MOST_BYTES + 1))
        return ""

    def garble() -> str:
        path.write_bytes(b"\xff\xfe\x00")
        return ""

    def write() -> str:
        path.write_text(WRONG)
        return ""

    candidate = Candidate(lose, grow, garble, write)
    assert held(kit_root, store, bank, candidate, CodeStep("lab09.busy_time")).run()
    said = " ".join(candidate.text.split())
    assert said.count("cannot be read as a text of at most 262,144 bytes") == 3


def test_a_folder_that_cannot_be_made(kit_root: Path, store: Store, bank: Bank) -> None:
    (kit_root / "interviews").write_text("mine")
    interview = held(
        kit_root, store, bank, Candidate("?"), AskStep(KV, 0), CodeStep("lab09.busy_time")
    )
    with pytest.raises(LabError, match=r"cannot be written: .*Your answers are kept"):
        interview.run()
    assert len(store.step_answers(1)) == 1


def test_the_alarm_rings_also_when_the_first_ring_was_missed() -> None:
    with pytest.raises(TimeIsUp), mock.alarm(0.01):  # noqa: PT012  # both belong to one wait
        try:
            signal.pause()
        except TimeIsUp:
            signal.pause()


def test_the_page_is_one_file_and_quotes_everything(
    kit_root: Path, store: Store, bank: Bank
) -> None:
    path = kit_root / "interviews" / "2026-03-02-all" / "trace_analysis.py"

    def write() -> str:
        path.write_text("def busy_time(intervals):\n    raise ValueError('<script>alert(1)')\n")
        return ""

    interview = held(kit_root, store, bank, Candidate(write), CodeStep("lab09.busy_time"))
    assert interview.run()
    mock._check_code(kit_root, store, interview.kept, lambda _: None)
    page = mock_report.html(reported(kit_root, store))
    assert "What you wrote" in page
    assert "def busy_time(intervals):" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert "http" not in re.sub(r"https?-equiv", "", page)


# -- kills, and the command -----------------------------------------------------------------------

SITTING = """
import sys
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from grader.learner.interview.mock import AskStep, Interview, to_json
from grader.learner.interview.store import Store
from grader.suite.questions import Ask, Card, FigureVerdict

class OneBank:
    def card(self, name):
        return Card("lab01", "number", name.split("/")[-1], 1.0)
    def ask(self, card, seed):
        return Ask(card.id, lambda code: 1, ["1"])
    def answer(self, card, ask):
        return Fraction(1)
    def judge(self, card, ask, said):
        return FigureVerdict(True)

store = Store(Path(sys.argv[1]))
steps = [AskStep(f"lab01/number/{number}", 0) for number in range(400)]
kept = store.open_interview() or store.begin_interview(
    datetime.now(UTC), "all", 200.0, "interviews/x", to_json(steps))
print("open", flush=True)
answered = 0
def read(prompt):
    print("asked", flush=True)
    return "1"
Interview(Path(sys.argv[1]), store, kept, lambda lab: OneBank(), read, lambda text: None).run()
"""


def test_twenty_kills_at_random_moments_of_an_interview(tmp_path: Path) -> None:
    draw = random.Random(7)
    before = 0
    for _ in range(20):
        sitting = subprocess.Popen(
            [sys.executable, "-c", SITTING, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert sitting.stdout is not None
        asked = 0
        assert sitting.stdout.readline() == "open\n"
        for _ in range(draw.randrange(1, 15)):
            asked += sitting.stdout.readline() == "asked\n"
        sitting.send_signal(signal.SIGKILL)
        sitting.wait()
        asked += sitting.stdout.read().count("asked\n")
        store = Store(tmp_path)
        steps = [row.step for row in store.step_answers(1)]
        cards = len(list(store.answers()))
        store.close()
        assert store.notes == []
        assert steps == list(range(len(steps))), "each once, in order, none left out"
        assert cards == len(steps), "the deck and the interview agree"
        assert before + asked - 1 <= len(steps) <= before + asked, "one question lost at most"
        before = len(steps)
    assert before > 40


def test_the_command(kit_root: Path) -> None:
    """Begun, left, gone on with to its end, and its report once more."""
    called = ("interview", "--role", "training", "--minutes", "5")
    done = infralens(*called, typed="?\nq\n", cwd=kit_root)
    assert done.returncode == 0, done.stderr
    assert "no word on how it goes before the end" in done.stdout
    done = infralens(*called, typed="?\n?\n\n1\n?\n?\n", cwd=kit_root)
    assert "goes on: 1 of" in done.stdout
    assert "Interview for training, 5 minutes" in done.stdout
    assert "Interrupted once" in done.stdout
    folder = next((kit_root / "interviews").iterdir())
    assert (folder / "report.html").is_file()
    again = infralens("interview", "--report", cwd=kit_root)
    assert done.stdout.endswith(again.stdout.strip("\n").split("\n", 1)[1] + "\n")


def test_a_state_folder_that_cannot_be_made(kit_root: Path) -> None:
    (kit_root / ".infralens").write_text("mine")
    done = infralens("interview", "--role", "training", "--minutes", "5", cwd=kit_root)
    assert done.returncode == 2
    assert "cannot be made, which keeps your answers" in done.stderr
    assert "Traceback" not in done.stderr
    assert (kit_root / ".infralens").read_text() == "mine"


def test_an_output_without_room(kit_root: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "grader.cli", "ready"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=kit_root, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.strip() == "infralens: the output: no space left."


def test_the_report_is_there_while_another_interview_is_open(kit_root: Path) -> None:
    store = Store(kit_root)
    kept = store.begin_interview(START, "all", 15, "interviews/x", to_json([AskStep(KV, 0)]))
    store.end_interview(kept.id, START)
    done = infralens("interview", "--report", cwd=kit_root)
    store.close()
    assert done.returncode == 0, done.stderr
    assert "Interview for all, 15 minutes, 2026-03-02" in done.stdout


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--role", "cook"], "'cook' is not a role; the roles are training"),
        (["--minutes", "1"], "--minutes 1: an interview takes from 5 to 240 minutes"),
        (["--minutes", "nan"], "--minutes nan"),
        (["--report"], "No interview has ended yet"),
    ],
)
def test_a_wrong_call_is_a_sentence(kit_root: Path, given: list[str], sentence: str) -> None:
    done = infralens("interview", *given, cwd=kit_root)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    import sqlite3

    from grader.learner.interview import store as stores

    path = tmp_path / ".infralens" / stores.FILE
    path.parent.mkdir()
    with sqlite3.connect(path) as base:
        base.executescript(stores._SCHEMAS[0] + "PRAGMA user_version = 1;")
        base.execute("INSERT INTO cards VALUES ('lab01/number/a', ?, '')", ('{"card_id": 1}',))
    opened = Store(tmp_path)
    assert opened.notes == []
    assert opened.interviews() == []
    assert not opened.begin_interview(START, "all", 15, "interviews/x", "[]").feedback
    assert opened._base.execute("SELECT count(*) FROM cards").fetchone() == (1,)
    opened.close()
