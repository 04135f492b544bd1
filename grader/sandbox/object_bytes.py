"""What a namespace holds, and what code a function has, read as bytes.

Python counts a reference to each value that it reads, and so writes to the page of that value; in a
process that was just forked, the kernel then copies the page. Reading bytes writes nothing. If a
namespace's bytes are the same as before, it has the same names and values, provided that somebody
kept the earlier values alive.

CPython 3.11 to 3.13 lay out dictionaries and functions as this module reads them (`dictobject.h`,
`pycore_dict.h`, `funcobject.h`); `known` says whether the running interpreter does.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

Reader = Callable[[], bytes]
"""Reads the same bytes each time it is called; nothing but C runs."""

_WORD = 8  # bytes
_TABLE = 32  # in a dictionary: the address of its table; that of values apart from it follows
_COUNTS = 16  # in a table: its counts and entries; before them the interpreter keeps notes
_CODE = 48  # in a function: the address of its code


@functools.cache
def known() -> bool:
    """Whether this interpreter lays out dictionaries and functions as this module expects."""
    sizes = (tuple.__itemsize__, object.__basicsize__, dict.__basicsize__)
    if sys.implementation.name != "cpython" or sizes != (_WORD, 2 * _WORD, 6 * _WORD):
        return False
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return False
    value = object()
    names: dict[str, object] = {"first": value, "second": None}
    address, apart = _words(id(names) + _TABLE, 2)
    if apart or not address:
        return False
    in_table = id(value) in _words(address, _size(names) // _WORD)
    return in_table and _words(id(table) + _CODE, 1) == [id(table.__code__)]


def table(names: Mapping[str, Any]) -> tuple[Reader, Reader] | None:
    """For the namespace of a module or a class: a reader of where its table lies, and one of the
    table. The second may only be called while the first reads what it read in the beginning; the
    namespace must be kept alive. None: this interpreter's layout is not `known`, or the values lie
    apart from the table."""
    if not known():
        return None
    inside = names if isinstance(names, dict) else gc.get_referents(names)[0]
    address, apart = _words(id(inside) + _TABLE, 2)
    if apart:
        return None
    place = _reader(id(inside) + _TABLE, 2 * _WORD)
    return place, _reader(address + _COUNTS, max(0, _size(inside) - _COUNTS))


def code(function: types.FunctionType) -> Reader:
    """A reader of where the code of the function lies, which must be kept alive."""
    return _reader(id(function) + _CODE, _WORD)


def _size(names: dict[str, Any]) -> int:
    """Of a table, in bytes."""
    return dict.__sizeof__(names) - dict.__basicsize__


def _reader(address: int, size: int) -> Reader:
    return memoryview((ctypes.c_char * size).from_address(address)).tobytes


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))
