"""From a `.cu` file's text to a program that launches its kernels on the CPU.

It is compiled as C++ with hooks before every access (`-fsanitize=thread`, no sanitizer library) and
at every basic block, at -O0: an optimizing compiler merges loads and barriers, duplicates barriers
and hoists loops' conditions, so the counts would not be those of the source.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from grader.kernels.cuda.source import Source
from grader.kernels.cuda.vocabulary import hint_for

_RUNTIME = Path(__file__).parent / "runtime"
COMPILE_SECONDS = 60
COMPILER_SECONDS = 6  # of the processor, for a learner's file: a busy machine may take long
MOST_SAID = 8 << 20  # bytes that a compiler may say of a file
COMPILER_BYTES = 1 << 30  # of addresses: less than a worker may have, which ends with its compiler
MAX_QUOTED = 200  # characters of a line
LEARNERS = "learner.cu"  # the file's name for the compiler
_COMMON = ("-std=c++17", "-fno-pie", "-fno-exceptions", "-fno-rtti", "-ffp-contract=off")
MAX_KEPT = 400  # programs in the cache, of 1.3 MB each
MAX_SHARED = 232448  # bytes of shared memory that a block can have
# Each shared array begins at a multiple of this, which is far more than a block can have: an index
# that is wrong for one array reaches no other.
APART = 1 << 20
_KERNEL_FLAGS: tuple[str, ...] = (
    *_COMMON,
    *("-O0", "-gdwarf-4", "-fno-threadsafe-statics", "-fno-omit-frame-pointer"),
    *("-fstack-protector-all", "-fstack-clash-protection"),
    *("-fsanitize=thread", f"-DIL_APART={APART}"),
    "-Wdouble-promotion",  # see `promotions`
    "-Werror=vla",  # a local array whose size is no constant: CUDA has none
)
if platform.machine() in ("aarch64", "arm64"):
    _KERNEL_FLAGS += ("-mtls-size=32",)  # by default 16 MiB of shared arrays, 16 of them apart
_GCC_FLAGS = ("-fsanitize-coverage=trace-pc", "-fno-extern-tls-init")
_CLANG_FLAGS = (
    "-fsanitize-coverage=bb,no-prune,trace-pc",
    *("-mllvm", "-tsan-instrument-read-before-write=1"),
)
# Without a part that the loader protects later: it would end within a page of the file.
_LINK_FLAGS = ("-no-pie", "-Wl,-z,norelro")
_STATIC_FLAGS = ("-static", "-Wl,--exclude-libs,ALL")  # the latter hides the libraries' names
_RUNTIME_FLAGS = ("-std=c++17", "-fno-pie", "-O2", "-w")
_OBJECT: dict[str, bytes] = {}


class CompileError(ValueError):
    """The compiler refused the file; the text has its errors, with the file's own lines."""


class CompilerEnded(CompileError):
    """Something ended the compiler: another try may go another way."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its path, its version text, and whether it is clang."""

    path: str
    version: str
    is_clang: bool


@lru_cache(maxsize=1)
def compiler() -> Compiler:
    """The first of g++, clang++ and c++; raises CompileError if there is none."""
    for name in ("g++", "clang++", "c++"):
        if path := shutil.which(name):
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            if said.returncode == 0:
                return Compiler(path, said.stdout, "clang" in said.stdout)
    raise CompileError("no C++ compiler here: install g++ or clang (Debian: apt install g++)")


def program(source: Source) -> Path:
    """The program for a file, from the cache or compiled now; raises CompileError."""
    found = compiler()
    wrapped = _wrapped(source)
    flags = (*_KERNEL_FLAGS, *(_CLANG_FLAGS if found.is_clang else _GCC_FLAGS))
    path = (
        _cache()
        / _key(found, wrapped, (*flags, *_LINK_FLAGS, *_STATIC_FLAGS, _PROMOTIONS))
        / "program"
    )
    if path.is_file():
        with contextlib.suppress(OSError):
            os.utime(path)  # in use: see `_prune`
        return path
    with tempfile.TemporaryDirectory(prefix="infralens-build-") as name:
        folder = Path(name)
        (folder / "kernel.cpp").write_text(wrapped, encoding="utf-8")
        (folder / LEARNERS).write_text(source.text, encoding="utf-8")  # errors quote its lines
        (folder / "runtime.o").write_bytes(runtime_object())
        said = _run(
            source.name,
            [found.path, *flags, "-I", str(_RUNTIME), "-S", "kernel.cpp", "-o", "kernel.s"],
            folder,
            COMPILER_SECONDS,
        )
        expanded = _expanded(source, found, flags, folder)
        call = [found.path, "-c", "kernel.s", "-o", "kernel.o"]
        _run(source.name, call, folder, COMPILER_SECONDS)
        _link(source.name, found, folder)
        assembly = (folder / "kernel.s").read_text(encoding="utf-8", errors="replace")
        promoted = {int(match[1]) for match in _PROMOTED.finditer(said)}
        named = {line for line, text in expanded if _IN_DOUBLE.search(text)}
        lines = sorted(promoted | named | _doubles(assembly, said))
        with (folder / "program").open("ab") as file:  # a loader ignores what stands at the end
            file.write(f"{_PROMOTIONS}{' '.join(map(str, lines))}".encode())
        _keep(folder / "program", path)
    _prune(path.parent.parent)
    return path


_PROMOTIONS = "\ncomputes in double: "
_PROMOTED = re.compile(
    rf"{re.escape(LEARNERS)}:(\d+):\d+: warning: implicit conversion "
    r"(?:from .* to match other operand of binary|increases floating-point precision)"
)


_MARKER = re.compile(r'# (\d+) "(.*?)"')
# What takes the instruments out of a function, in whatever way a macro spells it.
_HIDES = re.compile(
    r"\b(\w*(?:no_sanitize|no_instrument|no_profile|disable_sanitizer)\w*|(?:__)?asm(?:__)?)\b"
    r"|(?:\[|<:)\s*(?:\[|<:)\s*(using\b|[A-Za-z_]\w*\s*::)"
)
# Doubles by the names of functions: their bits, and what adds them without an operator.
_IN_DOUBLE = re.compile(
    r"\b__(?:d(?:add|sub|mul|div|rcp|sqrt)_r\w|fma_r\w|longlong_as_double|hiloint2double"
    r"|float2double\w*)\s*\("
)


def _expanded(
    source: Source, found: Compiler, flags: tuple[str, ...], folder: Path
) -> list[tuple[int, str]]:
    """The learner's lines as the compiler sees them, macros expanded, with their numbers. Raises
    CompileError for what hides accesses from the counters."""
    call = [found.path, *flags, "-I", str(_RUNTIME), "-E", "kernel.cpp", "-o", "kernel.ii"]
    _run(source.name, call, folder, COMPILER_SECONDS)
    lines, number, own = list[tuple[int, str]](), 0, False
    for row in (folder / "kernel.ii").read_text(encoding="utf-8", errors="replace").splitlines():
        if marker := _MARKER.match(row):
            number, own = int(marker[1]), marker[2] == LEARNERS
            continue
        if own:
            lines.append((number, row))
        number += 1
    code = "\n".join(row for _, row in lines)
    code = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', code)
    if match := _HIDES.search(code):
        line = lines[code.count("\n", 0, match.start())][0]
        word = (match[1] or match[2]).strip()
        raise CompileError(
            f"{source.name}:{line}: `{word}`: an attribute or instruction of the host's compiler, "
            "which would hide what it does from the counters: leave it out."
        )
    return lines


_PASSED = re.compile(
    rf"{re.escape(LEARNERS)}:(\d+):\d+: warning: implicit conversion .* when passing"
)
_FILE = re.compile(rf'\s+\.file\s+(\d+)\s.*"{re.escape(LEARNERS)}"')
_LOC = re.compile(r"\s+\.loc\s+(\d+)\s+(\d+)")
_DOUBLE = re.compile(
    r"\s+(?:fcvt\s+d\d+,\s*s|f(?:add|sub|mul|div|sqrt|n?madd|n?msub)\s+d)"
    if platform.machine() in ("aarch64", "arm64")
    else r"\s+(?:cvtss2sd|(?:add|sub|mul|div|sqrt)[sp]d|f(?:ld|st|add|sub|mul|div)\w*)\s"
)
# Wider and decimal types: functions of the compiler's library compute in them.
_SOFT = re.compile(
    r"\s+(?:call|callq|bl|jmp)\s+__(?:(?:add|sub|mul|div|neg|extend|trunc|float|fix|pow)\w*[tx]f\d?"
    r"|bid_\w+|dpd_\w+)\b"
)


def _doubles(assembly: str, said: str) -> set[int]:
    """The learner's lines where the compiled code computes in more than float, whatever the text
    calls the type: a float made wider (not to be printed: the compiler says which), an operation of
    doubles."""
    printed = {int(match[1]) for match in _PASSED.finditer(said)}
    own, line, found = set[str](), 0, set[int]()
    for row in assembly.splitlines():
        if place := _LOC.match(row):
            line = int(place[2]) if place[1] in own else 0
        elif line and (_DOUBLE.match(row) or _SOFT.match(row)):
            found.add(line)
        elif file := _FILE.match(row):
            own.add(file[1])
    return found - printed


def promotions(program: Path) -> tuple[int, ...]:
    """The lines of a program's file that compute in double: where a float is made one for an
    operation, as in `1.0 * x`, or where two doubles are added."""
    return tuple(map(int, program.read_bytes().rpartition(_PROMOTIONS.encode())[2].split()))


def _prune(cache: Path) -> None:
    """Keep the cache small: of more than `MAX_KEPT` programs, remove the older half, except those
    that were in use within the last hour."""
    kept = list(cache.iterdir())
    if len(kept) <= MAX_KEPT:
        return
    used: list[tuple[float, Path]] = []
    for folder in kept:
        with contextlib.suppress(OSError):  # another process may prune at the same time
            used.append((max(file.stat().st_mtime for file in folder.iterdir()), folder))
    used.sort()
    for when, folder in used[: len(used) // 2]:
        if when < time.time() - 3600 and folder.name != _runtime_key():
            shutil.rmtree(folder, ignore_errors=True)


def _link(name: str, found: Compiler, folder: Path) -> None:
    """Link statically where possible: such a program starts in a third of the time."""
    call = [found.path, *_LINK_FLAGS, "kernel.o", "runtime.o", "-o", "program", "-lm"]
    try:
        _run(name, [*call, *_STATIC_FLAGS], folder, COMPILER_SECONDS)
    except CompileError:
        _run(name, call, folder, COMPILER_SECONDS)


def runtime_object() -> bytes:
    """The runtime, compiled once for each machine and kept in this process. A process that forks
    workers calls this first, so that none of them compiles it."""
    found = compiler()
    key = _runtime_key()
    if key not in _OBJECT:
        path = _cache() / key / "runtime.o"
        if not path.is_file():
            with tempfile.TemporaryDirectory(prefix="infralens-build-") as name:
                source = str(_RUNTIME / "runtime.cpp")
                call = [found.path, *_RUNTIME_FLAGS, "-c", source, "-o", "runtime.o"]
                _run("runtime.cpp", call, Path(name), COMPILE_SECONDS)
                _keep(Path(name) / "runtime.o", path)
        _OBJECT[key] = path.read_bytes()
    return _OBJECT[key]


def _runtime_key() -> str:
    return _key(compiler(), "", _RUNTIME_FLAGS)


def ready_runtime() -> bytes:
    """The runtime for `preload`; empty without a compiler, which each test reports itself."""
    try:
        return runtime_object()
    except CompileError:
        return b""


def preload(runtime: bytes = b"") -> None:
    """Load the runtime for this process and all that it forks; `runtime`: the one that another
    process of this machine compiled from the same files."""
    if runtime:
        _OBJECT[_runtime_key()] = runtime
    else:
        ready_runtime()


def _wrapped(source: Source) -> str:
    """The learner's bytes between the shim and a list of the kernels. All dynamic shared arrays are
    labels of one piece of memory, whatever their types."""
    labels = "".join(
        f".globl {name}\\n.type {name},@object\\n.size {name},{MAX_SHARED}\\n{name}:\\n"
        for name in source.dynamic
    )
    dynamic = (
        f'asm(".section .tbss,\\"awT\\",@nobits\\n.balign {APART}\\n{labels}.zero {MAX_SHARED}\\n'
        '.text\\n");\n'
        if labels
        else ""
    )
    names = list(source.kernels)
    entries = "".join(f"IL_ENTRY({name})\n" for name in names)
    rows = ", ".join(f"IL_LISTED({name})" for name in names) or "{nullptr, nullptr, nullptr, 0}"
    return (
        '#include "shim.h"\n'
        f'#line 1 "{LEARNERS}"\n{source.text}\n'
        f'#line 1 "list"\n{dynamic}'
        "static thread_local char il_touched = 1;\n"
        'extern "C" IL_HIDDEN char *il_touch_shared() { return &il_touched; }\n'
        f"{entries}"
        f'extern "C" const il_kernel il_kernels[] = {{{rows}}};\n'
        f'extern "C" const int il_kernel_count = {len(names)};\n'
    )


def _key(found: Compiler, text: str, flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for part in (found.version, *flags, *_shipped()):
        digest.update(part.encode() + b"\0")
    digest.update(text.encode())
    return digest.hexdigest()[:32]


@lru_cache(maxsize=1)
def _shipped() -> tuple[str, ...]:
    """The texts of the shim and of the runtime."""
    return tuple(path.read_text(encoding="utf-8") for path in sorted(_RUNTIME.iterdir()))


@lru_cache(maxsize=1)
def _cache() -> Path:
    """Where compiled programs are kept: the user's cache folder, or a temporary one."""
    # As `lab.user_cache`, which the root of a worker does not show.
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "infralens" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="infralens-kernels-"))
    return folder


def _keep(made: Path, path: Path) -> None:
    """Put a file into the cache in one step: others may compile the same at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    content = made.read_bytes()
    with os.fdopen(handle, "wb") as file:
        for start in range(0, len(content), 1 << 16):
            part = content[start : start + (1 << 16)]
            if any(part):
                file.seek(start)
                file.write(part)
        file.truncate(len(content))  # without the zeros in front of what is aligned
    os.chmod(name, made.stat().st_mode & 0o777)
    os.replace(name, path)


def _run(name: str, call: list[str], folder: Path, cpu_seconds: int) -> str:
    """What a compiler said that did its work; raises CompileError."""
    # Set before the compiler runs: set later, they miss a child that its driver has started.
    seconds, addresses = _at_most(cpu_seconds), _at_most_addresses()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, seconds)
        resource.setrlimit(resource.RLIMIT_AS, addresses)

    with subprocess.Popen(
        call, cwd=folder, start_new_session=True, preexec_fn=limit,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            said, whole = _heard(process, time.monotonic() + COMPILE_SECONDS)
        except BaseException as error:  # also a deadline
            os.killpg(process.pid, signal.SIGKILL)  # also ends the driver's children
            if isinstance(error, subprocess.TimeoutExpired):
                text = f"{name} did not compile within {COMPILE_SECONDS} s"
                raise CompileError(text) from None
            raise
    if not process.returncode:
        if whole:
            return said
        raise CompileError(f"{name}: the compiler says more than {MOST_SAID >> 20} MiB about it")
    ended = _ENDED.search(said)
    if process.returncode == -signal.SIGXCPU or (ended and ended[1] == _OVER_LIMIT):
        raise CompileError(f"{name} did not compile within {cpu_seconds} s of the processor")
    if _OUT_OF_MEMORY.search(said):
        text = f"{name} did not compile within {addresses[0] >> 20:,} MiB of memory"
        raise CompileError(text)
    if process.returncode < 0 or ended:
        raise CompilerEnded(f"{name}: a signal ended the compiler")
    raise CompileError(_said(name, said, _lines(folder)))


def _heard(process: subprocess.Popen[bytes], until: float) -> tuple[str, bool]:
    """The first `MOST_SAID` bytes of what a compiler says until it ends, and whether that is all:
    it quotes the line of each error, which may be the whole file. Raises TimeoutExpired."""
    assert process.stderr is not None
    parts, size = list[bytes](), 0
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([process.stderr], [], [], left)[0]:
            raise subprocess.TimeoutExpired(process.args, COMPILE_SECONDS)
        if not (part := os.read(process.stderr.fileno(), 1 << 16)):
            break
        if size < MOST_SAID:
            parts.append(part)
        size += len(part)
    process.wait(max(until - time.monotonic(), 0.0))
    return b"".join(parts).decode("utf-8", "replace"), size <= MOST_SAID


def _at_most(cpu_seconds: int) -> tuple[int, int]:
    """The soft and the hard limit of a compiler's seconds, within those of this process."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = COMPILE_SECONDS if hard == resource.RLIM_INFINITY else min(hard, COMPILE_SECONDS)
    return min(cpu_seconds, most), most


def _at_most_addresses() -> tuple[int, int]:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = COMPILER_BYTES if hard == resource.RLIM_INFINITY else min(hard, COMPILER_BYTES)
    return most, most


def _lines(folder: Path) -> int:
    path = folder / LEARNERS
    return len(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else 0


_OVER_LIMIT = "CPU time limit exceeded"
# The driver says so of a child of its own, g++ and clang in this order.
_OUT_OF_MEMORY = re.compile("virtual memory exhausted|out of memory|std::bad_alloc")
_ENDED = re.compile(
    rf"^[^\s:]+: (?:internal compiler error|fatal error|error: unable to execute command): "
    rf"({_OVER_LIMIT}|Killed)",
    re.MULTILINE,
)
_AT = re.compile(rf"{re.escape(LEARNERS)}:(\d+)(?::\d+)?:\s*(.*)")


def _said(name: str, text: str, last: int) -> str:
    """The compiler's first errors in the learner's file, with the quoted lines; for errors in the
    kit's own text around it, their cause in that file. `last`: its number of lines."""
    lines = text.splitlines()
    found = [(i, _AT.match(line)) for i, line in enumerate(lines)]
    marks = [(i, match) for i, match in found if match and match[2].startswith("error:")]
    if not marks:
        return _said_elsewhere(name, text, last)
    shown = []
    for i, match in marks[:3]:
        shown.append(f"{name}:{match[1]}: {match[2]}"[:MAX_QUOTED])
        quoted = [line for line in lines[i + 1 : i + 3] if re.match(r"\s+\d* \|", line)]
        shown += [line[:MAX_QUOTED] for line in quoted]
        shown += [hint for hint in [hint_for(match[2])] if hint]
    more = f"\n... and {len(marks) - 3} more" if len(marks) > 3 else ""
    return "\n".join(shown) + more


def _said_elsewhere(name: str, text: str, last: int) -> str:
    if missing := re.findall(r"undefined reference to [`']([^']+)'", text):
        return f"{name}: `{missing[0]}` is declared but defined nowhere"
    at = 0
    for line in text.splitlines():
        match = _AT.match(line)
        at = int(match[1]) if match else at
        if match and re.search(r"to match this .\{", match[2]):
            return f"{name}:{match[1]}: `{{` is never closed"
    error = re.search(r"^(\S+?):\d+:\d+: (?:fatal )?error: (.*)$", text, re.MULTILINE)
    what = error[2] if error else text.strip().splitlines()[-1][:300] if text.strip() else "?"
    if error and error[1] == "list":
        what = re.sub(r"before .*", "before the end of the file", what)
        at = last
    if "il_" in what:
        what = "a function of CUDA is called with arguments that it does not take"
    return f"{name}:{at}: error: {what}" if at else f"{name} does not compile: {what}"
