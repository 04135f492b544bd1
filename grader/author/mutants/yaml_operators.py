"""Mutants of YAML: keys, values and units of a configuration, and the claims in its comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from grader.author.mutants.edits import Edit
from grader.author.mutants.text_pieces import (
    NUMBER,
    Piece,
    dropped,
    exchanged,
    numbers_in,
    other_numbers,
)

_ENTRY = re.compile(
    r"(?P<indent> *)(?P<dash>- +)?(?P<key>[A-Za-z_][\w.-]*):(?: +(?P<value>[^#\s].*?))?"
    r"(?P<comment>\s+#.*)?\s*"
)
_ITEM = re.compile(r"(?P<indent> *)- +(?P<value>[^#\s].*?)(?P<comment>\s+#.*)?\s*")
_INNER = re.compile(r"(?P<key>[A-Za-z_][\w-]*):\s*(?P<value>[^,{}\[\]]+)")
_CLAIM = re.compile(r"\s*#.*?\b(?P<key>[A-Za-z_]\w*) *= *(?P<value>-?[\d.,]*\d)\s*")
_FLIPPED = {"true": "false", "false": "true", "yes": "no", "no": "yes", "on": "off", "off": "on"}


def yaml_edits(whole: str, block: Piece) -> Iterator[Edit]:
    """Every mutation of a block of YAML; `whole` is the file's text."""
    lines = block.lines()
    inside_of = -1  # indent of the block scalar whose text is being read
    for place, line in enumerate(lines):
        indent = len(line.text) - len(line.text.lstrip())
        if inside_of >= 0 and (indent > inside_of or not line.text.strip()):
            continue
        inside_of = -1
        if line.text.lstrip().startswith("#"):
            yield from _comment(whole, lines, place)
        elif match := _ENTRY.fullmatch(line.text):
            yield from _entry(whole, lines, place, match)
            if (match["value"] or "")[:1] in (">", "|"):
                inside_of = indent
        elif match := _ITEM.fullmatch(line.text):
            yield from _item(whole, lines, place, match)


def _entry(whole: str, lines: list[Piece], place: int, match: re.Match[str]) -> Iterator[Edit]:
    line = lines[place]
    last = _last_of(lines, place)
    yield dropped("key-missing", whole, line, last)
    entry = line.upto(last, whole)
    yield entry.becomes("key-doubled", f"{entry.text}\n{entry.text}")
    yield from _renamed(line.group(match, "key"))
    value = line.group(match, "value") if match["value"] else None
    if value is None:
        return
    if NUMBER.fullmatch(value.text):
        for edit in other_numbers(value):
            at = edit.start - line.start
            wrong = line.text[:at] + edit.new + line.text[at + len(edit.old) :]
            yield line.becomes("key-doubled", f"{line.text}\n{wrong}")
            break
    yield from _value(value)


def _last_of(lines: list[Piece], place: int) -> Piece:
    """The last line of what belongs to the key in line `place`."""
    own = len(lines[place].text) - len(lines[place].text.lstrip())
    last = place
    for number in range(place + 1, len(lines)):
        text = lines[number].text
        if text.strip() and len(text) - len(text.lstrip()) <= own:
            break
        if text.strip():
            last = number
    return lines[last]


def _renamed(key: Piece) -> Iterator[Edit]:
    """A key with dashes for underscores or the other way round; another letter's case."""
    if "_" in key.text:
        yield key.becomes("key-renamed", key.text.replace("_", "-"))
    elif "-" in key.text:
        yield key.becomes("key-renamed", key.text.replace("-", "_"))
    yield key.becomes("key-renamed", key.text[:1].upper() + key.text[1:])
    yield key.becomes("key-renamed", f"{key.text}s")


def _value(value: Piece) -> Iterator[Edit]:
    text = value.text
    if text[:1] in (">", "|"):
        return
    if text[:1] in ("{", "["):
        yield from _flow(value)
        return
    if NUMBER.fullmatch(text):
        yield from other_numbers(value)
    elif text.lower() in _FLIPPED:
        yield value.becomes("flipped", _FLIPPED[text.lower()])
    elif len(text) > 1:
        yield value.becomes("word-cut", text[:-1])
        yield value.becomes("word-case", text.swapcase())
    yield value.becomes("value-emptied", "")
    if NUMBER.fullmatch(text) or text.lower() in _FLIPPED:
        yield value.becomes("quoted", f'"{text}"')
    elif text[:1] in ("'", '"'):
        yield value.becomes("quoted", text.strip("'\""))


def _flow(value: Piece) -> Iterator[Edit]:
    """`{a: 1, b: 2}` or `[1, 2]`: each entry left out, renamed, changed."""
    entries = [*_INNER.finditer(value.text)]
    for match in entries:
        whole = value.group(match, 0)
        begin, end = match.span()
        if value.text[end : end + 1] == ",":
            end += 1 + len(value.text[end + 1 :]) - len(value.text[end + 1 :].lstrip())
        elif begin > 1:
            begin = value.text.rindex(",", 0, begin)
        yield value.cut(begin, end).becomes("key-missing", "")
        yield whole.becomes("key-doubled", f"{whole.text}, {whole.text}")
        yield from _renamed(value.group(match, "key"))
        yield from _value(value.group(match, "value"))
    if not entries:
        items = [value.group(match, 0) for match in re.finditer(r"[^\[\],\s][^\[\],]*", value.text)]
        for item in items:
            yield from _value(item)
        for one, other in pairwise(items):
            between = value.text[one.end - value.start : other.start - value.start]
            old = one.text + between + other.text
            yield Edit("order", one.start, old, other.text + between + one.text)


def _item(whole: str, lines: list[Piece], place: int, match: re.Match[str]) -> Iterator[Edit]:
    line = lines[place]
    yield dropped("item-missing", whole, line, line)
    yield from _value(line.group(match, "value"))
    if place + 1 < len(lines) and _ITEM.fullmatch(lines[place + 1].text):
        yield exchanged("order", whole, line, lines[place + 1])


def _comment(whole: str, lines: list[Piece], place: int) -> Iterator[Edit]:
    """A comment's lines left out together; a claim (`name = number`) changed like an entry."""
    line = lines[place]
    match = _CLAIM.fullmatch(line.text)
    if match is None:
        if place == 0 or not _is_remark(lines[place - 1]):
            last = place
            while last + 1 < len(lines) and _is_remark(lines[last + 1]):
                last += 1
            yield dropped("comment-dropped", whole, line, lines[last])
        return
    yield dropped("claim-missing", whole, line, line)
    yield from _renamed(line.group(match, "key"))
    wrong = list(numbers_in(line.group(match, "value")))
    yield from wrong
    if wrong:
        other = line.text[: wrong[0].start - line.start] + wrong[0].new
        yield line.becomes("claim-doubled", f"{line.text}\n{other}")
        yield line.becomes("claim-doubled", f"{other}\n{line.text}")


def _is_remark(line: Piece) -> bool:
    return line.text.lstrip().startswith("#") and not _CLAIM.fullmatch(line.text)
