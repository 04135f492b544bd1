"""What runs here is real CUDA C++: NVIDIA's compiler takes the same files, and refuses the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from grader import kernels
from grader.kernels import CompileError, Unsupported, source
from grader.kernels.cuda.compile import compiler
from grader.lab.manifest import Lab, all_labs
from grader.suite.model import load_suite
from tests.grader.kernels import nvrtc_oracle as nvrtc

from .ptx import Kernel

ROOT = Path(__file__).resolve().parents[3]
FILES = [
    path
    for pattern in ("exercises/lab*/*.cu", "solutions/lab*/*.cu", "tests/lab*/variants/*/*.cu")
    for path in sorted(ROOT.glob(pattern))
]
LABS = [lab for lab in all_labs(ROOT) if any(name.endswith(".cu") for name in lab.edit)]
TASKS = [(lab, task.id) for lab in LABS for task in lab.tasks if task.file.endswith(".cu")]

pytestmark = pytest.mark.skipif(
    not nvrtc.available(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc"
)


@pytest.fixture
def needs_cxx() -> None:
    try:
        compiler()
    except CompileError as error:
        pytest.skip(str(error))


# -- the labs' files ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_of_a_lab_is_cuda(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = source.read(path.name, text)
    assert found.kernels
    ptx = nvrtc.compile_ptx(text, path.name)
    assert {name for name in found.kernels if f".entry {name}(" in ptx} == set(found.kernels)


@pytest.mark.parametrize(("lab", "task"), TASKS, ids=[f"{lab.id}.{task}" for lab, task in TASKS])
def test_every_wrong_file_is_cuda(lab: Lab, task: str) -> None:
    """A misconception is a mistake that a compiler takes."""
    wrongs = load_suite(lab).misconceptions_of(task)
    assert wrongs, f"{lab.id}.{task} knows no wrong answer"
    for wrong in wrongs:
        reference = (lab.solution / wrong.file).read_text(encoding="utf-8")
        nvrtc.check(wrong.text(reference), f"{wrong.name}.cu")


@pytest.mark.skipif(not (ROOT / "solutions/lab04").is_dir(), reason="lab 04 is not written")
def test_there_are_files_to_take() -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in FILES}
    assert folders == {"exercises", "solutions", "tests"}
    assert TASKS


# -- what it refuses ------------------------------------------------------------------------------

HEAD = 'extern "C" __global__ void f(float *x) '
KERNEL = HEAD + "{{ {} }}"


@pytest.mark.parametrize(
    "text",
    [
        "#include <cmath>\n" + KERNEL.format("x[0] = 1.0f;"),
        "#include <cuda_fp16.h>\n" + KERNEL.format("x[0] = 1.0f;"),
        '#include "other.h"\n' + KERNEL.format("x[0] = 1.0f;"),
        KERNEL.format("x[0] = std::sqrt(x[0]);"),
        KERNEL.format("x[0] = std::max(x[0], x[1]);"),
        KERNEL.format("x[0] = INFINITY;"),
        KERNEL.format("x[0] = NAN;"),
        KERNEL.format("uint32_t i = threadIdx.x; x[i] = 0.0f;"),
        KERNEL.format("int64_t i = threadIdx.x; x[i] = 0.0f;"),
        KERNEL.format("uint i = threadIdx.x; x[i] = 0.0f;"),
        KERNEL.format("ushort i = threadIdx.x; x[i] = 0.0f;"),
        KERNEL.format("half h = x[0];"),
        KERNEL.format("cuda::atomic_ref<float> a(x[0]);"),
        KERNEL.format("auto b = cooperative_groups::this_thread_block();"),
        KERNEL.format("x[0] = __shfl_down(x[0], 1);"),
        KERNEL.format("try { x[0] = 1.0f; } catch (...) {}"),
        KERNEL.format("x[0] = 1.0f;") + "\nvoid run(float *x) { f<<<1, 32>>>(x); }",
        KERNEL.format("x[0] = 1.0f;") + "\nint main() { return 0; }",
        KERNEL.format("x[0] = 1.0f;") + "\nvoid run() { float *x; cudaMalloc(&x, 4); }",
        "float twice(float x) { return 2 * x; }\n" + KERNEL.format("x[0] = twice(x[0]);"),
    ],
    ids=lambda text: " ".join(text.replace(HEAD, "").split())[:40],
)
def test_what_is_refused_here_is_refused_there(text: str) -> None:
    with pytest.raises(Unsupported, match=r"^k\.cu:\d+: "):
        source.read("k.cu", text)
    with pytest.raises(nvrtc.NvrtcError, match=r"NVRTC refuses k\.cu: line "):
        nvrtc.check(text, "k.cu")


def test_what_to_write_instead_is_taken() -> None:
    """What the refusals tell a learner to write."""
    text = KERNEL.format(
        "unsigned int i = threadIdx.x; unsigned long long j = i; x[0] = __int_as_float(0x7f800000);"
        " x[1] = __int_as_float(0x7fc00000); x[2] = __shfl_down_sync(0xffffffffu, x[i], 1) + j;"
    )
    source.read("k.cu", text)
    nvrtc.compile_ptx(text, "k.cu")


def test_errors_are_sentences_with_lines() -> None:
    text = KERNEL.format("\n x[0] = y;\n x[1] = z;\n x[2] = a;\n x[3] = b;\n")
    with pytest.raises(nvrtc.NvrtcError) as caught:
        nvrtc.compile_ptx(text, "k.cu")
    assert str(caught.value) == (
        'NVRTC refuses k.cu: line 2: identifier "y" is undefined; '
        'line 3: identifier "z" is undefined; line 4: identifier "a" is undefined, and 1 more'
    )
    with pytest.raises(nvrtc.NvrtcError, match="gpu-architecture"):
        nvrtc.compile_ptx(KERNEL.format(""), "k.cu", "compute_1")


def test_without_the_library_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither an empty package nor a broken file is taken for NVRTC."""
    (tmp_path / "libnvrtc.so.13").write_bytes(b"no library")
    broken = [str(tmp_path / "libnvrtc.so.13"), str(tmp_path / "libnvrtc.so")]
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(broken))
    nvrtc._library.cache_clear()
    try:
        assert not nvrtc.available()
        with pytest.raises(nvrtc.NvrtcError, match="not installed"):
            nvrtc.compile_ptx(KERNEL.format(""), "k.cu")
    finally:
        nvrtc._library.cache_clear()


# -- the shim's words are CUDA's ------------------------------------------------------------------

SHIM = "".join(
    (Path(source.__file__).parent / "runtime" / name).read_text(encoding="utf-8")
    for name in ("shim.h", "arithmetic.h")
)
BY_HAND = """
    printf("%d", warpSize); assert(n > 0); if (n < 0) __trap();
    __syncthreads(); __syncwarp(); __threadfence(); __threadfence_block();
    dim3 here = blockIdx; float v = __ldg(x) + gridDim.z + blockDim.y + threadIdx.z + here.x;
    size_t many = sizeof(ptrdiff_t); x[0] = v + many;
    float s, c; sincosf(v, &s, &c); __sincosf(v, &s, &c); modff(v, &s); frexpf(v, &n); nanf("");
    double u, w; sincos(v, &u, &w); modf(v, &u); frexp(u, &n); nan("");
"""


def calls() -> Iterator[str]:
    """A call of each function that the shim offers, with values of its parameters' types."""
    text = re.sub(r"(?m)^#define IL_(?:[^\n]*\\\n)*[^\n]*\n", "", SHIM).replace("\\\n", "\n")
    for size, name, scalar in re.findall(r"IL_VECTOR(\d)\((\w+), ([\w ]+)\)", text):
        values = ", ".join([f"({scalar})1"] * int(size))
        yield f"{{ {name} v = make_{name}({values}); (void)v; }}"
    for name in re.findall(r"IL_MATH1\((\w+)\)", text):
        yield f"{name}f(1.0f); {name}(1.0f); {name}(1.0);"
    for name in re.findall(r"IL_MATH2\((\w+)\)", text):
        yield f"{name}f(1.0f, 2.0f); {name}(1.0f, 2.0f); {name}(1.0, 2.0);"
    for kind in re.findall(r"IL_MINMAX\(([\w ]+)\)", text):
        yield f"min(({kind})1, ({kind})2); max(({kind})1, ({kind})2);"
    for kind in re.findall(r"IL_SHUFFLE\(([\w ]+), \w+\)", text):
        for how in ("", "_up", "_down", "_xor"):
            yield f"__shfl{how}_sync(~0u, ({kind})1, 1); __shfl{how}_sync(~0u, ({kind})1, 1, 8);"
    for kind in re.findall(r"IL_MATCH\(([\w ]+), \w+\)", text):
        yield f"__match_any_sync(~0u, ({kind})1); __match_all_sync(~0u, ({kind})1, &n);"
    for name in re.findall(r"IL_LOAD\((\w+)\)", text):
        yield f"x[0] = {name}(x + 1) + {name}((const int *)x) + {name}((const float4 *)x).y;"
    for name in re.findall(r"IL_STORE\((\w+)\)", text):
        yield f"{name}(x, 1.0f); {name}((float4 *)x, make_float4(1, 2, 3, 4));"
    for pair in re.findall(r"IL_ROUNDS\([\w ]+, (\w+), (\w+)\)", text):
        yield "".join(f"{name}f(1.0f); {name}(1.0);" for name in pair)
    for name, given in re.findall(r"IL_TO\(.*, (\w+), (\w+)\)", text):
        yield "".join(f"__{name}_r{way}(({given})1);" for way in "nzdu")
    for name, given in re.findall(r"(?m)^#define (__\w+)\((\w[\w, ]*)\)", text):
        if name not in ("__launch_bounds__", "__align__", "__builtin_align__", "__sincosf"):
            yield f"{name}({', '.join(['1.0f'] * len(given.split(',')))});"
    for name, given in re.findall(r"IL_INLINE [\w ]+?\b(\w+)\(([^()]*)\) \{", text):
        if not name.startswith("il_") and "*" not in given and given:
            kinds = [re.sub(r"\s*\b\w+( = \w+)?$", "", part.strip()) for part in given.split(",")]
            yield f"{name}({', '.join(f'({kind})1' for kind in kinds)});"


@pytest.mark.usefixtures("needs_cxx")
def test_the_shim_offers_what_cuda_has(tmp_path: Path) -> None:
    rows = list(calls())
    assert len(rows) > 100
    assert {row.partition("(")[0] for row in rows} > {"fmaf", "__popc", "__ballot_sync", "__expf"}
    body = "".join(f"    {row}\n" for row in rows)
    text = f'extern "C" __global__ void f(float *x, int n) {{{BY_HAND}{body}}}\n'
    nvrtc.compile_ptx(text, "k.cu")
    (tmp_path / "k.cu").write_text(text, encoding="utf-8")
    kernels.compile(tmp_path / "k.cu")


def test_the_shim_names_no_type_that_cuda_has_not() -> None:
    given = re.findall(r"(?m)^typedef [\w ]+ (\w+);", SHIM)
    text = KERNEL.format(" ".join(f"{name} v{name} = 1;" for name in given if name[:3] != "il_"))
    nvrtc.compile_ptx(text, "k.cu")


KINDS = ("Add", "Sub", "Exch", "Min", "Max", "And", "Or", "Xor", "Inc", "Dec", "CAS")
ATOMICS = [f"{kind}{scope}" for kind in KINDS for scope in ("", "_block", "_system")]
ELEMENTS = ("int", "unsigned int", "long long", "unsigned long long", "float", "double", "short")


@pytest.mark.usefixtures("needs_cxx")
def test_atomics_take_the_types_that_cudas_take(tmp_path: Path) -> None:
    """One kernel asks its compiler which atomics there are: g++ with the shim, and NVRTC."""
    rows = []
    for name in ATOMICS:
        values = "T(1), T(2)" if name.startswith("CAS") else "T(1)"
        rows.append(
            f"template <typename T> __device__ auto takes{name}(T *p, int)"
            f" -> decltype((void)atomic{name}(p, {values}), 1) {{ return 1; }}\n"
            f"template <typename T> __device__ int takes{name}(T *p, long) {{ return 0; }}\n"
        )
    asked = [(name, kind) for name in ATOMICS for kind in ELEMENTS]
    body = "".join(
        f"    out[{at}] = takes{name}(({kind} *)0, 0);\n" for at, (name, kind) in enumerate(asked)
    )
    text = f'{"".join(rows)}extern "C" __global__ void f(int *out) {{\n{body}}}\n'
    (tmp_path / "k.cu").write_text(text, encoding="utf-8")
    here, there = np.full(len(asked), -1, "i4"), np.full(len(asked), -1, "i4")
    assert kernels.compile(tmp_path / "k.cu").launch("f", 1, 1, [here]).errors == []
    Kernel(nvrtc.compile_ptx(text, "k.cu"), "f").launch(1, 1, {"out": there})
    taken = [row for row, yes in zip(asked, there.tolist(), strict=True) if yes]
    assert ("Add", "float") in taken
    assert ("Sub", "float") not in taken
    assert [row for row, yes in zip(asked, here.tolist(), strict=True) if yes] == taken
