"""Reads a shell script as text and says which commands it would start, for which rank: nothing is
executed. A small part of POSIX sh and bash, enough for scripts that start profilers; what is not in
it is refused by name, with its line.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

OPERATORS = ("&&", "||", ";;", ";", "|", "&", "(", ")", "\n")
KEYWORDS = {"if", "then", "elif", "else", "fi", "case", "esac", "for", "in", "do", "done", "{", "}"}
KEYWORDS |= {"!", "while", "until", "function"}
MAX_STARTS, MAX_STEPS, MAX_VALUE, MAX_RANKS = 400, 4000, 4000, 16
_PREFIXES = ("exec", "command", "nohup", "sudo", "env", "time")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")


class Unreadable(Exception):
    """A script that cannot be read; `line` is where."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


@dataclass(frozen=True)
class Piece:
    """Part of a word. kind: bare (unquoted), quoted, or variable; `default` is that of
    `${name:-default}`."""

    kind: str
    text: str
    quoted: bool = False
    default: str = ""


@dataclass(frozen=True)
class Token:
    """An operator, or a word with its pieces. line: where it begins."""

    line: int
    operator: str = ""
    pieces: tuple[Piece, ...] = ()

    @property
    def plain(self) -> str:
        """The word, if nothing in it is quoted or a variable."""
        if all(piece.kind == "bare" for piece in self.pieces):
            return "".join(piece.text for piece in self.pieces)
        return ""


@dataclass(frozen=True)
class Argument:
    """A word as a program gets it. bare: those of its characters that the shell has looked at."""

    text: str
    line: int
    bare: str = ""


@dataclass
class Start:
    """A program that the script would start."""

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
    def __init__(self, text: str, line: int = 1) -> None:
        self.text = text
        self.at = 0
        self.line = line
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
        elif c in "<>":
            self._redirect()
        elif operator := next((o for o in OPERATORS if text.startswith(o, self.at)), ""):
            self.tokens.append(Token(self.line, operator))
            self.at += len(operator)
            self.line += operator == "\n"
        else:
            self._word()

    def _redirect(self) -> None:
        if self.text.startswith("<<", self.at):
            raise Unreadable(
                self.line,
                "a here-document is not read here; give Python's text to `python -c '...'`",
            )
        if self.text.startswith(("<(", ">("), self.at):
            raise Unreadable(self.line, "`<(...)` is not read here; write plain commands")
        if self.tokens and self.tokens[-1].plain.isdigit() and self.text[self.at - 1].isdigit():
            self.tokens.pop()  # the 2 of `2>&1`
        match = re.compile(r"[<>]+[&|]?[ \t]*").match(self.text, self.at)
        self.at = match.end()
        if self.at < len(self.text) and self.text[self.at] not in "\n;|&":
            self._word()
            self.tokens.pop()  # a file that is read or written is no argument

    def _word(self) -> None:
        text, line = self.text, self.line
        pieces: list[Piece] = []
        while self.at < len(text) and text[self.at] not in " \t\r\n;|&()<>":
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
                self._take(pieces, Piece("quoted", text[self.at + 1 : self.at + 2], True), 2, True)
            elif c == "$" or c == "`":
                self._dollar(pieces, False)
            else:
                end = self.at + 1
                while end < len(text) and text[end] not in " \t\r\n;|&()<>'\"\\$`":
                    end += 1
                self._take(pieces, Piece("bare", text[self.at : end]), end)
        if self.at < len(text) and text[self.at] == "(" and pieces:
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
        if re.compile(r"\(\s*\)").match(self.text, self.at) and _NAME.fullmatch(word):
            raise Unreadable(
                self.line, f"`{word}()` defines a function, which is not read here; write commands"
            )
        raise Unreadable(
            self.line,
            f"the shell stops at the unquoted ( after `{word}`; put the whole word into single "
            "quotes, as in --kernel-name 'regex:(gemm|conv)'",
        )

    def _take(self, pieces: list[Piece], piece: Piece, end: int, relative: bool = False) -> None:
        stop = self.at + end if relative else end
        self.line += self.text.count("\n", self.at, stop)
        self.at = stop
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
        if text[at] == "`" or text.startswith("$(", at):
            raise Unreadable(
                self.line, "the output of another command is not known here; write the value"
            )
        if text.startswith("${", at):
            match = re.compile(r"\$\{([A-Za-z_]\w*)(?::?([-=])([^{}]*))?\}").match(text, at)
            if not match:
                end = text.find("}", at)
                raise Unreadable(self.line, f"`{text[at : end + 1]}` is not read here")
            pieces.append(Piece("variable", match[1], quoted, match[3] or ""))
            self.at = match.end()
        elif match := _NAME.match(text, at + 1):
            pieces.append(Piece("variable", match[0], quoted))
            self.at = match.end()
        elif text.startswith(("$@", "$*"), at) or text[at + 1 : at + 2] in tuple("0123456789"):
            pieces.append(Piece("variable", text[at + 1], quoted))
            self.at += 2
        else:  # a $ that stands for itself, as at the end of a regular expression
            pieces.append(Piece("quoted" if quoted else "bare", "$", quoted))
            self.at += 1


def _blanks(count: int) -> str:
    return "there is one blank" if count == 1 else f"there are {count} blanks"


# -- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """kind: simple, pipe, and, or, not, list, if, for, case. `parts` depends on it."""

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
    open: list[Token] = field(default_factory=list)

    def whole(self) -> Node:
        node = self._list(())
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
        self._blank()
        if not self._is(word):
            token = self._peek()
            where = token.line if token else self.tokens[-1].line
            raise Unreadable(
                where, f"`{word}` is missing: line {opened.line} begins `{opened.plain or '('}`"
            )
        self.at += 1

    def _blank(self, *more: str) -> None:
        while self._is("\n", ";", *more):
            self.at += 1

    def _list(self, until: Sequence[str]) -> Node:
        parts: list[Node] = []
        first = self._peek()
        while True:
            self._blank("&")
            if self._peek() is None or self._is(*until, ")", "}"):
                break
            if self._is("then", "elif", "else", "fi", "do", "done", "esac", ";;"):
                break
            parts.append(self._and_or())
        return Node("list", first.line if first else 1, tuple(parts))

    def _and_or(self) -> Node:
        left = self._pipe()
        while self._is("&&", "||"):
            kind = "and" if self._is("&&") else "or"
            self.at += 1
            while self._is("\n"):
                self.at += 1
            left = Node(kind, left.line, (left, self._pipe()))
        return left

    def _pipe(self) -> Node:
        if self._is("!"):
            line = self.tokens[self.at].line
            self.at += 1
            return Node("not", line, (self._pipe(),))
        parts = [self._command()]
        while self._is("|"):
            self.at += 1
            while self._is("\n"):
                self.at += 1
            parts.append(self._command())
        return parts[0] if len(parts) == 1 else Node("pipe", parts[0].line, tuple(parts))

    def _command(self) -> Node:
        token = self._peek()
        if token is None or (token.operator and token.operator != "("):
            line = token.line if token else self.tokens[-1].line
            raise Unreadable(line, "a command is missing here")
        if self._is("(", "{"):
            self.at += 1
            body = self._list((")", "}"))
            self._expect(")" if token.operator else "}", token)
            return body
        if self._is("if"):
            return self._if()
        if self._is("for"):
            return self._for()
        if self._is("case"):
            return self._case()
        if self._is("while", "until", "function"):
            raise Unreadable(token.line, f"`{token.plain}` is not read here; write plain commands")
        words = []
        while (token := self._peek()) is not None and not token.operator:
            words.append(token)
            self.at += 1
        return Node("simple", words[0].line, tuple(words))

    def _if(self) -> Node:
        opened = self.tokens[self.at]
        self.at += 1
        branches = []
        condition = self._list(("then",))
        self._expect("then", opened)
        branches.append((condition, self._list(("elif", "else", "fi"))))
        while self._is("elif"):
            self.at += 1
            condition = self._list(("then",))
            self._expect("then", opened)
            branches.append((condition, self._list(("elif", "else", "fi"))))
        other = None
        if self._is("else"):
            self.at += 1
            other = self._list(("fi",))
        self._expect("fi", opened)
        return Node("if", opened.line, (tuple(branches), other))

    def _for(self) -> Node:
        opened, name = self.tokens[self.at], self.tokens[self.at + 1]
        self.at += 2
        self._expect("in", opened)
        words = []
        while (token := self._peek()) is not None and not token.operator:
            words.append(token)
            self.at += 1
        self._expect("do", opened)
        body = self._list(("done",))
        self._expect("done", opened)
        return Node("for", opened.line, (name.plain, tuple(words), body))

    def _case(self) -> Node:
        opened, word = self.tokens[self.at], self.tokens[self.at + 1]
        self.at += 2
        self._expect("in", opened)
        rows = []
        self._blank()
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
            rows.append((tuple(patterns), self._list((";;", "esac"))))
            if self._is(";;"):
                self.at += 1
            self._blank()
        self.at += 1
        return Node("case", opened.line, (word, tuple(rows)))


# -- which programs would start -------------------------------------------------------------------


def starts(node: Node, environment: dict[str, str], positional: Sequence[str] = ()) -> list[Start]:
    """The programs that the script starts with these variables, in order."""
    walk = _Walk(dict(environment), list(positional))
    with contextlib.suppress(_Replaced):
        walk.node(node)
    return walk.found


class _Replaced(Exception):
    """`exec` or `exit`: nothing after it is reached."""


@dataclass
class _Walk:
    variables: dict[str, str]
    positional: list[str]
    found: list[Start] = field(default_factory=list)
    piped: bool = False
    steps: int = 0

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
        if kind == "pipe":
            for index, part in enumerate(parts):
                self.piped = index > 0
                ok = self.node(part)
            self.piped = False
            return ok
        if kind == "if":
            branches, other = parts
            for condition, body in branches:
                if self.node(condition):
                    return self.node(body)
            return self.node(other) if other else True
        if kind == "for":
            name, words, body = parts
            for argument in [a for word in words for a in self._expand(word)]:
                self.variables[name] = argument.text[:MAX_VALUE]
                self.node(body)
            return True
        word, rows = parts
        value = "".join(argument.text for argument in self._expand(word))
        for patterns, body in rows:
            if any(
                fnmatchcase(value, a.text) for pattern in patterns for a in self._expand(pattern)
            ):
                return self.node(body)
        return True

    def _simple(self, node: Node) -> bool:
        words = list(node.parts)
        own: dict[str, str] = {}
        while words and (match := _ASSIGNMENT.match(_head(words[0]))):
            value = "".join(a.text for a in self._expand(words.pop(0), split=False))
            own[match[1]] = value.partition("=")[2]
            if len(own[match[1]]) > MAX_VALUE:
                raise Unreadable(node.line, f"the value of {match[1]} is longer than any option")
        if not words:
            self.variables.update(own)
            return True
        arguments = [argument for word in words for argument in self._expand(word)]
        return self._start(arguments, own, node.line)

    def _start(self, arguments: list[Argument], own: dict[str, str], line: int) -> bool:
        while arguments and arguments[0].text in (
            "exec",
            "command",
            "nohup",
            "sudo",
            "env",
            "time",
        ):
            first = arguments.pop(0).text
            while arguments and first in ("env", "sudo") and "=" in arguments[0].text:
                name, _, value = arguments.pop(0).text.partition("=")
                own[name] = value
            if first == "exec" and arguments:
                self._start(arguments, own, line)
                raise _Replaced
        if not arguments:
            return True
        name = arguments[0].text
        if name in ("[", "[[", "test"):
            return _test([a.text for a in arguments], line)
        if name == "export":
            for argument in arguments[1:]:
                key, equals, value = argument.text.partition("=")
                if equals:
                    self.variables[key] = value[:MAX_VALUE]
            return True
        if name == "exit":
            raise _Replaced
        if name in ("set", "cd", "mkdir", "echo", "printf", ":", "true", "wait", "trap", "shopt"):
            return True
        if name == "false":
            return False
        if name in ("source", ".", "eval"):
            raise Unreadable(line, f"`{name}` is not read here; write the commands themselves")
        if len(self.found) >= MAX_STARTS:
            raise Unreadable(line, f"more than {MAX_STARTS} commands; write only those asked for")
        self.found.append(Start(arguments, {**self.variables, **own}, line, self.piped))
        return True

    def _expand(self, word: Token, split: bool = True) -> list[Argument]:
        """The word as a program gets it: none or several words, where a variable stands bare."""
        fields: list[list[str]] = [["", ""]]
        anything = False
        for piece in word.pieces:
            if piece.kind != "variable":
                fields[-1][0] += piece.text
                fields[-1][1] += "" if piece.quoted else piece.text
                anything = anything or piece.quoted or bool(piece.text)
                continue
            value = self._value(piece)
            if piece.quoted or not split:
                fields[-1][0] += value
                anything = anything or piece.quoted
                continue
            parts = value.split()
            if not parts:
                continue
            anything = True
            fields[-1][0] += parts[0]
            fields += [[part, part] for part in parts[1:]]
        if not anything and not any(text for text, _ in fields):
            return []
        return [Argument(text, word.line, bare) for text, bare in fields]

    def _value(self, piece: Piece) -> str:
        if piece.text in ("@", "*"):
            return " ".join(self.positional)
        if piece.text in tuple("0123456789"):
            index = int(piece.text) - 1
            return self.positional[index] if 0 <= index < len(self.positional) else ""
        return self.variables.get(piece.text) or piece.default


def _head(word: Token) -> str:
    """The bare beginning of a word."""
    first = word.pieces[0] if word.pieces else None
    return first.text if first and first.kind == "bare" else ""


def _test(words: list[str], line: int) -> bool:
    if words[0] != "test":
        closing = "]" if words[0] == "[" else "]]"
        if words[-1] != closing:
            raise Unreadable(line, f"`{words[0]}` needs a closing `{closing}`, a word of its own")
        words = words[:-1]
    words = words[1:]
    if words[:1] == ["!"]:
        return not _test(["test", *words[1:]], line)
    if len(words) == 3:
        left, operator, right = words
        if operator in ("=", "=="):
            return fnmatchcase(left, right)
        if operator == "!=":
            return not fnmatchcase(left, right)
        compare = {"-eq": 0, "-ne": 0, "-lt": 0, "-le": 0, "-gt": 0, "-ge": 0}
        if operator in compare:
            try:
                a, b = int(left), int(right)
            except ValueError:
                raise Unreadable(
                    line, f"`{operator}` compares whole numbers, and {left or right!r} is none here"
                ) from None
            return {
                "-eq": a == b,
                "-ne": a != b,
                "-lt": a < b,
                "-le": a <= b,
                "-gt": a > b,
                "-ge": a >= b,
            }[operator]
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return (words[1] == "") is (words[0] == "-z")
    if len(words) == 2 and words[0] in ("-e", "-f", "-d", "-x"):
        return True
    if len(words) == 1:
        return bool(words[0])
    raise Unreadable(line, f"the condition `{' '.join(words)}` is not read here; compare with =")


def ranks(start: Start) -> Iterator[tuple[int, Start]]:
    """(rank, program) of what a launcher starts on one machine: torchrun and `python -m
    torch.distributed.run`, with `bash -c` looked into. Another program is rank 0 of itself."""
    words = start.words
    tail = _launched(start)
    if tail is None:
        yield from ((0, inner) for inner in _inside(start, {}))
        return
    count, arguments, bare = tail
    for rank in range(count):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
        if not arguments:
            raise Unreadable(start.line, f"`{words[0]}` is given no program to start")
        started = [*([] if bare else [Argument("python", start.line)]), *arguments]
        child = Start(started, {**start.environment, **own}, start.line)
        yield from ((rank, inner) for inner in _inside(child, own))


def rank_count(start: Start) -> int:
    """How many ranks a launcher starts; 1 for any other program."""
    launched = _launched(start)
    return launched[0] if launched else 1


_TORCHRUN_FLAGS = {"--standalone", "--no-python", "--no_python", "--run-path", "-m", "--module"}


def _launched(start: Start) -> tuple[int, list[Argument], bool] | None:
    """(ranks, what each starts, without python in front) of torchrun; None of anything else."""
    arguments = start.arguments[1:]
    words = start.words
    if start.program.startswith("python") and words[1:3] == ["-m", "torch.distributed.run"]:
        arguments = arguments[2:]
    elif start.program != "torchrun":
        return None
    count, bare, index = 1, False, 0
    while index < len(arguments) and arguments[index].text.startswith("-"):
        word = arguments[index].text
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name in ("--no-python",):
            bare = True
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
    return count, arguments[index:], bare


def _inside(start: Start, own: dict[str, str]) -> list[Start]:
    """What `bash -c 'text'` starts; another program is itself."""
    words = start.words
    if start.program not in ("bash", "sh"):
        return [start]
    if len(words) >= 2 and re.fullmatch(r"-[a-z]*c", words[1]) and len(words) >= 3:
        text = start.arguments[2]
        try:
            return starts(parse(text.text, text.line), {**start.environment, **own}, words[4:])
        except Unreadable as error:
            raise Unreadable(error.line, f"in the text of `{words[0]} -c`: {error.text}") from None
    raise Unreadable(
        start.line,
        f"`{' '.join(words[:2])}` starts a script that is not in this file; write its commands "
        "here, as in bash -c 'if ...; then ...; fi'",
    )
