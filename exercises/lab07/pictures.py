"""What `infralens show lab07` draws: memory against the length of a sequence, the tiles that a
causal run computes and those that it skips, bytes by model and by kernel, the running statistics.

All of it comes from the learner's own functions: live bytes by the kit's meter, tiles by the values
that their matrix products gave or by the trace of their kernel's loads, bytes by its lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy

from grader.learner.pictures import (
    Bar,
    Bars,
    Cell,
    Drawing,
    Grid,
    Key,
    Lines,
    Panel,
    Picture,
    PictureFault,
    Series,
    launched,
)

LENGTHS = (64, 128, 256, 512, 1024)
HEAD, TILE = 32, (128, 64)
# The walk: queries, keys and a tile of BLOCK_Q rows by BLOCK_K keys.
SQUARE, CACHED = (152, 152), (56, 152)
BLOCK_Q, BLOCK_K, WALK_HEAD = 32, 16, 16
# Traffic of one head, in float16; 98,304 elements are 192 KiB of on-chip memory.
S, D, SRAM, SIZE = 1024, 64, 98_304, 2
KERNEL_Q, KERNEL_K = 128, 64
LOGITS, BLOCK = 64, 8
Array = numpy.ndarray[Any, Any]
Steps = dict[tuple[int, int], int]  # number of the step in which tile (row, column) was computed


def pictures(student: Any) -> Iterator[Picture]:
    yield Picture(
        "What is alive at once",
        "A point is one call on S queries and keys, and its height is the most bytes that its "
        "tensors held at one moment; a line that runs beside the steeper dashed one grows with the "
        "square of S, a line beside the other one with S.",
        [
            Panel("naive_attention", lambda: _naive_memory(student), "naive_attention"),
            Panel("flash_forward", lambda: _flash_memory(student), "flash_forward"),
        ],
        together=True,
    )
    yield Picture(
        "Which tiles are computed, and in which order",
        "A cell is a tile of scores, queries by keys, and its number says when it was computed: "
        "under the causal mask what lies above the diagonal is hidden, and a tile that is wholly "
        "hidden need not be touched.",
        [
            Panel(
                "flash_forward",
                lambda: _forward_walk(student, *SQUARE),
                f"flash_forward: {SQUARE[0]} queries, as many keys",
            ),
            Panel(
                "flash_forward_skips",
                lambda: _skips_walk(student, *CACHED),
                f"flash_forward_skips: the last {CACHED[0]} of {CACHED[1]} positions",
            ),
            Panel(
                "flash_kernel",
                lambda: _kernel_walk(student, *SQUARE),
                f"flash_kernel: {SQUARE[0]} queries, as many keys",
            ),
        ],
        keys=[
            Key("blue", "computed: every pair is visible"),
            Key("orange", "computed and masked: the diagonal runs through"),
            Key("red", "computed for nothing: no pair is visible"),
            Key("off", "skipped"),
        ],
    )
    yield Picture(
        "What crosses between memory and chip",
        f"A bar is the traffic of one head with {S:,} queries and keys of {D} float16 numbers, "
        "without a mask: green by your model of two algorithms, blue and orange as your kernel "
        "asked for it, load by load and store by store; one length is one number of bytes.",
        [
            Panel("io_model", lambda: _model(student), "io_model"),
            Panel("flash_kernel", lambda: _traffic(student), "flash_kernel"),
        ],
        same_scale=True,
        keys=[
            Key("green", "read and written, by the model"),
            Key("blue", "read by the kernel"),
            Key("orange", "written by the kernel"),
        ],
    )
    yield Picture(
        "The running maximum and the running sum",
        "A point is what your online_softmax knows after that many blocks of one row: m never "
        "falls; l grows with every block, but falls where m has grown, for it is then measured "
        "from a higher place.",
        [Panel("online_softmax", lambda: _statistics(student), "online_softmax")],
    )


# -- values ---------------------------------------------------------------------------------------


def _numbers(*shape: int, shift: float = 0.0) -> Array:
    """Numbers between -1 and 1 without a pattern."""
    at = numpy.arange(numpy.prod(shape), dtype=numpy.float64).reshape(shape)
    return numpy.sin(at * at + shift)


def _inputs(length: int, head: int, kind: Any) -> list[Array]:
    return [_numbers(1, 1, length, head, shift=shift).astype(kind) for shift in (0.0, 1.0, 2.0)]


def _attention(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (array[0, 0].astype(numpy.float64) for array in (q, k, v))
    scores = q @ k.T / numpy.sqrt(q.shape[1])
    e = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    result: Array = (e / e.sum(axis=1, keepdims=True) @ v)[None, None]
    return result


def _right(name: str, value: Any, want: Array, tolerance: float = 1e-4) -> None:
    got = numpy.asarray(value, dtype=numpy.float64)
    if got.shape != want.shape:
        raise PictureFault(f"{name} has shape {got.shape} instead of {want.shape}")
    wrong = numpy.argwhere(~(abs(got - want) <= tolerance * abs(want).max()))
    if len(wrong):
        at = tuple(int(n) for n in wrong[0])
        raise PictureFault(f"{name}{list(at)} is {got[at]:.6g} instead of {want[at]:.6g}")


def _pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise PictureFault("the result is not a pair (o, lse)")
    return value[0], value[1]


# -- memory ---------------------------------------------------------------------------------------


def _naive_memory(student: Any) -> Lines:
    peaks = []
    for length in LENGTHS:
        args = _inputs(length, HEAD, numpy.float32)
        o, peak = student.probe.drawn_bytes("naive_attention", args)
        _right("o", o, _attention(*args))
        peaks.append(peak)
    matrices = [(n, 4.0 * n * n) for n in LENGTHS]
    return _memory("naive_attention", peaks, "one S × S matrix", matrices)


def _flash_memory(student: Any) -> Lines:
    peaks = []
    for length in LENGTHS:
        args = _inputs(length, HEAD, numpy.float32)
        value, peak = student.probe.drawn_bytes("flash_forward", [*args, *TILE])
        _right("o", _pair(value)[0], _attention(*args))
        peaks.append(peak)
    outputs = [(n, 4.0 * n * HEAD) for n in LENGTHS]
    return _memory("flash_forward", peaks, "o, S × D numbers", outputs)


def _memory(name: str, peaks: list[int], what: str, yard: list[tuple[int, float]]) -> Lines:
    if min(peaks) <= 0:
        raise PictureFault("the meter saw no tensor")
    words = [f"{_bytes(peak)} at {n:,}" for n, peak in zip(LENGTHS, peaks, strict=True)]
    growth = f"{peaks[-1] / peaks[-2]:.2f} times as much after the last doubling of S"
    points = list(zip(LENGTHS, peaks, strict=True))
    return Lines(
        [
            Series(f"{name}: {growth}", points, label=_bytes(peaks[-1])),
            Series(what, yard, dashed=True, marks=False),
        ],
        alt=f"{name} holds {'; '.join(words)}: {growth}.",
        x_name="S, queries and keys",
        y_name="bytes alive at once",
        x_log=True,
        y_log=True,
        x_base=2,
        size=(480, 300),
        caption=f"One head of D = {HEAD} float32 numbers, no mask, tiles of {TILE[0]} by "
        f"{TILE[1]}; the result counts, inputs do not. The dashed lines are 4 S × S and 4 S × D "
        "bytes.",
    )


def _bytes(count: float) -> str:
    """1,234,567 as 1.23 MB: three digits, units of 1,000."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:,.0f} B"


# -- tiles ----------------------------------------------------------------------------------------


def _marked(queries: int, keys: int) -> list[Array]:
    """q, k, v whose score of row i and key j is i + queries * j, and no v is positive: every
    product of the two says where it belongs, and none of probabilities and values looks like it.
    A row's last visible key outweighs all others."""
    q, k = numpy.zeros((queries, WALK_HEAD)), numpy.zeros((keys, WALK_HEAD))
    q[:, 0], q[:, 1] = numpy.arange(queries), 1
    k[:, 0], k[:, 1] = 1, queries * numpy.arange(keys)
    v = -0.75 + _numbers(keys, WALK_HEAD) / 4
    return [array[None, None].astype(numpy.float32) for array in (q, k, v)]


def _right_walk(value: Any, v: Array, queries: int, keys: int) -> None:
    """Each row's output is the value of its last visible key."""
    o, lse = _pair(value)
    last = numpy.arange(queries) + keys - queries
    _right("o", o, v[:, :, last].astype(numpy.float64))
    scores = numpy.arange(queries) + queries * last
    _right("lse", lse, scores[None, None].astype(numpy.float64))


def _forward_steps(student: Any, queries: int, keys: int) -> Steps:
    """The tiles of which flash_forward made scores, in its order."""
    q, k, v = _marked(queries, keys)
    settings = {"causal": True, "scale": 1.0}
    args = [q, k, v, BLOCK_Q, BLOCK_K]
    value, products = student.probe.drawn_products("flash_forward", args, settings)
    _right_walk(value, v, queries, keys)
    steps: Steps = {}
    number = 0
    for product in products:
        if (found := _where(numpy.asarray(product), queries, keys)) is not None:
            number += 1
            rows, columns = found
            tiles = zip(rows // BLOCK_Q, columns // BLOCK_K, strict=True)
            for tile in sorted({(int(row), int(column)) for row, column in tiles}):
                steps.setdefault(tile, number)
    return steps


def _where(product: Array, queries: int, keys: int) -> tuple[Array, Array] | None:
    """Row and key of each score, or None for a product that is none of q and k. A kernel may keep
    scores in units of log2."""
    if not product.size or product.min() < 0 or product.max() <= 0:
        return None
    for unit in (1.0, numpy.log2(numpy.e)):
        scores = numpy.rint(product / unit)
        if abs(product / unit - scores).max() < 0.02 and scores.max() < queries * keys:
            place = scores.ravel().astype(int)
            return place % queries, place // queries
    return None


def _forward_walk(student: Any, queries: int, keys: int) -> Drawing:
    return _tiles("flash_forward", _forward_steps(student, queries, keys), queries, keys)


def _skips_walk(student: Any, queries: int, keys: int) -> Drawing:
    """The learner's answers for every tile are held against the mask; drawn is what flash_forward
    made of them."""
    edges = [
        (i, min(i + BLOCK_Q, queries), j, min(j + BLOCK_K, keys), queries, keys)
        for i in range(0, queries, BLOCK_Q)
        for j in range(0, keys, BLOCK_K)
    ]
    for edge, answer in zip(edges, student.map("flash_forward_skips", edges), strict=True):
        hidden = edge[2] > edge[1] - 1 + keys - queries
        if bool(answer) != hidden:
            says = "skips" if answer else "does not skip"
            seen = "no pair" if hidden else "a pair"
            raise PictureFault(
                f"it {says} rows {edge[0]} to {edge[1] - 1} with keys {edge[2]} to {edge[3] - 1}, "
                f"of which {seen} is visible"
            )
    return _tiles("flash_forward", _forward_steps(student, queries, keys), queries, keys)


def _kernel_walk(student: Any, queries: int, keys: int) -> Drawing:
    """Tiles by the trace: a program's rows are those of q that it loads, and its steps the blocks
    of k."""
    q, k, v = _marked(queries, keys)
    blocks = {"block_q": BLOCK_Q, "block_k": BLOCK_K}
    report = _launched(student, [q, k, v], {"causal": True, "scale": 1.0, **blocks}, v)
    steps: Steps = {}
    rows: dict[int, int] = {}
    order: dict[int, int] = {}
    for visit in report["visits"]:
        array = visit["array"].removesuffix("_ptr")
        if visit["kind"] != "read" or not visit["lanes"] or array not in ("q", "k"):
            continue
        program, first = visit["program"], visit["first"] // WALK_HEAD
        if array == "q":
            rows.setdefault(program, first // BLOCK_Q)
        elif program in rows:
            tile = (rows[program], first // BLOCK_K)
            if tile not in steps:
                order[program] = order.get(program, 0) + 1
                steps[tile] = order[program]
    if not steps:
        raise PictureFault(
            "no load of q and k was seen: are q_ptr and k_ptr still the pointers' names?"
        )
    owners = {row: program for program, row in rows.items()}
    return _tiles("flash_kernel", steps, queries, keys, owners)


def _tiles(
    name: str, steps: Steps, queries: int, keys: int, owners: dict[int, int] | None = None
) -> Grid:
    """The grid of tiles; `owners`: the program of each row of tiles, by which steps are counted."""
    down, across, shift = -(-queries // BLOCK_Q), -(-keys // BLOCK_K), keys - queries
    counts = dict.fromkeys(("blue", "orange", "red", "off"), 0)
    cells, notes = [], []
    for row in range(down):
        cells.append([])
        for column in range(across):
            first, last = row * BLOCK_Q + shift, min((row + 1) * BLOCK_Q, queries) - 1 + shift
            left, right = column * BLOCK_K, min((column + 1) * BLOCK_K, keys) - 1
            step = steps.get((row, column))
            if step is None and left <= last:
                raise PictureFault(
                    f"the result is right, but nothing was seen that makes the scores of rows "
                    f"{row * BLOCK_Q} to {last - shift} with keys {left} to {right}"
                )
            colour = "blue" if right <= first else "orange" if left <= last else "red"
            colour = colour if step is not None else "off"
            counts[colour] += 1
            cells[-1].append(Cell(colour, "" if step is None else str(step)))
        done = sum(cell.colour != "off" for cell in cells[-1])
        who = "" if owners is None else f"program {owners[row]}: "
        notes.append(f"{who}{done} of {across} tiles")
    computed = down * across - counts["off"]
    said = (
        f"{computed} of {down * across} tiles are computed: {counts['blue']} wholly visible, "
        f"{counts['orange']} cut by the diagonal, {counts['red']} wholly hidden."
    )
    counted = (
        "Numbers count all tiles."
        if owners is None
        else "Numbers count within a program: programs have no order among themselves."
    )
    return Grid(
        cells,
        alt=f"{name}, {queries} queries and {keys} keys, tiles of {BLOCK_Q} by {BLOCK_K}: {said}",
        cell=(32.0, 30.0),
        row_labels=[
            f"{row * BLOCK_Q} to {min((row + 1) * BLOCK_Q, queries) - 1}" for row in range(down)
        ],
        row_name="rows of q",
        row_notes=notes,
        column_labels=[str(column * BLOCK_K) for column in range(across)],
        column_name=f"keys, from this one on ({BLOCK_K} a tile)",
        caption=f"{said} {counted}",
    )


# -- traffic --------------------------------------------------------------------------------------


def _launched(
    student: Any, args: list[Array], settings: dict[str, Any], v: Array | None = None
) -> dict[str, Any]:
    """The report of flash_kernel's one launch; a Fault where it is at fault or its result wrong.
    With `v`, the inputs are those of the walk."""
    value, reports = student.probe.drawn_launches("flash_kernel", args, settings)
    for report in reports:
        launched(report)
    if len(reports) != 1:
        raise PictureFault(f"{len(reports)} launches of a Triton kernel instead of one")
    if v is None:
        _right("o", _pair(value)[0], _attention(*args), 1e-2)
    else:
        _right_walk(value, v, args[0].shape[2], args[1].shape[2])
    return dict(reports[0])


def _model(student: Any) -> Bars:
    standard, flash = (int(count) for count in student.io_model(S, D, SRAM))
    columns = -(-SRAM // (4 * D))
    want = (4 * S * S + 4 * S * D, 2 * S * D + -(-S // columns) * (3 * S * D + 4 * S))
    if (standard, flash) != want:
        raise PictureFault(
            f"io_model({S}, {D}, {SRAM}) gives {standard:,} and {flash:,} elements instead of "
            f"{want[0]:,} and {want[1]:,}"
        )
    named = (("standard", standard), ("flash, Algorithm 1", flash))
    bars = [
        Bar(name, (SIZE * count / 1e6,), f"{_bytes(SIZE * count)}, {count:,} elements")
        for name, count in named
    ]
    words = "; ".join(f"{bar.label} {bar.note}" for bar in bars)
    return Bars(
        bars,
        alt=f"io_model, S {S:,}, D {D}, {SRAM:,} elements on the chip: {words}; "
        f"{standard / flash:.2f} times fewer.",
        colours=("green",),
        unit="MB",
        width=320,
        caption=f"On the chip: {SRAM:,} elements, so {columns} keys a block; Algorithm 1 reads and "
        f"writes o once for each of {-(-S // columns)} blocks of keys.",
    )


def _traffic(student: Any) -> Bars:
    args = _inputs(S, D, numpy.float16)
    blocks = {"block_q": KERNEL_Q, "block_k": KERNEL_K}
    report = _launched(student, args, blocks)
    moved: dict[str, list[int]] = {}
    for row in report["accesses"]:
        both = moved.setdefault(row["array"].removesuffix("_ptr"), [0, 0])
        both[row["kind"] != "read"] += row["lanes"] * row["size"]
    bars = [
        Bar(name, (read / 1e6, written / 1e6), _bytes(read + written))
        for name, (read, written) in sorted(moved.items(), key=lambda item: _rank(item[0]))
    ]
    read, written = (sum(both[side] for both in moved.values()) for side in (0, 1))
    bars.append(Bar("all", (read / 1e6, written / 1e6), _bytes(read + written)))
    words = "; ".join(f"{bar.label} {bar.note}" for bar in bars)
    programs = report["blocks"]
    return Bars(
        bars,
        alt=f"flash_kernel, S {S:,}, D {D}, float16, {programs} programs: {words}, "
        f"{read:,} bytes read and {written:,} written.",
        unit="MB",
        width=320,
        caption=f"{programs} programs of {KERNEL_Q} rows. {_times(moved)} A program asks for k and "
        "v again that another one had; on a GPU the L2 cache answers for a part of that.",
    )


def _rank(name: str) -> int:
    names = ("q", "k", "v", "o", "lse")
    return names.index(name) if name in names else len(names)


def _times(moved: dict[str, list[int]]) -> str:
    """How often each matrix moves, in the sizes of q."""
    words = []
    for name in ("q", "k", "v", "o"):
        if name in moved:
            count = sum(moved[name]) / (S * D * SIZE)
            often = "once" if count == 1 else f"{count:.4g} times"
            words.append(f"{name} is {'written' if name == 'o' else 'read'} {often}")
    return f"{', '.join(words)}."


# -- statistics -----------------------------------------------------------------------------------


def _statistics(student: Any) -> Lines:
    """m and l of every prefix of a row that ends with a block: what is known by then."""
    x = _numbers(LOGITS) / 2
    x[2 * BLOCK + 3 :] += 1.5
    x[5 * BLOCK + 1 :] += 1.0
    x = x.astype(numpy.float32)
    points = []
    for stop in range(BLOCK, LOGITS + 1, BLOCK):
        p, m, l = student.probe.drawn("online_softmax", [x[:stop], BLOCK], {})
        top = x[:stop].max()
        e = numpy.exp(x[:stop].astype(numpy.float64) - top)
        _right("m", m, numpy.asarray(top, dtype=numpy.float64))
        _right("l", l, numpy.asarray(e.sum()))
        _right("p", p, e / e.sum())
        points.append((stop // BLOCK, float(m), float(l)))
    words = "; ".join(f"{n}: m {m:.2f}, l {l:.2f}" for n, m, l in points)
    return Lines(
        [
            Series("l, the sum of exp(x - m)", [(n, l) for n, _, l in points]),
            Series("m, the maximum", [(n, m) for n, m, _ in points]),
        ],
        alt=f"online_softmax, m and l after each block of {BLOCK} of {LOGITS} logits: {words}.",
        x_name=f"blocks of {BLOCK} logits read so far",
        size=(480, 240),
    )
