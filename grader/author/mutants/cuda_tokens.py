"""CUDA C++ as tokens and statements: as much of the grammar as a mutation has to know.

Comments and preprocessor lines are no tokens, a string is one. A template's angle brackets behind
`..._cast` are brackets, not comparisons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

_TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?(?:\*/|\Z)|^[ \t]*#(?:[^\n\\]|\\.)*)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+')"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fFuUlL]*)"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|->|\+\+|--|&&|\|\||<<|>>|<=|>=|==|!=|::|[-+*/%&|^]=|.)",
    re.DOTALL | re.MULTILINE,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_ASIDE = frozenset(
    ("const", "constexpr", "volatile", "static", "extern", "register", "__shared__", "__device__")
)
_SCALARS = frozenset(
    re.findall(r"\w+", "void bool char short int long unsigned signed float double size_t")
)
_VECTORS = frozenset(
    f"{kind}{width}"
    for kind in ("float", "double", "int", "uint", "short", "char", "longlong")
    for width in (1, 2, 3, 4)
)
TYPES = _ASIDE | _SCALARS | _VECTORS | {"auto", "struct", "__restrict__", "__constant__"}
KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "if else for while do switch case default return break continue goto sizeof true false",
    )
)


@dataclass(frozen=True)
class Token:
    """A word, number, string or sign, and where it begins in the text."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Statement:
    """Tokens `first` to `last` (not included). `head`: those between a header's parentheses.
    `parts`: what a header governs, what stands between braces, or the bodies of lambdas."""

    kind: str  # "plain", "block", or the keyword it begins with
    first: int
    last: int
    head: tuple[int, int] = (0, 0)
    parts: tuple[Statement, ...] = field(default=())

    def everything(self) -> Iterator[Statement]:
        """The statement and all that are nested in it."""
        yield self
        for part in self.parts:
            yield from part.everything()


class Listing:
    """A file's tokens, and for each bracket the index of its partner."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            Token(str(match.lastgroup), match[0], match.start())
            for match in _TOKEN.finditer(text)
            if match.lastgroup != "skip"
        ]
        self.partner: dict[int, int] = {}
        self.angles: set[int] = set()
        self._pair()

    def _pair(self) -> None:
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.text in _CLOSING and token.kind == "sign":
                opened.append(index)
            elif token.text in _CLOSING.values() and token.kind == "sign":
                if opened and _CLOSING[self.tokens[opened[-1]].text] == token.text:
                    other = opened.pop()
                    self.partner[other], self.partner[index] = index, other
            elif token.text == "<" and index and self.word(index - 1).endswith("_cast"):
                close = next(
                    (k for k in range(index, len(self.tokens)) if self.tokens[k].text == ">"), index
                )
                self.angles |= {index, close}

    def word(self, index: int) -> str:
        """The text of a token; empty beyond both ends."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def source(self, first: int, last: int) -> str:
        """The text of tokens `first` to `last` (not included), with what stands between them."""
        if first >= last:
            return ""
        return self.text[self.tokens[first].start : self.tokens[last - 1].end]

    def within(self, span: tuple[int, int]) -> tuple[int, int]:
        """The indices of the tokens in a range of characters."""
        inside = [
            index
            for index, token in enumerate(self.tokens)
            if span[0] <= token.start and token.end <= span[1]
        ]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)

    def at_depth(self, first: int, last: int) -> Iterator[int]:
        """The indices from `first` to `last` that stand in no further bracket."""
        index = first
        while index < last:
            yield index
            index = max(index, self.partner.get(index, index)) + 1

    def commas(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges between the commas of a list."""
        cuts = [index for index in self.at_depth(first, last) if self.word(index) == ","]
        return [
            (begin, end)
            for begin, end in zip([first, *(cut + 1 for cut in cuts)], [*cuts, last], strict=True)
            if begin < end
        ]

    def is_value(self, index: int) -> bool:
        """Whether an expression can end with this token: a binary operator may then follow."""
        if index < 0:
            return False
        token = self.tokens[index]
        if token.kind == "word":
            return token.text not in TYPES and token.text not in KEYWORDS
        if token.text == ")":
            return not self.is_cast(self.partner.get(index, index))
        return token.kind in ("number", "string") or token.text == "]"

    def is_name(self, index: int) -> bool:
        """Whether the token is a name that stands for a value or a function."""
        return self.tokens[index].kind == "word" and self.is_value(index)

    def is_binary(self, index: int) -> bool:
        """Whether the sign stands between two values, and is not part of a type."""
        return (
            index not in self.angles
            and self.is_value(index - 1)
            and self.word(index + 1) not in (")", ">", ",", "]", ";", "")
        )

    def is_cast(self, index: int) -> bool:
        """Whether `(` opens a cast: nothing but a type stands in the parentheses."""
        inside = range(index + 1, self.partner.get(index, index))
        words = [self.word(k) for k in inside]
        return any(word in TYPES for word in words) and all(
            word in TYPES or word in ("*", "&") for word in words
        )

    def arguments(self, index: int) -> list[tuple[int, int]]:
        """The arguments of the call whose name is token `index`."""
        if self.word(index + 1) != "(" or index + 1 not in self.partner:
            return []
        return self.commas(index + 2, self.partner[index + 1])

    @cached_property
    def functions(self) -> list[tuple[int, int, int]]:
        """Top-level functions: the index of `(` of their parameters, of `{`, and of `}`."""
        found = []
        index = 0
        while index < len(self.tokens):
            if self.word(index) == "{" and index in self.partner:
                if self.word(index - 1) == ")" and index - 1 in self.partner:
                    found.append((self.partner[index - 1], index, self.partner[index]))
                elif self.word(index - 1).startswith('"'):  # extern "C" { ... }
                    index += 1
                    continue
                index = self.partner[index]
            index += 1
        return found

    def statements(self, first: int, last: int) -> list[Statement]:
        """The statements that begin at tokens `first` to `last`, in order."""
        found = []
        while first < last:
            statement = self._statement(first, last)
            found.append(statement)
            first = max(statement.last, first + 1)
        return found

    def _statement(self, first: int, last: int) -> Statement:
        word = self.word(first)
        if word == "{" and first in self.partner:
            end = self.partner[first]
            return Statement("block", first, end + 1, parts=(*self.statements(first + 1, end),))
        opened = first + 1
        if word in ("if", "for", "while", "switch") and opened in self.partner:
            close = self.partner[opened]
            parts = [self._statement(close + 1, last)]
            if word == "if" and self.word(parts[0].last) == "else" and parts[0].last + 1 < last:
                parts.append(self._statement(parts[0].last + 1, last))
            return Statement(word, first, parts[-1].last, (opened + 1, close), (*parts,))
        return self._plain(first, last)

    def _plain(self, first: int, last: int) -> Statement:
        bodies: list[Statement] = []
        index = first
        end = last
        while index < last:
            if self.word(index) in (";", "}") and (
                self.word(index) == ";" or index not in self.partner
            ):
                end = index + 1
                break
            if index in self.partner and self.partner[index] > index:
                close = self.partner[index]
                bodies += self._lambdas(index, close)
                index = close
                goes_on = self.word(index + 1) in (";", ",", ")", ".", "(", "[", "=")
                if self.word(index) == "}" and not goes_on:
                    end = index + 1
                    break
            index += 1
        return Statement("plain", first, min(end, last), parts=(*bodies,))

    def _lambdas(self, opened: int, close: int) -> list[Statement]:
        """The bodies between two brackets: of a lambda, or of one among a call's arguments."""
        if self.word(opened) == "{" and self.word(opened - 1) == ")":
            return [self._statement(opened, close + 1)]
        return [
            self._statement(index, self.partner[index] + 1)
            for index in range(opened + 1, close)
            if self.word(index) == "{" and self.word(index - 1) == ")" and index in self.partner
        ]
