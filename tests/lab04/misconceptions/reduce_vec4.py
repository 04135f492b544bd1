from grader.lab.skeleton import with_block
from grader.suite import lines, misconception

_HEAD = "min((unsigned int)(16 - (size_t)in % 16) % 16 / 4, (unsigned int)n)"

vec4_ignores_alignment = lines(
    """`in` is cast to float4 as it is: a 16-byte load from an address that is no multiple of 16 is
    an error on a GPU. Read up to 3 elements one by one first.""",
    (_HEAD, "0"),
)

vec4_counts_floats = lines(
    """The loop runs over n float4, which are 4 * n floats: there are n / 4 of them.""",
    ("(n - head) / 4, tail", "n, tail"),
)

vec4_tests_the_first_of_four = lines(
    """`i < n` is true for the first of four elements and says nothing about the other three: the
    last load reaches beyond n. Test the last one, i + 3 < n.""",
    (
        "unsigned int i = first; i < quads; i += stride",
        "unsigned int i = first; 4 * i < n - head; i += stride",
    ),
)

vec4_loses_the_tail = lines(
    """n need not be a multiple of 4: up to 3 elements behind the last whole float4 are still to be
    added.""",
    ("    if (tail + first < n) sum += in[tail + first];\n", ""),
)

vec4_loses_the_head = lines(
    """The elements in front of the first multiple of 16 bytes are skipped, and never added.""",
    ("    if (first < head) sum += in[first];\n", ""),
)

vec4_every_thread_adds_the_tail = lines(
    """Every thread adds the last elements: they belong to one thread each, in the whole grid.""",
    (
        "    if (tail + first < n) sum += in[tail + first];\n",
        "    for (unsigned int i = tail; i < n; ++i) sum += in[i];\n",
    ),
)

vec4_every_block_adds_the_tail = lines(
    """The first threads of every block add the last elements: they belong to the first threads of
    the grid, blockIdx.x == 0.""",
    (
        "    if (tail + first < n) sum += in[tail + first];\n",
        "    if (tail + threadIdx.x < n) sum += in[tail + threadIdx.x];\n",
    ),
)

vec4_counts_from_the_boundary_below = lines(
    """address % 16 says how far the last boundary lies behind; the head reaches to the next one,
    (16 - address % 16) % 16 bytes on.""",
    (_HEAD, "min((unsigned int)((size_t)in % 16 / 4), n)"),
)

vec4_head_longer_than_the_input = lines(
    """The head is not limited to n: an input of 1 or 2 elements may end before the boundary, and
    n - head is then negative.""",
    (_HEAD, "(unsigned int)(16 - (size_t)in % 16) % 16 / 4"),
)

_QUADS = """        float4 four = body[i];
        sum += (four.x + four.y) + (four.z + four.w);"""

vec4_four_loads_of_one = lines(
    """Four loads of 4 bytes, each with its lanes 16 bytes apart, are four requests of 16 sectors
    where one would do. Copy the whole float4: float4 four = body[i];.""",
    (
        _QUADS,
        "        const float *p = in + head + 4 * i;\n"
        "        sum += (p[0] + p[1]) + (p[2] + p[3]);",
    ),
)

vec4_gives_up_when_misaligned = lines(
    """An input that does not begin at a multiple of 16 bytes is read one by one, all of it: at most
    3 elements in front need that, and then everything is aligned.""",
    (_HEAD, "(size_t)in % 16 ? n : 0"),
    (
        "if (first < head) sum += in[first];",
        "for (unsigned int i = first; i < head; i += stride) sum += in[i];",
    ),
)


@misconception(file="reduce.cu")
def vec4_an_atomic_a_thread(text):
    """Every thread brings its own sum to `out`: atomics on one address stand in line. Reduce the
    block first, as in `reduce_warp`."""
    first, _, _ = text.partition("// BEGIN SOLUTION reduce_vec4")[2].partition(
        "    for (int offset"
    )
    return with_block(text, "reduce_vec4", first.strip("\n") + "\n    atomicAdd(out, sum);")


vec4_without_a_barrier = lines(
    """No __syncthreads() between the warps' writes and the first warp's read: a shuffle orders the
    lanes of one warp, never two warps.""",
    ("    __syncthreads();\n", ""),
)

vec4_a_run_for_each_thread = lines(
    """Each thread reads float4 that stand side by side, so its neighbour's are far away and a
    request touches many sectors: lane after lane should read the next float4.""",
    (
        "for (unsigned int i = first; i < quads; i += stride) {",
        "unsigned int each = (quads + stride - 1) / stride;\n"
        "    for (unsigned int i = first * each; i < min((first + 1) * each, quads); ++i) {",
    ),
)
