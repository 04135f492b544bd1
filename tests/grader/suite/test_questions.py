"""The labs' questions: each has an answer, a second way to it, and wrong answers that are known."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from grader.lab.manifest import Lab, lab_ids, load_lab
from grader.suite import questions
from grader.suite.quantities import Figure, NotAFigure, figure
from grader.suite.questions import Ask, Bank, Card, as_fraction, is_right, spoken

ROOT = Path(__file__).resolve().parents[3]
WITH_FIGURES = [lab for lab in lab_ids(ROOT) if (ROOT / "tests" / lab / "questions.py").is_file()]
SEEDS = 200
FEWEST = 8


@cache
def bank(lab: str) -> Bank:
    return Bank(load_lab(ROOT, lab))


def numbers(lab: str) -> list[Card]:
    return [card for card in bank(lab).cards if card.kind == "number"]


DRAWN = [card for lab in WITH_FIGURES for card in bank(lab).cards if card.kind in questions.DRAWN]
NUMBERS = [(card.lab, card.id) for card in DRAWN]
each_number = pytest.mark.parametrize(("lab", "id"), NUMBERS)


def one(lab: str, id: str) -> tuple[Bank, Card]:
    card = next(card for card in DRAWN if (card.lab, card.id) == (lab, id))
    return bank(lab), card


def typed(value: Fraction) -> Figure:
    return Figure(value, Fraction(0), None, 60)


def last_figures(step: str, unit: str) -> list[Figure]:
    """All figures of a line of working, with the unit behind them or without."""
    found = []
    for match in re.finditer(r"[0-9][0-9,.]*(?: ?(?:[KMGT]i?B|bytes|ms|us|s|%)\b| %)?", step):
        for text in (match[0].rstrip(",."), re.split(r"[ %a-zA-Z]", match[0])[0].rstrip(",.")):
            try:
                found.append(figure(text, unit))
            except NotAFigure:
                continue
    return found


@pytest.mark.parametrize("lab", WITH_FIGURES)
def test_a_lab_has_enough_of_them(lab: str) -> None:
    assert len(numbers(lab)) >= FEWEST
    drawn = {card.id for card in bank(lab).cards if card.kind in questions.MADE}
    assert set(bank(lab)._makers) == drawn, "what the text lists and what the module holds"


def test_all_labs_have_them() -> None:
    assert lab_ids(ROOT) == WITH_FIGURES


def test_programs_are_counted_where_counting_is_the_lesson() -> None:
    labs = [card.lab for card in DRAWN if card.kind == "count"]
    for lab in ("lab03", "lab04", "lab05", "lab06", "lab07", "lab08"):
        assert labs.count(lab) >= 3, lab
    for card in DRAWN:
        if card.kind == "count":
            assert bank(card.lab).ask(card, 1).code, f"{card.name} shows no program"


@each_number
def test_each_draw_has_an_answer_that_a_second_way_confirms(lab: str, id: str) -> None:
    questions_of, card = one(lab, id)
    seen = set()
    for seed in range(SEEDS if not card.needs else SEEDS // 10):
        ask = questions_of.ask(card, seed)
        right = questions_of.answer(card, ask)
        assert ask.check is not None, f"{card.name} has no second way: check="
        second = as_fraction(ask.check)
        room = max(Fraction(ask.within), Fraction(1, 10**9))
        assert abs(right - second) <= abs(second) * room, (seed, float(right), float(second))
        assert is_right(typed(right), right, ask.within)
        assert any(
            is_right(each, right, max(ask.within, 0.005))
            for each in last_figures(ask.working[-1], card.unit)
        ), f"the working does not end in {float(right)}: {ask.working[-1]}"
        seen.add(ask.text + ask.code)
    assert len(seen) >= 3, "a question should not always be the same"


@each_number
def test_the_same_seed_asks_the_same(lab: str, id: str) -> None:
    questions_of, card = one(lab, id)
    assert questions_of.ask(card, 7).text == questions_of.ask(card, 7).text


@each_number
def test_it_has_a_hint_and_a_passage(lab: str, id: str) -> None:
    _, card = one(lab, id)
    page = (ROOT / "exercises" / lab / "README.md").read_text(encoding="utf-8")
    assert len(card.hint.split()) >= 4
    assert not card.section or f"\n## {card.section}\n" in page


def told(lab: str) -> tuple[int, int]:
    """Of the draws on which a misconception of the card's tasks computes a wrong figure: on how
    many the verdict names this misconception, or one that computes the same; and how many draws
    there are."""
    named = asked = 0
    for card in numbers(lab):
        for seed in range(4):
            ask = bank(lab).ask(card, seed)
            right = bank(lab).answer(card, ask)
            rows = [
                (value, wrong.name)
                for value, wrong in bank(lab).wrong_figures(card, ask)
                if not is_right(typed(value), right, ask.within)
            ]
            for value, _ in rows:
                same = {name for other, name in rows if other == value}
                verdict = bank(lab).judge(card, ask, typed(value))
                asked += 1
                named += verdict.misconception.rpartition("/")[2] in same
    return named, asked


@pytest.mark.parametrize("lab", [lab for lab in WITH_FIGURES if lab != "lab04"])
def test_who_holds_a_misconception_is_told_that_one(lab: str) -> None:
    """Not lab 04: its misconceptions are kernels, and would have to be compiled."""
    named, asked = told(lab)
    assert asked >= 40
    assert named >= 0.9 * asked


@each_number
def test_who_knows_is_right_and_who_does_not_is_not(lab: str, id: str) -> None:
    questions_of, card = one(lab, id)
    ask = questions_of.ask(card, 3)
    right = questions_of.answer(card, ask)
    assert questions_of.judge(card, ask, typed(right)).is_right
    for wrong in (right * 3 + 1, Fraction(0) if right else Fraction(1), -right - 1):
        assert not questions_of.judge(card, ask, typed(wrong)).is_right


KV = ("lab01", "kv_of_a_token")


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [
        (Fraction(1000, 1024), "right in KiB and not in KB"),
        (Fraction(1024, 1000) ** 3, "right in GB and not in GiB"),
        (Fraction(1000), "off by a factor of 1,000"),
        (Fraction(-1), "The sign"),
    ],
)
def test_a_slip_of_the_unit_is_named(factor: Fraction, sentence: str) -> None:
    questions_of, card = one(*KV)
    ask = questions_of.ask(card, 0)
    verdict = questions_of.judge(card, ask, typed(questions_of.answer(card, ask) * factor))
    assert not verdict.is_right
    assert sentence in " ".join(verdict.sentences)


def test_rounded_figures_are_right_from_two_digits_on() -> None:
    right = Fraction(131_072)
    for text in ("0.13 MB", "131.1 KB", "128 KiB"):
        assert is_right(figure(text, "bytes"), right, 0.0), text
    for text in ("0.1 MB", "0.14 MB", "131 KB"):
        assert not is_right(figure(text, "bytes"), right, 0.0), text


@pytest.mark.parametrize("value", ["7", None, True, float("nan"), float("inf")])
def test_what_is_not_a_figure_of_code(value: object) -> None:
    with pytest.raises(ValueError, match="is not a figure"):
        as_fraction(value)


@pytest.mark.parametrize("lab", lab_ids(ROOT))
def test_the_pages_headings_are_questions_to_say(lab: str) -> None:
    cards = list(spoken(load_lab(ROOT, lab)))
    assert len(cards) >= 3
    assert len({card.name for card in cards}) == len(cards)
    for card in cards:
        assert len(card.points) >= 3, card.name
        assert all(point and "- [ ]" not in point for point in card.points), card.name


def small_lab(folder: Path, text: str) -> Lab:
    """Lab 01 with other questions."""
    for name in ("exercises", "solutions"):
        (folder / name).mkdir()
        (folder / name / "lab01").symlink_to(ROOT / name / "lab01")
    suite = folder / "tests" / "lab01"
    suite.mkdir(parents=True)
    for path in (ROOT / "tests" / "lab01").iterdir():
        if path.name not in ("questions.py", "__pycache__"):
            (suite / path.name).symlink_to(path)
    (suite / "questions.py").write_text(text, encoding="utf-8")
    return load_lab(folder, "lab01")


TWICE = """
from grader.suite.questions import Ask, question

@question("one", task="kv_bytes_per_token")
def one(rng):
    return Ask("?", lambda code: 1, working=["1"])

@question("one", task="kv_bytes_per_token")
def two(rng):
    return Ask("?", lambda code: 1, working=["1"])
"""


def test_two_questions_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(questions.LabError, match=r"questions\.py: a second question is called one"):
        _ = Bank(small_lab(tmp_path, TWICE)).cards


def test_a_question_that_cannot_be_read_from_the_text(tmp_path: Path) -> None:
    text = TWICE.replace('@question("one"', 'NAME = "two"\n\n@question(NAME', 1)
    with pytest.raises(questions.LabError, match=r"questions\.py:6: write the arguments of @quest"):
        _ = Bank(small_lab(tmp_path, text)).cards


def test_a_question_of_a_task_that_there_is_not(tmp_path: Path) -> None:
    text = TWICE.replace('"one", task="kv_bytes_per_token"', '"one", task="none"', 1)
    with pytest.raises(questions.LabError, match="none"):
        _ = Bank(small_lab(tmp_path, text)).cards


def test_a_unit_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="the unit 'parsec' is not one of"):
        questions.question("far", task="any", unit="parsec")


def test_an_ask_needs_no_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from grader.lab.manifest import load_lab; "
        "from grader.suite.questions import Bank; "
        f"bank = Bank(load_lab(Path({str(ROOT)!r}), 'lab10')); "
        "card = bank.cards[0]; bank.answer(card, bank.ask(card, 0)); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_check_that_differs_would_be_found() -> None:
    ask = Ask("?", lambda code: 2, working=["2"], check=3)
    assert as_fraction(ask.answer(None)) != as_fraction(ask.check)
