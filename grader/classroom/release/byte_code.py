"""Python's byte code in a file: by the sign at its beginning, and by the code of functions that
must not be handed out. Nothing is unmarshalled, for that is not safe on data from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import CodeType

_MAGIC_NUMBERS = range(2900, 4000)  # of Python 3, up to 3.19
_SHORTEST = 40  # bytes of code; a shorter function is as any other


def is_byte_code(data: bytes) -> bool:
    """Whether a file begins as a .pyc of any Python 3 does."""
    return data[2:4] == b"\r\n" and int.from_bytes(data[:2], "little") in _MAGIC_NUMBERS


class KnownCode:
    """The code of the functions of some sources, as this Python compiles them."""

    def __init__(self, paths: Iterator[Path]) -> None:
        self.codes: dict[bytes, str] = {}
        for path in paths:
            compiled = compile(path.read_bytes(), path.name, "exec", dont_inherit=True)
            for code in _functions(compiled):
                if len(code.co_code) >= _SHORTEST:
                    self.codes[code.co_code] = f"{path}:{code.co_firstlineno}"

    def without(self, other: KnownCode) -> KnownCode:
        """The code that other sources do not have: what a skeleton shares is not a secret."""
        self.codes = {code: at for code, at in self.codes.items() if code not in other.codes}
        return self

    def found_in(self, data: bytes) -> str:
        """Where one of the functions stands whose code is in a file; "" if none is."""
        return next((at for code, at in self.codes.items() if code in data), "")


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _functions(constant)
