"""Every figure on a lab's page is claimed, and every claim stands there."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from grader.author import page_checks, page_facts, page_figures
from grader.author.page_figures import figures_of, written
from grader.errors import LabError
from grader.lab.manifest import all_labs, load_lab

from ..conftest import MiniKit

ROOT = Path(__file__).resolve().parents[3]

PAGE = """
# Lab

## What to notice

The mean of the last four is 131,072 bytes, or 128 KiB, of a cache.

<!-- table: means -->
| values | mean |
|---|---|
| 1 to 3 | 2 |
<!-- end -->
"""
CLAIMS = """
from grader.author.page_claims import assumed, claim, fact, figures, measured, published, table

@table("means")
def means(code):
    yield "values", "mean"
    yield "1 to 3", f"{code.running_mean([1, 2, 3])[-1]:g}"

@figures
def sizes(code):
    size = code.running_mean([131_072] * 4)[-1]
    yield claim(size, "bytes", "a cache", where="of the last four")
"""


def held(kit: MiniKit, page: str = PAGE, claims: str | None = CLAIMS) -> list[str]:
    """What is said of a page with these claims."""
    (kit.exercise / "README.md").write_text(page, encoding="utf-8")
    path = kit.root / "tests" / "lab90" / "page.py"
    path.unlink(missing_ok=True)
    if claims is not None:
        path.write_text(claims, encoding="utf-8")
    return page_checks.check_page(load_lab(kit.root, "lab90")).faults


@pytest.fixture
def with_reference(kit: MiniKit) -> MiniKit:
    assert (kit.root / "solutions" / "lab90").is_dir()
    return kit


def test_claims_in_two_spellings_and_a_table_are_clean(with_reference: MiniKit) -> None:
    assert held(with_reference) == []


def test_a_wrong_figure_names_the_nearest_claim(kit: MiniKit) -> None:
    (said,) = held(kit, PAGE.replace("128 KiB", "127 KiB"))
    assert "line 6 says 127 KiB; the nearest claim is 128 KiB (a cache, page.py:12)" in said
    assert said.startswith("exercises/lab90/README.md: ")


def test_a_wrong_figure_and_its_claim_are_one_sentence(kit: MiniKit) -> None:
    page = PAGE.replace("131,072 bytes, or 128 KiB", "41.8 M").replace("mean of", "mean of all")
    claims = CLAIMS.replace("131_072", "41_943_040").replace('"bytes"', '"parameters"')
    (said,) = held(kit, page, claims)
    assert "line 6 says 41.8 M; the nearest claim is 41.9 M (a cache, page.py:12)" in said


def test_a_figure_that_nobody_claims(kit: MiniKit) -> None:
    (said,) = held(kit, PAGE + "\nIt takes 7.5 ms.\n")
    assert "line 14 says 7.5 ms, which nobody claims. Claim it in tests/lab90/page.py" in said


def test_a_claim_that_is_not_on_the_page(kit: MiniKit) -> None:
    claims = CLAIMS + '    yield claim(size * 3, "bytes", "three", where="of the last four")\n'
    (said,) = held(kit, claims=claims)
    assert said.startswith("tests/lab90/page.py:13 claims 393,216 bytes (three), which does not")
    assert "nearest there is 131,072 bytes in line 6" in said


def test_a_claim_beside_words_that_are_not_there(kit: MiniKit) -> None:
    claims = CLAIMS + '    yield claim(size, "bytes", "one", where="of the last five")\n'
    (said,) = held(kit, claims=claims)
    assert (
        'no passage of exercises/lab90/README.md with a number holds the words "of the la' in said
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('claim(size, "bytes", "a cache", where="")', "has no place; give where="),
        ('claim(size, "bytes", "a cache", where=())', "has no place; give where="),
        ('claim(size, "octets", "a cache", where="of")', "'octets' is not a unit; they are"),
        ('claim("4", "bytes", "a cache", where="of")', "the value '4' is not a number"),
        ('claim(float("nan"), "bytes", "a cache", where="of")', "cannot stand on a page"),
        ('claim(size, "bytes", " ", where="of")', "say what the figure is"),
        ('fact("H100 bandwith", where="of")', "no fact is called 'H100 bandwith'; they are: A100"),
        ('claim(size, "bytes", where="of")', "TypeError"),
        ("claim(1 / 0)", "`sizes` fails: ZeroDivisionError"),
        ("code.standing_mean", "has `standing_mean`"),
        ("3", "`sizes` fails: TypeError: it yields 3, which is not a claim"),
    ],
)
def test_a_claim_that_is_not_one(kit: MiniKit, line: str, words: str) -> None:
    with pytest.raises(LabError) as raised:
        held(kit, claims=f"{CLAIMS}    yield {line}\n")
    assert words in str(raised.value)
    assert "tests/lab90/page.py" in str(raised.value)


@pytest.mark.parametrize("broken", ["import nowhere", "def", "raise SystemExit(0)"])
def test_a_page_py_that_does_not_import(kit: MiniKit, broken: str) -> None:
    with pytest.raises(LabError, match=r"tests/lab90/page\.py"):
        held(kit, claims=f"{CLAIMS}\n{broken}\n")


@pytest.mark.parametrize(
    ("value", "typed_in"),
    [
        ("131_072", True),
        ("-4", True),
        ("2.5 * GIB", True),
        ("3 * 10**9", True),
        ("16 * 6.74e9", False),
        ("2 * 32 * 8 * 128", False),
        ("size", False),
        ("size / 2**30", False),
    ],
)
def test_a_value_that_is_typed_in_needs_a_source(kit: MiniKit, value: str, typed_in: bool) -> None:
    line = f'    yield claim({value}, "bytes", "a cache", where="of the last four")\n'
    claims = CLAIMS.replace("\n@table", "\nGIB = 2**30\n\n@table") + line
    said = [text for text in held(kit, claims=claims) if "types a value in" in text]
    assert bool(said) == typed_in
    assert all("published, measured, fact, or assumed" in text for text in said)


@pytest.mark.parametrize(
    "line",
    [
        'published(131_072, "bytes", "a paper, table 1", where="of the last four")',
        'measured(131_072, "bytes", "torch 2.13 on a CPU", where="of the last four")',
        'assumed(131_072, "bytes", "the example", where="of the last four")',
    ],
)
def test_a_value_with_a_source_may_be_typed_in(kit: MiniKit, line: str) -> None:
    claims = CLAIMS[: CLAIMS.index("    size =")] + f"    yield {line}\n"
    assert held(kit, claims=claims) == []


# -- tables ----------------------------------------------------------------------------------------


def test_a_stale_table_is_refused_and_written(kit: MiniKit) -> None:
    (said,) = held(kit, PAGE.replace("| 1 to 3 | 2 |", "| 1 to 3 | 2.5 |"))
    assert said == (
        "exercises/lab90/README.md: the table `means` is not what tests/lab90/page.py makes: "
        "infralens sync"
    )
    assert page_checks.write(kit.root) == [kit.exercise / "README.md"]
    assert (kit.exercise / "README.md").read_text(encoding="utf-8") == PAGE
    assert page_checks.write(kit.root) == []


def test_sync_check_refuses_a_stale_table(kit: MiniKit) -> None:
    held(kit, PAGE.replace("| 1 to 3 | 2 |", "| 1 to 3 | 2.5 |"))
    done = subprocess.run(
        [sys.executable, "-m", "grader.cli", "sync", "--check"],
        cwd=kit.root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "the table `means` is not what tests/lab90/page.py makes" in done.stdout
    assert "Type: infralens sync" in done.stderr


@pytest.mark.parametrize(
    ("page", "claims", "words"),
    [
        (PAGE, None, "no @table('means') in tests/lab90/page.py makes its table"),
        (PAGE.replace("means -->", "others -->"), CLAIMS, "no @table('others')"),
        (PAGE.replace("means -->", "others -->"), CLAIMS, "`means` stands 0 times"),
        (PAGE + PAGE[PAGE.index("<!--") :], CLAIMS, "`means` stands 2 times"),
        (PAGE.replace("<!-- end -->", ""), CLAIMS, "`means` stands 0 times"),
    ],
)
def test_a_table_without_its_other_half(
    kit: MiniKit, page: str, claims: str | None, words: str
) -> None:
    assert any(words in said for said in held(kit, page, claims))


def test_rows_of_different_lengths(kit: MiniKit) -> None:
    with pytest.raises(LabError, match="as many cells in each row"):
        held(kit, claims=CLAIMS.replace('yield "values", "mean"', 'yield ("values",)'))


# -- facts -----------------------------------------------------------------------------------------


def test_two_values_of_one_fact_are_refused() -> None:
    one = page_facts.FACTS["H100 bandwidth"]
    assert page_facts.by_name([one, one]) == {one.name: one}
    with pytest.raises(LabError, match=r"two values of H100 bandwidth: 3.35 TB/s .* and 3.3 TB/s"):
        page_facts.by_name([one, dataclasses.replace(one, value=3.3)])


def test_a_lab_whose_code_has_another_value_of_a_fact(kit: MiniKit) -> None:
    page = PAGE + "\nIt moves 3.35 TB/s.\n"
    line = (
        '    yield claim({} * size / size, "TB/s", "a card", of="H100 bandwidth", where="It m")\n'
    )
    assert held(kit, page, CLAIMS + line.format(3.35)) == []
    with pytest.raises(LabError, match=r"a card is 3.3 TB/s here, and H100 bandwidth is 3.35 TB/s"):
        held(kit, page, CLAIMS + line.format(3.3))


def test_every_fact_has_a_source_and_a_unit() -> None:
    for row in page_facts.FACTS.values():
        assert row.unit in page_figures.UNITS
        assert len(row.source.split()) > 1


# -- what a figure is ------------------------------------------------------------------------------

PROSE = [
    ("It takes 131,072 bytes.", ["131,072 bytes"]),
    ("It takes 16 GiB, 17.2 GB.", ["16 GiB", "17.2 GB"]),
    ("A 24GB card.", ["24GB"]),
    ("A 4,096-token window.", ["4,096-token"]),
    ("It has 41.9 M parameters.", ["41.9 M"]),
    ("It has 8.03 B.", ["8.03 B"]),
    ("It has 6.74e9 parameters.", ["6.74e9 parameters"]),
    ("It has 30 billion parameters.", ["30 billion"]),
    ("It has 6,738,415,616 of them.", ["6,738,415,616"]),
    ("It has 70,272 of them.", []),
    ("It grows by 7.4 % a year.", ["7.4 %"]),
    ("It grows by +39%.", ["39%"]),
    ("It is 3.29x as fast, 5 times as long.", ["3.29x", "5 times"]),
    ("It takes 4.79 ms, 12 us or 0.55 s.", ["4.79 ms", "12 us", "0.55 s"]),
    ("It ran for 3.46 days.", ["3.46 days"]),
    ("It moves 3.35 TB/s at 989 TFLOP/s.", ["3.35 TB/s", "989 TFLOP/s"]),
    ("It makes 66,523 tokens/s.", ["66,523 tokens/s"]),
    ("It makes 2,561 tokens a second.", ["2,561 tokens"]),
    ("The ridge is 295 FLOPs a byte.", ["295 FLOPs a byte"]),
    ("Between 30 and 35 GiB.", ["30 GiB", "35 GiB"]),
    ("Between 30-35 GiB.", ["30 GiB", "35 GiB"]),
    ("It has 1, 2, 4 and 8 GiB.", ["1 GiB", "2 GiB", "4 GiB", "8 GiB"]),
    ("With batch 4, 4,096 tokens.", ["4,096 tokens"]),
    ("With 80 GiB, 0.9, 16 GiB of weights.", ["80 GiB", "16 GiB"]),
    ("It has 8B parameters, 15T tokens.", ["8B", "15T"]),
    ("It is 1.5\N{MULTIPLICATION SIGN} as fast.", ["1.5\N{MULTIPLICATION SIGN}"]),
    ("16&nbsp;GiB, 5\N{NO-BREAK SPACE}ms", ["16 GiB", "5 ms"]),
    ("1e999999 bytes", ["1e999999 bytes"]),
    ("2^99999999 bytes", ["2^99999999 bytes"]),
    ("1 / 0 bytes", ["1 / 0 bytes"]),
    ("They hit 36.6, 38.2, 37.3 %.", ["36.6 %", "38.2 %", "37.3 %"]),
    ("| step | tokens |\n|---|---|\n| a | 0: 7, 1: 5 |", ["7 tokens", "5 tokens"]),
    ("21 % with 50,000 and 36.6 % without.", ["21 %", "36.6 %"]),
    ("They are 2 x 6.74e9 bytes.", ["2 x 6.74e9 bytes"]),
    ("A GiB is 2^30 bytes.", ["2^30 bytes"]),
    ("It keeps 4.25 bits a weight.", ["4.25 bits"]),
    ("It keeps 4 bits a weight.", []),
    ("Llama-2-7B, Qwen2.5-0.5B and H100-80GB are names.", []),
    ("So are bf16, fp8, 70B and sm_90.", []),
    ("In 2017, and until 2024, s was longer.", []),
    ("See section 4.1, table 2, lab 10 and footnote 3.", []),
    ("Seen with torch 2.13 and transformers 5.23.", []),
    ("Seen with v0.11.2 of it.", []),
    ("Code is `16 GiB` and ``2 ms``.", []),
    ("A [page](https://x.org/16/GiB-2.html) of it, <https://x.org/8%20GB>.", []),
    ("arXiv:2205.05198 says so.", []),
    ('He says "30-35 GiB a GPU" and leaves.', []),
    ("> 8x7B is 56 B, 14 GB.", []),
    ('### "Why did a 60 GB model fail?"', []),
    ("## 3. Fitting 60 GB", ["60 GB"]),
    ("1. It takes 16 GiB.", ["16 GiB"]),
    ("2 s b h bytes a layer, 34 + 5as/h, 4d^2.", []),
    ("It takes 8 T P / (n X), 72 B l s h^2.", []),
    ("Five kernels read 5 MN + 2 M.", []),
    ("134.2 MB / 450 GB/s is 0.298 ms.", ["134.2 MB", "450 GB/s", "0.298 ms"]),
    ("It takes 321 microseconds.", ["321 microseconds"]),
    ("At most n - 1 tokens come from it.", []),
    ("4P + 16P/N bytes.", []),
    ("5/8 of 67.1 M", ["67.1 M"]),
    ("<!-- 16 GiB -->", []),
    ("```\n16 GiB\n```", []),
    ("It is code:\n\n    16 GiB\n", []),
    ("- It is in a list.\n\n    It takes 16 GiB.\n", ["16 GiB"]),
    ("~~~text\n16 GiB\n~~~", []),
    ("| model | GiB |\n|---|---|\n| a 7B | 4.0 |", ["4.0 GiB"]),
    ("| model | time (ms) |\n|---|---|\n| b | **4.0** |", ["4.0 ms"]),
    ("| x | bytes a token |\n|---|---|\n| b | 2 + 2 |", ["2 + 2 bytes"]),
    ("| x | bytes |\n|---|---|\n| b | 3 GiB, not 5 |", ["3 GiB", "5 bytes"]),
    ("| model | 32,768 tokens |\n|---|---|\n| b | 4 |", ["32,768 tokens"]),
    ("| task | points | minutes |\n|---|---|---|\n| a | 2 | 10 minutes |", []),
    ("<!-- table: a -->\n| GiB |\n|---|\n| 4 |\n<!-- end -->", []),
]


@pytest.mark.parametrize(("prose", "found"), PROSE)
def test_what_is_a_figure(prose: str, found: list[str]) -> None:
    seen = [figure.text for figure in figures_of(f"# Lab\n\n{prose}\n") if not figure.bare]
    assert seen == found


@pytest.mark.parametrize(
    ("text", "size", "shown"),
    [
        ("41.9 M", 41_943_040, True),
        ("42 M", 41_943_040, True),
        ("41.8 M", 41_943_040, False),
        ("41.94 M", 41_943_040, True),
        ("4.0 GiB", 2**32, True),
        ("4.3 GB", 2**32, True),
        ("4.0 GB", 2**32, False),
        ("about 1,600 tokens", 1_612, True),
        ("1,600 tokens", 1_612, False),
        ("2^30 bytes", 2**30, True),
        ("2^30 bytes", 10**9, False),
        ("2 x 6.74e9 bytes", 13_480_000_000, True),
        ("2 x 6.75e9 bytes", 13_480_000_000, False),
        ("0.5 %", Fraction(45, 100), True),
        ("0.4 %", Fraction(45, 100), False),
    ],
)
def test_a_figure_shows_what_rounds_to_it(text: str, size: int, shown: bool) -> None:
    (figure,) = [figure for figure in figures_of(f"It is {text}.") if not figure.bare]
    assert figure.shows(Fraction(size)) == shown


def test_values_are_written_with_separators() -> None:
    assert written(131_072, "bytes") == "131,072 bytes"
    assert written(2**31, "GiB", 1) == "2.0 GiB"
    assert written(0.00479, "ms", 2) == "4.79 ms"


# -- the labs --------------------------------------------------------------------------------------

CHECKED = [lab for lab in all_labs(ROOT) if page_checks.is_checked(lab)]


@pytest.mark.parametrize("lab", CHECKED, ids=lambda lab: lab.id)
def test_the_figures_of_a_labs_page_hold(lab) -> None:
    report = page_checks.check_page(lab)
    assert report.faults == []
    assert report.figures > 10
    assert report.claims is not None
    assert len(report.claims) > 20


@pytest.mark.parametrize("lab", CHECKED, ids=lambda lab: lab.id)
def test_no_figure_of_a_labs_page_may_be_another(lab) -> None:
    """A page with one figure changed in its last digit is refused, whichever figure it is."""
    claims = page_checks.check_page(lab).claims
    found = figures_of((lab.exercise / "README.md").read_text(encoding="utf-8"))
    assert claims
    for figure in found:
        if figure.bare:
            continue
        wrong = dataclasses.replace(figure, size=figure.size + (figure.step or figure.size / 1000))
        near = [c for c in claims if page_checks.holds(c, figure)]
        said = page_checks.faults_of(lab, [wrong], near)
        assert said, f"line {figure.line}: {figure.text} may be anything"


def test_it_says_which_labs_are_checked(kit: MiniKit) -> None:
    held(kit, claims=None)
    said = page_checks.which_are_checked(kit.root)
    assert (
        said == "The figures on 0 of 1 labs' pages are checked; nobody has claimed those of lab90."
    )
    held(kit)
    assert (
        page_checks.which_are_checked(kit.root) == "The figures on 1 of 1 labs' pages are checked."
    )


OF_TENSORS = ("lab11",)  # whose own records are of tensors


def test_other_pages_need_no_torch() -> None:
    """A page is checked in the author's process, in a moment."""
    names = [lab.id for lab in CHECKED if lab.id not in OF_TENSORS]
    code = (
        "import sys; from pathlib import Path; from grader.author import page_checks; "
        "from grader.lab.manifest import load_lab; "
        f"[page_checks.check_page(load_lab(Path({str(ROOT)!r}), n)) for n in {names!r}]; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search("False", done.stdout)
