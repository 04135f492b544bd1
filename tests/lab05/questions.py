"""Lab 05: questions of an interview with figures that can be done on paper."""

import numpy as np

from grader.suite.questions import Ask, question
from grader.suite.shown_programs import launched


def _bank(byte):
    return byte // 4 % 32


def _degree(words):
    """The most distinct words that one bank gives."""
    distinct = {}
    for word in words:
        distinct.setdefault(word % 32, set()).add(word)
    return max(map(len, distinct.values()))


def _ways(code, words):
    """`conflict_degree` of a request for these words."""
    return code.conflict_degree([4 * word for word in words], 4)


@question("bank_of_an_element", task="bank_of", section="Line by line")
def bank_of_an_element(rng):
    """A word of 4 bytes a bank, 32 banks in turn."""
    cols = rng.choice([32, 33, 36, 40])
    row, col = rng.randrange(1, 12), rng.randrange(32)
    word = row * cols + col
    return Ask(
        f"A tile of floats in shared memory has rows of {cols} floats and begins at address 0. In "
        f"which bank, 0 to 31, is the element of row {row} and column {col} (both from 0)?",
        lambda code: code.bank_of(4 * word),
        working=[
            f"its word: {row} x {cols} + {col} = {word}",
            f"{word} mod 32 = {word % 32}",
        ],
        check=word % 32,
    )


@question("column_of_a_tile", task="conflict_degree", section="Line by line")
def column_of_a_tile(rng):
    """The lanes of a column are a row apart; how often do they come back to a bank?"""
    cols = rng.choice([32, 33, 34, 36, 40, 48, 64])
    words = [row * cols for row in range(32)]
    degree = _degree(words)
    common = next(d for d in (32, 16, 8, 4, 2, 1) if cols % d == 0)
    return Ask(
        f"A warp reads one column of a tile of floats in shared memory, lane i the element of row "
        f"i. Rows have {cols} floats. How many ways is the bank conflict (1 is none)?",
        lambda code: _ways(code, words),
        working=[
            f"lanes are {cols} words apart; {cols} and 32 have the common divisor {common}",
            f"so {common} lanes share each bank, with different words: {degree}"
            if common > 1
            else f"so each lane has a bank of its own: {degree}",
        ],
        check=degree,
    )


@question("stride_of_lanes", task="conflict_degree")
def stride_of_lanes(rng):
    """A stride and 32 have a common divisor: so many lanes meet in each bank."""
    stride = rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 16, 32])
    words = [lane * stride for lane in range(32)]
    degree = _degree(words)
    return Ask(
        f"Lane i of a warp reads word {stride} x i of an array of floats in shared memory. In how "
        "many turns is the request served (its conflict degree)?",
        lambda code: _ways(code, words),
        working=[
            f"banks repeat every 32 words: {stride} x i mod 32 takes {32 // degree} "
            f"value{'s' * (degree < 32)}",
            f"32 lanes over {32 // degree} bank{'s' * (degree < 32)}: {degree}",
        ],
        check=degree,
    )


@question("broadcasts", task="conflict_degree", minutes=1.5)
def broadcasts(rng):
    """Lanes that want the same word are served together."""
    share = rng.choice([2, 4, 8, 32])
    apart = rng.choice([1, 32])
    words = [lane // share * apart for lane in range(32)]
    degree = _degree(words)
    groups = 32 // share
    lie = f"the {groups} floats that are read lie {apart} word{'s' * (apart > 1)} apart"
    return Ask(
        f"In a warp, each {share} neighbouring lanes read the same float of shared memory; {lie}. "
        "How many ways is the bank conflict (1 is none)?"
        if groups > 1
        else "All 32 lanes of a warp read the same float of shared memory. How many ways is the "
        "bank conflict (1 is none)?",
        lambda code: _ways(code, words),
        working=[
            f"lanes of one word are served together, so {groups} word{'s' * (groups > 1)} "
            f"count{'s' * (groups == 1)}",
            f"{apart} apart they are in "
            f"{f'{groups} banks' if apart == 1 else 'one bank'}: {degree}"
            if groups > 1
            else f"it is in one bank: {degree}",
        ],
        check=degree,
    )


@question("wide_lanes", task="conflict_degree", minutes=1.5)
def wide_lanes(rng):
    """A phase is as many lanes as fill the banks once."""
    width = rng.choice([8, 16])
    stride = rng.choice([1, 2])
    per_phase = 128 // width
    addresses = [lane * stride * width for lane in range(32)]
    degree = stride
    kind = {8: "float2", 16: "float4"}[width]
    return Ask(
        f"Lane i reads the {kind} at index {stride} x i of an array in shared memory. A request "
        f"is served in phases of {per_phase} lanes. How many ways is the conflict within a phase "
        "(1 is none)?",
        lambda code: code.conflict_degree(addresses, width),
        working=[
            f"{per_phase} lanes of {width} bytes are {per_phase * width // 4} words, which fill "
            "the 32 banks once if they lie side by side",
            f"here they are spread over twice as many words: {degree}"
            if stride > 1
            else f"here they do: {degree}",
        ],
        check=degree,
    )


@question("sectors_of_a_stride", task="sectors", section="Read first")
def sectors_of_a_stride(rng):
    """A sector has 32 bytes: eight floats that lie side by side."""
    stride = rng.choice([1, 2, 3, 4, 8, 16, 64])
    touched = {4 * lane * stride // 32 for lane in range(32)}
    return Ask(
        f"Lane i of a warp reads float {stride} x i of an array that begins at a multiple of 128 "
        "bytes. How many sectors of 32 bytes does the request touch?",
        lambda code: code.sectors([4 * lane * stride for lane in range(32)], 4)[0],
        working=[
            f"a sector has 8 floats; lanes are {stride} float{'s' * (stride > 1)} apart",
            f"floats 0 to {31 * stride}"
            + (f", every sector of them: {len(touched)}" if stride <= 8 else
               f", a sector for each lane: {len(touched)}"),
        ],
        check=len(touched),
    )  # fmt: skip


@question("sectors_of_a_shift", task="sectors")
def sectors_of_a_shift(rng):
    """Where a row begins decides whether a sector more is touched."""
    shift = rng.choice([0, 1, 4, 7, 8, 9, 16])
    touched = {(4 * (lane + shift)) // 32 for lane in range(32)}
    return Ask(
        f"32 lanes read 32 neighbouring floats, the first of which is float {shift} of an array "
        "that begins at a multiple of 128 bytes. How many sectors of 32 bytes does the request "
        "touch?",
        lambda code: code.sectors([4 * (lane + shift) for lane in range(32)], 4)[0],
        working=[
            f"floats {shift} to {shift + 31}; a sector has 8 of them",
            f"sectors {shift // 8} to {(shift + 31) // 8}: {len(touched)}",
        ],
        check=len(touched),
    )


@question("efficiency_of_a_load", task="sectors", minutes=1.5)
def efficiency_of_a_load(rng):
    """Bytes that were asked for over bytes that travel."""
    size = rng.choice([8, 12, 16, 24, 32])
    touched = {byte // 32 for lane in range(32) for byte in (lane * size, lane * size + 3)}
    share = 128 / (32 * len(touched))
    return Ask(
        f"An array of structs has {size} bytes a struct. Lane i reads one float, the first, of "
        "struct i. What share of the bytes that travel in sectors of 32 is used?",
        lambda code: 128 / (32 * code.sectors([lane * size for lane in range(32)], 4)[0]),
        working=[
            f"sectors: {len(touched)}, that is {32 * len(touched):,} bytes; 32 x 4 = 128 are used",
            f"128 / {32 * len(touched):,} = {share:.4g}",
        ],
        check=share,
        within=0.005,
    )


@question("padding_of_a_tile", task="padding", section="Line by line")
def padding_of_a_tile(rng):
    """Rows must come back to a bank only after 32 of them: an odd number of words."""
    cols = rng.choice([32, 31, 48, 64, 33, 40])
    extra = next(p for p in range(33) if _degree([r * (cols + p) for r in range(32)]) == 1)
    return Ask(
        f"A tile of 32 rows of {cols} floats lies in shared memory. By how many floats must each "
        "row be padded at least, so that a warp reads a column without bank conflict?",
        lambda code: code.padding(32, cols, 4),
        working=[
            "a column is free of conflicts if the words of a row and 32 have no common divisor",
            f"{cols} + {extra} = {cols + extra} is odd, the first that is: {extra}",
        ],
        check=extra,
    )


# -- programs that are shown ----------------------------------------------------------------------


@question(
    "wavefronts_of_a_row_and_column",
    task="conflict_degree",
    minutes=2,
    kind="count",
    needs=("cxx",),
)
def wavefronts_of_a_row_and_column(rng):
    """One side goes by rows, the other by columns; the row's length decides."""
    cols = rng.choice([32, 33, 34, 36, 40])
    ways = _degree([row * cols for row in range(32)])
    code = f"""extern "C" __global__ void turn(const float *in, float *out) {{
    __shared__ float tile[32][{cols}];
    tile[threadIdx.y][threadIdx.x] = in[32 * threadIdx.y + threadIdx.x];
    __syncthreads();
    out[32 * threadIdx.y + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}}"""
    total = 32 + 32 * ways
    return Ask(
        "The kernel runs with one block of 32 x 32 threads; a warp is one threadIdx.y. How many "
        "wavefronts do its accesses to shared memory take in all?",
        lambda _: launched(
            code, "turn", 1, [32, 32], [np.ones(1024, np.float32), np.zeros(1024, np.float32)]
        ).total("wavefronts", space="shared"),
        working=[
            "writes: 32 warps, each a row: 32",
            f"reads: 32 warps, each a column of rows of {cols} words, {ways}-way: {32 * ways}",
            f"32 + {32 * ways} = {total}",
        ],
        check=total,
        code=code,
    )


@question("sectors_of_both_sides", task="sectors", minutes=2, kind="count", needs=("cxx",))
def sectors_of_both_sides(rng):
    """Coalesced on one side, a sector for each lane on the other."""
    side = rng.choice([32, 64, 96, 128])
    rows = side * side // 32
    code = f"""extern "C" __global__ void naive(const float *in, float *out) {{
    int x = 32 * blockIdx.x + threadIdx.x, y = blockIdx.y;
    out[{side} * x + y] = in[{side} * y + x];
}}"""
    total = 36 * rows
    return Ask(
        f"The kernel transposes {side} x {side} floats with a grid of {side // 32} x {side} blocks "
        "of 32 threads. How many sectors of 32 bytes do its reads and writes touch in all, counted "
        "for each request?",
        lambda _: launched(
            code,
            "naive",
            [side // 32, side],
            32,
            [np.ones(side * side, np.float32), np.zeros(side * side, np.float32)],
        ).total("sectors", space="global"),
        working=[
            f"requests a side: {side} x {side} / 32 = {rows}",
            "a read: 128 bytes side by side, 4 sectors; a write: 32 rows, 32 sectors",
            f"{rows} x (4 + 32) = {total:,}",
        ],
        check=total,
        code=code,
    )


@question(
    "wavefronts_of_a_broadcast", task="conflict_degree", minutes=1.5, kind="count", needs=("cxx",)
)
def wavefronts_of_a_broadcast(rng):
    """Lanes that want the same word are served together."""
    share, stride = rng.choice([2, 4, 8, 32]), rng.choice([1, 2, 32])
    words = [lane // share * stride for lane in range(32)]
    ways = _degree(words)
    code = f"""extern "C" __global__ void look(float *out) {{
    __shared__ float s[1024];
    for (int i = threadIdx.x; i < 1024; i += 32) s[i] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = s[{stride} * (threadIdx.x / {share})];  // this line
}}"""
    return Ask(
        "The kernel runs with one block of 32 threads. How many wavefronts does the read of "
        "shared memory in the last line take?",
        lambda _: launched(code, "look", 1, 32, [np.zeros(32, np.float32)]).total(
            "wavefronts", "read", "shared"
        ),
        working=[
            f"different words: 32 / {share} = {32 // share}, {stride} apart",
            f"of these {ways} share a bank: {ways}",
        ],
        check=ways,
        code=code,
    )
