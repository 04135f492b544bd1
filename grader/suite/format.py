"""Short text for values, as a learner reads them in a message. Imports neither torch nor NumPy."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from grader.sandbox.client import ShownCall
from grader.sandbox.codec import RemoteRecord

_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_DIGITS = re.compile(r"\d+(?:[.,_]\d+)*(?:e[+-]?\d+)?")
MAX_TEXT = 160


def number(value: object) -> str:
    """Integers with thousands separators, floats to six significant digits."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if 1e3 <= abs(value) < 1e15 and value == int(value):
            return f"{int(value):,}"
        return f"{value:.6g}" if abs(value) < 1e15 else f"{value:.6e}"
    return repr(value)


def pair(got: object, want: object, unit: str | None = None) -> tuple[str, str]:
    """Two values side by side, with every digit if six digits would look alike."""
    texts = amount(got, unit), amount(want, unit)
    if texts[0] == texts[1] and isinstance(got, float) | isinstance(want, float):
        return repr(got), repr(want)
    return texts


def size(value: int | float) -> str:
    """Bytes, exactly and in the largest binary unit that fits."""
    exact = f"{number(value)} bytes"
    for unit, scale in _UNITS:
        if abs(value) >= scale:
            return f"{exact} ({value / scale:.4g} {unit})"
    return exact


def amount(value: object, unit: str | None) -> str:
    """A number with its unit; bytes get their binary unit beside them."""
    if unit == "bytes" and isinstance(value, int | float) and not isinstance(value, bool):
        return size(value)
    return f"{short(value)} {unit}" if unit else short(value)


def is_array(value: object) -> bool:
    """Whether it is a NumPy array or a torch tensor; imports neither."""
    module = type(value).__module__.partition(".")[0]
    return module in ("numpy", "torch") and hasattr(value, "shape") and hasattr(value, "dtype")


def size_bytes(value: object) -> int:
    """About how much memory a value that crossed the wall takes."""
    if is_array(value):
        return int(getattr(value, "nbytes", 0))
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(size_bytes(key) + size_bytes(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(map(size_bytes, value))
    if (fields := record_fields(value)) is not None:
        return size_bytes(fields)
    return 32


def dtype_name(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def kind(value: object) -> str:
    """What a value is, in the words a learner would use: `float64[4, 1000]`, `int`, `None`."""
    if is_array(value):
        array: Any = value
        return f"{dtype_name(array)}[{', '.join(str(n) for n in array.shape)}]"
    if value is None:
        return "None"
    return getattr(value, "type_name", None) or type(value).__name__


def short(value: object, limit: int = MAX_TEXT) -> str:
    """One line for any value that can cross the wall."""
    if isinstance(value, bool | int | float) or value is None:
        return number(value)
    if is_array(value):
        return _array(value, limit)
    if limit < 10 and isinstance(value, list | tuple | dict):
        return "..."  # nested too deep to be shown
    if isinstance(value, list | tuple):
        opening, closing = ("[", "]") if isinstance(value, list) else ("(", ")")
        inner = limit // 2 if len(value) > 1 else limit - 2
        text = opening + _joined((short(item, inner) for item in value), limit) + closing
    elif isinstance(value, dict):
        pairs = (f"{short(key, 40)}: {short(item, limit // 2)}" for key, item in value.items())
        text = "{" + _joined(pairs, limit) + "}"
    elif isinstance(value, PurePath):
        text = f"Path({value.name!r})"  # the folder is deleted before the message is read
    elif isinstance(value, str | bytes) and len(value) > limit:
        text = repr(value[:limit])
    elif (fields := record_fields(value)) is not None:
        pairs = (f"{name}={short(item, limit // 2)}" for name, item in fields.items())
        text = f"{kind(value)}({_joined(pairs, limit - len(kind(value)))})"
    else:
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 4] + " ..."


def _joined(parts: Iterable[str], limit: int) -> str:
    """The first parts, as far as they fit: a huge value costs no more than a small one."""
    taken: list[str] = []
    for part in parts:
        used = sum(len(text) + 2 for text in taken)
        if len(taken) == 12 or (taken and used + len(part) > limit - 8):
            return ", ".join([*taken, "..."])
        taken.append(part)
    return ", ".join(taken)


def outline(value: object) -> str:
    """What a value looks like without its rows and digits, which differ where the same mistake is
    met in another row: words, kinds, and numbers to the nearest power of two."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int | float):
        return _power_of_two(value)
    if isinstance(value, str):
        return _DIGITS.sub("#", value)
    if is_array(value):
        array: Any = value
        return f"{dtype_name(array)}[{', '.join('#' * len(array.shape))}]"
    if (fields := record_fields(value)) is not None:
        return f"{kind(value)}{outline(fields)}"
    if isinstance(value, dict):
        value = [f"{outline(key)}: {outline(item)}" for key, item in value.items()]
    if isinstance(value, list | tuple):
        return f"{kind(value)} of {', '.join(sorted(set(map(outline, value))))}"
    return kind(value)


def _power_of_two(value: int | float) -> str:
    if value == 0 or (isinstance(value, float) and not math.isfinite(value)):
        return str(abs(value))
    return f"{'-' if value < 0 else ''}2**{round(math.log2(abs(value)))}"


def record_fields(value: object) -> dict[str, Any] | None:
    """The fields of a record or dataclass instance, or None for anything else."""
    if isinstance(value, RemoteRecord):
        return {name: getattr(value, name) for name in value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    return None


def _array(value: Any, limit: int) -> str:
    count = 1
    for length in value.shape:
        count *= int(length)
    if count == 0 or count > 8:
        return kind(value)
    items = value.tolist()
    return f"{kind(value)} {short(items, limit)}" if value.shape else short(items, limit)


def call(shown: ShownCall) -> str:
    """What a test asked for as one line; big arguments by their kind."""
    name, args, kwargs = shown.function, shown.args, shown.kwargs
    limit = max(60, 120 // max(1, len(args) + len(kwargs)))
    parts = [short(arg, limit) for arg in args]
    parts += [f"{key}={short(arg, limit)}" for key, arg in kwargs.items()]
    if shown.by_test:
        given = f" on {', '.join(parts)}" if parts else ""
        return f"{name}, run by a test{given}"
    return name if name.endswith(")") else f"{name}({', '.join(parts)})"
