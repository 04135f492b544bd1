"""Comparisons with reasons: what suites judge with.

Every function returns nothing when the expectation holds and raises `Failure` when it does not. A
`Failure` keeps the observed value and the place in the suite, so that the kit can look for the
misconception that produces the same value at the same place.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grader.errors import StudentError, SuiteFault
from grader.suite import format

if TYPE_CHECKING:
    from grader.kernels.findings import KernelFinding
    from grader.kernels.provenance import Provenance

NO_RETURN = " (as a function without `return` gives)"
# Machine epsilon: the distance from 1 to the next number of the dtype.
EPS = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
_HERE = __file__
GROWTH_NOISE = 8 * 2**20
"""How far the growth of two processes that run the same code may lie apart, in bytes: each touches
some pages for the first time, and which ones depends on what it had done before."""


class Failure(AssertionError):
    """An expectation that does not hold.

    `kind` says which sort of fault it is, `lines` are the message without the call and the cause,
    `observed` is what came back, `tolerance` how far off it might have been and `gap` how far off
    it was (0 if that is not a number; 16 times a measurement's noise, if that is more), `site` the
    suite's file and line.
    """

    def __init__(
        self,
        kind: str,
        lines: list[str],
        observed: object,
        because: str,
        tolerance: float = 0.0,
        gap: float = 0.0,
    ) -> None:
        super().__init__("\n".join(lines))
        self.kind = kind
        self.lines = lines
        self.observed = observed
        self.because = because
        self.tolerance = tolerance
        self.gap = gap
        self.site = suite_site()


def suite_site() -> tuple[str, int]:
    """File and line of the suite's code that called into this module."""
    frame = sys._getframe(1)
    while frame.f_back and (
        frame.f_code.co_filename == _HERE or frame.f_code.co_filename.endswith("contextlib.py")
    ):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _fail(
    kind: str,
    observed: object,
    because: str,
    *lines: str,
    tolerance: float = 0.0,
    gap: float = 0.0,
) -> Failure:
    shown = [line for line in lines if line]
    return Failure(kind, shown, observed, because, tolerance, gap)


def _label(what: str | None) -> str:
    return f"{what}: " if what else ""


def _wrong_kind(got: object, wanted: str, what: str | None, because: str) -> Failure:
    line = f"{_label(what)}got {_described(got)}, expected {wanted}"
    if got is None:
        line += NO_RETURN
    return _fail("type", format.kind(got), because, line)


def _described(got: object) -> str:
    if got is None or format.is_array(got):
        return format.kind(got)
    kind = _with_article(format.kind(got))
    if isinstance(got, list | tuple):
        return f"{kind} of {len(got):,}"
    plain = isinstance(got, bool | int | float | str)
    return f"{format.short(got, 40)} ({kind})" if plain else kind


def _plain_number(got: object) -> bool:
    return isinstance(got, int | float) and not isinstance(got, bool)


def equal(
    got: object, want: object, because: str, what: str | None = None, unit: str | None = None
) -> None:
    """Exactly the same value. An integral float is accepted where an int is wanted, a bool never;
    arrays and tensors must have the same shape and the same elements."""
    if format.is_array(want) or format.is_array(got):
        _equal_arrays(got, want, because, what)
        return
    if _same_exactly(got, want):
        return
    if _plain_number(want) and not _plain_number(got):
        raise _wrong_kind(got, "an int" if isinstance(want, int) else "a float", what, because)
    if got is None and want is not None:
        raise _wrong_kind(got, _with_article(format.kind(want)), what, because)
    mine, theirs = format.pair(got, want, unit)
    raise _fail(
        "nan" if isinstance(got, float) and not math.isfinite(got) else "value",
        got,
        because,
        f"{_label(what)}got      {mine}",
        f"{' ' * len(_label(what))}expected {theirs}",
        _difference(got, want),
    )


def _difference(got: object, want: object) -> str:
    """Where two containers first differ, if that is not plain already."""
    mine, theirs = format.record_fields(got), format.record_fields(want)
    if mine is not None and theirs is not None:
        return _first_key(mine, theirs, "field")
    if isinstance(want, dict) and isinstance(got, dict):
        return _first_key(got, want, "key")
    if isinstance(want, list | tuple) and isinstance(got, list | tuple):
        if len(want) != len(got):
            return f"{len(got):,} items, expected {len(want):,}{_parting(got, want)}"
        for index, (item, wanted) in enumerate(zip(got, want, strict=True)):
            if not _same_exactly(item, wanted):
                shown, right = format.pair(item, wanted)
                return f"first difference at index {index}: got {shown}, expected {right}"
    if type(got) is not type(want) and format.short(got) == format.short(want):
        return f"got {_with_article(format.kind(got))}, expected {_with_article(format.kind(want))}"
    if isinstance(want, list | tuple) and isinstance(got, list | tuple):
        return f"a {format.kind(got)} came back where a {format.kind(want)} is wanted"
    return ""


def _parting(got: Sequence[Any], want: Sequence[Any]) -> str:
    """Where two sequences of unequal length part."""
    both = min(len(got), len(want))
    index = next((i for i in range(both) if not _same_exactly(got[i], want[i])), both)
    if index == both and len(got) < len(want):
        return f"; the first that is missing, at index {index}: {format.short(want[index])}"
    if index == both:
        return f"; the first that is too many, at index {index}: {format.short(got[index])}"
    shown, right = format.pair(got[index], want[index])
    return f"; they part at index {index}: got {shown}, expected {right}"


def _first_key(got: dict[Any, Any], want: dict[Any, Any], noun: str) -> str:
    for key in want:
        if key not in got:
            return f"the {noun} {key!r} is missing"
        if not _same_exactly(got[key], want[key]):
            mine, theirs = format.pair(got[key], want[key])
            return f"first difference at {noun} {key!r}: got {mine}, expected {theirs}"
    extra = [key for key in got if key not in want]
    return f"unexpected {noun}s: {format.short(extra)}" if extra else ""


def _with_article(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def _same_exactly(got: object, want: object) -> bool:
    if isinstance(want, bool) or isinstance(got, bool) or want is None:
        return type(got) is type(want) and got == want
    if (fields := format.record_fields(want)) is not None:
        same_kind = format.kind(got) == format.kind(want)
        return same_kind and _same_exactly(format.record_fields(got), fields)
    if isinstance(want, set | frozenset):
        return isinstance(got, set | frozenset) and got == want
    if _plain_number(want):
        return _plain_number(got) and got == want
    if isinstance(want, dict):
        if not isinstance(got, dict) or set(got) != set(want):
            return False
        return all(_same_exactly(got[key], want[key]) for key in want)
    if isinstance(want, list | tuple):
        if type(got) is not type(want) or not isinstance(got, list | tuple):
            return False
        return len(got) == len(want) and all(
            _same_exactly(mine, theirs) for mine, theirs in zip(got, want, strict=True)
        )
    if format.is_array(want) or format.is_array(got):
        return format.is_array(got) and format.is_array(want) and _arrays_equal(got, want)
    return type(got) is type(want) and got == want


def _arrays_equal(got: Any, want: Any) -> bool:
    mine, theirs = _numpy(got), _numpy(want)
    return mine.shape == theirs.shape and bool((mine == theirs).all())


def _equal_arrays(got: object, want: object, because: str, what: str | None) -> None:
    if not format.is_array(got):
        raise _wrong_kind(got, format.kind(want), what, because)
    mine, theirs = _numpy(got), _numpy(want)
    _require_shape(got, theirs.shape, because, what)
    different = mine != theirs
    if not different.any():
        return
    where = _first(different)
    shown, right = format.pair(mine[where].item(), theirs[where].item())
    raise _fail(
        "value",
        got,
        because,
        f"{_label(what)}{int(different.sum()):,} of {different.size:,} elements differ",
        f"first at {list(where)}: got {shown}, expected {right}",
    )


def _first(mask: Any) -> tuple[int, ...]:
    import numpy as np

    return tuple(int(index) for index in np.argwhere(mask)[0])


def _numpy(value: Any) -> Any:
    """A float64, integer or bool NumPy array of a number, array or tensor."""
    import numpy as np

    if type(value).__module__.partition(".")[0] == "torch":
        value = value.detach()
        return (value.double() if value.is_floating_point() else value).cpu().numpy()
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _differences(mine: Any, theirs: Any) -> Any:
    """|mine - theirs|, without the wrap-around of integers; 0 where both are the same infinity or
    both NaN."""
    import numpy as np

    if mine.dtype.kind in "iu":
        mine = mine.astype(np.longdouble)
    if theirs.dtype.kind in "iu":
        theirs = theirs.astype(np.longdouble)
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(same, 0.0, np.abs(mine - theirs))
    return np.where(np.isnan(difference), np.inf, difference)


def _require_shape(got: Any, shape: tuple[int, ...], because: str, what: str | None) -> None:
    mine = tuple(int(n) for n in _numpy(got).shape)
    if mine != tuple(shape):
        raise _fail(
            "shape",
            mine,
            because,
            f"{_label(what)}got shape      {_shape(mine)}",
            f"{' ' * len(_label(what))}expected shape {_shape(shape)}",
        )


def _shape(lengths: tuple[int, ...]) -> str:
    return str(list(lengths)) if lengths else "[] (one number)"


def shape(got: object, shape: tuple[int, ...], because: str, what: str | None = None) -> None:
    """An array or tensor of exactly this shape."""
    if not format.is_array(got):
        raise _wrong_kind(got, f"an array of shape {list(shape)}", what, because)
    _require_shape(got, shape, because, what)


def dtype(
    got: object, allowed: str | tuple[str, ...], because: str, what: str | None = None
) -> None:
    """An array or tensor of one of these dtypes, by name: `"float32"`, `("float32", "float64")`."""
    names = (allowed,) if isinstance(allowed, str) else allowed
    wanted = " or ".join(names)
    if not format.is_array(got):
        raise _wrong_kind(got, f"a tensor of {wanted}", what, because)
    name = format.dtype_name(got)
    if name not in names:
        line = f"{_label(what)}got dtype {name}, expected {wanted}"
        raise _fail("dtype", name, because, line)


def arrays(got: Any, names: Sequence[str], because: str = "") -> Sequence[Any]:
    """`got` as a tuple of that many arrays or tensors, called `names`; returns it."""
    wanted = f"a tuple of {len(names)} tensors, ({', '.join(names)})"
    reason = because or f"the function returns ({', '.join(names)})"
    if not isinstance(got, tuple | list) or len(got) != len(names):
        inside = f" of {len(got)}" if isinstance(got, tuple | list) else ""
        line = f"got {format.kind(got)}{inside}, expected {wanted}"
        line += NO_RETURN if got is None else ""
        raise _fail("type", format.kind(got), reason, line)
    for item, name in zip(got, names, strict=True):
        if not format.is_array(item):
            raise _wrong_kind(item, "a tensor", name, reason)
    return got


_ONE_BY_ONE = {"map", "filter", "zip", "generator", "enumerate", "reversed", "chain", "islice"}
_ONE_BY_ONE |= {"list_iterator", "dict_values", "dict_keys", "dict_items", "itertools.chain"}


def sequence(got: Any, because: str, of: str = "", what: str | None = None) -> list[Any]:
    """`got`, a list or a tuple, as a list; `of` is the class that each of its items must have. What
    gives its items one by one, such as a `map`, stays where the learner's code runs, and is told
    by its kind."""
    wanted = f"a list of {of}" if of else "a list"
    if not isinstance(got, list | tuple):
        failure = _wrong_kind(got, wanted, what, because)
        if format.kind(got) in _ONE_BY_ONE:
            kind = _with_article(format.kind(got))
            failure.lines.append(f"{kind} gives its items one by one; list(...) makes a list of it")
        raise failure
    for index, item in enumerate(got):
        if of and format.kind(item) != of:
            where = f"{what}[{index}]" if what else f"item {index}"
            raise _wrong_kind(item, _with_article(of), where, because)
    return list(got)


def close(
    got: Any,
    want: Any,
    because: str,
    n: int = 1,
    c: float = 4.0,
    dtype: str = "float64",
    scale: float | None = None,
    floor: float | None = None,
    what: str | None = None,
    unit: str | None = None,
) -> None:
    """Equal up to rounding: |got - want| <= max(floor, c * n * eps(dtype) * scale).

    `n` is the length of the sums behind a value, `dtype` the precision they were made in, `scale`
    the size of the terms (default: the largest finite |want|). `floor` is never zero. Tuples and
    lists are compared item by item. NaN is refused by name; an infinity only where `want` has it.
    """
    if isinstance(want, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(want):
            size = f" of {len(got)}" if isinstance(got, list | tuple) else ""
            raise _fail(
                "type",
                format.kind(got),
                because,
                f"{_label(what)}got {_described(got)}{size}, "
                f"expected a {format.kind(want)} of {len(want)}"
                + (NO_RETURN if got is None else ""),
            )
        for index, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            name = f"{what}[{index}]" if what else f"value {index}"
            close(mine, theirs, because, n, c, dtype, scale, floor, name, unit)
        return
    if not (_plain_number(got) or format.is_array(got)):
        raise _wrong_kind(got, _wanted(want), what, because)
    mine, theirs = _numpy(got), _numpy(want)
    if mine.shape != theirs.shape:
        _require_shape(got, theirs.shape, because, what)
    if mine.dtype.kind not in ("fiuc" if theirs.dtype.kind == "c" else "fiu"):
        raise _wrong_kind(got, _wanted(want), what, because)
    _compare(got, mine, theirs, because, _Model(n, c, dtype, scale, floor), what, unit)


def _wanted(want: object) -> str:
    return format.kind(want) if format.is_array(want) else "a number"


class _Model:
    """The error model behind one comparison."""

    def __init__(
        self, n: int, c: float, dtype: str, scale: float | None, floor: float | None
    ) -> None:
        if dtype not in EPS:
            raise SuiteFault(f"expect.close: dtype is {dtype!r}, not one of {', '.join(EPS)}")
        self.n, self.c, self.dtype, self.scale, self.floor = n, c, dtype, scale, floor

    def tolerance(self, want: Any) -> float:
        import numpy as np

        if self.scale is None:
            sizes = np.abs(want.astype(np.longdouble) if want.dtype.kind in "iu" else want)
            finite = sizes[np.isfinite(sizes)]
            scale = float(finite.max()) if finite.size else 0.0
        else:
            scale = float(self.scale)
        floor = self.floor or EPS[self.dtype] * 1e-6
        return max(floor, self.c * self.n * EPS[self.dtype] * scale)


def _compare(
    got: Any,
    mine: Any,
    theirs: Any,
    because: str,
    model: _Model,
    what: str | None,
    unit: str | None,
) -> None:
    import numpy as np

    tolerance = model.tolerance(theirs)
    bad = (np.isnan(mine) & ~np.isnan(theirs)) | (np.isinf(mine) & (mine != theirs))
    if bad.any():
        raise _not_finite(got, mine, theirs, bad, because, what)
    difference = _differences(mine, theirs)
    if difference.size == 0 or difference.max() <= tolerance:
        return
    at = np.unravel_index(int(difference.argmax()), difference.shape)
    pad = " " * len(_label(what))
    if difference.ndim == 0:
        shown, right = format.pair(mine.item(), theirs.item(), unit)
        lines = [f"{_label(what)}got      {shown}", f"{pad}expected {right}"]
    else:
        wrong = int((difference > tolerance).sum())
        index = [int(i) for i in at]
        shown, right = format.pair(mine[at].item(), theirs[at].item())
        lines = [
            f"{_label(what)}{wrong:,} of {difference.size:,} elements are off",
            f"{pad}worst at {index}: got {shown}, expected {right}",
        ]
    lines.append(f"{pad}off by {float(difference.max()):.3g}, rounding explains {tolerance:.1e}")
    gap = float(difference.max())
    raise _fail("value", got, because, *lines, tolerance=tolerance, gap=gap)


def _not_finite(
    got: Any, mine: Any, theirs: Any, bad: Any, because: str, what: str | None
) -> Failure:
    if mine.ndim == 0:
        text = f"got {mine.item()}, expected {format.number(theirs.item())}"
    else:
        where = _first(bad)
        text = (
            f"{int(bad.sum()):,} of {mine.size:,} elements are NaN or infinite; "
            f"first at {list(where)}: got {mine[where].item()}, "
            f"expected {format.number(theirs[where].item())}"
        )
    return _fail("nan", got, because, f"{_label(what)}{text}")


def published(got: Any, row: Mapping[str, Any], because: str = "") -> None:
    """The figure of one row of `published.json`, in the row's unit and within its `tol_rel`.

    Row: `id`, `expected` (a number or a list), `unit`, `source`, `tol_rel` (0 means exact).
    """
    want, unit, relative = row["expected"], str(row["unit"]), float(row.get("tol_rel", 0.0))
    reason = because or f"published: {row['source']}"
    wants, gots = (want, got) if isinstance(want, list) else ([want], [got])
    if not isinstance(gots, list | tuple) or len(gots) != len(wants):
        raise _wrong_kind(got, f"{len(wants)} values", row["id"], reason)
    for mine, theirs in zip(gots, wants, strict=True):
        if not _plain_number(mine):
            raise _wrong_kind(mine, "a number", row["id"], reason)
        limit = relative * abs(theirs)
        if not (abs(mine - theirs) <= limit):
            shown, right = format.pair(mine, theirs)
            raise _fail(
                "value",
                mine,
                reason,
                f"{row['id']}: got      {shown} {unit}",
                f"{' ' * len(row['id'])}  expected {right} {unit}",
                _unit_slip(mine, theirs, 1e-3) if unit.endswith("B") or "byte" in unit else "",
                f"source: {row['source']}" if because else "",
                tolerance=limit,
                gap=abs(mine - theirs),
            )


def at_most(
    got: Any,
    limit: float,
    because: str,
    what: str | None = None,
    unit: str | None = None,
    noise: float = 0.0,
) -> None:
    """A number no larger than `limit`. noise: as for `within`."""
    within(got, None, limit, because, what, unit, noise)


def at_least(
    got: Any, limit: float, because: str, what: str | None = None, unit: str | None = None
) -> None:
    """A number no smaller than `limit`."""
    within(got, limit, None, because, what, unit)


def within(
    got: Any,
    low: float | None,
    high: float | None,
    because: str,
    what: str | None = None,
    unit: str | None = None,
    noise: float = 0.0,
) -> None:
    """low <= got <= high; None leaves a side open. noise: how far two measurements of the same code
    may lie apart, for processes `GROWTH_NOISE`; a cause is looked for within it, and it does not
    widen the bounds."""
    if not _plain_number(got):
        raise _wrong_kind(got, "a number", what, because)
    if math.isnan(got):
        raise _fail("nan", got, because, f"{_label(what)}got NaN")
    if (low is None or got >= low) and (high is None or got <= high):
        return
    if low is not None and high is not None:
        first = format.amount(low, unit if unit == "bytes" else None)
        last = format.amount(high, unit)
        bound = last if low == high else f"between {first} and {last}"
    elif high is not None:
        bound = f"at most {format.amount(high, unit)}"
    else:
        bound = f"at least {format.amount(low, unit)}"
    pad = " " * len(_label(what))
    raise _fail(
        "bound",
        got,
        because,
        f"{_label(what)}got      {format.amount(got, unit)}",
        f"{pad}expected {bound}",
        **_beyond(got, low, high, noise),
    )


def _beyond(
    got: float, low: float | None, high: float | None, noise: float = 0.0
) -> dict[str, float]:
    """How far a number lies outside of its bounds. What is measured is never the same twice, so
    two that miss a bound by the same length, within a sixteenth of it or `noise`, are alike."""
    gap = float(got - high if high is not None and got > high else (low or 0) - got)
    gap = max(gap, 16 * noise)
    return {"tolerance": gap, "gap": gap} if math.isfinite(gap) else {}


def bytes(got: Any, want: float, because: str, what: str | None = None, rel: float = 0.0) -> None:
    """A number of bytes: exact, or within `rel` of `want`; a float may be off by a few roundings.
    Names the GB/GiB mix-up."""
    if not _plain_number(got):
        raise _wrong_kind(got, "a number of bytes", what, because)
    if isinstance(got, float) and not math.isfinite(got):
        raise _fail("nan", got, because, f"{_label(what)}got {got}, which is not a size")
    rounding = 8 * EPS["float64"] if isinstance(got, float) else 0.0
    limit = max(rel, rounding) * abs(want)
    if abs(got - want) <= limit:
        return
    pad = " " * len(_label(what))
    raise _fail(
        "value",
        got,
        because,
        f"{_label(what)}got      {format.size(got)}",
        f"{pad}expected {format.size(want)}",
        _unit_slip(got, want),
        tolerance=limit,
        gap=abs(got - want),
    )


def _unit_slip(got: float, want: float, near: float = 1e-4) -> str:
    """A sentence when the ratio of two sizes is that of two units, within `near` of it."""
    for factor, text in (
        (2**30 / 1e9, "the ratio is that of GiB (2**30) and GB (10**9)"),
        (2**20 / 1e6, "the ratio is that of MiB (2**20) and MB (10**6)"),
        (2.0**30, "the ratio is 2**30: bytes and GiB are mixed; this lab counts bytes"),
        (1e9, "the ratio is 10**9: bytes and GB are mixed; this lab counts bytes"),
    ):
        for ratio in (factor, 1 / factor):
            if want and abs(got / want / ratio - 1) < near:
                return text
    return ""


_LAUNCHES = {
    "race: program": (
        "programs run at once and in any order: without an atomic, none may access what another "
        "writes"
    ),
    "race: lanes": "lanes store at once: which of two values stays depends on timing",
    "out of bounds: program": (
        "a block has more lanes than there are elements left: its mask switches the others off"
    ),
    "misaligned: program": "an element lies at a multiple of its size",
    "bf16": "a kernel computes in float32, and rounds when it stores",
    "fp8": "a kernel computes in float32, and rounds when it stores",
    "dot": "the matrix units of a GPU have a smallest block size",
    "condition": "a block holds many values, some true and some not",
    "grid": "a launch says how many programs run",
    "argument": "a kernel reads memory that torch has allocated",
    "not interpreted": "what is scored must run on a machine without a GPU",
    "race": "nothing orders these two accesses, so on a GPU the value depends on timing",
    "out of bounds of shared memory": "a shared array has the elements of its declaration, no more",
    "out of bounds": "a launch has more threads than there are elements: each must check its index",
    "uninitialized": "shared memory holds rubbish until a thread of the block has written it",
    "divergent barrier": "all threads of a block must reach the same __syncthreads(), or none",
    "misaligned": "a load of 16 bytes needs an address that is a multiple of 16",
    "warp-level function": "every lane of the mask must reach the same call",
    "endless": "every thread must finish",
}


def launched(
    errors: Sequence[KernelFinding],
    because: Mapping[str, str] | None = None,
    exactly: bool = False,
) -> None:
    """A kernel's launch ran to its end without a fault: `errors` are those of its report, and the
    first is shown. `because`: the suite's own clauses, by how an error begins. `exactly`: two
    mistakes differ if their races involve other threads or elements; a cause is then found only
    if the learner names arrays as the reference does."""
    if not errors:
        return
    first = errors[0]
    clauses = [*(because or {}).items(), *_LAUNCHES.items()]
    clause = next((why for start, why in clauses if first.kind.wording.startswith(start)), "")
    more = f"and {len(errors) - 1} more in this launch" if len(errors) > 1 else ""
    raise _fail(
        "launch",
        first.signature(exactly),
        clause or "a launch must run to its end",
        str(first),
        more,
    )


_WRITERS = {
    "torch": "made by an operation of torch",
    "argument": "brought by an argument",
    "fresh": "left as torch.empty made them",
    "unknown": "written by neither a kernel nor an operation of torch",
}


def written(
    provenance: Provenance,
    values: Sequence[Any],
    names: Sequence[str],
    torch_too: bool = False,
    because: str = "the result is what the kernel stored, byte for byte: nothing else computes it",
) -> None:
    """The tensors of floats that a watched call returned, `values`, hold what kernels stored last;
    with `torch_too` also what operations of torch made."""
    from grader.kernels.provenance import digest_of

    rows = provenance.returned
    floats = [
        (name, value)
        for name, value in zip(names, values, strict=True)
        if value.is_floating_point()
    ]
    if len(rows) != len(floats):
        line = f"{len(rows)} tensors came back under watch, expected {len(floats)}"
        raise _fail("provenance", len(rows), because, line)
    for row, (name, value) in zip(rows, floats, strict=True):
        stored = row.kernel + (row.torch if torch_too else 0)
        rest = {
            words: getattr(row, writer)
            for writer, words in _WRITERS.items()
            if not (torch_too and writer == "torch")
        }
        plain = value.detach().contiguous().reshape(-1)
        if row.elements and digest_of(plain.view(_byte_type()).numpy()) != row.digest:
            stored, rest = 0, {"changed after the call had returned": row.elements}
        if stored != row.elements:
            others = "; ".join(f"{many:,} {words}" for words, many in rest.items() if many)
            raise _fail(
                "provenance",
                f"{name}: {'; '.join(words for words, many in rest.items() if many)}",
                because,
                f"{name}: {stored:,} of {row.elements:,} elements are what a kernel stored, "
                f"expected all",
                f"the others: {others}",
            )


def _byte_type() -> Any:
    import torch

    return torch.uint8


def sources(
    provenance: Provenance,
    because: str = "a kernel computes from what the call is given, so each byte that it loads is "
    "an argument's as the call was given it, an earlier kernel's or an operation of torch's",
) -> None:
    """The kernels of a watched call loaded nothing of which nobody knows who wrote it."""
    for row in provenance.loaded:
        if row.unknown:
            raise _fail(
                "provenance",
                f"{row.array} from elsewhere",
                because,
                f"{row.kernel} loaded {row.unknown:,} of {row.elements:,} elements of {row.array} "
                "whose bytes come from elsewhere, expected 0",
                "neither an argument, nor an earlier kernel, nor an operation of torch wrote them",
            )


def same_numbers(
    one: Provenance,
    other: Provenance,
    because: str = "what depends on the data reaches a kernel through memory: Python passes sizes, "
    "strides and what the caller gave",
) -> None:
    """Two watched calls on other data of the same shapes gave kernels and operations of torch the
    same numbers."""
    for mine, theirs in zip(one.numbers, other.numbers, strict=False):
        if mine != theirs:
            shown = f"`{mine.name}` of {mine.to}"
            if (mine.to, mine.name) == (theirs.to, theirs.name):
                found = f"{mine.value[:40]} for one and {theirs.value[:40]} for the other"
            else:
                found = f"the other call has `{theirs.name}` of {theirs.to} there"
            line = f"other data of the same shapes, other numbers from Python: {shown}: {found}"
            raise _fail("provenance", f"numbers: {mine.to}", because, line)
    if one.digest != other.digest:
        line = "other data of the same shapes, other numbers from Python"
        raise _fail("provenance", "numbers", because, line)


_ALL_RETURN = "every rank must call the same collectives, in the same order, and return"
_EACH_RETURNS = "every rank must return"


def returned(
    outcome: Mapping[str, Any], because: str = _ALL_RETURN, place: bool = True
) -> list[Any]:
    """What each rank of a probe's `ranks.outcome` returned. If one did not return, its sentence is
    shown, with `place` also the learner's line."""
    from grader.ranks import rank_faults

    said = where = ""
    if outcome["fault"] is not None:
        fault = rank_faults.from_plain(outcome["fault"])
        said, where = rank_faults.sentence(fault, places=False), rank_faults.place(fault)
        if isinstance(fault, rank_faults.NoResult) and because == _ALL_RETURN:
            because = _EACH_RETURNS
    what = f"the ranks ({where})" if where and place else "the ranks"
    if said:
        mine, theirs = format.pair(said, "")
        pad = " " * len(_label(what))
        lines = f"{_label(what)}got      {mine}", f"{pad}expected {theirs}"
        raise _fail("ranks", format.outline(said), because, *lines)
    return list(outcome["ranks"])


def sent_to(
    outcome: Mapping[str, Any],
    limits: Mapping[tuple[int, int], tuple[float, float]],
    because: str,
) -> None:
    """What ranks sent to each other, by the kernel's count: `outcome` is a probe's `ranks.outcome`,
    `limits[rank, peer]` the least and the most bytes from the one to the other. Nothing is judged
    where the system does not report it."""
    for (rank, peer), (low, high) in limits.items():
        links = outcome["sent_to"][rank]
        if links is None or low <= links[peer] <= high:
            continue
        amounts = ", ".join(f"{links[other]:,} to rank {other}" for other in sorted(links))
        amounts = amounts.replace(" to", " bytes to", 1)
        bound = f"between {low:,} and {high:,}" if low else f"at most {high:,}"
        raise _fail(
            "bound",
            links[peer],
            because,
            f"rank {rank} sent {amounts}, by the kernel's count",
            f"expected {bound} bytes to rank {peer}",
            **_beyond(links[peer], low, high),
        )


def true(condition: object, because: str, observed: object = None) -> None:
    """A condition that the suite worked out on its own side. `observed` is shown; two failures
    are alike if it has the same outline."""
    if condition:
        return
    shown = f"found: {format.short(observed)}" if observed is not None else ""
    raise _fail(
        "property", format.outline(observed), because, f"does not hold here: {because}", shown
    )


@contextmanager
def raises(kind: type[BaseException], because: str, names: Sequence[str] = ()) -> Iterator[None]:
    """The block's call into student code must raise `kind` or a subclass of it, and the error's
    text must contain each of `names`."""
    try:
        yield
    except StudentError as error:
        if kind.__name__ not in error.bases:
            raise _fail(
                "raises",
                error.type_name,
                because,
                f"raised {error.type_name}: {error.text}",
                f"expected {kind.__name__}",
            ) from None
        if missing := [name for name in names if name not in error.text]:
            raise _fail(
                "raises",
                missing,
                because,
                f"raised {error.type_name}: {error.text}",
                f"the text does not say {', '.join(missing)}",
            ) from None
        return
    raise _fail("raises", None, because, f"returned normally, expected {kind.__name__}")
