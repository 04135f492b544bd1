"""A `.cu` file as text: what it must not hold, which kernels it has, how its arrays are declared.

NVRTC, which has neither headers nor host code, must accept the same bytes, so everything that it
would refuse is refused here too, by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from grader.kernels.cuda.vocabulary import ORDINARY, REFUSED

# Each repetition that may run to the end of the file is bounded: a file of 256 KiB could else keep
# them busy for minutes.
_KERNEL = re.compile(
    r'(?P<c>extern\s*"C"\s*)?(?P<bounds>__launch_bounds__\s*\([^)]{0,400}\)\s*)?__global__\s+'
    r"(?:__launch_bounds__\s*\([^)]{0,400}\)\s*)?(?:static\s+)?void\s+"
    r"(?:__launch_bounds__\s*\([^)]{0,400}\)\s*)?(?P<name>\w+)\s*\((?P<parameters>[^)]{0,4000})\)"
)
_ALIGNED = re.compile(r"\b(?:__align__|alignas)\s*\([^)]{0,400}\)")
_DECLARED = re.compile(
    r"\b__(?:shared|device|constant)__\s+((?:[^;{}()=\[\]]|\[[^\]]{0,400}\]){1,2000})(?=[;={])"
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
_EXTERN = re.compile(r'extern\s*"C"\s*\{')
_DYNAMIC = re.compile(r"\bextern\s+__shared__\s+[^;]{0,400}?\b(\w+)\s*\[\s*\]\s*;")
_CONSTANT = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+)$|"
    r"\b(?:const|constexpr)\s+(?:unsigned\s+)?(?:int|unsigned|size_t)\s+(\w+)\s*=\s*([^;,]{1,400});",
    re.MULTILINE,
)


class Unsupported(ValueError):
    """The file holds code that is not supported; the text has one sentence a line."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: its name and its type as written, without `const`."""

    name: str
    type: str

    @property
    def is_pointer(self) -> bool:
        return "*" in self.type


@dataclass(frozen=True)
class Kernel:
    """A `__global__` function of the file; `line` is where it begins."""

    name: str
    parameters: tuple[Parameter, ...]
    line: int


@dataclass(frozen=True)
class Array:
    """A variable in shared, device or constant memory: the function that declares it (or ""), its
    type as written, and its sizes: empty for a single value, None if they are not plain numbers."""

    function: str
    name: str
    type: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Source:
    """A file's text, and the declarations in it. `dynamic`: names of dynamic shared arrays."""

    name: str
    text: str
    code: str
    kernels: dict[str, Kernel]
    dynamic: tuple[str, ...]
    arrays: tuple[Array, ...]

    def array(self, name: str, function: str = "") -> Array | None:
        """The variable of that name in that function, or else in any."""
        same = [array for array in self.arrays if array.name == name]
        own = [array for array in same if array.function == function]
        return next(iter(own or same), None)

    def lines_of(self, kernel: str) -> set[int]:
        """The lines of a kernel and of the functions that it may call."""
        bodies = {name: (start, end) for name, _, start, end in _functions(self.code)}
        wanted, found = [kernel], set[str]()
        while wanted:
            name = wanted.pop()
            if name in bodies and name not in found:
                found.add(name)
                wanted += re.findall(r"\b[A-Za-z_]\w*\b", self.code[slice(*bodies[name])])
        ends = [
            (line_of(self.code, at), line_of(self.code, end))
            for at, end in (bodies[name] for name in found)
        ]
        return {line for first, last in ends for line in range(first, last + 1)}

    def lines_of_others(self, kernel: str) -> set[int]:
        """The lines of the other kernels and of what they may call, this one's own left out."""
        found = {line for other in self.kernels if other != kernel for line in self.lines_of(other)}
        return found - self.lines_of(kernel)

    def dynamic_of(self, kernel: str) -> tuple[str, ...]:
        """The dynamic shared arrays, first those that the kernel itself declares."""
        own = {array.name for array in self.arrays if array.function == kernel}
        return tuple(sorted(self.dynamic, key=lambda name: name not in own))


def read(name: str, text: str) -> Source:
    """Read a file; raises `Unsupported` with the line of each refused word."""
    code = without_comments(text)
    _refuse(name, code)
    kernels = {found.name: found for found in _kernels(name, code)}
    dynamic = tuple(dict.fromkeys(_DYNAMIC.findall(code)))
    return Source(name, text, code, kernels, dynamic, tuple(_arrays(code)))


_UNROLL = re.compile(r'"unroll(?: [0-9]{1,9})?"')


def without_comments(text: str) -> str:
    """The text with comments and the insides of strings as blanks, line for line; `extern "C"`
    and `_Pragma("unroll")` stay."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found == '"C"' or _UNROLL.fullmatch(found):
            return found
        blanks = re.sub(r"[^\n]", " ", found)
        if found[0] in "\"'" and len(found) > 1 and found[-1] == found[0]:
            return found[0] + blanks[1:-1] + found[-1]
        return blanks

    # A string that does not end is one up to the end of its line, and is not looked at again.
    pattern = (
        r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*+(?:\"|(?=\n)|\Z)"
        r"|'(?:\\.|[^'\\\n]){1,20}'"
    )
    return re.sub(pattern, blank, text, flags=re.DOTALL)


def line_of(code: str, position: int) -> int:
    return code.count("\n", 0, position) + 1


def _refuse(name: str, code: str) -> None:
    found: list[tuple[int, str]] = []
    own: dict[str, bool] = {}
    for row in REFUSED:
        for match in re.finditer(row.pattern, code, re.MULTILINE):
            word = match[0].strip().rstrip("(").strip()
            if ORDINARY.fullmatch(word) and word not in own:
                own[word] = _defines(code, word)
            if own.get(word):
                continue
            found.append((line_of(code, match.start()), f"`{word}`: {row.remedy}"))
            break
    for function, head, start, _ in _functions(code):
        if not _MARKED.search(head):
            why = f"`{function}` needs __device__ in front: a GPU calls no host function"
            found.append((line_of(code, start), why))
    if found:
        raise Unsupported("\n".join(f"{name}:{line}: {why}." for line, why in sorted(found)))


_DEFINED = re.compile(r"\b([A-Za-z_]\w*)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*(?:const\s*)?\Z")
_MARKED = re.compile(r"__(?:global|device)__|\b(?:struct|class|union|enum|namespace)\b")


def _defines(code: str, word: str) -> bool:
    """Whether the file has such a macro, type, variable or function of its own."""
    return any(
        re.search(pattern, code, re.MULTILINE)
        for pattern in (
            rf"^[ \t]*#[ \t]*define[ \t]+{word}\b",
            rf"\btypedef\b[^;]{{0,400}}\b{word}\s*;",
            rf"\b\w+[\s*&]+{word}\s*[;,)\[]",
            rf"\b{word}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)",
            rf"\b\w+[\s*&]+{word}\s*\([^;{{}}]{{0,1000}}\)\s*\{{",
        )
    )


def _functions(code: str) -> Iterator[tuple[str, str, int, int]]:
    """Functions at the top level: the name, the text before the body, and the positions of the name
    and of the end."""
    outer = _EXTERN.sub(lambda m: " " * (len(m[0]) - 1) + ";", _without_directives(code))
    depth = start = 0
    open_since: tuple[str, str, int] | None = None
    for match in re.finditer(r"[{};]", outer):
        if match[0] == "{":
            if depth == 0:
                head = outer[start : match.start()]
                named = _DEFINED.search(head)
                if named and "=" not in head.partition("(")[0]:
                    open_since = named[1], head, start + named.start(1)
            depth += 1
            continue
        if match[0] == "}":
            depth = max(0, depth - 1)
        if depth == 0:
            start = match.end()
            if open_since:
                yield (*open_since, match.end())
            open_since = None


def _without_directives(code: str) -> str:
    return _DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), code)


def _arrays(code: str) -> Iterator[Array]:
    constants = _constants(code)
    functions = list(_functions(code))
    plain = _ALIGNED.sub(lambda m: " " * len(m[0]), _without_directives(code))
    for match in _DECLARED.finditer(plain):
        inside = [name for name, _, start, end in functions if start < match.start() < end]
        first, *others = match[1].split(",")
        named = re.fullmatch(r"(.*?)(\w+)\s*((?:\[[^\]]*\]\s*)*)", first, re.DOTALL)
        if not named or not named[1].strip():
            continue
        kind = " ".join(named[1].split())
        for name, sizes in [
            (named[2], named[3]),
            *re.findall(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)$", "\n".join(others), re.MULTILINE),
        ]:
            shape = [_value(part, constants) for part in re.findall(r"\[([^\]]*)\]", sizes)]
            whole = tuple(size for size in shape if size is not None)
            yield Array(
                inside[0] if inside else "", name, kind, whole if len(whole) == len(shape) else None
            )


def _kernels(name: str, code: str) -> list[Kernel]:
    found = []
    code = _without_directives(code)
    closings = _closings(code)
    every = [(at.start(), closings.get(at.end(), len(code))) for at in _EXTERN.finditer(code)]
    blocks = list(_outermost(every))
    for match in _KERNEL.finditer(code):
        line = line_of(code, match.start("name"))
        if not match["c"] and not any(start < match.start() < end for start, end in blocks):
            raise Unsupported(
                f'{name}:{line}: kernel `{match["name"]}` needs extern "C" in front of __global__, '
                "so that it can be found under its own name."
            )
        text = match["parameters"].strip()
        rows = [_parameter(part) for part in text.split(",")] if text and text != "void" else []
        found.append(Kernel(match["name"], tuple(rows), line))
    return found


def _closings(code: str) -> dict[int, int]:
    """Where each brace that opens is closed, by the position behind it."""
    found, open_braces = dict[int, int](), list[int]()
    for match in re.finditer(r"[{}]", code):
        if match[0] == "{":
            open_braces.append(match.end())
        elif open_braces:
            found[open_braces.pop()] = match.start()
    return found


def _outermost(blocks: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The blocks, in order of their starts, that are in no other."""
    last = -1
    for start, end in blocks:
        if start >= last:
            last = end
            yield start, end


def _parameter(text: str) -> Parameter:
    text = re.sub(r"\b(?:const|__restrict__|volatile)\b", " ", text)
    names = re.findall(r"\w+", text)
    name = names[-1] if names else ""
    kind = re.sub(r"\s+", " ", re.sub(rf"\b{name}\b\s*(?:\[\s*\])?\s*\Z", "", text.strip())).strip()
    return Parameter(name, f"{kind}*" if text.rstrip().endswith("]") else kind)


def _constants(code: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for match in _CONSTANT.finditer(code):
        value = _value(match[2] or match[4], found)
        if value is not None:
            found[match[1] or match[3]] = value
    return found


def _value(text: str, constants: dict[str, int]) -> int | None:
    """A sum or product of integers and known names, or None."""
    known = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: str(constants.get(m[0], "?")), text.strip())
    known = re.sub(r"(?<=\d)[uUlL]+\b", "", known)
    if not re.fullmatch(r"[\d\s+*/()-]+", known) or len(known) > 100 or "**" in known:
        return None
    try:
        return int(eval(known.replace("/", "//"), {"__builtins__": {}}))  # digits and signs only
    except (SyntaxError, ArithmeticError, TypeError, ValueError):
        return None
