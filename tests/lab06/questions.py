"""Lab 06: questions of an interview with figures that can be done on paper."""

from grader.suite.questions import Ask, question
from grader.suite.shown_programs import ran


def _matrix(rng):
    """Rows, columns and bytes an element; for paper."""
    M, N = rng.choice([(1024, 1024), (2048, 1024), (4096, 2048), (16_384, 2048)])
    return M, N, *rng.choice([(4, "float32"), (2, "float16")])


def _five(M, N):
    """What five kernels read and write, in elements."""
    return 5 * M * N + 2 * M, 3 * M * N + 2 * M


_KERNELS = (
    "in five kernels, one after another: the maximum of each row, x - maximum, exp, the sum of "
    "each row, the quotient; each reads its operands from memory and writes its result there"
)


@question("fused_bytes", task="traffic", unit="bytes", section="Read first")
def fused_bytes(rng):
    """One kernel reads its input once and writes its output once."""
    M, N, size, dtype = _matrix(rng)
    total = 2 * M * N * size
    return Ask(
        f"A softmax over the rows of a {M:,} x {N:,} matrix of {dtype}, fused into one kernel. How "
        "many bytes are read and written in all?",
        lambda code: sum(code.traffic(M, N, size, True)),
        working=[
            f"read {M:,} x {N:,} elements, write as many: {2 * M * N:,}",
            f"{2 * M * N:,} x {size} bytes = {total:,} bytes",
        ],
        check=total,
    )


@question("read_by_five_kernels", task="traffic", unit="bytes", minutes=2, section="Read first")
def read_by_five_kernels(rng):
    """Five kernels read the matrix, and two of them a number for each row besides."""
    M, N, size, dtype = _matrix(rng)
    read = _five(M, N)[0]
    return Ask(
        f"A softmax over the rows of a {M:,} x {N:,} matrix of {dtype} runs {_KERNELS}. How many "
        "bytes are read in all?",
        lambda code: code.traffic(M, N, size, False)[0],
        working=[
            f"each of the five reads a matrix: 5 x {M * N:,} = {5 * M * N:,}",
            f"the difference also the maxima, the quotient the sums: 2 x {M:,} = {2 * M:,}",
            f"{read:,} x {size} bytes = {read * size:,} bytes",
        ],
        check=read * size,
        within=0.0005,
    )


@question("written_by_five_kernels", task="traffic", unit="bytes", minutes=2)
def written_by_five_kernels(rng):
    """Three of the five write a matrix, two a number for each row."""
    M, N, size, dtype = _matrix(rng)
    written = _five(M, N)[1]
    return Ask(
        f"A softmax over the rows of a {M:,} x {N:,} matrix of {dtype} runs {_KERNELS}. How many "
        "bytes are written in all?",
        lambda code: code.traffic(M, N, size, False)[1],
        working=[
            f"difference, exp and quotient write a matrix: 3 x {M * N:,} = {3 * M * N:,}",
            f"maximum and sum a number for each row: 2 x {M:,} = {2 * M:,}",
            f"{written:,} x {size} bytes = {written * size:,} bytes",
        ],
        check=written * size,
        within=0.0005,
    )


@question("factor_of_fusion", task="traffic", minutes=1.5)
def factor_of_fusion(rng):
    """All that five kernels move over all that one does."""
    M, N, size, dtype = _matrix(rng)
    factor = sum(_five(M, N)) / (2 * M * N)
    return Ask(
        f"A softmax over the rows of a {M:,} x {N:,} matrix of {dtype}, {_KERNELS}. By what factor "
        "do these move more bytes than one fused kernel?",
        lambda code: sum(code.traffic(M, N, size, False)) / sum(code.traffic(M, N, size, True)),
        working=[
            "five kernels: 5 matrices read, 3 written, and next to nothing by row; one: 1 and 1",
            f"8 / 2, and a little more: {factor:.3f}",
        ],
        check=factor,
        within=0.002,
    )


def _seconds(rng):
    M, N, size, dtype = _matrix(rng)
    gpu, rate = rng.choice(
        [("an H100", 3.35e12), ("an A100 of 80 GB", 2.04e12), ("an H200", 4.8e12)]
    )
    return M, N, size, dtype, gpu, rate


@question("seconds_of_a_fused_softmax", task="traffic", unit="s", minutes=1.5)
def seconds_of_a_fused_softmax(rng):
    """Bytes over bandwidth; the arithmetic hides behind it."""
    M, N, size, dtype, gpu, rate = _seconds(rng)
    total = 2 * M * N * size
    return Ask(
        f"A fused softmax of a {M:,} x {N:,} matrix of {dtype} on {gpu} ({rate / 1e12:g} TB/s). "
        "How long does it take at least?",
        lambda code: sum(code.traffic(M, N, size, True)) / rate,
        working=[
            f"2 x {M:,} x {N:,} x {size} bytes = {total / 1e6:.3f} MB",
            f"{total / 1e6:.3f} MB / {rate / 1e12:g} TB/s = {total / rate * 1e6:.3g} us",
        ],
        check=total / rate,
        within=0.01,
    )


@question("seconds_of_five_kernels", task="traffic", unit="s", minutes=2)
def seconds_of_five_kernels(rng):
    """Eight times the matrix crosses memory."""
    M, N, size, dtype, gpu, rate = _seconds(rng)
    total = sum(_five(M, N)) * size
    return Ask(
        f"A softmax of a {M:,} x {N:,} matrix of {dtype} on {gpu} ({rate / 1e12:g} TB/s) runs "
        f"{_KERNELS}. Nothing stays in a cache. How long does it take at least?",
        lambda code: sum(code.traffic(M, N, size, False)) / rate,
        working=[
            f"(8 x {M:,} x {N:,} + 4 x {M:,}) x {size} bytes = {total / 1e6:.2f} MB",
            f"{total / 1e6:.2f} MB / {rate / 1e12:g} TB/s = {total / rate * 1e6:.3g} us",
        ],
        check=total / rate,
        within=0.01,
    )


@question("seconds_that_fusion_saves", task="traffic", unit="s", minutes=2)
def seconds_that_fusion_saves(rng):
    """What five kernels move more, over the bandwidth."""
    M, N, size, dtype, gpu, rate = _seconds(rng)
    saved = (sum(_five(M, N)) - 2 * M * N) * size / rate
    return Ask(
        f"On {gpu} ({rate / 1e12:g} TB/s) a softmax of a {M:,} x {N:,} matrix of {dtype} runs "
        f"{_KERNELS}. How much time does one fused kernel save at most?",
        lambda code: (
            (sum(code.traffic(M, N, size, False)) - sum(code.traffic(M, N, size, True))) / rate
        ),
        working=[
            "8 matrices and 4 numbers for each row, less 2 matrices: 6 matrices and a little more",
            f"(6 x {M:,} x {N:,} + 4 x {M:,}) x {size} bytes = {saved * rate / 1e6:.2f} MB",
            f"{saved * rate / 1e6:.2f} MB / {rate / 1e12:g} TB/s = {saved * 1e6:.3g} us",
        ],
        check=saved,
        within=0.01,
    )


@question("bytes_of_the_statistics", task="traffic", unit="bytes", minutes=1.5)
def bytes_of_the_statistics(rng):
    """A number for each row, twice written and twice read."""
    M, N, size, dtype = _matrix(rng)
    total = 4 * M * size
    return Ask(
        f"A softmax of a {M:,} x {N:,} matrix of {dtype} runs {_KERNELS}. How many of the bytes "
        "are those of maxima and sums, read and written?",
        lambda code: sum(code.traffic(M, N, size, False)) - 8 * M * N * size,
        working=[
            f"maxima: {M:,} written and read; sums: {M:,} written and read",
            f"4 x {M:,} x {size} bytes = {total:,} bytes",
        ],
        check=total,
    )


# -- programs that are shown ----------------------------------------------------------------------


def _counted(code, **names):
    """Elements that a program loads and stores."""
    counts = {"load": 0, "store": 0}

    def load(row, begin, count):
        counts["load"] += max(0, min(count, names["N"] - begin))
        return [0.0]

    def store(row, begin, count):
        counts["store"] += max(0, min(count, names["N"] - begin))

    ran(code, load=load, store=store, **names)
    return counts


@question("elements_of_two_passes", task="traffic", minutes=1.5, kind="count")
def elements_of_two_passes(rng):
    """Each pass over the row loads it once."""
    M, N, block = rng.choice([4, 8, 16]), rng.choice([1000, 2000, 3000]), rng.choice([256, 512])
    passes = rng.choice([2, 3])
    row = "\n".join(
        f"    for begin in range(0, N, BLOCK):   # {what}\n        load(row, begin, BLOCK)"
        for what in ("the maximum", "the sum")[: passes - 1]
    )
    code = f"""for row in range(M):
{row}
    for begin in range(0, N, BLOCK):   # the result
        load(row, begin, BLOCK)
        store(row, begin, BLOCK)"""
    total = (passes + 1) * M * N
    return Ask(
        f"A softmax over {M} rows of {N:,} elements with BLOCK = {block}; load and store leave out "
        "what is beyond the row. How many elements are loaded and stored in all?",
        lambda _: sum(_counted(code, M=M, N=N, BLOCK=block).values()),
        working=[
            f"loaded: {passes} x {M} x {N:,} = {passes * M * N:,}",
            f"stored: {M * N:,}; in all {total:,}",
        ],
        check=total,
        code=code,
    )


@question("masked_lanes", task="softmax", minutes=1.5, kind="count")
def masked_lanes(rng):
    """A block is a power of two, a row is not."""
    M, N = rng.choice([4, 8, 16]), rng.choice([1000, 1500, 3000, 5000])
    code = """BLOCK = 1
while BLOCK < N:
    BLOCK *= 2
idle = 0
for row in range(M):
    for lane in range(BLOCK):
        if lane >= N:
            idle += 1"""
    block = 1 << (N - 1).bit_length()
    return Ask(
        f"A program for each of {M} rows of {N:,} elements, in one block whose size is a power of "
        "two. What is `idle` in the end?",
        lambda _: ran(code, M=M, N=N)["idle"],
        working=[
            f"BLOCK: {block:,}; idle lanes of a row: {block:,} - {N:,} = {block - N:,}",
            f"{M} x {block - N:,} = {M * (block - N):,}",
        ],
        check=M * (block - N),
        code=code,
    )


@question("rescalings", task="online_softmax", minutes=2, kind="count")
def rescalings(rng):
    """The sum is scaled only where the running maximum rises."""
    blocks = [rng.randrange(1, 9) for _ in range(6)]
    code = f"""m, times = float("-inf"), 0
for block_max in {blocks}:
    if block_max > m:
        if m > float("-inf"):
            times += 1            # l = l * exp(m - block_max)
        m = block_max"""
    rises, best = [], blocks[0]
    for value in blocks[1:]:
        if value > best:
            rises.append(value)
            best = value
    return Ask(
        "An online softmax goes over blocks with these maxima, and scales its sum only where that "
        "is needed. What is `times` in the end?",
        lambda _: ran(code)["times"],
        working=[
            f"the first block sets the maximum: {blocks[0]}",
            f"it rises to {', then '.join(map(str, rises)) or 'nothing more'}: {len(rises)}",
        ],
        check=len(rises),
        code=code,
    )
