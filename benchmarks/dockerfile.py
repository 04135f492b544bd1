"""Dockerfiles without a container engine: their instructions, and an image made by them in order.

`ImageBuild` follows Docker's reference for the instructions that the kit's own files use, and
refuses the rest. FROM stands in a folder before it begins; what runs a command is its caller's.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

SHELL = ("/bin/sh", "-c")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")


@dataclass(frozen=True)
class Command:
    """What RUN, or a start of the image, runs: in the folder `cwd`, as the user of that name."""

    words: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    user: str


def instructions(text: str) -> list[tuple[str, str]]:
    """Instruction and rest of each line, with continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = []
    for line in filter(str.strip, joined.splitlines()):
        word, _, rest = line.strip().partition(" ")
        found.append((word.upper(), rest.strip()))
    return found


def expand(text: str, values: Mapping[str, str]) -> str:
    """Put in `$NAME`, `${NAME}`, `${NAME:-word}` and `${NAME:+word}`."""

    def value(found: re.Match[str]) -> str:
        plain, braced, sign, word = found.groups()
        known = values.get(plain or braced, "")
        if sign == "+":
            return word if known else ""
        return known or (word if sign else "")

    return _VARIABLE.sub(value, text)


def ignored(path: str, patterns: Sequence[str]) -> bool:
    """Whether `.dockerignore` keeps a path of the context out: it or a folder above it matches,
    and no later line with `!` takes it in again."""
    parts = PurePosixPath(path).parts
    places = ["/".join(parts[: number + 1]) for number in range(len(parts))]
    out = False
    for pattern in patterns:
        rule = _as_regex(pattern.removeprefix("!").strip("/"))
        if any(rule.fullmatch(place) for place in places):
            out = not pattern.startswith("!")
    return out


def _as_regex(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meaning.get(piece, re.escape(piece)) for piece in pieces))


def ignore_patterns(context: Path) -> list[str]:
    """The lines of a context's `.dockerignore`."""
    path = context / ".dockerignore"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


@dataclass
class ImageBuild:
    """root: the folder that holds the image's files, FROM's before anything else; context: where
    COPY takes from; run: runs a command in the root, and raises what it likes where that fails;
    environment: FROM's; given: values for ARG."""

    root: Path
    context: Path
    run: Callable[[Command], None]
    environment: dict[str, str]
    given: Mapping[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "root"
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    image: str = ""

    def carry_out(self, word: str, rest: str) -> None:
        """One instruction. Raises ValueError for one that no file of the kit uses."""
        known = {
            "FROM": self._from,
            "ARG": self._arg,
            "ENV": self._env,
            "RUN": self._run,
            "WORKDIR": self._workdir,
            "COPY": self._copy,
            "USER": self._user,
            "ENTRYPOINT": self._entrypoint,
            "CMD": self._cmd,
        }
        if word not in known:
            raise ValueError(f"{word} is not carried out here")
        known[word](rest)

    def started(self, arguments: Sequence[str] = ()) -> Command:
        """What `docker run IMAGE ARGUMENTS` runs."""
        words = [*self.entrypoint, *(arguments or self.command)]
        return Command(words, dict(self.environment), self.folder, self.user)

    def _from(self, rest: str) -> None:
        if self.image or len(rest.split()) != 1:
            raise ValueError("images of several stages are not made here")
        self.image = rest

    def _arg(self, rest: str) -> None:
        name, _, default = rest.partition("=")
        self.arguments[name] = self.given.get(name, "".join(shlex.split(default)))

    def _env(self, rest: str) -> None:
        before = {**self.arguments, **self.environment}  # all of one line see what was before it
        for pair in shlex.split(rest):
            name, separator, value = pair.partition("=")
            if not separator:
                raise ValueError(f"ENV {rest}: write NAME=value")
            self.environment[name] = expand(value, before)

    def _run(self, rest: str) -> None:
        words = json.loads(rest) if rest.startswith("[") else [*SHELL, rest]
        values = {**self.arguments, **self.environment}
        self.run(Command(words, values, self.folder, self.user))

    def _workdir(self, rest: str) -> None:
        wanted = expand(rest, {**self.arguments, **self.environment})
        self.folder = str(PurePosixPath(self.folder, wanted))
        self._inside(self.folder).mkdir(parents=True, exist_ok=True)

    def _user(self, rest: str) -> None:
        self.user = rest

    def _entrypoint(self, rest: str) -> None:
        self.entrypoint, self.command = json.loads(rest), ()

    def _cmd(self, rest: str) -> None:
        self.command = json.loads(rest)

    def _copy(self, rest: str) -> None:
        *sources, target = shlex.split(rest)
        if any(word.startswith("--") or set(word) & set("*?[") for word in sources):
            raise ValueError(f"COPY {rest}: neither options nor patterns are understood here")
        place = self._inside(str(PurePosixPath(self.folder, target)))
        into = target.endswith("/") or len(sources) > 1
        patterns = ignore_patterns(self.context)
        for source in sources:
            if ignored(source, patterns) or not (self.context / source).exists():
                raise ValueError(f"COPY {source}: it is not in the context")
            if (self.context / source).is_dir():  # what is in it, and not the folder
                for path in _files(self.context, source, patterns):
                    _place(self.context / path, place / PurePosixPath(path).relative_to(source))
            else:
                _place(self.context / source, place / Path(source).name if into else place)

    def _inside(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def _files(context: Path, source: str, patterns: Sequence[str]) -> Iterator[str]:
    for path in sorted((context / source).rglob("*")):
        name = path.relative_to(context).as_posix()
        if not path.is_dir() and not ignored(name, patterns):
            yield name


def _place(source: Path, target: Path) -> None:
    """A file with its mode; it and the folders that this makes are its maker's, as with COPY."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target, follow_symlinks=False)
