"""Reads a shell script as text and says which commands it would start, for which rank: nothing is
executed. A part of POSIX sh and bash, enough for scripts that start profilers; what is not in it is
refused by name, with its line. (No parser of bash on PyPI reads what the page allows: bashlex knows
neither `case` nor `[[` nor `$((...))`. `tests/grader/labs/test_lab09_scripts.py` holds this reader
against bash itself.)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase, translate

OPERATORS = ("&&", "||", ";;", ";", "|&", "|", "&", "(", ")", "\n")
RESERVED = {"then", "elif", "else", "fi", "do", "done", "esac", ";;", "}", ")"}
MAX_STARTS, MAX_STEPS, MAX_VALUE, MAX_RANKS = 400, 4000, 4000, 16
MAX_WORDS, MAX_DEPTH = 400, 40
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_PARAMETER = re.compile(r"\{(#?)([A-Za-z_]\w*|[0-9]|[@*#?$])((?::?[-=?+])|##?|%%?|//?)?")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*|-?[0-9]{1,4}\.\.-?[0-9]{1,4})\}")
_OF_A_RANK = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
_FUNCTION = "defines a function, which is not read here; write commands"


class Unreadable(Exception):
    """A script that cannot be read; `line` is where."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


@dataclass(frozen=True)
class Piece:
    """Part of a word. kind: bare (unquoted), quoted, variable or arithmetic. Of `${name:-word}`
    text is the name, operator the `:-` and word what follows; of `$((...))` word is the
    expression."""

    kind: str
    text: str
    quoted: bool = False
    operator: str = ""
    word: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Token:
    """An operator, or a word with its pieces. line: where it begins. inside: of `[[ ]]`, its own
    tokens."""

    line: int
    operator: str = ""
    pieces: tuple[Piece, ...] = ()
    inside: tuple[Token, ...] = ()

    @property
    def plain(self) -> str:
        """The word, if nothing in it is quoted or a variable."""
        if all(piece.kind == "bare" for piece in self.pieces):
            return "".join(piece.text for piece in self.pieces)
        return ""


@dataclass(frozen=True)
class Argument:
    """A word as a program gets it. bare: those of its characters that the shell has looked at.
    pattern: the word with what is quoted in it escaped, for `case` and `[[ == ]]`. early: those
    variables of a rank that the shell has put in although they are set in a rank only; late: the
    text with them left as they are."""

    text: str
    line: int
    bare: str = ""
    pattern: str = ""
    early: tuple[str, ...] = ()
    late: str = ""


@dataclass
class Start:
    """A program that the script would start. environment: the variables that it gets."""

    arguments: list[Argument]
    environment: dict[str, str]
    line: int
    piped: bool = False

    @property
    def program(self) -> str:
        return self.arguments[0].text.rpartition("/")[2]

    @property
    def words(self) -> list[str]:
        return [argument.text for argument in self.arguments]


# -- words ----------------------------------------------------------------------------------------


def comments(text: str) -> list[tuple[int, str]]:
    """(line, text after the #) of each comment."""
    return _Lexer(text).all()[1]


class _Lexer:
    def __init__(self, text: str, line: int = 1, depth: int = 0) -> None:
        self.text = text
        self.at = 0
        self.line = line
        self.depth = depth
        self.tokens: list[Token] = []
        self.notes: list[tuple[int, str]] = []

    def all(self) -> tuple[list[Token], list[tuple[int, str]]]:
        while self.at < len(self.text):
            self._next()
        self.tokens.append(Token(self.line, "\n"))
        return self.tokens, self.notes

    def _next(self) -> None:
        text, c = self.text, self.text[self.at]
        if text.startswith("\\\n", self.at):
            self.at += 2
            self.line += 1
        elif c == "\\" and (tail := re.compile(r"[ \t\r]+\n").match(text, self.at + 1)):
            raise Unreadable(
                self.line,
                "a blank stands after the backslash, so the command ends here: a line goes on only "
                f"if the backslash is its last character ({_blanks(len(tail[0]) - 1)} behind it)",
            )
        elif c in " \t\r":
            self.at += 1
        elif c == "#":
            end = text.find("\n", self.at)
            end = len(text) if end < 0 else end
            self.notes.append((self.line, text[self.at + 1 : end].strip()))
            self.at = end
        elif c in "<>" or text.startswith("&>", self.at):
            self._redirect()
        elif text.startswith("((", self.at) and self._closes("))"):
            self._arithmetic_command()
        elif re.compile(r"\[\[\s").match(text, self.at):
            self._condition()
        elif operator := next((o for o in OPERATORS if text.startswith(o, self.at)), ""):
            self.tokens.append(Token(self.line, operator))
            self.at += len(operator)
            self.line += operator == "\n"
        else:
            self._word()

    def _closes(self, end: str) -> bool:
        """Whether brackets that open here close with `end`."""
        depth = 0
        for at in range(self.at, min(len(self.text), self.at + MAX_VALUE)):
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            if depth == 0:
                return self.text[at - len(end) + 1 : at + 1] == end
        return False

    def _arithmetic_command(self) -> None:
        line = self.line
        pieces = self._arithmetic(2)
        self.tokens.append(Token(line, "((", pieces))

    def _arithmetic(self, skip: int) -> tuple[Piece, ...]:
        """The expression of `((...))` or `$((...))`; `skip` characters open it."""
        start = self.at + skip
        depth, at = 2, start
        while depth:
            if at >= len(self.text):
                raise Unreadable(self.line, "(( opens an expression that is never closed")
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            at += 1
        inner = self.text[start : at - 2]
        pieces: list[Piece] = []
        lexer = self._nested(inner.replace('"', "").replace("\n", " ") + '"')
        lexer._double(pieces, self.line)
        self.line += inner.count("\n")
        self.at = at
        return tuple(pieces)

    def _nested(self, text: str) -> _Lexer:
        if self.depth >= MAX_DEPTH:
            raise Unreadable(self.line, "brackets or conditions are nested too deeply")
        return _Lexer(text, self.line, self.depth + 1)

    def _condition(self) -> None:
        """`[[ ... ]]`: words and && || ! ( ) < >, which mean something else in there."""
        line, text = self.line, self.text
        self.at += 2
        inside: list[Token] = []
        while True:
            while self.at < len(text) and text[self.at] in " \t\r\n":
                self.line += text[self.at] == "\n"
                self.at += 1
            if text.startswith("\\\n", self.at):
                self.at += 2
                self.line += 1
                continue
            if self.at >= len(text):
                raise Unreadable(line, "`[[` needs a closing `]]`, a word of its own")
            if re.compile(r"\]\](?=[\s;&|)]|$)").match(text, self.at):
                self.at += 2
                break
            operator = next(
                (o for o in ("&&", "||", "(", ")", "<", ">") if text.startswith(o, self.at)), ""
            )
            if operator and not (inside and inside[-1].plain == "=~"):
                inside.append(Token(self.line, operator))
                self.at += len(operator)
                continue
            stop = " \t\r\n" if inside and inside[-1].plain == "=~" else " \t\r\n;|&()<>"
            before = self.at
            self._word(stop)
            inside.append(self.tokens.pop())
            if self.at == before:
                raise Unreadable(self.line, f"`[[` does not know `{text[self.at]}` here")
        self.tokens.append(Token(line, "[[", (), tuple(inside)))

    def _redirect(self) -> None:
        if self.text.startswith("<<", self.at) and not self.text.startswith("<<<", self.at):
            raise Unreadable(
                self.line,
                "a here-document is not read here; give Python's text to `python -c '...'`",
            )
        if self.text.startswith(("<(", ">("), self.at):
            raise Unreadable(self.line, "`<(...)` is not read here; write plain commands")
        if self.tokens and self.tokens[-1].plain.isdigit() and self.text[self.at - 1].isdigit():
            self.tokens.pop()  # the 2 of `2>&1`
        match = re.compile(r"&?[<>]+[&|]?[ \t]*").match(self.text, self.at)
        self.at = match.end()
        if self.at >= len(self.text) or self.text[self.at] in "\n;|&()":
            raise Unreadable(self.line, f"`{match[0].strip()}` is given no file")
        self._word()
        self.tokens.pop()  # a file that is read or written is no argument

    def _word(self, stop: str = " \t\r\n;|&()<>") -> None:
        text, line = self.text, self.line
        pieces: list[Piece] = []
        while self.at < len(text) and text[self.at] not in stop:
            c = text[self.at]
            if c == "'":
                end = text.find("'", self.at + 1)
                if end < 0:
                    raise Unreadable(self.line, "a ' opens a quotation that is never closed")
                self._take(pieces, Piece("quoted", text[self.at + 1 : end], True), end + 1)
            elif c == '"':
                self.at += 1
                self._double(pieces, line)
            elif c == "\\":
                if text.startswith("\\\n", self.at):
                    self.at += 2
                    self.line += 1
                    continue
                piece = Piece("quoted", text[self.at + 1 : self.at + 2], True)
                self._take(pieces, piece, min(self.at + 2, len(text)))
            elif c == "$" or c == "`":
                self._dollar(pieces, False)
            else:
                end = self.at + 1
                while end < len(text) and text[end] not in stop and text[end] not in "'\"\\$`":
                    end += 1
                self._take(pieces, Piece("bare", text[self.at : end]), end)
        if self.at < len(text) and text[self.at] == "(" and "(" in stop and pieces:
            self._parenthesis(pieces)
            return
        self.tokens.append(Token(line, "", tuple(pieces)))

    def _parenthesis(self, pieces: list[Piece]) -> None:
        word = "".join(piece.text for piece in pieces)
        if re.fullmatch(r"[A-Za-z_]\w*\+?=", word):
            raise Unreadable(
                self.line,
                f"`{word}(...)` is an array, which is not read here; keep the words in one string "
                "or write them where they belong",
            )
        if re.compile(r"\(\s*\)").match(self.text, self.at) and re.fullmatch(r"[\w.-]+", word):
            raise Unreadable(self.line, f"`{word}()` {_FUNCTION}")
        raise Unreadable(
            self.line,
            f"the shell stops at the unquoted ( after `{word}`; put the whole word into single "
            "quotes, as in --kernel-name 'regex:(gemm|conv)'",
        )

    def _take(self, pieces: list[Piece], piece: Piece, end: int) -> None:
        self.line += self.text.count("\n", self.at, end)
        self.at = end
        pieces.append(piece)

    def _double(self, pieces: list[Piece], line: int) -> None:
        out: list[str] = []
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == '"':
                self.at += 1
                pieces.append(Piece("quoted", "".join(out), True))
                return
            if c == "\\" and self.text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`", "\n"):
                if self.text[self.at + 1] == "\n":
                    self.line += 1
                else:
                    out.append(self.text[self.at + 1])
                self.at += 2
            elif c in "$`":
                pieces.append(Piece("quoted", "".join(out), True))
                out = []
                self._dollar(pieces, True)
            else:
                self.line += c == "\n"
                out.append(c)
                self.at += 1
        raise Unreadable(line, 'a " opens a quotation that is never closed')

    def _dollar(self, pieces: list[Piece], quoted: bool) -> None:
        text, at = self.text, self.at
        if text.startswith("$((", at):
            self.at += 1
            word = self._arithmetic(2)
            pieces.append(Piece("arithmetic", "", quoted, "", word))
        elif text[at] == "`" or text.startswith("$(", at):
            raise Unreadable(
                self.line, "the output of another command is not known here; write the value"
            )
        elif text.startswith("${", at):
            self._parameter(pieces, quoted)
        elif text.startswith("$'", at) and not quoted:
            match = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.S).match(text, at)
            if not match:
                raise Unreadable(self.line, "a ' opens a quotation that is never closed")
            plain = re.sub(r"\\(.)", _escaped, match[1], flags=re.S)
            self._take(pieces, Piece("quoted", plain, True), match.end())
        elif match := _NAME.match(text, at + 1):
            pieces.append(Piece("variable", match[0], quoted))
            self.at = match.end()
        elif text[at + 1 : at + 2] in tuple("@*#?0123456789"):
            pieces.append(Piece("variable", text[at + 1], quoted))
            self.at += 2
        else:  # a $ that stands for itself, as at the end of a regular expression
            pieces.append(Piece("quoted" if quoted else "bare", "$", quoted))
            self.at += 1

    def _parameter(self, pieces: list[Piece], quoted: bool) -> None:
        """`${name}` and what may follow the name: `:-word`, `%pattern`, `/this/that` and so on."""
        text, at = self.text, self.at
        match = _PARAMETER.match(text, at + 1)
        end = _closing_brace(text, at + 2)
        shown = text[at : end + 1] if 0 <= end - at < 80 else text[at : at + 20]
        plain = match and (match[3] or text[match.end() : match.end() + 1] == "}")
        if not match or end < 0 or not plain or (match[1] and match[3]):
            raise Unreadable(self.line, f"`{shown}` is not read here")
        name, operator = match[2], "#length" if match[1] else match[3] or ""
        inner: list[Piece] = []
        if match[3]:
            body = text[match.end() : end]
            if quoted:  # quotes inside of quotes change nothing here
                body = re.sub(r'(?<!\\)"', "", body)
            lexer = self._nested(body + ('"' if quoted else ""))
            if quoted:
                lexer._double(inner, self.line)
                if lexer.at != len(lexer.text):
                    raise Unreadable(self.line, f"`{shown}` is not read here")
            elif body:
                lexer._word("\0")
                inner = list(lexer.tokens[-1].pieces)
        self.line += text.count("\n", at, end)
        self.at = end + 1
        pieces.append(Piece("variable", name, quoted, operator, tuple(inner)))


def _closing_brace(text: str, at: int) -> int:
    depth = 1
    while at < len(text):
        c = text[at]
        if c == "\\":
            at += 1
        elif text.startswith("${", at):
            depth += 1
            at += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return -1


def _escaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}.get(match[1], match[0])


def _blanks(count: int) -> str:
    return "there is one blank" if count == 1 else f"there are {count} blanks"


# -- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """kind: simple, pipe, and, or, not, list, subshell, if, for, case, arithmetic, condition.
    `parts` depends on it."""

    kind: str
    line: int
    parts: tuple = ()


def parse(text: str, line: int = 1) -> Node:
    """The script as a tree; raises Unreadable."""
    try:
        return _Parser(_Lexer(text, line).all()[0]).whole()
    except RecursionError:
        raise Unreadable(line, "brackets or conditions are nested too deeply") from None


@dataclass
class _Parser:
    tokens: list[Token]
    at: int = 0

    def whole(self) -> Node:
        node = self._list(empty=True)
        if self.at < len(self.tokens):
            token = self.tokens[self.at]
            raise Unreadable(token.line, f"`{token.operator or token.plain}` has nothing to close")
        return node

    def _peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _is(self, *words: str) -> bool:
        token = self._peek()
        return token is not None and (token.operator or token.plain) in words

    def _expect(self, word: str, opened: Token) -> None:
        if not self._is(word):
            token = self._peek()
            where = token.line if token else self.tokens[-1].line
            raise Unreadable(
                where, f"`{word}` is missing: line {opened.line} begins `{opened.plain or '('}`"
            )
        self.at += 1

    def _lines(self) -> None:
        while self._is("\n"):
            self.at += 1

    def _list(self, empty: bool = False) -> Node:
        """Commands up to a word that ends them, separated by ; & or line ends."""
        parts: list[Node] = []
        first = self._peek()
        self._lines()
        while self._peek() is not None and not self._is(*RESERVED):
            parts.append(self._and_or())
            if not self._is("\n", ";", "&"):
                break
            self.at += 1
            self._lines()
        if not parts and not empty:
            token = self._peek() or self.tokens[-1]
            shown = (token.operator or token.plain).strip() or "the end"
            raise Unreadable(token.line, f"a command is missing before `{shown}`")
        return Node("list", first.line if first else 1, tuple(parts))

    def _and_or(self) -> Node:
        left = self._pipe()
        while self._is("&&", "||"):
            kind = "and" if self._is("&&") else "or"
            self.at += 1
            self._lines()
            left = Node(kind, left.line, (left, self._pipe()))
        return left

    def _pipe(self) -> Node:
        if self._is("!"):
            line = self.tokens[self.at].line
            self.at += 1
            return Node("not", line, (self._pipe(),))
        parts = [self._command()]
        while self._is("|", "|&"):
            self.at += 1
            self._lines()
            parts.append(self._command())
        return parts[0] if len(parts) == 1 else Node("pipe", parts[0].line, tuple(parts))

    def _command(self) -> Node:
        token = self._peek()
        if token is None or token.operator not in ("", "(", "((", "[["):
            token = token or self.tokens[-1]
            shown = token.operator.strip()
            where = f" before `{shown}`" if shown else ""
            raise Unreadable(token.line, f"a command is missing here{where}")
        if token.operator in ("((", "[["):
            self.at += 1
            kind = "arithmetic" if token.operator == "((" else "condition"
            return Node(kind, token.line, (token,))
        if self._is("(", "{"):
            self.at += 1
            body = self._list()
            self._expect(")" if token.operator else "}", token)
            return Node("subshell", token.line, (body,)) if token.operator else body
        if self._is("if"):
            return self._if()
        if self._is("for"):
            return self._for()
        if self._is("case"):
            return self._case()
        if self._is("function"):
            raise Unreadable(token.line, f"`function` {_FUNCTION}")
        if self._is("while", "until", "select", "coproc"):
            raise Unreadable(token.line, f"`{token.plain}` is not read here; write plain commands")
        words = []
        while (token := self._peek()) is not None and not token.operator:
            words.append(token)
            self.at += 1
        if token is not None and token.operator == "(":
            raise Unreadable(token.line, "the shell stops at the unquoted (; put it into quotes")
        if token is not None and token.operator in ("((", "[["):
            text = f"`{token.operator}` stands among the words of a command; it begins one"
            raise Unreadable(token.line, text)
        return Node("simple", words[0].line, tuple(words))

    def _if(self) -> Node:
        opened = self.tokens[self.at]
        self.at += 1
        branches = []
        condition = self._list()
        self._expect("then", opened)
        branches.append((condition, self._list()))
        while self._is("elif"):
            self.at += 1
            condition = self._list()
            self._expect("then", opened)
            branches.append((condition, self._list()))
        other = None
        if self._is("else"):
            self.at += 1
            other = self._list()
        self._expect("fi", opened)
        return Node("if", opened.line, (tuple(branches), other))

    def _for(self) -> Node:
        opened, name = self.tokens[self.at], self.tokens[self.at + 1]
        if name.operator == "((":
            text = "`for ((...))` is not read here; write `for x in 1 2 3` or `{1..3}`"
            raise Unreadable(opened.line, text)
        if not _NAME.fullmatch(name.plain):
            raise Unreadable(opened.line, "`for` needs the name of a variable")
        self.at += 2
        self._lines()
        words = []
        if self._is("in"):
            self.at += 1
            while (token := self._peek()) is not None and not token.operator:
                words.append(token)
                self.at += 1
        else:
            words.append(Token(opened.line, "", (Piece("variable", "@", True),)))
        if self._is(";"):
            self.at += 1
        self._lines()
        self._expect("do", opened)
        body = self._list()
        self._expect("done", opened)
        return Node("for", opened.line, (name.plain, tuple(words), body))

    def _case(self) -> Node:
        opened, word = self.tokens[self.at], self.tokens[self.at + 1]
        self.at += 2
        self._lines()
        self._expect("in", opened)
        rows = []
        self._lines()
        while not self._is("esac"):
            if self._is("("):
                self.at += 1
            patterns = []
            while (token := self._peek()) is not None and not self._is(")"):
                if token.operator and token.operator != "|":
                    raise Unreadable(token.line, "a pattern of `case` ends with )")
                if not token.operator:
                    patterns.append(token)
                self.at += 1
            self._expect(")", opened)
            rows.append((tuple(patterns), self._list(empty=True)))
            if self._is(";;"):
                self.at += 1
            elif not self._is("esac"):
                self._expect("esac", opened)
            self._lines()
        self.at += 1
        return Node("case", opened.line, (word, tuple(rows)))


# -- arithmetic -----------------------------------------------------------------------------------

_SYMBOL = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|[0-9]+|[A-Za-z_]\w*|\*\*|<<|>>|[<>=!]=|&&|\|\||\+\+|--|[-+*/%]="
    r"|[-+*/%<>=!~&|^()?:,])"
)
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="))
_LEVELS += (("<<", ">>"), ("+", "-"), ("*", "/", "%"))


class _Arithmetic:
    """The value of a shell's integer expression; assignments go into `variables`."""

    def __init__(self, text: str, variables: dict[str, str], line: int) -> None:
        self.line, self.variables, self.text = line, variables, text
        self.symbols: list[str] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            match = _SYMBOL.match(text, at)
            if not match or len(self.symbols) > MAX_WORDS:
                raise self._fault()
            self.symbols.append(match[1])
            at = match.end()
        self.at = 0

    def _fault(self) -> Unreadable:
        return Unreadable(self.line, f"the expression `{self.text.strip()[:80]}` is not read here")

    def value(self) -> int:
        if not self.symbols:
            return 0
        found = self._comma()
        if self.at < len(self.symbols):
            raise self._fault()
        return found

    def _is(self, *symbols: str) -> str:
        if self.at < len(self.symbols) and self.symbols[self.at] in symbols:
            self.at += 1
            return self.symbols[self.at - 1]
        return ""

    def _comma(self) -> int:
        found = self._assignment()
        while self._is(","):
            found = self._assignment()
        return found

    def _assignment(self) -> int:
        rest = self.symbols[self.at : self.at + 2]
        assigns = ("=", "+=", "-=", "*=", "/=", "%=")
        if len(rest) == 2 and _NAME.fullmatch(rest[0]) and rest[1] in assigns:
            self.at += 2
            found = self._assignment()
            if rest[1] != "=":
                found = self._apply(rest[1][0], self._number(rest[0]), found)
            self.variables[rest[0]] = str(found)
            return found
        found = self._binary(0)
        if self._is("?"):
            one = self._assignment()
            if not self._is(":"):
                raise self._fault()
            other = self._assignment()
            return one if found else other
        return found

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        found = self._binary(level + 1)
        while operator := self._is(*_LEVELS[level]):
            found = self._apply(operator, found, self._binary(level + 1))
        return found

    def _power(self) -> int:
        base = self._unary()
        if self._is("**"):
            return self._apply("**", base, self._power())
        return base

    def _unary(self) -> int:
        if operator := self._is("!", "-", "+", "~"):
            inner = self._unary()
            return {"!": int(not inner), "-": -inner, "+": inner, "~": ~inner}[operator]
        if self._is("("):
            found = self._comma()
            if not self._is(")"):
                raise self._fault()
            return found
        if self.at >= len(self.symbols):
            raise self._fault()
        symbol = self.symbols[self.at]
        self.at += 1
        if symbol[0].isdigit():
            return self._literal(symbol)
        if not _NAME.fullmatch(symbol):
            raise self._fault()
        found = self._number(symbol)
        if step := self._is("++", "--"):
            self.variables[symbol] = str(found + (1 if step == "++" else -1))
        return found

    def _literal(self, text: str) -> int:
        try:
            if len(text) > 18:
                raise ValueError
            octal = len(text) > 1 and text[0] == "0" and text[1] not in "xX"
            return int(text, 8 if octal else 0)
        except ValueError:
            raise self._fault() from None

    def _number(self, name: str) -> int:
        value = self.variables.get(name, "").strip()
        if not value:
            return 0
        if not re.fullmatch(r"-?[0-9]{1,18}", value):
            raise self._fault()
        return -self._literal(value[1:]) if value[0] == "-" else self._literal(value)

    def _apply(self, operator: str, a: int, b: int) -> int:
        if abs(a) > 2**62 or abs(b) > 2**62:
            raise self._fault()
        if operator in ("/", "%"):
            if b == 0:
                raise Unreadable(self.line, "an expression divides by 0")
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return quotient if operator == "/" else a - b * quotient
        if operator in ("**", "<<", ">>"):
            if not 0 <= b <= 62:
                raise self._fault()
            return a**b if operator == "**" else a << b if operator == "<<" else a >> b
        return int(
            {
                "||": bool(a or b), "&&": bool(a and b), "|": a | b, "^": a ^ b, "&": a & b,
                "==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b,
                "+": a + b, "-": a - b, "*": a * b,
            }[operator]
        )  # fmt: skip


# -- which programs would start -------------------------------------------------------------------


def starts(node: Node, environment: dict[str, str], positional: Sequence[str] = ()) -> list[Start]:
    """The programs that the script starts with these variables, in order; positional: $0, $1."""
    walk = _Walk(dict(environment), set(environment), list(positional))
    with contextlib.suppress(_Replaced):
        walk.node(node)
    return walk.found


class _Replaced(Exception):
    """`exec` or `exit`: nothing after it is reached."""


# Programs that start another one: the options of theirs that take a word, and how many words
# stand before the other program.
_FRONTS: dict[str, tuple[tuple[str, ...], int]] = {
    "exec": (("-a",), 0),
    "command": ((), 0),
    "nohup": ((), 0),
    "time": (("-f", "-o"), 0),
    "sudo": (("-u", "-g"), 0),
    "env": (("-u", "-C", "--unset", "--chdir"), 0),
    "nice": (("-n",), 0),
    "ionice": (("-c", "-n"), 0),
    "stdbuf": (("-o", "-e", "-i"), 0),
    "timeout": (("-s", "-k"), 1),
    "taskset": ((), 1),
    "numactl": (("-N", "-m", "-C"), 0),
}
_SILENT = {"cd", "mkdir", "echo", "printf", ":", "true", "wait", "trap", "shopt", "ulimit"}
_SILENT |= {"pushd", "popd", "umask", "module", "hash", "unalias", "alias"}
_DECLARES = ("export", "declare", "typeset", "local", "readonly")


@dataclass
class _Walk:
    variables: dict[str, str]
    exported: set[str]
    positional: list[str]
    found: list[Start] = field(default_factory=list)
    piped: bool = False
    steps: int = 0
    all_exported: bool = False
    held: dict[str, Argument] = field(default_factory=dict)  # variables whose text has `early` ones

    def node(self, node: Node) -> bool:
        """Walk it; whether it succeeds. Every program that is no test is taken to succeed."""
        kind, parts = node.kind, node.parts
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Unreadable(node.line, "too many commands; write only those that are asked for")
        if kind == "simple":
            return self._simple(node)
        if kind == "list":
            ok = True
            for part in parts:
                ok = self.node(part)
            return ok
        if kind == "and":
            return self.node(parts[0]) and self.node(parts[1])
        if kind == "or":
            return self.node(parts[0]) or self.node(parts[1])
        if kind == "not":
            return not self.node(parts[0])
        if kind == "subshell":
            return self._apart(parts[0])
        if kind == "pipe":
            for index, part in enumerate(parts):
                self.piped = index > 0
                ok = self._apart(part)
            self.piped = False
            return ok
        if kind == "arithmetic":
            return _Arithmetic(self._text(parts[0].pieces), self.variables, node.line).value() != 0
        if kind == "condition":
            return _Condition(self, parts[0]).value()
        if kind == "if":
            branches, other = parts
            for condition, body in branches:
                if self.node(condition):
                    return self.node(body)
            return self.node(other) if other else True
        if kind == "for":
            name, words, body = parts
            for argument in [a for word in words for a in self._expand(word)]:
                self._assign(name, argument.text[:MAX_VALUE])
                self.node(body)
            return True
        word, rows = parts
        value = self._joined(word).text
        for patterns, body in rows:
            if any(_matches(value, self._joined(pattern).pattern) for pattern in patterns):
                return self.node(body)
        return True

    def _apart(self, node: Node) -> bool:
        """A process of its own: what it sets or leaves is its own affair."""
        kept, exported = dict(self.variables), set(self.exported)
        ok = True
        with contextlib.suppress(_Replaced):
            ok = self.node(node)
        self.variables, self.exported = kept, exported
        return ok

    def _assign(self, name: str, value: str, line: int = 1) -> None:
        if len(value) > MAX_VALUE:
            raise Unreadable(line, f"the value of {name} is longer than any option")
        self.variables[name] = value
        if self.all_exported:
            self.exported.add(name)

    def _simple(self, node: Node) -> bool:
        words = list(node.parts)
        own: dict[str, str] = {}
        while words and (match := _ASSIGNMENT.match(_head(words[0]))):
            whole = self._joined(words.pop(0))
            value, name = whole.text[match.end() :], match[1]
            self._hold(name, replace(whole, late=whole.late[match.end() :]))
            if match[2]:
                value = own.get(name, self.variables.get(name, "")) + value
            if len(value) > MAX_VALUE:
                raise Unreadable(node.line, f"the value of {name} is longer than any option")
            own[name] = value
            if not words or _ASSIGNMENT.match(_head(words[0])):
                continue
        if not words:
            for name, value in own.items():
                self._assign(name, value, node.line)
            return True
        if _head(words[0]) in _DECLARES and words[0].plain in _DECLARES:
            return self._declare(words, node.line)
        arguments = [argument for word in words for argument in self._expand(word)]
        if len(arguments) > MAX_WORDS:
            raise Unreadable(node.line, "a command of too many words")
        return self._start(arguments, own, node.line)

    def _hold(self, name: str, value: Argument) -> None:
        self.held.pop(name, None)
        if value.early:
            self.held[name] = value

    def _declare(self, words: list[Token], line: int) -> bool:
        exports = words[0].plain == "export"
        for word in words[1:]:
            match = _ASSIGNMENT.match(_head(word))
            arguments = [self._joined(word)] if match else self._expand(word)
            for argument in arguments:
                if argument.text.startswith("-"):
                    exports = exports or "x" in argument.text
                    continue
                name, equals, value = argument.text.partition("=")
                if name.endswith("+"):
                    name = name[:-1]
                    value = self.variables.get(name, "") + value
                if equals:
                    self._assign(name, value, line)
                    self._hold(name, replace(argument, late=argument.late.partition("=")[2]))
                if exports:
                    self.exported.add(name)
        return True

    def _front(self, arguments: list[Argument], own: dict[str, str]) -> list[Argument]:
        """Without the program that starts the other one, its options and their words."""
        name = arguments[0].text
        takes, positional = _FRONTS[name]
        rest = arguments[1:]
        while rest:
            text = rest[0].text
            if text == "--":
                rest = rest[1:]
                break
            if text.startswith("-") and len(text) > 1:
                rest = rest[2:] if text in takes else rest[1:]
            elif name in ("env", "sudo") and _ASSIGNMENT.match(text):
                key, _, value = text.partition("=")
                own[key] = value
                rest = rest[1:]
            else:
                break
        return rest[positional:]

    def _start(self, arguments: list[Argument], own: dict[str, str], line: int) -> bool:
        while arguments and arguments[0].text in _FRONTS:
            first = arguments[0].text
            arguments = self._front(arguments, own)
            if first == "exec" and arguments:
                self._start(arguments, own, line)
                raise _Replaced
        if not arguments:
            return True
        name = arguments[0].text
        if name in ("[", "test"):
            return _test([a.text for a in arguments], line)
        if name in _DECLARES:
            return True
        if name == "unset":
            for argument in arguments[1:]:
                self.variables.pop(argument.text, None)
                self.exported.discard(argument.text)
            return True
        if name == "let":
            values = [_Arithmetic(a.text, self.variables, line).value() for a in arguments[1:]]
            return bool(values and values[-1])
        if name in ("exit", "return"):
            raise _Replaced
        if name == "set":
            self._set([a.text for a in arguments[1:]])
            return True
        if name == "shift":
            del self.positional[1:2]
            return True
        if name in _SILENT:
            return True
        if name == "false":
            return False
        if name in ("source", ".", "eval"):
            raise Unreadable(line, f"`{name}` is not read here; write the commands themselves")
        if len(self.found) >= MAX_STARTS:
            raise Unreadable(line, f"more than {MAX_STARTS} commands; write only those asked for")
        given = {name: self.variables[name] for name in self.exported if name in self.variables}
        self.found.append(Start(arguments, {**given, **own}, line, self.piped))
        return True

    def _set(self, words: list[str]) -> None:
        for index, word in enumerate(words):
            if word in ("allexport",) or re.fullmatch(r"-[a-z]*a[a-z]*", word):
                self.all_exported = True
            if word == "--":
                self.positional[1:] = words[index + 1 :]
                return

    # -- expansion

    def _text(self, pieces: Sequence[Piece]) -> str:
        """Pieces as one text, nothing split."""
        return "".join(
            p.text if p.kind in ("bare", "quoted") else " ".join(self._values(p)) for p in pieces
        )

    def _joined(self, word: Token) -> Argument:
        """The word as one, as an assignment or a pattern has it."""
        text = self._text(word.pieces)
        pattern = ""
        for piece in word.pieces:
            part = self._text([piece])
            pattern += _literal(part) if piece.quoted or piece.kind == "quoted" else part
        return Argument(text, word.line, "", pattern, *self._unmade(word.pieces))

    def _unmade(self, pieces: Sequence[Piece]) -> tuple[tuple[str, ...], str]:
        """Of a word (early, late), as `Argument` has them: both empty for most words."""
        early: list[str] = []
        late: list[str] = []
        for piece in pieces:
            name, inner = piece.text, "".join(one.text for one in piece.word)
            if piece.kind == "variable" and name in _OF_A_RANK and name not in self.variables:
                early.append(name)
                length = piece.operator == "#length"
                body = f"#{name}" if length else f"{name}{piece.operator}{inner}"
                late.append(f"${{{body}}}")
            elif piece.kind == "variable" and name in self.held and not piece.operator:
                early += self.held[name].early
                late.append(self.held[name].late)
            elif piece.kind == "arithmetic" and (names := self._names(piece.word)):
                early += names
                late.append(f"$(({self._source(piece.word)}))")
            else:
                late.append(self._text([piece]))
        # A ' within double quotes quotes nothing, and would in the text that is meant.
        text = re.sub(r"'(\$\{[^'{}]*\})'", r'"\1"', "".join(late))
        return (tuple(early), text) if early else ((), "")

    def _names(self, pieces: Sequence[Piece]) -> list[str]:
        """The variables of a rank in an expression, where they are not set."""
        names = _NAME.findall(self._source(pieces))
        return [name for name in names if name in _OF_A_RANK and name not in self.variables]

    def _source(self, pieces: Sequence[Piece]) -> str:
        return "".join(f"${p.text}" if p.kind == "variable" else p.text for p in pieces)

    def _expand(self, word: Token) -> list[Argument]:
        """The word as a program gets it: none or several words, where a variable stands bare."""
        out: list[Argument] = []
        for pieces in _braces(word.pieces, word.line):
            early, late = self._unmade(pieces)
            found = self._fields(pieces, word.line)
            if early and len(found) == 1:
                found = [replace(found[0], early=early, late=late)]
            out += found
        return out

    def _fields(self, pieces: Sequence[Piece], line: int) -> list[Argument]:
        fields: list[list[str]] = []
        open_ = False  # whether the last field goes on

        def add(text: str, bare: str) -> None:
            nonlocal open_
            if not open_:
                fields.append(["", ""])
            open_ = True
            fields[-1][0] += text
            fields[-1][1] += bare

        for piece in self._replaced(pieces):
            if piece.kind in ("bare", "quoted"):
                add(piece.text, "" if piece.kind == "quoted" else piece.text)
                continue
            values = self._values(piece)
            if piece.quoted:
                if piece.text == "@" and piece.kind == "variable" and not values:
                    continue
                for index, value in enumerate(values or [""]):
                    open_ = open_ and index == 0
                    add(value, "")
                continue
            for index, value in enumerate(values):
                open_ = open_ and index == 0
                if value[:1].isspace():
                    open_ = False
                for position, part in enumerate(value.split()):
                    open_ = open_ and position == 0
                    add(part, part)
                if value and value[-1].isspace():
                    open_ = False
        found = [Argument(text, line, bare) for text, bare in fields]
        # A quoted empty word is a word; a bare variable that is empty is none.
        quoted = any(p.quoted or p.kind == "quoted" for p in self._replaced(pieces))
        return found if quoted else [argument for argument in found if argument.text]

    def _replaced(self, pieces: Sequence[Piece]) -> list[Piece]:
        """An unquoted `${name:-word}` gives way to the pieces of its word, quoted ones among
        them."""
        out: list[Piece] = []
        for piece in pieces:
            if piece.quoted or piece.operator not in ("-", ":-", "+", ":+"):
                out.append(piece)
                continue
            value = self._value(piece.text)
            absent = not value if piece.operator[0] == ":" else value is None
            if absent is (piece.operator[-1] == "-"):
                out += self._replaced(piece.word)
            elif not absent:
                out.append(Piece("variable", piece.text) if piece.operator[-1] == "-" else piece)
        return out

    def _values(self, piece: Piece) -> list[str]:
        """What a variable or an expression stands for: one text, or several of "$@"."""
        if piece.kind == "arithmetic":
            text = self._text(piece.word)
            return [str(_Arithmetic(text, self.variables, 1).value())]
        name, operator = piece.text, piece.operator
        if name in ("@", "*"):
            rest = self.positional[1:]
            return list(rest) if name == "@" else [" ".join(rest)]
        value = self._value(name)
        if operator == "#length":
            return [str(len(value or ""))]
        if not operator:
            return [value or ""]
        absent = not value if operator[0] == ":" else value is None
        word = self._text(piece.word)
        last = operator[-1]
        if last == "+":
            return ["" if absent else word]
        if last in "-=":
            if absent and last == "=":
                self._assign(name, word)
            return [word if absent else value or ""]
        if last == "?":
            if absent:
                raise Unreadable(1, f"`${{{name}{operator}...}}` ends the script: it is not set")
            return [value or ""]
        return [_cut(value or "", operator, self._pattern(piece.word))]

    def _pattern(self, pieces: Sequence[Piece]) -> str:
        return self._joined(Token(1, "", tuple(pieces))).pattern

    def _value(self, name: str) -> str | None:
        if name == "#":
            return str(max(0, len(self.positional) - 1))
        if name in "?$":
            return "0"
        if name.isdigit():
            index = int(name)
            return self.positional[index] if index < len(self.positional) else None
        return self.variables.get(name)


def _cut(value: str, operator: str, pattern: str) -> str:
    """`${name%pattern}`, `${name#pattern}`, `${name/this/that}`."""
    if operator in ("/", "//"):
        this, _, that = pattern.partition("/")
        if len(this) > 40 or this.count("*") > 2:
            return value
        regex = translate(this).removesuffix("\\Z").removesuffix("\\z")
        return re.sub(regex, lambda _: that, value, count=0 if operator == "//" else 1)
    lengths = range(len(value) + 1)
    if operator in ("%", "##"):
        lengths = reversed(lengths)
    for length in lengths:
        kept, gone = value[:length], value[length:]
        if operator[0] == "#":
            kept, gone = gone, kept
        if _matches(gone, pattern):
            return kept
    return value


def _literal(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)


def _matches(value: str, pattern: str) -> bool:
    return pattern.count("*") <= 8 and fnmatchcase(value, pattern)


def _braces(pieces: Sequence[Piece], line: int, count: int = 0) -> list[tuple[Piece, ...]]:
    """`{a,b}` and `{1..3}`, which the shell writes out before it looks at variables."""
    for index, piece in enumerate(pieces):
        match = _BRACES.search(piece.text) if piece.kind == "bare" else None
        if not match:
            continue
        if ".." in match[1] and "," not in match[1]:
            first, last = (int(end) for end in match[1].split(".."))
            step = 1 if last >= first else -1
            items = [str(number) for number in range(first, last + step, step)]
        else:
            items = match[1].split(",")
        out: list[tuple[Piece, ...]] = []
        for item in items:
            text = piece.text[: match.start()] + item + piece.text[match.end() :]
            made = (*pieces[:index], Piece("bare", text), *pieces[index + 1 :])
            out += _braces(made, line, count + len(out))
            if count + len(out) > MAX_WORDS:
                raise Unreadable(line, "braces that stand for too many words")
        return out
    return [tuple(pieces)]


def _head(word: Token) -> str:
    """The bare beginning of a word."""
    first = word.pieces[0] if word.pieces else None
    return first.text if first and first.kind == "bare" else ""


@dataclass
class _Condition:
    """`[[ ... ]]` for the variables of a walk."""

    walk: _Walk
    token: Token
    at: int = 0

    def value(self) -> bool:
        found = self._or()
        if self.at < len(self.token.inside):
            raise self._fault()
        return found

    def _fault(self) -> Unreadable:
        shown = " ".join(t.operator or self.walk._joined(t).text for t in self.token.inside)
        return Unreadable(self.token.line, f"the condition `[[ {shown[:80]} ]]` is not read here")

    def _is(self, *symbols: str) -> bool:
        inside = self.token.inside
        if self.at < len(inside) and (inside[self.at].operator or inside[self.at].plain) in symbols:
            self.at += 1
            return True
        return False

    def _or(self) -> bool:
        found = self._and()
        while self._is("||"):
            found = self._and() or found
        return found

    def _and(self) -> bool:
        found = self._one()
        while self._is("&&"):
            found = self._one() and found
        return found

    def _one(self) -> bool:
        if self._is("!"):
            return not self._one()
        if self._is("("):
            found = self._or()
            if not self._is(")"):
                raise self._fault()
            return found
        inside = self.token.inside
        words: list[Token] = []
        while self.at < len(inside) and inside[self.at].operator not in ("&&", "||", ")", "("):
            words.append(inside[self.at])
            self.at += 1
        return self._compare(words)

    def _compare(self, words: list[Token]) -> bool:
        walk, line = self.walk, self.token.line
        texts = [word.operator or walk._joined(word).text for word in words]
        if len(words) == 3:
            left, operator, right = texts
            pattern = walk._joined(words[2])
            if operator in ("=", "==", "!="):
                return _matches(left, pattern.pattern) is (operator != "!=")
            if operator == "=~":
                return _searched(left, right, line)
            if operator in ("<", ">"):
                return left < right if operator == "<" else left > right
            if operator in _COMPARE:
                numbers = [
                    _Arithmetic(text, walk.variables, line).value() for text in (left, right)
                ]
                return _COMPARE[operator](*numbers)
        if len(words) == 2 and texts[0] == "-v":
            return texts[1] in walk.variables
        if len(words) in (1, 2):
            return _test(["test", *texts], line)
        raise self._fault()


def _searched(value: str, expression: str, line: int) -> bool:
    if len(expression) > 60 or re.search(r"\)\s*[*+?{]|[*+}].*[*+}].*[*+}]", expression):
        raise Unreadable(line, "the expression behind =~ is more involved than it needs to be")
    try:
        return re.search(expression, value[:200]) is not None
    except re.error:
        raise Unreadable(line, f"{expression!r} is no regular expression") from None


_COMPARE = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}


def _test(words: list[str], line: int) -> bool:
    if words[0] == "[":
        if words[-1] != "]":
            raise Unreadable(line, "`[` needs a closing `]`, a word of its own")
        words = words[:-1]
    words = words[1:]
    if len(words) == 3 and words[1] in ("=", "==", "!="):
        return (words[0] == words[2]) is (words[1] != "!=")
    for joint in ("-o", "-a"):
        if joint in words[1:-1] and len(words) > 4:
            at = words.index(joint, 1)
            sides = [_test(["test", *part], line) for part in (words[:at], words[at + 1 :])]
            return any(sides) if joint == "-o" else all(sides)
    if words[:1] == ["!"] and len(words) > 1:
        return not _test(["test", *words[1:]], line)
    if len(words) == 3:
        left, operator, right = words
        if operator in _COMPARE:
            try:
                a, b = int(left), int(right)
            except ValueError:
                raise Unreadable(
                    line, f"`{operator}` compares whole numbers, and {left or right!r} is none here"
                ) from None
            return _COMPARE[operator](a, b)
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return (words[1] == "") is (words[0] == "-z")
    if len(words) == 2 and words[0] in ("-e", "-f", "-d", "-x", "-r", "-s"):
        return True
    if len(words) == 1:
        return bool(words[0])
    if not words:
        return False
    if len(words) == 2 and words[0] in ("=", "==", "!=", *_COMPARE):
        raise Unreadable(
            line,
            f"nothing stands before `{words[0]}` in the condition: a bare variable that is empty "
            "is no word at all; is its name right, and is it set there?",
        )
    raise Unreadable(line, f"the condition `{' '.join(words)}` is not read here; compare with =")


# -- ranks ----------------------------------------------------------------------------------------


def ranks(start: Start) -> Iterator[tuple[int, Start]]:
    """(rank, program) of what a launcher starts on one machine: torchrun and `python -m
    torch.distributed.run`, with `bash -c` looked into. Another program is rank 0 of itself."""
    tail = _launched(start)
    if tail is None:
        yield from ((0, inner) for inner in inside(start, {}))
        return
    count, arguments, bare = tail
    for rank in range(count):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
        own |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
        if not arguments:
            raise Unreadable(start.line, f"`{start.words[0]}` is given no program to start")
        started = [*([] if bare else [Argument("python", start.line)]), *arguments]
        child = Start(started, {**start.environment, **own}, start.line)
        yield from ((rank, one) for one in inside(child, own))


def rank_count(start: Start) -> int:
    """How many ranks a launcher starts; 1 for any other program."""
    launched = _launched(start)
    return launched[0] if launched else 1


_TORCHRUN_FLAGS = {"--standalone", "--no-python", "--run-path"}
_MODULE = ("-m", "--module")


def _launched(start: Start) -> tuple[int, list[Argument], bool] | None:
    """(ranks, what each starts, without python in front) of torchrun; None of anything else."""
    arguments = start.arguments[1:]
    words = start.words
    if start.program.startswith("python") and words[1:3] == ["-m", "torch.distributed.run"]:
        arguments = arguments[2:]
    elif start.program != "torchrun":
        return None
    count, bare, index, module = 1, False, 0, False
    while index < len(arguments) and arguments[index].text.startswith("-"):
        word = arguments[index].text
        if word == "--":
            index += 1
            break
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name == "--no-python":
            bare = True
        elif name in _MODULE:
            module = True
        elif name not in _TORCHRUN_FLAGS and not equals:
            index += 1
            value = arguments[index].text if index < len(arguments) else ""
        if name == "--nproc-per-node":
            if not re.fullmatch(r"[1-9][0-9]?", value) or int(value) > MAX_RANKS:
                raise Unreadable(
                    start.line, f"--nproc-per-node is {value!r}; write the number of ranks here"
                )
            count = int(value)
        index += 1
    rest = arguments[index:]
    if module and rest and not bare:
        rest = [Argument("-m", start.line), *rest]
    return count, rest, bare


_SHELLS = ("bash", "sh", "dash", "zsh")


def _text_at(words: list[str]) -> int:
    """Where the text of `bash -c 'text'` stands among its words; 0 without one."""
    at, text_follows = 1, False
    while at < len(words) and re.match(r"[-+]", words[at]):
        text_follows = text_follows or bool(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", words[at]))
        at += 2 if words[at] in ("-o", "+o") or re.fullmatch(r"-[a-z]*o", words[at]) else 1
    return at if text_follows and at < len(words) else 0


def put_in_early(start: Start) -> Argument | None:
    """The text of `bash -c` that a launcher starts, if the shell that starts the launcher has put
    variables of a rank into it."""
    launched = _launched(start)
    words = [argument.text for argument in launched[1]] if launched else []
    if not launched or not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    text = launched[1][_text_at(words)]
    return text if text.early else None


def as_meant(start: Start) -> Start:
    """The same start with those variables left for each rank's own shell."""
    arguments = [replace(one, text=one.late) if one.early else one for one in start.arguments]
    return replace(start, arguments=arguments)


def inside(start: Start, own: dict[str, str]) -> list[Start]:
    """What `bash -c 'text'` starts; another program is itself."""
    words = start.words
    if start.program not in _SHELLS:
        return [start]
    if at := _text_at(words):
        text = start.arguments[at]
        arguments = words[at + 1 :] or [words[0]]
        try:
            return starts(parse(text.text, text.line), {**start.environment, **own}, arguments)
        except Unreadable as error:
            line = max(error.line, text.line)
            raise Unreadable(line, f"in the text of `{words[0]} -c`: {error.text}") from None
    raise Unreadable(
        start.line,
        f"`{' '.join(words[:2])}` starts a script that is not in this file; write its commands "
        "here, as in bash -c 'if ...; then ...; fi'",
    )
