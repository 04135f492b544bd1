"""What is a figure on a lab's page, and how it is written there.

A figure is a number with a unit, or a whole number of seven digits and more with its separators.
The unit stands behind the number, behind the last of several (`30 to 35 GiB`, `1, 2 and 4 GiB`), or
in the head of a table's column. A product or a sum of numbers (`2 x 6.74e9 bytes`) is one figure.

By rule these are not figures: code, links' addresses, comments, a table that code has written, the
table of tasks, what stands between quotation marks or behind `>` (other people's words), a question
to be asked (`### "..."`), a number that belongs to a name (`Llama-2-7B`, `bf16`, `80B`), a year, a
number behind the word that it numbers (`lab 10`, `section 4.1`, `torch 2.13`), a whole number of
bits (it names a format).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

Value = int | float | Fraction

_CONTEXT = Context(prec=60)
_BINARY = {f"{letter}iB": 1024**power for power, letter in enumerate("KMGTP", start=1)}
_DECIMAL = {f"{letter}B": 1000**power for power, letter in enumerate("KMGTP", start=1)}
_BYTES = {"bytes": 1, "byte": 1, **_BINARY, **_DECIMAL, "kB": 1000}
_FLOPS = {
    f"{prefix}{word}": 1000**power
    for power, prefix in enumerate(("", "K", "M", "G", "T", "P", "E"))
    for word in ("FLOPs", "FLOP")
}
_MANY = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_LETTERS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_THINGS = {"parameters": "parameters", "params": "parameters", "tokens": "tokens"}

# How a unit is written: what it measures, and how many of the base unit it is.
UNITS: dict[str, tuple[str, Fraction]] = {
    **{name: ("bytes", Fraction(size)) for name, size in _BYTES.items()},
    **{f"{name}/s": ("bytes/s", Fraction(size)) for name, size in _BYTES.items()},
    **{f"{name}it/s": ("bytes/s", Fraction(10**9, 8)) for name in ("Gb",)},
    "Gb/s": ("bytes/s", Fraction(10**9, 8)),
    "bits": ("bits", Fraction(1)),
    **{name: ("FLOPs", Fraction(size)) for name, size in _FLOPS.items()},
    **{f"{name}/s": ("FLOPs/s", Fraction(size)) for name, size in _FLOPS.items()},
    **{f"{name[:-1]}S": ("FLOPs/s", Fraction(s)) for name, s in _FLOPS.items() if name[-1] == "s"},
    **{f"{name}{per}": ("FLOPs/byte", Fraction(1)) for name in ("FLOPs", "FLOP")
       for per in ("/byte", "/B", " a byte", " per byte")},
    **{name: ("parameters", Fraction(size)) for name, size in (_MANY | _LETTERS).items()},
    "parameters": ("parameters", Fraction(1)),
    "params": ("parameters", Fraction(1)),
    "tokens": ("tokens", Fraction(1)),
    "token": ("tokens", Fraction(1)),
    "tokens/s": ("tokens/s", Fraction(1)),
    "%": ("%", Fraction(1)),
    "percent": ("%", Fraction(1)),
    "x": ("times", Fraction(1)),
    "\N{MULTIPLICATION SIGN}": ("times", Fraction(1)),
    "times": ("times", Fraction(1)),
    **{name: ("s", Fraction(1)) for name in ("s", "second", "seconds")},
    **{name: ("s", Fraction(1, 10**3)) for name in ("ms", "millisecond", "milliseconds")},
    **{name: ("s", Fraction(1, 10**6)) for name in ("microsecond", "microseconds")},
    "us": ("s", Fraction(1, 10**6)),
    "\N{MICRO SIGN}s": ("s", Fraction(1, 10**6)),
    "\N{GREEK SMALL LETTER MU}s": ("s", Fraction(1, 10**6)),
    "ns": ("s", Fraction(1, 10**9)),
    **{name: ("s", Fraction(60)) for name in ("min", "minute", "minutes")},
    **{name: ("s", Fraction(3600)) for name in ("hour", "hours")},
    **{name: ("s", Fraction(86400)) for name in ("day", "days")},
}  # fmt: skip
# Letters that stand for other things as well: behind a space they are units, beside a digit not.
_APART = {*_LETTERS, "s", "second", "day", "hour", "minute"}
_SPELLED = "|".join(re.escape(name) for name in sorted(UNITS, key=len, reverse=True))
_A_SECOND = r"(?P<rate>\s(?:a|per|each)\s+second)?"
_UNIT = re.compile(
    rf"(?P<gap>[\s\N{{NO-BREAK SPACE}}]{{0,8}}|-)(?P<unit>{_SPELLED})(?![A-Za-z0-9^])"
    rf"(?:\s(?P<thing>parameters|params|tokens|bytes|FLOPs)\b)?{_A_SECOND}"
)
_FORMULA = re.compile(r"\s[b-zB-Z](?![\w.'])")  # what follows a letter in "2 s b h"
_TERM = re.compile(
    r"(?:\b(?![KMGTP]B|[mun]?s)[A-Za-z]{1,2}|\d[A-Za-z]|\))\s[-+x*/]\s\Z"
)  # what precedes the 1 in "n - 1"
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?:\^\d+)?"
_SUM = re.compile(rf"{_NUMBER}(?:\s+(?:[x\N{{MULTIPLICATION SIGN}}+/-])\s+{_NUMBER})*")
_ONE = re.compile(_NUMBER)
_LINK = re.compile(r"\s*(,|,?\s(?:and|or|to|of|against|then)|-|\N{EN DASH})\s*\Z")
_ORDINAL = re.compile(
    r"(?:\b(?:labs?|sections?|tables?|figures?|fig\.|equations?|eq\.|chapters?|footnotes?|pages?|"
    r"pp?\.|steps?|items?|version|arXiv|issue|algorithm|theorem|appendix|rank|layer|step|"
    r"python|torch|pytorch|transformers|triton|cuda|vllm|numpy|nccl|megatron|deepspeed)"
    r"|\N{SECTION SIGN}|#)[\s:]*\Z",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"(?:\b(?:about|around|roughly|nearly|almost|some|over|under|than)\s|~\s?)\Z", re.IGNORECASE
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_CODE = re.compile(r"(`+).+?(?<!`)\1(?!`)", re.S)
_ADDRESS = re.compile(r"\]\([^)\s]*\)|<https?://[^>]*>|https?://\S+")
_QUOTED = re.compile(r'"[^"]*"|\N{LEFT DOUBLE QUOTATION MARK}[^"]*?\N{RIGHT DOUBLE QUOTATION MARK}')
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_TABLE = re.compile(r"^<!-- table: ([\w-]+) -->\n(.*?)^<!-- end -->$", re.S | re.M)
_NEAR = 40  # characters in front of a number that say what it is
_MOST_DIGITS, _MOST_POWER = 100, 400
_BLANK = "\N{CURRENCY SIGN}"


@dataclass(frozen=True)
class PageFigure:
    """A number on a page. `size` is in the base unit of what it measures; `measures` is empty for a
    number without a unit. `step`: what the last digit that is written stands for."""

    line: int
    text: str
    size: Fraction
    measures: str
    step: Fraction
    block: str
    bare: bool = False
    """Whether neither a unit nor its length make a figure of it, so that nobody need claim it."""
    factor: Fraction = Fraction(1)
    former: str = ""
    """The unit that the last number before a bare one has, as in "20.6 GiB become 28.6"."""

    def shows(self, size: Fraction) -> bool:
        """Whether so much, rounded as this figure is, is written like this."""
        if not self.step:
            return abs(size - self.size) <= abs(self.size) / 10**9
        return abs(rounded(abs(size), self.step) - abs(self.size)) == 0

    def like(self, size: Fraction) -> str:
        """So much, written as this figure is."""
        decimals = 0
        while decimals < 12 and (self.step / self.factor * 10**decimals) % 1:
            decimals += 1
        number = rounded(abs(size), self.step) / self.factor if self.step else size / self.factor
        unit = re.sub(r"\A[\d,.e+^-]*[\d]", "", self.text) if self.step else ""
        return f"{plain(number, decimals)}{unit}"


def rounded(size: Fraction, step: Fraction) -> Fraction:
    """The multiple of a step that is nearest; of two, the larger."""
    return Fraction((size / step + Fraction(1, 2)).__floor__()) * step


def exact(value: Value) -> Fraction:
    """A number as a fraction; a float as its shortest decimal says it."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def plain(number: Value, decimals: int = 0) -> str:
    """A number with separators of thousands: `plain(1234.5, 1)` is `1,234.5`."""
    fraction = exact(number)
    quotient = _CONTEXT.divide(Decimal(fraction.numerator), Decimal(fraction.denominator))
    return f"{quotient.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP, _CONTEXT):,}"


def written(value: Value, unit: str, decimals: int = 0) -> str:
    """So many of a base unit (bytes, s, parameters, FLOPs, ...) in one of its units:
    `written(2**31, "GiB", 1)` is `2.0 GiB`."""
    return f"{plain(exact(value) / UNITS[unit][1], decimals)} {unit}"


def tables(page: str) -> Iterator[tuple[str, int, int]]:
    """The tables that code writes: name, and where their text begins and ends."""
    for match in _TABLE.finditer(page):
        yield match[1], match.start(2), match.end(2)


@dataclass(frozen=True)
class _Block:
    """A paragraph, an item of a list, a heading or a row of a table. `cells` of a row with the
    units of their columns."""

    line: int
    text: str
    cells: tuple[tuple[str, str], ...] = ()


def figures_of(page: str) -> list[PageFigure]:
    """Every number of a page that somebody may claim, in order."""
    return [figure for block in _blocks(page) for figure in _of_block(block)]


def passages(page: str) -> Iterator[tuple[int, str]]:
    """The prose of a page, without code and quotations: paragraphs, items and cells, each with its
    first line."""
    for block in _blocks(page):
        for text in [cell for cell, _ in block.cells] or [block.text]:
            yield block.line, " ".join(_covered(text).split())


def _of_block(block: _Block) -> Iterator[PageFigure]:
    words = " ".join(block.text.split())
    if not block.cells:
        for figure in _numbers(block.text, "", block.line):
            yield replace(figure, block=words)
    for text, unit in block.cells:
        for figure in _numbers(text, unit, block.line):
            yield replace(figure, block=words)


def _blocks(page: str) -> Iterator[_Block]:
    """The parts of a page that are prose, each with its first line."""
    hidden = _COMMENT.sub(_emptied, _TABLE.sub(_emptied, page))
    rows: list[str] = []
    fence, first, head, in_list = "", 0, None, False
    for number, line in enumerate([*hidden.split("\n"), ""], start=1):
        opened = _FENCE.match(line)
        if fence or opened:
            if not fence and opened:
                fence = opened[1]
            elif line.strip() == fence:
                fence = ""
            line = ""
        item = re.match(r"\s*(?:[-*+]|\d+[.)])\s", line)
        if not rows and not item and line.startswith("    ") and not in_list:
            line = ""  # code by its indent
        in_list = bool(item) or (in_list and not re.match(r"\S", line))
        starts = item or re.match(r"#|\||>", line)
        if rows and (not line.strip() or starts):
            yield _Block(first, "\n".join(rows))
            rows = []
        if not line.lstrip().startswith("|"):
            head = None
        if line.startswith("|"):
            cells = _cells(line)
            if head is None:
                head = [_unit_of(cell) for cell in cells]
                exempt = "points" in [cell.strip() for cell in cells]
                if not exempt:
                    yield _Block(number, line, tuple((cell, "") for cell in cells))
            elif not exempt:
                units = [*head, *[""] * len(cells)]
                yield _Block(number, line, tuple(zip(cells, units, strict=False)))
        elif line.startswith(("#", ">")):
            if not line.startswith(">"):
                yield _Block(number, re.sub(r"^#+\s*[\d.]*", "", line))
        elif line.strip():
            first = first if rows else number
            rows.append(re.sub(r"^(\s*)\d+[.)]\s", r"\1", line))


def _emptied(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _cells(line: str) -> list[str]:
    covered = _CODE.sub(lambda m: m[0].replace("|", "/"), line.strip().strip("|"))
    return re.split(r"(?<!\\)\|", covered)


def _unit_of(cell: str) -> str:
    """The unit that a column's head gives to the numbers below it."""
    text = _covered(cell).strip()
    for match in re.finditer(rf"(?<![\w/])({_SPELLED})(?![A-Za-z0-9^/])", text):
        name = match[1]
        if re.search(rf"{_NUMBER}[\s-]?\Z", text[: match.start()]):
            continue  # the head is a figure itself, as in "32,768 tokens"
        alone = text.strip("() ") == name or f"({name})" in text or text.endswith(f", {name}")
        if alone or (len(name) > 1 and name not in _APART):
            return "" if name in ("times", "token") and not alone else name
    return ""


def _covered(text: str) -> str:
    """A text in which nothing but prose can be read, each character in its place."""
    for pattern in (_CODE, _ADDRESS, _QUOTED):
        text = pattern.sub(lambda m: re.sub(r"[^\n]", _BLANK, m[0]), text)
    text = text.replace("&nbsp;", " " * len("&nbsp;"))
    return re.sub(r"[*\\]", " ", text)


@dataclass(frozen=True)
class _Found:
    start: int
    end: int
    text: str
    number: str
    unit: str
    """As in UNITS; "" if there is none."""
    measures: str = ""


def _numbers(text: str, column: str, line: int) -> Iterator[PageFigure]:
    """The figures of one passage. `column`: the unit of the column that it stands in."""
    covered = _covered(text)
    found = [row for match in _SUM.finditer(covered) for row in _found(covered, match, column)]
    units = [bool(row.unit) for row in found]
    links = [
        joint[1] if (joint := _LINK.match(covered[one.end : other.start])) else ""
        for one, other in itertools.pairwise(found)
    ]
    for index in reversed(range(len(links))):
        mine, following, link = found[index], found[index + 1], links[index]
        if mine.unit or not following.unit or not link or _is_year(mine.number):
            continue
        many = index and links[index - 1] == "," and not units[index - 1]
        if link == "," and units[index + 1] and not many:
            continue  # "batch 4, 4,096 tokens" is not a list
        if _ORDINAL.search(covered[max(0, mine.start - _NEAR) : mine.start]) or _are_far(
            mine.number, following.number
        ):
            continue
        found[index] = replace(mine, unit=following.unit, measures=following.measures)
    former = ""
    for row in found:
        number = line + text.count("\n", 0, row.start)
        for figure in _figure(row, column, number, covered):
            yield replace(figure, former=former) if figure.bare else figure
        former = row.unit or former


def _found(text: str, match: re.Match[str], column: str) -> Iterator[_Found]:
    """A number or a sum of numbers with its unit; nothing for a part of a name or a formula."""
    front = text[max(0, match.start() - _NEAR) : match.start()]
    before = re.search(r"[\w.,\-/^]*\Z", front)
    joined = before[0] if before else ""
    in_name = re.search(r"[A-Za-z_]", joined) or joined.endswith(("/", ".", "^"))
    if in_name or joined[-1:].isdigit() or _TERM.search(front):
        return
    behind = _UNIT.match(text, match.end())
    if behind and (_is_letter(behind, text) or _is_format(match[0], behind)):
        behind = None
    if not behind and re.match(r"[A-Za-z_^(/]|\.\d", text[match.end() :]):
        return  # 7B, 4d, 5as/h, a version of three numbers
    if not behind:
        if column or not _is_sum(match[0]):
            yield _Found(match.start(), match.end(), match[0].strip(), match[0], "")
            return
        for part in _ONE.finditer(match[0]):  # without a unit, its numbers are bare
            start = match.start() + part.start()
            yield _Found(start, start + len(part[0]), part[0], part[0], "")
        return
    unit = behind["unit"]
    measures, _ = UNITS[unit]
    if behind["thing"] and unit in (_MANY | _LETTERS):
        measures = _THINGS.get(behind["thing"], behind["thing"])
    if behind["rate"]:
        measures += "/s"
    end = behind.end("rate") if behind["rate"] else behind.end("thing" if behind["thing"] else 0)
    shown = " ".join(text[match.start() : behind.end("unit")].split())
    yield _Found(match.start(), end, shown, match[0], unit, measures)


def _are_far(one: str, other: str) -> bool:
    """Whether two numbers are too different for one list, as in "with 50,000 and 36.6 % ..."."""
    less, more = sorted((_value(one), _value(other)))
    return more > 1000 * less > 0


def _is_sum(number: str) -> bool:
    return " " in " ".join(number.split())


def _is_letter(behind: re.Match[str], text: str) -> bool:
    """Whether what looks like a unit is a letter of a name or a formula."""
    unit = behind["unit"]
    if unit in _APART and not behind["gap"]:
        return not behind["thing"]  # "70B" is a name, "70B parameters" a figure
    if behind["gap"] == "-" and unit in {*_LETTERS, "x", "s", "%", "times", "bits"}:
        return True
    if unit in ("x", "\N{MULTIPLICATION SIGN}") and behind["gap"]:
        return True
    if unit in _LETTERS and text[behind.end("unit") :][:1] in ("-", "/", "="):
        return True
    symbol = unit == "s" or unit in _LETTERS
    return symbol and bool(_FORMULA.match(text, behind.end("unit")))


def _is_format(number: str, behind: re.Match[str]) -> bool:
    return behind["unit"] == "bits" and "." not in number


def _is_year(number: str) -> bool:
    return bool(_YEAR.fullmatch(number))


def _figure(row: _Found, column: str, line: int, text: str) -> Iterator[PageFigure]:
    unit, measures = row.unit, row.measures
    before = text[max(0, row.start - _NEAR) : row.start]
    if not unit and (_is_year(row.number) or _ORDINAL.search(before)):
        return
    if not unit and column:
        if text.startswith(":", row.end):
            column = ""  # a key, as in "0: 7, 1: 5"
        elif (
            re.match(r"\s*[A-Za-z(]", text[row.end :])
            and not text[row.end :].lstrip()[:1].isupper()
        ):
            column = ""  # "28 of 32" below "bytes" is one, "2 a s / h" and "8 heads" are none
        elif column != "bits" or "." in row.number:
            unit, (measures, _) = column, UNITS[column]
    factor = UNITS[unit][1] if unit else Fraction(1)
    if _is_sum(row.number) or "^" in row.number:
        size, step = _value(row.number) * factor, Fraction(0)
    else:
        size = _value(row.number) * factor
        step = _step(row.number, bool(_ABOUT.search(before))) * factor
    long = row.number.count(",") >= 2
    shown = row.text if row.unit or not unit else f"{row.text} {unit}"
    if row.unit and not re.search(r"[^\d.,e^+]", row.text):
        shown = f"{row.text} {row.unit}"
    yield PageFigure(line, shown, size, measures, step, "", not (unit or long), factor)


def _value(number: str) -> Fraction:
    """A number, or a sum of products, as written on a page; 0 for one that is none."""
    if _is_absurd(number):
        return Fraction(0)
    total, sign = Fraction(0), 1
    for term in re.split(r"\s+([+-])\s+", number):
        if term in ("+", "-"):
            sign = 1 if term == "+" else -1
            continue
        product, divide = Fraction(1), False
        for factor in re.split(r"\s+([x\N{MULTIPLICATION SIGN}/])\s+", term):
            if factor in ("x", "\N{MULTIPLICATION SIGN}", "/"):
                divide = factor == "/"
                continue
            base, _, power = factor.replace(",", "").partition("^")
            value = Fraction(Fraction(base) ** int(power or 1))
            if divide and not value:
                continue
            product = product / value if divide else product * value
        total += sign * product
    return total


def _is_absurd(number: str) -> bool:
    """Whether a number is too long to be computed with."""
    digits = max(map(len, re.findall(r"[\d,]+", number)))
    powers = [int(power) for power in re.findall(r"[e^][+-]?(\d{1,9})", number)]
    return digits > _MOST_DIGITS or any(power > _MOST_POWER for power in powers)


def _step(number: str, about: bool) -> Fraction:
    """What the last digit of a number stands for: of "about 1,200" the 2."""
    if _is_absurd(number):
        return Fraction(0)
    digits, _, power = number.replace(",", "").partition("e")
    whole, _, decimals = digits.partition(".")
    step = Fraction(f"1e{int(power or 0) - len(decimals)}")
    if about and not decimals and whole.strip("0"):
        step *= 10 ** (len(whole) - len(whole.rstrip("0")))
    return step
