"""The labs' questions: each has an answer, a second way to it, and wrong answers that are known."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from grader.author.question_checks import QuestionReport, faults, table
from grader.lab.manifest import Lab, lab_ids, load_lab
from grader.suite import questions
from grader.suite.quantities import exactly, figure
from grader.suite.questions import Ask, Bank, Card, as_fraction, is_right, is_same, spoken

ROOT = Path(__file__).resolve().parents[3]
WITH_FIGURES = [lab for lab in lab_ids(ROOT) if (ROOT / "tests" / lab / "questions.py").is_file()]
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
    assert list(faults(questions_of, card)) == []


@each_number
def test_the_same_seed_asks_the_same(lab: str, id: str) -> None:
    questions_of, card = one(lab, id)
    assert questions_of.ask(card, 7).text == questions_of.ask(card, 7).text


def told(lab: str) -> tuple[int, int]:
    """Of the draws on which a misconception of the card's tasks computes a wrong figure: on how
    many the verdict names this misconception, or one that computes the same; and how many draws
    there are. None is taken for the right figure, however near it is."""
    named = asked = 0
    for card in numbers(lab):
        for seed in range(4):
            ask = bank(lab).ask(card, seed)
            right = bank(lab).answer(card, ask)
            rows = [
                (value, wrong.name)
                for value, wrong in bank(lab).wrong_figures(card, ask)
                if not is_same(exactly(value), right, ask.within)
            ]
            for value, _ in rows:
                same = {name for other, name in rows if other == value}
                verdict = bank(lab).judge(card, ask, exactly(value))
                assert not verdict.is_right, (card.name, seed, value)
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
    assert questions_of.judge(card, ask, exactly(right)).is_right
    for wrong in (right * 3 + 1, Fraction(0) if right else Fraction(1), -right - 1):
        assert not questions_of.judge(card, ask, exactly(wrong)).is_right


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
    verdict = questions_of.judge(card, ask, exactly(questions_of.answer(card, ask) * factor))
    assert not verdict.is_right
    assert sentence in " ".join(verdict.sentences)


@pytest.mark.parametrize(
    ("unit", "right", "taken", "refused"),
    [
        (
            "bytes",
            131_072,
            "128 KiB, 131 KB, 131 kB, 131.0 kB, 131000, 131,000 bytes, 130 KB, 0.131 MB, 1.31e5, "
            "131.1 kB, 131.07 KB, 131,072, 0.13 MB, 132 kB",
            "0.1 MB, 0.14 MB, 128 KB, 133 kB, 125 KiB",
        ),
        ("bytes", 20_979_712, "21 MB, 20.98 MB, 20 MiB", "20 MB, 22 MB, 21 MiB"),
        ("bytes", 201_392_128, "201 MB, 200 MB, 0.2014 GB", "192 MB, 205 MB"),
        ("bytes", 2_097_152, "2,1 MB, 2 MiB, 2100 kB", "2 MB, 2.2 MB"),
        ("s", Fraction(4474, 10**8), "45 us, 44.7 us, 0.045 ms", "44 us, 46 us, 45 ms"),
        ("", Fraction(2756, 10**5), "0.028, 0.02756, 2.8 %, 0.0275", "0.03, 0.029"),
        ("", Fraction(99, 100), "0.99, 99 %, 0.985", "1, 1.0, 1.00, 0.98"),
        ("s", Fraction(0.00275), "2.8 ms, 2800 us, 2.75 ms", "2.9 ms"),
    ],
)
def test_a_quantity_is_right_however_it_is_rounded_and_spelled(
    unit: str, right: int | Fraction, taken: str, refused: str
) -> None:
    for text in re.split(", (?=[0-9])", taken):
        assert is_right(figure(text, unit), Fraction(right), 0.0), text
    for text in re.split(", (?=[0-9])", refused):
        assert not is_right(figure(text, unit), Fraction(right), 0.0), text


def test_a_count_is_exact_until_it_is_long() -> None:
    for text, right in (("8192", 8192), ("12.6M", 12_582_912), ("12,600,000", 12_582_912)):
        assert is_right(figure(text), Fraction(right), 0.0, is_count=True), text
    for text, right in (("8,200", 8192), ("8.2k", 8192), ("127", 128), ("12.5M", 12_582_912)):
        assert not is_right(figure(text), Fraction(right), 0.0, is_count=True), text
    questions_of, card = one("lab10", "prefix_hit")
    ask = questions_of.ask(card, 0)
    answer = questions_of.answer(card, ask)
    assert questions_of.is_count(card, ask)
    verdict = questions_of.judge(card, ask, exactly(answer + 1))
    assert verdict.sentences == ("That is near, and a count is asked for exactly.",)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("8.4 MB", ""),
        ("8.39 MB", ""),
        ("8 MiB", ""),
        ("8,396,800", "stay in the registers"),
        ("8.397 MB", "stay in the registers"),
        ("8.0 MB", "right in MiB and not in MB"),
    ],
)
def test_a_mistake_is_told_however_near_its_figure_is(text: str, sentence: str) -> None:
    """8 MiB are right. One mistake is 0.1 % off."""
    questions_of, card = one("lab06", "fused_bytes")
    ask = questions_of.ask(card, 0)
    assert questions_of.answer(card, ask) == 8 * 2**20
    verdict = questions_of.judge(card, ask, figure(text, "bytes"))
    assert verdict.is_right == (not sentence)
    assert sentence in " ".join(verdict.sentences)


def test_one_kib_is_never_one_kb() -> None:
    """Also where two digits round to it."""
    questions_of, card = one("lab06", "bytes_of_the_statistics")
    ask = questions_of.ask(card, 1)
    assert questions_of.answer(card, ask) == 16 * 1024
    for text in ("16 kB", "16 KB"):
        verdict = questions_of.judge(card, ask, figure(text, "bytes"))
        assert "right in KiB and not in KB" in verdict.sentences[0]


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


BROKEN = """
from grader.suite.questions import Ask, question

@question("one", task="kv_bytes_per_token"{more})
def one(rng):
    \"\"\"A hint of four words.\"\"\"
    n = rng.randrange(2, 90)
    return Ask(f"{{n}}?", lambda code: {answer}, working=[f"{working}"], check={check})
"""


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, ""),
        ({"check": "None"}, "it has no second way"),
        ({"check": "n + 1"}, "the reference has"),
        ({"working": "so it is"}, "the working does not end in"),
        ({"answer": "7", "check": "7", "working": "7"}, ""),
        ({"more": ', section="Nowhere"'}, r"the page has no section \*Nowhere\*"),
        ({"more": ', kind="count"'}, "it counts what a program does, and shows none"),
    ],
)
def test_a_faulty_question_is_found(tmp_path: Path, change: dict[str, str], sentence: str) -> None:
    filled = {"more": "", "answer": "n", "check": "n", "working": "{n}", **change}
    of = Bank(small_lab(tmp_path, BROKEN.format(**filled)))
    card = next(card for card in of.cards if card.id == "one")
    found = list(faults(of, card))
    assert bool(found) == bool(sentence)
    if sentence:
        assert re.search(sentence, found[0]), found


def test_the_table_of_questions() -> None:
    rows = [
        QuestionReport("lab01", Counter(number=10, bug=300, why=7), 6, 2, 1),
        QuestionReport("lab02", Counter(number=8, bug=900, say=5), 0, 3, 0),
    ]
    text = table(rows, 7, 6, 12.0)
    assert "| lab01 | 10 | 0 | 300 | 7 | 0 | 0 | 2 | 1 |" in text
    assert "| all | 18 | 0 | 1,200 | 7 | 0 | 5 | 5 | 1 |" in text
    assert "Of 7 written questions 6 ask why" in text


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


def test_what_interviewers_ask_is_there() -> None:
    """The list of public guides' questions, each with the cards that practise it."""
    text = (ROOT / "tests" / "asked_by_interviewers.toml").read_text(encoding="utf-8")
    known = {card.name for lab in lab_ids(ROOT) for card in bank(lab).cards}
    table = tomllib.loads(text)
    assert list(table) == lab_ids(ROOT)
    missing = [
        name for asked in table.values() for cards in asked.values() for name in cards
        if name not in known
    ]  # fmt: skip
    assert missing == []
    assert all(cards for asked in table.values() for cards in asked.values())
