"""Text that a submission brought, made safe for the place where a person reads it.

Whatever student code raised, printed or returned, and every name in a submission, goes through one
of these functions on its way to a person: `text` and `line` for a terminal and for values in JSON,
`markdown` and `markdown_block`, `html`, `csv_cell`; `json_bytes` for a whole JSON file. Each takes
time and gives room linear in `most`.

What cannot be seen is shown as an escape (`\\x1b`, `\\u200f`, `\\U000e0041`): controls, surrogates,
format characters and others that no font draws (Unicode's Default_Ignorable_Code_Point), private
and unassigned ones. They steer terminals, turn the direction of a line, or make two names alike.
"""

from __future__ import annotations

import html as html_entities
import re
import unicodedata
from collections.abc import Sequence

MAX_TEXT = 6000
MAX_LINE = 200
CUT = " ... (cut)"

_UNSEEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
_NO_INK = frozenset(  # of other categories, and yet not drawn (Unicode 15, DerivedCoreProperties)
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for code in range(first, last + 1)
)
_MARKS = ("Mn", "Me")
_MOST_MARKS = 4  # on one letter: Vietnamese and Hebrew need three; more climb over other lines
_MARKDOWN = re.compile(r"[\\`*<>\[\]|~&$]|(?<![^\W_])_|_(?![^\W_])")
_MARKDOWN_START = re.compile(r"^(\s*)(?:([#+=-])|(\d+)([.)]))")
_FORMULA = "=+-@\t\r\n"
_WITHOUT = {kept: dict.fromkeys(map(ord, kept)) for kept in ("", "\n\t")}
_NOT_ASCII = re.compile("[^\x00-\x7f]")


def unseen(char: str) -> bool:
    """Whether a character is not drawn, or changes how others are."""
    return char in _NO_INK or unicodedata.category(char) in _UNSEEN


def text(raw: str, most: int = MAX_TEXT) -> str:
    """Several lines: line ends and tabs stay. At most `most` characters and the word *cut*."""
    return _cut(_drawn(raw[: most + 1], "\n\t"), most, CUT)


def line(raw: str, most: int = MAX_LINE) -> str:
    """One line, at most `most` characters: line ends and tabs are escapes, too."""
    shown = _drawn(raw[: most + 1], "")
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def some(names: Sequence[str], most: int, each: int = MAX_LINE) -> str:
    """The first `most` names, each a line of at most `each` characters, and how many more there
    are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(line(name, each) for name in names[:most]) + more


def markdown(raw: str, most: int = MAX_TEXT) -> str:
    """One line of a paragraph: nothing in it is markup, a link, a picture or a tag."""
    shown = _MARKDOWN.sub(r"\\\g<0>", line(raw, most))
    return _MARKDOWN_START.sub(_defused, shown)


def markdown_block(raw: str, most: int = MAX_TEXT) -> list[str]:
    """The lines of an indented block of code, which no text can end."""
    return [f"    {row}" for row in text(raw, most).split("\n")]


def html(raw: str, most: int = MAX_TEXT) -> str:
    """Characters of an element or of a quoted attribute."""
    return html_entities.escape(text(raw, most))


def csv_cell(raw: str, most: int = MAX_LINE) -> str:
    """A cell that no spreadsheet takes for a formula. (The csv module sets its quotes.)"""
    return no_formula(line(raw, most))


def no_formula(cell: str) -> str:
    """The text of a cell, of one line or several, that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.lstrip()[:1] in tuple(_FORMULA) else cell


def json_bytes(encoded: bytes) -> bytes:
    """A JSON file in UTF-8 as one that means the same, in which what is not drawn is an escape."""
    raw = encoded.decode("utf-8", "surrogatepass")
    if raw.isascii():
        return encoded
    return _NOT_ASCII.sub(lambda found: _json_escape(found[0]), raw).encode()


def _json_escape(char: str) -> str:
    if not unseen(char):
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _drawn(raw: str, kept: str) -> str:
    if raw.isascii() and (raw.isprintable() or raw.translate(_WITHOUT[kept]).isprintable()):
        return raw
    shown: list[str] = []
    marks = 0
    for char in raw:
        marks = marks + 1 if unicodedata.category(char) in _MARKS else 0
        hide = char not in kept and (unseen(char) or marks > _MOST_MARKS)
        shown.append(_escape(char) if hide else char)
    return "".join(shown)


def _escape(char: str) -> str:
    code = ord(char)
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


def _cut(shown: str, most: int, sign: str) -> str:
    return shown if len(shown) <= most else f"{shown[:most]}{sign}"


def _defused(found: re.Match[str]) -> str:
    blank, sign, number, end = found.groups()
    return f"{blank}\\{sign}" if sign else f"{blank}{number}\\{end}"
