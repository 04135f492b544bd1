"""Lab 04: questions of an interview; what is counted, the emulator counts."""

import numpy as np

from grader.suite.questions import Ask, question
from grader.suite.shown_programs import launched

BLOCKS = (64, 128, 256, 512)


def _report(code, kernel, n, grid, block, shared=1, outs=1, kind=np.float32):
    """A launch of the reference's kernel on n ones."""
    args = [np.ones(n, np.float32), np.zeros(outs, kind), n]
    return code.launch(kernel, grid, block, args, 4 * block * shared)


@question("atomics_of_a_tree", task="reduce_sequential", section="Read first", needs=("cxx",))
def atomics_of_a_tree(rng):
    """One atomic a block: how many blocks are there?"""
    block = rng.choice(BLOCKS)
    n = block * rng.choice([16, 40, 100]) + rng.choice([0, 1, block // 2])
    grid = -(-n // block)
    return Ask(
        f"{n:,} floats are summed by blocks of {block} threads, an element a thread. A block adds "
        "up in shared memory and brings its sum by one atomicAdd. How many atomicAdds are there?",
        lambda code: _report(code, "reduce_sequential", n, grid, block).total(
            "operations", "atomic"
        ),
        working=[f"blocks: {n:,} / {block}, rounded up: {grid}"],
        check=grid,
    )


@question("barriers_of_a_tree", task="reduce_sequential", minutes=1.5, needs=("cxx",))
def barriers_of_a_tree(rng):
    """One barrier after the filling, and one after each halving."""
    block = rng.choice(BLOCKS)
    steps = block.bit_length() - 1
    return Ask(
        f"A block of {block} threads fills shared memory, then halves the values step by step "
        "until one is left; a __syncthreads() stands after the filling and after each step. How "
        "many barriers does each thread pass?",
        lambda code: _report(code, "reduce_sequential", 4 * block, 4, block).barriers,
        working=[
            f"steps: log2({block}) = {steps}",
            f"and one after the filling: {steps + 1}",
        ],
        check=steps + 1,
    )


@question("requests_of_floats", task="reduce_warp", section="Read first", needs=("cxx",))
def requests_of_floats(rng):
    """A request is one instruction of a warp of 32 lanes."""
    block, grid = rng.choice(BLOCKS), rng.choice([2, 4, 8])
    n = block * grid * rng.choice([1, 2, 4])
    return Ask(
        f"{n:,} floats are read by warps, a float a lane, neighbouring lanes neighbouring floats. "
        "How many requests to global memory are that?",
        lambda code: _report(code, "reduce_warp", n, grid, block).total(
            "requests", "read", "global"
        ),
        working=[f"{n:,} / 32 lanes = {n // 32:,}"],
        check=n // 32,
    )


@question("requests_of_float4", task="reduce_vec4", minutes=1.5, needs=("cxx",))
def requests_of_float4(rng):
    """32 lanes of four floats each."""
    block, grid = rng.choice(BLOCKS), rng.choice([2, 4, 8])
    n = block * grid * 4
    return Ask(
        f"{n:,} floats are read as float4, neighbouring lanes neighbouring elements. How many "
        "requests to global memory are that?",
        lambda code: _report(code, "reduce_vec4", n, grid, block).total(
            "requests", "read", "global"
        ),
        working=[
            "a request: 32 lanes of 4 floats: 128",
            f"{n:,} / 128 = {n // 128:,}",
        ],
        check=n // 128,
    )


@question("sectors_of_a_sum", task="reduce_vec4", section="Read first", needs=("cxx",))
def sectors_of_a_sum(rng):
    """The bytes, by 32: the width of a load does not change them."""
    block, grid = rng.choice(BLOCKS), rng.choice([2, 4, 8])
    n = block * grid * 4
    way = rng.choice(["a float a lane", "a float4 a lane"])
    kernel = "reduce_vec4" if "float4" in way else "reduce_warp"
    return Ask(
        f"A kernel reads {n:,} floats once, {way}, coalesced and aligned. How many sectors of 32 "
        "bytes does it fetch?",
        lambda code: _report(code, kernel, n, grid, block).total("sectors", "read", "global"),
        working=[f"{n:,} x 4 bytes / 32 = {n // 8:,}"],
        check=n // 8,
    )


@question("atomics_of_a_loop", task="reduce_warp", needs=("cxx",))
def atomics_of_a_loop(rng):
    """The grid decides, not the elements."""
    block, grid = rng.choice(BLOCKS), rng.choice([4, 8, 16])
    n = rng.choice([8192, 10_000, 20_000])
    return Ask(
        f"A grid of {grid} blocks of {block} threads loops over {n:,} floats; each block brings "
        "its sum by one atomicAdd. How many atomicAdds are there?",
        lambda code: _report(code, "reduce_warp", n, grid, block).total("operations", "atomic"),
        working=[f"one a block, however long a thread loops: {grid}"],
        check=grid,
    )


@question("shared_requests_of_shuffles", task="reduce_warp", minutes=1.5, needs=("cxx",))
def shared_requests_of_shuffles(rng):
    """A write by each warp, and a read by one."""
    block = rng.choice([128, 256, 512])
    warps = block // 32
    return Ask(
        f"A block of {block} threads adds up by shuffles. Lane 0 of each warp writes its sum to "
        "shared memory, and after a barrier one warp reads all of them in one request. How many "
        "requests to shared memory does the block make?",
        lambda code: _report(code, "reduce_warp", 2 * block, 1, block).total(
            "requests", space="shared"
        ),
        working=[
            f"warps: {block} / 32 = {warps}",
            f"{warps} writes and 1 read: {warps + 1}",
        ],
        check=warps + 1,
    )


@question("seconds_of_a_sum", task="reduce_vec4", unit="s", minutes=1.5, section="Read first")
def seconds_of_a_sum(rng):
    """A sum is bound by reading its input once."""
    power = rng.choice([26, 28, 30])
    name, speed = rng.choice([("an A100 of 80 GB", 2.04), ("an H100", 3.35), ("an H200", 4.8)])
    seconds = 4 * 2**power / (speed * 10**12)
    return Ask(
        f"2^{power} floats are summed on {name}, whose memory gives {speed:g} TB/s. What is the "
        "least time that any kernel takes?",
        lambda code: seconds,
        working=[
            f"bytes: 4 x 2^{power} = {4 * 2**power / 10**9:.5g} GB",
            f"{4 * 2**power / 10**9:.5g} GB / {speed:g} TB/s = {seconds * 10**6:.4g} us",
        ],
        check=2 ** (power + 2) / speed / 1e12,
        within=0.02,
    )


@question("partials_of_two_passes", task="reduce_two_pass", unit="bytes", needs=("cxx",))
def partials_of_two_passes(rng):
    """One float for each block of the first pass."""
    block, grid = rng.choice(BLOCKS), rng.choice([32, 64, 128])
    return Ask(
        f"A sum of floats that is the same in every run has two passes: each of {grid} blocks of "
        f"{block} threads writes its sum, a float, and one block adds these up. How many bytes "
        "does the first pass write?",
        lambda code: _report(
            code, "reduce_two_pass", 2 * block * grid, grid, block, outs=grid
        ).bytes("write"),
        working=[f"{grid} floats: 4 x {grid} = {4 * grid} bytes"],
        check=4 * grid,
    )


# -- programs that are shown ----------------------------------------------------------------------


@question("wavefronts_of_a_step", task="reduce_strided", minutes=2, kind="count", needs=("cxx",))
def wavefronts_of_a_step(rng):
    """Lanes k words apart spread over 32 / gcd(k, 32) banks."""
    stride = rng.choice([1, 2, 3, 4, 6, 8, 16])
    block = rng.choice([32, 64, 128])
    warps = block // 32
    ways = next(d for d in (32, 16, 8, 4, 2, 1) if stride % d == 0)
    size = block * stride
    code = f"""extern "C" __global__ void step(float *out) {{
    __shared__ float s[{size}];
    s[{stride} * threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = s[{stride} * threadIdx.x];
}}"""
    return Ask(
        f"The kernel runs with one block of {block} threads. How many wavefronts do its accesses "
        "to shared memory take in all?",
        lambda _: launched(code, "step", 1, block, [np.zeros(block, np.float32)]).total(
            "wavefronts", space="shared"
        ),
        working=[
            f"lanes are {stride} word{'s' * (stride > 1)} apart: "
            + (f"{ways} of a warp meet in a bank" if ways > 1 else "no two meet in a bank"),
            f"a write and a read by each of {warps} warp{'s' * (warps > 1)}: "
            f"2 x {warps} x {ways} = {2 * warps * ways}",
        ],
        check=2 * warps * ways,
        code=code,
    )


@question("lanes_of_an_atomic", task="reduce_atomic", minutes=1.5, kind="count", needs=("cxx",))
def lanes_of_an_atomic(rng):
    """Each lane that comes to it is one addition."""
    block, every = rng.choice([64, 128, 256]), rng.choice([2, 4, 8, 32])
    grid = rng.choice([2, 4, 8])
    code = f"""extern "C" __global__ void count(float *out) {{
    float mine = 1.0f;
    if (threadIdx.x % {every} == 0) atomicAdd(out, mine);
}}"""
    return Ask(
        f"The kernel runs with {grid} blocks of {block} threads. How many additions does the "
        "atomic do?",
        lambda _: launched(code, "count", grid, block, [np.zeros(1, np.float32)]).total(
            "operations", "atomic"
        ),
        working=[
            f"lanes of a block: {block} / {every} = {block // every}",
            f"{grid} x {block // every} = {grid * block // every}",
        ],
        check=grid * block // every,
        code=code,
    )


@question("sectors_of_a_stride", task="reduce_first_add", minutes=2, kind="count", needs=("cxx",))
def sectors_of_a_stride(rng):
    """Neighbouring lanes' addresses, by 32 bytes."""
    stride, block = rng.choice([1, 2, 4, 8, 16]), rng.choice([32, 64, 128])
    each = min(32, 4 * stride)
    warps = block // 32
    code = f"""extern "C" __global__ void gather(const float *in, float *out) {{
    out[threadIdx.x] = in[{stride} * threadIdx.x];
}}"""
    return Ask(
        f"The kernel runs with one block of {block} threads, and `in` begins at a multiple of 128 "
        "bytes. How many sectors of 32 bytes do its reads touch, counted for each request?",
        lambda _: launched(
            code,
            "gather",
            1,
            block,
            [np.ones(block * stride, np.float32), np.zeros(block, np.float32)],
        ).total("sectors", "read", "global"),
        working=[
            f"a warp spans 32 x {4 * stride} bytes; in sectors of 32 bytes: {each}",
            f"{warps} warp{'s' * (warps > 1)}: {warps} x {each} = {warps * each}",
        ],
        check=warps * each,
        code=code,
    )
