"""NVIDIA's runtime compiler, where its library is installed: from CUDA C++ to PTX, with no GPU and
no driver.

It says what real CUDA C++ is. Nothing in the kit needs it; pip installs it as nvidia-cuda-nvrtc
(on macOS that is an empty package, so the library's file is what is looked for).
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_SHOWN = 3
_NAME = re.compile(r"libnvrtc\.so(?:\.(\d+))?")


class NvrtcError(ValueError):
    """NVRTC is not here, or refused the text: the first errors of its log, with their lines."""


def available() -> bool:
    """Whether NVRTC's library is found and loads."""
    return _library() is not None


def version() -> tuple[int, int]:
    """Major and minor version; raises NvrtcError where there is no library."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_loaded().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def compile_ptx(text: str, name: str, arch: str = "compute_90") -> str:
    """PTX of a `.cu` file's text, optimised as NVRTC does by default, with the file's lines.

    `arch`: a virtual architecture. Raises NvrtcError with what NVRTC said.
    """
    return _compile(text, name, arch, "--generate-line-info")


def check(text: str, name: str, arch: str = "compute_90") -> None:
    """Raise NvrtcError unless NVRTC takes the text: its front end alone, in a fraction of the
    time."""
    _compile(text, name, arch, "--fdevice-syntax-only")


def _compile(text: str, name: str, arch: str, *more: str) -> str:
    library = _loaded()
    options = [f"--gpu-architecture={arch}", "-std=c++17", *more]
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), os.fsencode(name), 0, None, None
        )
    )
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = library.nvrtcCompileProgram(program, len(options), given)
        if status:
            log = _text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
            raise NvrtcError(_sentence(name, log) or _reason(status))
        return _text(program, "nvrtcGetPTXSize", "nvrtcGetPTX")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


# -- the library ----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            _declare(library)
        except (OSError, AttributeError):
            continue  # another machine's, a broken one, or no NVRTC at all
        return library
    return None


def _loaded() -> ctypes.CDLL:
    library = _library()
    if library is None:
        raise NvrtcError("NVRTC is not installed here: pip install nvidia-cuda-nvrtc")
    return library


def _candidates() -> Iterator[str]:
    """Files of pip's packages and of a toolkit, newest first, then what the system's loader
    finds."""
    folders = [*_pip_folders()]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            folders += [Path(root) / "lib64", Path(root) / "lib"]
    for folder in folders:
        files = [path for path in folder.glob("libnvrtc.so*") if _NAME.fullmatch(path.name)]
        yield from (str(path) for path in sorted(files, key=_major, reverse=True))
    yield from ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12")


def _pip_folders() -> Iterator[Path]:
    """`nvidia` is a package without a file of its own, which others put theirs into: cu13/lib
    since CUDA 13, cuda_nvrtc/lib before."""
    found = importlib.util.find_spec("nvidia")
    for root in (found.submodule_search_locations or ()) if found else ():
        yield from sorted(Path(root).glob("*/lib"), reverse=True)


def _major(path: Path) -> int:
    found = _NAME.fullmatch(path.name)
    return int(found[1] or 0) if found else 0


def _declare(library: ctypes.CDLL) -> None:
    """Argument types, so that a pointer is never cut to 32 bits."""
    handle, size = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
    strings, place = ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_void_p)
    number = ctypes.POINTER(ctypes.c_int)
    create = [place, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, strings, strings]
    for name, arguments in (
        ("nvrtcVersion", [number, number]),
        ("nvrtcCreateProgram", create),
        ("nvrtcCompileProgram", [handle, ctypes.c_int, strings]),
        ("nvrtcDestroyProgram", [place]),
        ("nvrtcGetProgramLogSize", [handle, size]),
        ("nvrtcGetProgramLog", [handle, ctypes.c_char_p]),
        ("nvrtcGetPTXSize", [handle, size]),
        ("nvrtcGetPTX", [handle, ctypes.c_char_p]),
    ):
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = ctypes.c_int
    library.nvrtcGetErrorString.argtypes = [ctypes.c_int]
    library.nvrtcGetErrorString.restype = ctypes.c_char_p


# -- what it says ---------------------------------------------------------------------------------


def _check(status: int) -> None:
    if status:
        raise NvrtcError(_reason(status))


def _reason(status: int) -> str:
    said: bytes = _loaded().nvrtcGetErrorString(status)
    return f"NVRTC failed: {said.decode()}"


def _text(program: ctypes.c_void_p, size_of: str, get: str) -> str:
    library, size = _loaded(), ctypes.c_size_t()
    _check(getattr(library, size_of)(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    _check(getattr(library, get)(program, buffer))
    return buffer.value.decode("utf-8", "replace")


def _sentence(name: str, log: str) -> str:
    """The first errors of a log: `NVRTC refuses reduce.cu: line 3: identifier "y" is undefined.`"""
    pattern = re.compile(
        r"^(.*?)(?:\((\d+)\))?: (?:catastrophic |fatal )?error:? (.*)$", re.MULTILINE
    )
    errors = [f"line {line}: {said}" if line else said for _, line, said in pattern.findall(log)]
    if not errors:
        return f"NVRTC refuses {name}: {' '.join(log.split())[:600]}" if log.strip() else ""
    more = f", and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
    return f"NVRTC refuses {name}: {'; '.join(errors[:_SHOWN])}{more}"
