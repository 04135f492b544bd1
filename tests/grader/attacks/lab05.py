"""Lab 05: tiles that are read unseen, a swizzle that nobody follows, the emulator as an answer."""

from __future__ import annotations

from .lab_attack import LabAttack

_HIDDEN_TILE = """    __shared__ float tile[TILE * (TILE + 1)];
    auto peek = [] ATTRIBUTE (const float *at) { return *at; };
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h) tile[j * TILE + threadIdx.x] = in[y * w + x];
    }
    __syncthreads();
    int column = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int row = blockIdx.x * TILE + j;
        if (column < h && row < w) out[row * h + column] = peek(tile + threadIdx.x * TILE + j);
    }
"""
_PADDED = "transpose_padded"

ATTACKS = [
    LabAttack(
        "a-tile-without-padding-read-unseen",
        _PADDED,
        "the conflicts of an unpadded tile are in a function that no instrument sees",
        _HIDDEN_TILE.replace("ATTRIBUTE", '[[gnu::no_sanitize("thread")]]'),
        mark=r"host's compiler",
    ),
    LabAttack(
        "a-swizzle-for-show",
        "transpose_swizzled",
        "the kernel asks swizzle and does not do what it says",
        changes=(
            (
                "tile[j][swizzle(j, threadIdx.x)] = in[y * w + x];",
                "tile[j][swizzle(j, threadIdx.x) * 0 + (threadIdx.x + j) % TILE] = in[y * w + x];",
            ),
            (
                "tile[threadIdx.x][swizzle(threadIdx.x, j)];",
                "tile[threadIdx.x][swizzle(threadIdx.x, j) * 0 + (j + threadIdx.x) % TILE];",
            ),
        ),
        mark=r"swizzle",
        passes=("test_a_rectangle_is_transposed", "test_both_sides_are_coalesced"),
    ),
    LabAttack(
        "a-tile-without-padding-read-unseen-by-pasting",
        _PADDED,
        "the same, in words that a macro pastes together",
        "#define PASTE(a, b) a##b\n" + _HIDDEN_TILE.replace("ATTRIBUTE", "PASTE(I, L_HIDDEN)"),
        mark=r"hide",
    ),
    LabAttack(
        "the-emulator-as-an-answer",
        "conflict_degree",
        "a kernel of one warp runs in the kit's emulator, whose counts are the answer",
        '''
import importlib, tempfile, pathlib, numpy
def conflict_degree(byte_addrs, access_bytes=4):
    kernels = importlib.import_module("grader.kernels")
    text = """extern "C" __global__ void k(const int *at, float *out) {
        extern __shared__ float s[];
        out[threadIdx.x] = s[at[threadIdx.x] / 4];
    }"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "one.cu"
        path.write_text(text)
        at = numpy.array([a for a in byte_addrs if a is not None], dtype=numpy.int32)
        module = kernels.compile(path)
        report = module.launch("k", 1, len(at), [at, numpy.zeros(len(at), numpy.float32)], 32768)
    rows = [a for a in report.accesses if a.space == "shared"]
    return max([a.wavefronts // a.requests for a in rows], default=0)
''',
        mark=r"student code opened one of the kit's own meters",
    ),
]
