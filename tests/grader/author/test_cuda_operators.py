"""Mutants of CUDA C++: each mistake on a small kernel, and all of them on the references."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from grader import kernels
from grader.author.mutants.candidates import block_spans
from grader.author.mutants.cuda_operators import edits
from grader.author.mutants.cuda_tokens import Listing
from grader.author.mutants.edits import Edit
from grader.lab.manifest import load_lab

ROOT = Path(__file__).resolve().parents[3]
HEAD = 'extern "C" __global__ void k(const float *in, float *out, int n, int w) {\n'
TASKS = [
    (lab.solution / task.file, task.id)
    for lab in (load_lab(ROOT, "lab04"), load_lab(ROOT, "lab05"))
    for task in lab.tasks
    if task.file.endswith(".cu")
]
IDS = [task for _, task in TASKS]


def squeezed(text: str) -> str:
    """A text without what stands between its tokens."""
    return " ".join(token.text for token in Listing(text).tokens)


def found(body: str) -> list[tuple[str, str]]:
    """The operator and the resulting body of each mutant of a kernel's body."""
    text = f"{HEAD}{body}\n}}\n"
    span = len(HEAD), len(HEAD) + len(body)
    rows = []
    for edit in edits(text, [span]):
        changed = edit.applied(text)
        rows.append((edit.operator, changed[len(HEAD) : -3]))
    return rows


@pytest.mark.parametrize(
    ("operator", "body", "wrong"),
    [
        ("barrier-dropped", "t[i] = 1; __syncthreads(); x = t[j];", "t[i] = 1; x = t[j];"),
        ("barrier-weakened", "t[i] = 1; __syncthreads();", "t[i] = 1; __syncwarp();"),
        (
            "barrier-earlier",
            "t[i] = 1; __syncthreads(); x = t[j];",
            "__syncthreads(); t[i] = 1; x = t[j];",
        ),
        (
            "barrier-later",
            "t[i] = 1; __syncthreads(); x = t[j];",
            "t[i] = 1; x = t[j]; __syncthreads();",
        ),
        (
            "barrier-conditional",
            "if (i < n) t[i] = 1; __syncthreads();",
            "if (i < n) { t[i] = 1; __syncthreads(); }",
        ),
        (
            "barrier-conditional",
            "if (i < n) { t[i] = 1; } __syncthreads();",
            "if (i < n) { t[i] = 1; __syncthreads(); }",
        ),
        (
            "barrier-out-of-loop",
            "for (; s > 1; s = r) { t[i] += t[s]; __syncthreads(); }",
            "for (; s > 1; s = r) { t[i] += t[s]; } __syncthreads();",
        ),
        ("guard-dropped", "if (i < n) out[i] = 1.0f;", "if (true) out[i] = 1.0f;"),
        ("guard-dropped", "if (x < w && y < h) f();", "if (x < w) f();"),
        ("guard-dropped", "if (x < w && y < h) f();", "if (y < h) f();"),
        ("branch-dropped", "if (a) f(); else g();", "if (a) f();"),
        ("branch-dropped", "if (a) f(); else g();", "g();"),
        ("branch-dropped", "if (a) f(); g();", "; g();"),
        (
            "return-early",
            "if (i < n) f(); __syncthreads();",
            "if (!(i < n)) return; f(); __syncthreads();",
        ),
        (
            "return-early",
            "t[i] = i < n ? in[i] : 0.0f; __syncthreads();",
            "if (!(i < n)) return; t[i] = in[i]; __syncthreads();",
        ),
        ("statement-dropped", "a = 1, b = 2;", "b = 2;"),
        ("statement-dropped", "a = 1, b = 2;", "a = 1;"),
        ("jump", "for (;;) break;", "for (;;) continue;"),
        ("comparison", "if (i < n) f();", "if (i <= n) f();"),
        ("comparison", "if (i == n) f();", "if (i != n) f();"),
        ("boundary", "if (i < n) f();", "if (i < n - 1) f();"),
        ("logic", "if (a || b) f();", "if (a && b) f();"),
        ("logic", "if (!(a > b)) f();", "if ((a > b)) f();"),
        ("choice", "x = i < n ? in[i] : 0.0f;", "x = in[i];"),
        ("choice", "x = i < n ? in[i] : 0.0f;", "x = 0.0f;"),
        ("array-short", "__shared__ float t[32];", "__shared__ float t[31];"),
        ("array-short", "__shared__ float t[32];", "__shared__ float t[16];"),
        ("array-short", "__shared__ float t[T][T + 1];", "__shared__ float t[T][T];"),
        ("array-padding", "__shared__ float t[T][T];", "__shared__ float t[T][T + 1];"),
        ("index-transposed", "x = t[a][b + 1];", "x = t[b + 1][a];"),
        ("index-transposed", "x = in[y * w + x];", "x = in[x * w + y];"),
        (
            "index-transposed",
            "i = blockIdx.x * blockDim.x + threadIdx.x;",
            "i = threadIdx.x * blockDim.x + blockIdx.x;",
        ),
        ("constant", "lane = tid % 32;", "lane = tid % 31;"),
        ("constant", "lane = tid % 32;", "lane = tid % 16;"),
        ("constant", "lane = tid & 31;", "lane = tid & 30;"),
        ("constant", "x = 2.0f * y;", "x = 4.0f * y;"),
        ("double-literal", "x = y * 0.5f;", "x = y * 0.5;"),
        ("operator", "x = a % b;", "x = a / b;"),
        ("operator", "warp = tid >> 5;", "warp = tid << 5;"),
        ("operator", "lane = tid & m;", "lane = tid | m;"),
        ("assignment", "t[i] += x;", "t[i] = x;"),
        (
            "loop-step",
            "for (int s = a; s > 0; s >>= 1) f();",
            "for (int s = a; s > 0; s -= 1) f();",
        ),
        ("loop-step", "for (int s = a; s < n; s += w) f();", "for (int s = a; s < n; ++s) f();"),
        ("loop-step", "for (int s = a; s < n; ++s) f();", "for (int s = a; s < n; s += 2) f();"),
        ("loop-start", "for (int s = a; s < n; ++s) f();", "for (int s = a + 1; s < n; ++s) f();"),
        ("component", "i = threadIdx.x;", "i = threadIdx.y;"),
        ("component", "x = four.z;", "x = four.w;"),
        ("index-confused", "i = blockDim.x;", "i = gridDim.x;"),
        ("shuffle-mask", "__shfl_down_sync(0xffffffff, x, s);", "__shfl_down_sync(0xffff, x, s);"),
        (
            "shuffle-direction",
            "__shfl_down_sync(0xffffffff, x, s);",
            "__shfl_up_sync(0xffffffff, x, s);",
        ),
        (
            "shuffle-width",
            "__shfl_down_sync(0xffffffff, x, s);",
            "__shfl_down_sync(0xffffffff, x, s, 16);",
        ),
        (
            "shuffle-offset",
            "__shfl_down_sync(0xffffffff, x, s);",
            "__shfl_down_sync(0xffffffff, x, s + 1);",
        ),
        ("atomic-plain", "atomicAdd(&t[i], v);", "t[i] += v;"),
        ("atomic-plain", "atomicAdd(out, v);", "*(out) += v;"),
        ("atomic-added", "out[i] += v;", "atomicAdd(&out[i], v);"),
        ("extreme", "x = fmaxf(a, b);", "x = fminf(a, b);"),
        ("extreme", "x = fmaxf(a, b);", "x = (a);"),
        ("arguments-exchanged", "x = swizzle(a, b);", "x = swizzle(b, a);"),
        ("identity", "x = -INFINITY;", "x = 0.0f;"),
        ("identity", "x = __int_as_float(0xff800000);", "x = -1.0e30f;"),
        ("type-narrowed", "size_t i = a;", "int i = a;"),
        ("type-narrowed", "long long i = a;", "int i = a;"),
        ("type-narrowed", "unsigned int i = a >> 1; b = i >> 2;", "int i = a >> 1; b = i >> 2;"),
        ("type-precision", "double sum = 0;", "float sum = 0;"),
        ("shared-dropped", "__shared__ float t[2];", "float t[2];"),
        ("volatile-dropped", "volatile float *v = t;", "float *v = t;"),
        ("cast-dropped", "x = (float)a / b;", "x = a / b;"),
        ("name-confused", "out[w] = 1;", "out[n] = 1;"),
        ("name-confused", "int a = 1, b = 2; f(a);", "int a = 1, b = 2; f(b);"),
    ],
)
def test_a_mistake_of_each_kind_is_made(operator: str, body: str, wrong: str) -> None:
    """Oracle: the mistake, written by hand."""
    made = {squeezed(text) for name, text in found(body) if name == operator}
    assert squeezed(wrong) in made, made


@pytest.mark.parametrize(
    "aside",
    [
        "// i < n && __syncthreads();\n",
        "/* x = t[a][b] + 1; */",
        "\n#pragma unroll 4\n",
        "\n#define LESS(a) a < 3 \\\n && a > 1\n",
        'say("i < n + 1");',
    ],
)
def test_comments_strings_and_directives_stay(aside: str) -> None:
    """Oracle: C++; no token of an expression stands in them."""
    made = [text for name, text in found(f"a = b + 1; {aside} a = c;") if "dropped" not in name]
    assert len(made) >= 2
    for text in made:
        assert aside.strip() in text


@pytest.mark.parametrize(
    ("body", "operator"),
    [
        ("const float *p = in;", "operator"),
        ("p = reinterpret_cast<const float4 *>(in);", "comparison"),
        ("p = (const float4 *)(in);", "cast-dropped"),
        ("auto f = [&](float &a, int b) { return; };", "operator"),
        ("__shared__ float t[32];", "constant"),
        ("int a = 1; __syncthreads(); int b = 2;", "barrier-later"),
        ("unsigned int lane = threadIdx.x;", "type-narrowed"),
        ("float x = 0.0f;", "double-literal"),
    ],
)
def test_what_is_a_type_or_changes_nothing_is_left_alone(body: str, operator: str) -> None:
    """Oracle: C++; the sign is part of a type, or the change has no effect."""
    assert operator not in {name for name, _ in found(body)}


def test_statements_of_a_nested_body_belong_to_their_list() -> None:
    """Oracle: the nesting, written by hand."""
    listing = Listing("if (a) { x(); for (;;) y(); } else z(); auto f = [](int q) { w(); };")
    first, second = listing.statements(0, len(listing.tokens))
    assert [part.kind for part in first.parts] == ["block", "plain"]
    assert [part.kind for part in first.parts[0].parts] == ["plain", "for"]
    inner = [listing.source(one.first, one.last) for one in second.everything()]
    assert inner[-1] == "w();"


@pytest.mark.parametrize(("path", "task"), TASKS, ids=IDS)
def test_a_reference_s_mutants_differ_in_the_blocks_only(path: Path, task: str) -> None:
    """Oracle: the text outside of the blocks."""
    text, spans = path.read_text(), block_spans(path, task)
    made = [*edits(text, spans)]
    assert 20 <= len(made) <= 260
    assert len({squeezed(one.applied(text)) for one in made}) == len(made)
    for one in made:
        end = one.start + len(one.old)
        assert any(first <= one.start and end <= last for first, last in spans)
        assert one.new != one.old


def test_nine_in_ten_mutants_compile(tmp_path: Path) -> None:
    """Oracle: the compiler."""
    rng = random.Random(4)
    drawn: list[tuple[str, Edit]] = []
    for path, task in TASKS:
        text = path.read_text()
        drawn += [(text, one) for one in rng.sample([*edits(text, block_spans(path, task))], 1)]
    refused = [one for text, one in drawn if not compiles(tmp_path, one.applied(text))]
    assert len(drawn) == len(TASKS)
    assert len(refused) <= len(drawn) / 10, refused


def compiles(folder: Path, text: str) -> bool:
    path = folder / "mutant.cu"
    path.write_text(text)
    try:
        kernels.compile(path)
    except (kernels.CompileError, kernels.Unsupported):
        return False
    return True


def test_a_block_that_ends_within_a_statement_is_mutated_inside_only() -> None:
    """Oracle: the range that was given."""
    text = f"{HEAD}for (int s = 1; s < n; ++s) {{ out[s] = in[s] + 1; __syncthreads(); }}\n}}\n"
    for first in range(len(HEAD), len(text) - 4, 7):
        for one in edits(text, [(first, len(text) - 12)]):
            assert first <= one.start
            assert one.start + len(one.old) <= len(text) - 12
            one.applied(text)
