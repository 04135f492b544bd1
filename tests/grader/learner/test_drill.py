"""`infralens drill`: its deck, its terminal, and what it keeps."""

from __future__ import annotations

import csv
import fcntl
import os
import pty
import random
import select
import signal
import sqlite3
import subprocess
import sys
import termios
import time
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fsrs import Rating

from grader.errors import LabError
from grader.lab.manifest import load_lab
from grader.learner.interview import drill, export
from grader.learner.interview.asking import shown
from grader.learner.interview.drill import Chosen, Drill, choose
from grader.learner.interview.store import FILE, CardAnswer, Store, is_due
from grader.suite import bug_questions
from grader.suite.questions import Bank
from tests.grader.learner.conftest import infralens

ROOT = Path(__file__).resolve().parents[3]
START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def bank() -> Bank:
    return Bank(load_lab(ROOT, "lab01"))


def answer(card: str, rating: Rating = Rating.Good, said: str = "1") -> CardAnswer:
    return CardAnswer(card, 0, said, rating > Rating.Again, 10.0, rating)


class Terminal:
    """Typed lines for a drill, and what it printed."""

    def __init__(self, *typed: str) -> None:
        self.typed, self.lines = list(typed), list[str]()

    def read(self, prompt: str) -> str:
        if not self.typed:
            raise EOFError
        return self.typed.pop(0)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def drilled(store: Store, cards: list[Chosen], *typed: str, minutes: float = 10) -> Terminal:
    terminal = Terminal(*typed)
    row = Drill(store, terminal.read, terminal.lines.append, today=lambda: START)
    row.run(cards, minutes)
    return terminal


def named(bank: Bank, *names: str) -> list[Chosen]:
    return [Chosen(bank.card(f"lab01/{name}"), bank, None) for name in names]


KV = "number/kv_of_a_token"
SAY = "say/how-much-memory-does-it-take-to-train-a-7-b-model-with-adam"


def right_figure(bank: Bank, name: str = KV, seed: int = 0) -> str:
    card = bank.card(f"lab01/{name}")
    return f"{int(bank.answer(card, bank.ask(card, seed))):,}"


# -- a terminal -----------------------------------------------------------------------------------


def test_a_right_figure_is_kept_and_comes_back_later(store: Store, bank: Bank) -> None:
    seen = drilled(store, named(bank, KV), right_figure(bank))
    assert "Right: " in seen.text
    assert seen.lines[-1] == "1 of 1 right."
    (row,) = store.answers()
    assert (row["card"], row["is_right"]) == (f"lab01/{KV}", 1)
    assert store.memories()[f"lab01/{KV}"].due > START


def test_a_misconception_gets_its_sentence_and_the_working(store: Store, bank: Bank) -> None:
    card = bank.card(f"lab01/{KV}")
    ask = bank.ask(card, 0)
    figure = bank.answer(card, ask) / 2  # one cache in the place of two
    told = {wrong.sentence for value, wrong in bank.wrong_figures(card, ask) if value == figure}
    seen = drilled(store, named(bank, KV), f"{int(figure)}")
    text = " ".join(seen.text.split())
    assert any(sentence in text for sentence in told)
    assert ask.working[-1] in seen.text
    assert "To read: exercises/lab01/README.md" in seen.text
    (row,) = store.answers()
    assert row["misconception"].startswith("kv_bytes_per_token/")


def test_a_typing_mistake_costs_nothing(store: Store, bank: Bank) -> None:
    seen = drilled(store, named(bank, KV), "", "plenty", "12 ms", "h", right_figure(bank))
    assert "Type a figure" in seen.text
    assert "That has the unit ms, and the answer is in bytes" in seen.text
    assert bank.card(f"lab01/{KV}").hint in seen.text
    (row,) = store.answers()
    assert row["is_right"] == 1
    assert row["rating"] == Rating.Hard, "a hint was asked for"


def test_not_knowing_shows_the_way(store: Store, bank: Bank) -> None:
    seen = drilled(store, named(bank, KV), "?")
    assert "It is " in seen.text
    assert "No. " not in seen.text
    assert next(store.answers())["rating"] == Rating.Again


BUG = "bug/block_hashes/begins_at_zero"
REASON = "why/free_blocks"


def test_a_bug_is_found_or_not(store: Store) -> None:
    bank = Bank(load_lab(ROOT, "lab10"))
    card = bank.card(f"lab10/{BUG}")
    ask = bank.bug(card, 0)
    chosen = [Chosen(card, bank, None)]
    seen = drilled(store, chosen, "9", "soon", f"{ask.right + 1}")
    assert "Type a number from 1 to 5" in seen.text
    assert "What is wrong with this code?" in seen.text
    assert "def block_hashes" in seen.text
    assert "Right." in seen.lines
    again = bank.bug(card, 1)
    wrong = drilled(store, chosen, f"{(again.right + 1) % len(again.options) + 1}")
    assert f"No, it is {again.right + 1}." in wrong.text
    page = "exercises/lab10/README.md (*Common misunderstandings*, task block_hashes)"
    assert page in " ".join(wrong.lines[-1].split())
    assert [row["is_right"] for row in store.answers()] == [1, 0]


def test_a_reason_is_told_whoever_was_wrong(store: Store) -> None:
    bank = Bank(load_lab(ROOT, "lab10"))
    card = bank.card("lab10/why/free_blocks")
    chosen = [Chosen(card, bank, None)]
    ask = bank.why(card, 0)
    seen = drilled(store, chosen, "5", f"{ask.right + 1}")
    assert "Type a number from 1 to 4" in seen.text
    assert "Right." in seen.lines
    again = bank.why(card, 1)
    wrong = drilled(store, chosen, f"{(again.right + 1) % 4 + 1}")
    assert f"No, it is {again.right + 1}." in wrong.text
    assert ask.because in " ".join(wrong.text.split())


def test_a_bug_that_cannot_be_asked_costs_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = Bank(load_lab(ROOT, "lab10"))
    monkeypatch.setattr("grader.suite.bug_questions.BugQuestions.others", lambda *_: [])
    chosen = [Chosen(bank.card(f"lab10/{name}"), bank, None) for name in (BUG, REASON)]
    seen = drilled(store, chosen, "?")
    assert "no mistake was found" not in seen.text
    assert "1 of 1   lab10   the number of a sentence" in seen.text
    assert [row["card"] for row in store.answers()] == [f"lab10/{REASON}"]


def test_a_spare_card_stands_in_for_one_that_cannot_be_asked(
    store: Store, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Bank(load_lab(ROOT, "lab10"))
    monkeypatch.setattr("grader.suite.bug_questions.BugQuestions.others", lambda *_: [])
    terminal = Terminal("?", "?")
    chosen = [Chosen(other.card(f"lab10/{BUG}"), other, None), *named(bank, KV)]
    Drill(store, terminal.read, terminal.lines.append).run(
        chosen, 10, named(bank, "number/layer_of_mlp", SAY)
    )
    assert "0 of 2 right." in terminal.text
    assert [row["card"] for row in store.answers()] == [
        f"lab01/{KV}", "lab01/number/layer_of_mlp"
    ]  # fmt: skip


@pytest.mark.parametrize("typed", ["\uff11", "\uff11.", "1.", "(1)", "01"])
def test_a_choice_is_read_however_wide_its_digits_are(store: Store, typed: str) -> None:
    bank = Bank(load_lab(ROOT, "lab10"))
    card = bank.card(f"lab10/{REASON}")
    while bank.why(card, store.asked(card.name)).right != 0:
        store.note(answer(card.name), START)
    seen = drilled(store, [Chosen(card, bank, None)], typed)
    assert "Right." in seen.lines


def test_pages_to_read_stand_once_and_are_not_broken(
    store: Store, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    names = (KV, "number/layer_of_mlp", "number/layer_of_attention", "number/states_of_training")
    seen = drilled(store, named(bank, *names), "?", "?", "?", "?")
    assert seen.lines[-1].count("exercises/lab01/README.md") == 1
    assert max(map(len, seen.lines[-1].split("\n"))) <= 60


def test_key_points_are_ticked(store: Store, bank: Bank) -> None:
    seen = drilled(store, named(bank, SAY), "", "9", "one", "1 2")
    assert "Type numbers from 1 to 5" in seen.text
    (row,) = store.answers()
    assert (row["said"], row["is_right"], row["rating"]) == ("said 3 of 5", 0, Rating.Hard)


@pytest.mark.parametrize("ends", ["q", None])
def test_the_end_keeps_what_was_answered(store: Store, bank: Bank, ends: str | None) -> None:
    typed = [right_figure(bank), *([ends] if ends else [])]
    seen = drilled(store, named(bank, KV, SAY, "number/layer_of_mlp"), *typed)
    assert seen.lines[-1] == "1 of 1 right."
    assert len(list(store.answers())) == 1


def test_the_minutes_end_it_between_two_cards(store: Store, bank: Bank) -> None:
    seen = drilled(store, named(bank, KV, SAY), right_figure(bank), minutes=0)
    assert seen.lines[-1] == "No card was answered."


def test_figures_differ_the_next_time(store: Store, bank: Bank) -> None:
    texts = set()
    for _ in range(3):
        seen = drilled(store, named(bank, KV), "?")
        texts.add(seen.lines[2])
    assert len(texts) > 1


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (131_072, "bytes", "131,072 bytes (128 KiB)"),
        (48 * 10**9, "bytes", "48,000,000,000 bytes (44.7 GiB)"),
        (12, "bytes", "12 bytes"),
        (0, "bytes", "0 bytes"),
        (7, "", "7"),
    ],
)
def test_figures_for_people(value: int, unit: str, text: str) -> None:
    from fractions import Fraction

    said = shown(Fraction(value), unit)
    assert said == text or (value == 48 * 10**9 and said.startswith("48,000,000,000 bytes ("))
    assert shown(Fraction(3, 8000), "s") == "375 us"
    assert shown(Fraction(3, 2), "s") == "1.5 s"


# -- which cards ----------------------------------------------------------------------------------


def test_due_cards_come_first_then_misses_then_new_ones(store: Store, bank: Bank) -> None:
    store.note(answer("lab01/number/layer_of_mlp", Rating.Again), START)
    store.note(answer(f"lab01/{SAY}", Rating.Easy), START)
    cards = choose([bank], store, START + timedelta(days=1), ["lab01.max_batch"]).cards
    assert cards[0].card.id == "layer_of_mlp"
    assert cards[1].card.tasks == ("max_batch",)
    assert f"lab01/{SAY}" not in {one.card.name for one in cards}, "easy: not due tomorrow"
    assert len({one.card.name for one in cards}) == len(cards)


def test_a_day_has_so_many_new_cards(store: Store) -> None:
    banks = drill.banks(ROOT)
    row = choose(banks, store, START)
    cards = row.cards
    assert len(cards) == drill.NEW_A_DAY
    assert row.held_back == 0, "the limit is not felt yet"
    assert len({one.card.lab for one in cards}) >= 7
    assert {one.card.kind for one in cards} == {"number", "count", "bug", "why", "case", "say"}
    for one in cards[:15]:
        store.note(answer(one.card.name), START)
    again = choose(banks, store, START)
    fresh = [one for one in again.cards if one.memory is None]
    assert len(fresh) == drill.NEW_A_DAY - 15
    assert again.held_back > 1000
    for one in cards[15:]:
        store.note(answer(one.card.name), START)
    full = choose(banks, store, START)
    assert [one for one in full.cards if one.memory is None] == []
    more = choose(banks, store, START, new=7)
    assert len(more.cards) == len(full.cards) + 7
    assert choose(banks, store, START, new=0).spare == []


@pytest.mark.parametrize(
    ("given", "new"),
    [
        ({}, None),
        ({"lab": "lab03"}, drill.NEW_A_DAY),
        ({"topic": "serving"}, drill.NEW_A_DAY),
        ({"minutes": 5.0}, drill.NEW_A_DAY),
        ({"minutes": 60.0}, 120),
        ({"new": 3, "minutes": 60.0}, 3),
        ({"new": 0, "lab": "lab03"}, 0),
    ],
)
def test_who_asks_for_more_gets_more(given: dict[str, Any], new: int | None) -> None:
    asked: dict[str, Any] = {"new": None, "lab": "", "topic": "", "minutes": None, **given}
    assert drill._new_cards(**asked) == new


def test_unknown_topics_and_labs() -> None:
    with pytest.raises(LabError, match="'cooking' is not a topic; the topics are memory"):
        drill.banks(ROOT, topic="cooking")
    with pytest.raises(LabError, match="'lab99' is not a lab; the labs are lab01"):
        drill.banks(ROOT, lab="lab99")


def remembers(stability: float, days: float, power: float, factor: float) -> float:
    return float((1 + factor * days / stability) ** power)


@pytest.mark.parametrize(("power", "factor"), [(-0.1542, 0.98), (-0.5, 19 / 81)])
def test_sixty_days(tmp_path: Path, power: float, factor: float) -> None:
    """A learner who forgets by FSRS's own curve, and by another: recall on the day asked for, and
    how much of the deck a day asks for. The learner's stability is not the store's."""
    draw = random.Random(5)
    store = Store(tmp_path)
    names = [f"lab01/number/card{index}" for index in range(60)]
    strength = dict.fromkeys(names, 0.0)
    last: dict[str, datetime] = {}
    recalled, most = list[bool](), 0
    for day in range(60):
        now = START + timedelta(days=day)
        memories = store.memories()
        due = [name for name in names if name in memories and is_due(memories[name], now)]
        fresh = [name for name in names if name not in memories][:10]
        most = max(most, len(due) if day > 7 else 0)
        for name in (*due, *fresh):
            days = (now - last[name]).total_seconds() / 86_400 if name in last else 0.0
            knows = name in last and draw.random() < remembers(
                max(strength[name], 0.1), days, power, factor
            )
            if name in last and days >= 1:
                recalled.append(knows)
            strength[name] = strength[name] * 2.5 + 1 if knows else 2.0
            store.note(
                answer(name, Rating.Good if knows or name not in last else Rating.Again), now
            )
            last[name] = now
    store.close()
    share = sum(recalled) / len(recalled)
    assert share >= 0.88, share
    assert most <= len(names) / 3


# -- the store ------------------------------------------------------------------------------------


def test_two_terminals_at_once(store: Store, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="open in another terminal"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_a_broken_store_is_kept_aside(tmp_path: Path) -> None:
    first = Store(tmp_path)
    first.note(answer("lab01/number/a"), START)
    first.close()
    path = tmp_path / ".infralens" / FILE
    path.write_bytes(b"not a database" * 1000)
    second = Store(tmp_path, START)
    try:
        (note,) = second.notes
        assert "kept as interview.sqlite.broken-20260302-090000" in note
        assert path.with_name(f"{FILE}.broken-20260302-090000").read_bytes()[:3] == b"not"
        assert second.memories() == {}
        second.note(answer("lab01/number/a"), START)
    finally:
        second.close()


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    Store(tmp_path).close()
    path = tmp_path / ".infralens" / FILE
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(LabError, match="newer version of the kit"):
        Store(tmp_path)
    assert path.read_bytes() == before


def test_a_clock_that_was_set_back(store: Store) -> None:
    store.note(answer("lab01/number/a"), START)
    memory = store.note(answer("lab01/number/a"), START - timedelta(days=400))
    assert memory.due > START


WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from fsrs import Rating
from grader.learner.interview.store import CardAnswer, Store
store = Store(Path(sys.argv[1]))
for number in range(100000):
    store.note(CardAnswer(f"lab01/number/{number % 7}", number, "1", True, 1.0, Rating.Good),
               datetime.now(UTC))
    print(number, flush=True)
"""


def test_a_kill_at_any_moment_loses_no_answer_that_was_confirmed(tmp_path: Path) -> None:
    draw = random.Random(3)
    confirmed = 0
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(draw.randrange(1, 30)):
            writer.stdout.readline()
            confirmed += 1
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        confirmed += len(writer.stdout.read().splitlines())
        store = Store(tmp_path)
        assert store.notes == []
        assert len(list(store.answers())) >= confirmed
        confirmed = len(list(store.answers()))
        store.close()


# -- the command ----------------------------------------------------------------------------------


def test_the_command(kit_root: Path) -> None:
    done = infralens("drill", "lab10", "--minutes", "5", typed="?\nq\n", cwd=kit_root)
    assert done.returncode == 0, done.stderr
    assert "0 due, 20 new, 5 minutes" in done.stdout
    assert "0 of 1 right." in done.stdout
    again = infralens("drill", "lab10", typed="", cwd=kit_root)
    assert "1 due, 20 new" in again.stdout


def test_a_full_day_says_so_and_what_to_do(kit_root: Path) -> None:
    store = Store(kit_root)
    for number in range(drill.NEW_A_DAY):
        store.note(answer(f"lab01/number/{number}", Rating.Easy), datetime.now(UTC))
    store.close()
    done = infralens("drill", cwd=kit_root)
    said = " ".join(done.stdout.split())
    assert "0 due, 0 new, 10 minutes. A day has 20 new cards, since each comes back." in said
    assert "`infralens drill --new 20` asks more today" in said
    assert "Nothing is due today." in said
    for more in (["--new", "20"], ["lab03"], ["--topic", "serving"], ["--minutes", "5"]):
        assert "0 due, 20 new" in infralens("drill", *more, cwd=kit_root).stdout, more


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["lab77"], "'lab77' is not a lab"),
        (["--topic", "x"], "'x' is not a topic"),
        (["--minutes", "0"], "--minutes 0: give a number above 0"),
        (["--minutes", "-5"], "--minutes -5"),
        (["--new", "-1"], "--new -1: give a number from 0"),
        (["--export", "deck.txt"], "a deck's name ends in .csv or .apkg"),
        (["--export", "nowhere/deck.csv"], "nowhere is not a folder"),
    ],
)
def test_a_wrong_call_is_a_sentence(kit_root: Path, given: list[str], sentence: str) -> None:
    done = infralens("drill", *given, cwd=kit_root)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_in_a_terminal(kit_root: Path) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "grader.cli", "drill", "lab01"],
        stdin=child, stdout=child, stderr=child, cwd=kit_root, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(child)
    text = b""

    def until(words: bytes, key: bytes = b"") -> None:
        """Read until these words were printed, or the terminal is closed; `key` is pressed again
        each second, since readline may miss one that comes while it begins to wait."""
        nonlocal text
        limit = time.monotonic() + 60
        while words not in text:
            ready = select.select([parent], [], [], 1.0)[0]
            assert ready or time.monotonic() < limit, text
            if key and not ready:
                os.write(parent, key)
            try:
                text += os.read(parent, 4096) if ready else b""
            except OSError:
                return

    until(b"> ")
    os.write(parent, b"?\n")
    until(b"2 of 20")
    until(b"\n> ")
    os.write(parent, b"\x03")
    until(b"1 right.", key=b"\x03")
    assert process.wait(30) == 0
    os.close(parent)
    assert b"0 of 1 right." in text
    assert b"Traceback" not in text


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Bank:
    """Lab 12's bank with five of its bugs."""
    rows = list(bug_questions.listed(load_lab(ROOT, "lab12")))[::40]
    monkeypatch.setattr(bug_questions, "listed", lambda lab: rows)
    return Bank(load_lab(ROOT, "lab12"))


def test_a_deck_as_csv(short: Bank, tmp_path: Path) -> None:
    said: list[str] = []
    count = export.write([short], tmp_path / "deck.csv", said.append, bugs=True)
    with (tmp_path / "deck.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == count
    assert said == [f"lab12: {count} cards"]
    bugs = [row for row in rows if " bug " in row["tags"]]
    once = [card for card in short.cards if card.kind in ("why", "say")]
    assert len(bugs) == 5
    figures = [row for row in rows if " number " in row["tags"]]
    assert len(rows) - len(bugs) == len(figures) + len(once)
    assert 2.5 * 8 <= len(figures) <= export.DRAWS * 8
    assert len({row["front"] for row in rows}) == len(rows), "no text stands twice"
    assert all(row["front"] and row["back"] for row in rows)
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())


def test_a_deck_for_anki(short: Bank, tmp_path: Path) -> None:
    pytest.importorskip("genanki")
    path = tmp_path / "deck.apkg"
    export.write([short], path, lambda line: None)
    with zipfile.ZipFile(path) as archive:
        assert "collection.anki2" in archive.namelist()
    assert [each.name for each in tmp_path.iterdir()] == ["deck.apkg"]
