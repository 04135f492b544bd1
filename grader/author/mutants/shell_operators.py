"""Mutants of shell commands: flags and their values, quotes, order, variables, a checklist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from grader.author.mutants.edits import Edit
from grader.author.mutants.text_pieces import NUMBER, Piece, dropped, exchanged, other_numbers

_WORD = re.compile(r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\[^\n]|[^\s;|&\"'\\])+")
_SKIPPED = re.compile(r"[ \t]+|\\\n")
_COMMENT = re.compile(r"#[^\n]*")
_CHECK = re.compile(r"\s*# ?\[[ xX]?\] (?P<item>.*)")
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_LEADING = frozenset(("if", "then", "else", "elif", "do", "while", "!", "exec"))
_CLOSING = frozenset(("fi", "done", "else", "then", "do", ""))
_FLIPPED = {"true": "false", "false": "true"}
_KEYWORD = re.compile(r"\b(?P<name>[a-z_]\w*)=(?P<value>\w+(?:\([^()]*\))?|\[[^\]]*\]),? ?")


def shell_edits(whole: str, block: Piece) -> Iterator[Edit]:
    """Every mutation of a block of shell commands; `whole` is the file's text."""
    rows = _commands(block)
    for words in rows:
        yield from _command(whole, words)
    for one, other in pairwise(rows):
        pieces = [row[0].upto(row[-1], whole) for row in (one, other)]
        if "set" in (one[0].text, other[0].text):
            continue
        if pieces[0].text != pieces[1].text and not {one[0].text, other[0].text} & _LEADING:
            yield exchanged("commands-exchanged", whole, *pieces)
    yield from _comments(whole, block)


def _commands(block: Piece) -> list[list[Piece]]:
    """The words of each simple command, in order."""
    text, at = block.text, 0
    rows: list[list[Piece]] = [[]]
    while at < len(text):
        match = _SKIPPED.match(text, at)
        if not match and (at == 0 or text[at - 1] in " \t\n"):
            match = _COMMENT.match(text, at)
        if not match and (match := _WORD.match(text, at)):
            rows[-1].append(block.group(match, 0))
        if not match:
            rows.append([])
            at += 1
            continue
        at = match.end()
    cut = [_without_keywords(row) for row in rows]
    return [row for row in cut if row and row[0].text not in _CLOSING]


def _without_keywords(words: list[Piece]) -> list[Piece]:
    while words and words[0].text in _LEADING and len(words) > 1:
        words = words[1:]
    return words


def _command(whole: str, words: list[Piece]) -> Iterator[Edit]:
    command = words[0].upto(words[-1], whole)
    yield command.becomes("command-dropped", "")
    if words[0].text == "set":  # options of the shell itself: how a script ends, not what it does
        return
    for number, word in enumerate(words):
        if (match := _ASSIGNED.fullmatch(word.text)) and number == 0:
            yield from _value(word.group(match, "value"))
            continue
        yield from _quotes(whole, words[:number], word)
        following = words[number + 1] if number + 1 < len(words) else None
        if word.text.startswith("-") and len(word.text) > 1:
            yield from _flag(whole, word, following)
        elif number:
            yield _away("argument-dropped", whole, word)
            if not words[number - 1].text.startswith("-"):
                yield from _value(word)


def _away(operator: str, whole: str, first: Piece, last: Piece | None = None) -> Edit:
    """Words left out, with the blanks in front of them."""
    piece = first.upto(last or first, whole)
    begin = piece.start
    while begin and whole[begin - 1] in " \t":
        begin -= 1
    return Edit(operator, begin, whole[begin : piece.end], "")


def _flag(whole: str, word: Piece, following: Piece | None) -> Iterator[Edit]:
    yield _away("flag-dropped", whole, word)
    name, equals, _ = word.text.partition("=")
    if equals:
        yield word.becomes("flag-doubled", f"{word.text} {word.text[:-1]}")
        yield from _value(word.cut(len(name) + 1, len(word.text)))
    elif following is not None and not following.text.startswith("-"):
        pair = word.upto(following, whole)
        yield pair.becomes("flag-doubled", f"{pair.text} {pair.text[:-1]}")
        yield _away("flag-dropped", whole, word, following)
        yield from _value(following)
    if name.startswith("--") and len(name) > 4:
        yield word.cut(0, len(name)).becomes("flag-renamed", name[:-1])
        if "-" in name[2:]:
            yield word.cut(0, len(name)).becomes("flag-renamed", "--" + name[2:].replace("-", "_"))


def _value(value: Piece) -> Iterator[Edit]:
    """What stands behind a flag, or is assigned: emptied, cut, changed, one of its items gone."""
    text = value.text
    if not text or any(mark in text for mark in "'\"\n"):
        return
    yield value.becomes("value-emptied", '""')
    if NUMBER.fullmatch(text):
        yield from other_numbers(value)
    elif text in _FLIPPED:
        yield value.becomes("flipped", _FLIPPED[text])
    elif len(text) > 1:
        yield value.becomes("word-cut", text[:-1])
    items = text.split(",")
    for k in range(len(items) if len(items) > 1 else 0):
        yield value.becomes("item-missing", ",".join(items[:k] + items[k + 1 :]))


def _quotes(whole: str, before: list[Piece], word: Piece) -> Iterator[Edit]:
    quote = word.text[:1]
    if quote not in ("'", '"') or word.text[-1:] != quote or len(word.text) < 3:
        return
    inner = word.cut(1, len(word.text) - 1)
    other = '"' if quote == "'" else "'"
    yield word.becomes("quotes-dropped", inner.text)
    yield word.becomes("quotes-changed", other + inner.text + other)
    names = [piece.text for piece in before]
    if "-c" in names and any(name in ("bash", "sh") for name in names):
        yield from shell_edits(whole, inner)
    elif "-c" in names:
        yield from _program(whole, inner)
    else:
        for match in re.finditer(r"[^|,:]+", inner.text if "|" in inner.text else ""):
            yield inner.group(match, 0).becomes("pattern-changed", f"{match[0]}_")
            end = match.end() if match.end() < len(inner.text) else match.start() - 1
            begin, stop = sorted((match.start() if end == match.end() else end, match.end()))
            cut = stop + 1 if end == match.end() else stop
            yield inner.cut(begin, cut).becomes("pattern-changed", "")


def _program(whole: str, code: Piece) -> Iterator[Edit]:
    """Python in quotes: a line or an argument left out, a number changed."""
    for line in code.lines():
        if not line.text.strip():
            continue
        yield dropped("line-dropped", whole, line, line)
        for match in _KEYWORD.finditer(line.text):
            yield line.group(match, 0).becomes("argument-dropped", "")
        for match in re.finditer(r"(?<![\w.])\d+(?![\w.])", line.text):
            yield from other_numbers(line.group(match, 0))


def _comments(whole: str, block: Piece) -> Iterator[Edit]:
    """A comment's lines left out together; a checklist's line left out, emptied, cut to a word, in
    another one's place."""
    lines = block.lines()
    first: Piece | None = None
    for line, after in pairwise([*lines, Piece("", block.end)]):
        if match := _CHECK.fullmatch(line.text):
            item = line.group(match, "item")
            yield item.becomes("item-emptied", "")
            yield item.becomes("item-cut", item.text.split(" ")[0])
            yield dropped("item-dropped", whole, line, line)
        elif _is_remark(line):
            first = first or line
            if not _is_remark(after):
                yield dropped("comment-dropped", whole, first, line)
                first = None
    for one, other in pairwise(line for line in lines if _CHECK.fullmatch(line.text)):
        yield exchanged("items-exchanged", whole, one, other)


def _is_remark(line: Piece) -> bool:
    return line.text.lstrip().startswith("#") and not _CHECK.fullmatch(line.text)
