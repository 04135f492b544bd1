"""What the compiler says reaches a learner in lines of the own file; nothing is compiled twice."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader import kernels
from grader.kernels.cuda import compile as build
from grader.kernels.cuda import launch as cuda
from grader.lab import capabilities
from grader.sandbox.deadlines import DeadlineHit, deadline

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

ROOT = Path(__file__).resolve().parents[3]
FINE = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = 1.0f; }\n'


def refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "reduce.cu"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(kernels.CompileError) as caught:
        kernels.compile(path)
    said = str(caught.value)
    for name in (
        "il_",
        "shim.h",
        "kernel.cpp",
        "runtime",
        "tsan",
        "infralens",
        "list:",
        "learner",
        "/tmp",
    ):
        assert name not in said, said
    return said


def body(statement: str) -> str:
    return f'// a comment\nextern "C" __global__ void k(float *x) {{\n    {statement}\n}}\n'


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("x[0] = 1.0f", "expected ';'"),
        ("x[0] = twice(1.0f);", "'twice' was not declared in this scope"),
        ("y[0] = 1.0f;", "'y' was not declared in this scope"),
        ('int n = "four";', "invalid conversion"),
        ("x.size();", "request for member 'size'"),
        ("__syncthread();", "'__syncthread' was not declared"),
        ("float v = __shfl_down_sync(0xffffffff, 1.0f);", "__shfl_down_sync"),
        ("dim3 d; d.w = 1;", "'struct dim3' has no member named 'w'"),
    ],
)
def test_an_error_has_the_files_line_and_quotes_it(
    tmp_path: Path, statement: str, said: str
) -> None:
    text = refused(tmp_path, body(statement))
    first, *quoted = text.replace("‘", "'").replace("’", "'").splitlines()
    assert first.startswith("reduce.cu:3: error: ")
    if not build.compiler().is_clang:
        assert said in first
    assert any(statement.rstrip(";") in row for row in quoted)
    assert any("^" in row for row in quoted)


@pytest.mark.parametrize(
    "statement",
    [
        "Pair p; atomicAdd(&p, p);",
        "atomicMin(x, 1.0f);",
        "x[0] = max(x, 1.0f);",
        "__shared__ Pair p; atomicCAS(&p, p, p);",
    ],
)
def test_an_error_within_a_function_of_cuda_has_the_line_of_the_call(
    tmp_path: Path, statement: str
) -> None:
    text = refused(tmp_path, "struct Pair { float a, b; };\n" + body(statement))
    assert text.startswith("reduce.cu:4: error: ")


def test_many_errors_are_counted(tmp_path: Path) -> None:
    text = refused(tmp_path, body("\n    ".join(f"x[{i}] = unknown_{i};" for i in range(5))))
    assert "reduce.cu:3: error" in text
    assert "reduce.cu:5: error" in text
    assert "reduce.cu:6" not in text
    assert text.endswith("... and 2 more")


def test_a_function_that_is_defined_nowhere(tmp_path: Path) -> None:
    text = "__device__ float twice(float v);\n" + body("x[0] = twice(1.0f);")
    assert refused(tmp_path, text) == ("reduce.cu: `twice(float)` is declared but defined nowhere")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (body("if (x[0] > 0) {\n        x[0] = 1;"), "reduce.cu:2: `{` is never closed"),
        (body("}\n    x[0] = 1;"), "reduce.cu:"),
        (body("x[0] = (1;"), "reduce.cu:3: error: "),
        ("#if 1\n" + FINE, "reduce.cu:1: error: "),
        ("/* never closed\n" + FINE, "reduce.cu:1: error: "),
        ("struct P { float x; }\n" + FINE, "reduce.cu:2: error: "),
        (FINE + FINE, "reduce.cu:2: error: "),
        (FINE + "#error not yet\n", "reduce.cu:2: error: "),
        (FINE + "__device__ int n = 3", "reduce.cu:2: error: "),
        (FINE + "template <typename T> __device__ T f(T v) { return v; ", "reduce.cu:2: "),
    ],
)
def test_a_file_that_ends_too_early_or_too_late(tmp_path: Path, text: str, said: str) -> None:
    assert refused(tmp_path, text).startswith(said)


def test_a_file_without_a_kernel_compiles(tmp_path: Path) -> None:
    path = tmp_path / "empty.cu"
    path.write_text("// nothing yet\n")
    module = kernels.compile(path)
    with pytest.raises(kernels.LaunchError, match=r"empty\.cu has no kernel `k`; it has: none"):
        module.launch("k", 1, 1, [])


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "odd.cu"
    path.write_bytes(b"// caf\xe9\r\n" + FINE.replace("\n", "\r\n").encode() + b"// the end")
    x = np.zeros(4, np.float32)
    assert not kernels.compile(path).launch("k", 1, 4, [x]).errors
    assert x.all()


@pytest.mark.parametrize("name", ['a"b.cu', "a\\nb.cu", "a b.cu", "a$(b).cu", "a\nb.cu"])
def test_a_file_of_a_strange_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "k.cu"
    path.write_text(FINE.replace("x[threadIdx.x]", "x[9]"))
    x = np.zeros(4, np.float32)
    report = kernels.compile(path, name=name).launch("k", 1, 1, [x])
    assert "writes x[9] (line 1)" in report.sentences[0]


# -- the cache ------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[list[str]]]:
    """The compiler's calls from now on, with a cache folder that is empty."""
    found: list[list[str]] = []
    before = subprocess.Popen
    build.compiler()  # asks the compiler itself, once

    def counted(call: list[str], *rest: Any, **more: Any) -> Any:
        if call[0] == build.compiler().path and "--version" not in call:
            found.append(call)
        return before(call, *rest, **more)

    monkeypatch.setattr(subprocess, "Popen", counted)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The runtime stays compiled: that is a second a test.
    build.runtime_object()
    monkeypatch.setattr(cuda, "_MODULES", {})
    build._cache.cache_clear()
    found.clear()
    yield found
    build._cache.cache_clear()


def works(module: kernels.Module) -> bool:
    x = np.zeros(4, np.float32)
    return not module.launch("k", 1, 4, [x]).errors and bool(x.all())


def test_the_same_bytes_are_compiled_once(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "k.cu"
    path.write_text(FINE)
    first = kernels.compile(path)
    assert len(calls) == 4  # to assembly, macros expanded, to an object, link
    assert kernels.compile(path) is first
    monkeypatch.setattr(cuda, "_MODULES", {})  # as another process finds it
    assert works(kernels.compile(path))
    assert len(calls) == 4
    path.write_text(FINE.replace("1.0f", "2.0f"))
    assert works(kernels.compile(path))
    assert len(calls) == 8
    path.write_text(FINE)
    assert works(kernels.compile(path))
    assert len(calls) == 8
    kept = sorted((tmp_path / "cache").rglob("program"))
    assert len(kept) == 2
    assert [file.name for file in (tmp_path / "cache").rglob("*") if file.is_file()] == [
        "program",
        "program",
    ]


# A line of it doubles with each of the 60 names that it is made of.
DOUBLING = (
    "#define a0 1\n"
    + "".join(f"#define a{n + 1} a{n} + a{n}\n" for n in range(60))
    + body("x[0] = a60;")
)


def test_a_text_that_keeps_the_compiler_at_work_has_its_seconds_once(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "COMPILER_SECONDS", 1)
    monkeypatch.setattr(build, "COMPILER_BYTES", 8 << 30)
    for _ in range(2):
        assert (
            refused(tmp_path, DOUBLING) == "reduce.cu did not compile within 1 s of the processor"
        )
    assert len(calls) == 1


def test_a_text_that_fills_the_compilers_memory_is_refused_once(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "COMPILER_BYTES", 300 << 20)
    text = DOUBLING + "// another text"
    for _ in range(2):
        assert refused(tmp_path, text) == "reduce.cu did not compile within 300 MiB of memory"
    assert len(calls) == 1


def test_of_what_the_compiler_says_only_the_beginning_is_kept(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It quotes the line of each error, and all of these are on one line."""
    monkeypatch.setattr(build, "MOST_SAID", 1 << 16)
    said = refused(tmp_path, body("x[0] = " + "y + " * 200 + "1;"))
    assert said.startswith("reduce.cu:")
    assert "was not declared" in said or "undeclared" in said
    with tempfile.TemporaryFile() as file:
        file.write(b"one\n" * (1 << 15))
        file.seek(0)
        process = subprocess.Popen(["sh", "-c", "cat >&2"], stdin=file, stderr=subprocess.PIPE)
        text, whole = build._heard(process, time.monotonic() + 60)
    assert not whole
    assert (1 << 16) <= len(text) < (1 << 17)


def test_a_refused_file_is_refused_again_and_a_mended_one_compiled(
    calls: list[list[str]], tmp_path: Path
) -> None:
    said = refused(tmp_path, body("y[0] = 1.0f;"))
    assert refused(tmp_path, body("y[0] = 1.0f;")) == said
    assert len(calls) == 1
    path = tmp_path / "reduce.cu"
    path.write_text(FINE)
    assert works(kernels.compile(path))
    assert len(calls) == 5


@pytest.mark.parametrize(
    "script",
    [
        "kill -KILL $$",
        "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
        "echo 'clang: error: unable to execute command: Killed' >&2; exit 254",
    ],
)
def test_what_ends_the_compiler_is_not_the_files_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    def ended(source: Any) -> Path:
        build._run(source.name, ["sh", "-c", script], tmp_path, build.COMPILER_SECONDS)
        raise AssertionError("it was not noticed")

    path = tmp_path / "k.cu"
    path.write_text(f"{FINE}// {script}\n")  # of no other test
    with monkeypatch.context() as patch:
        patch.setattr(cuda, "program", ended)
        with pytest.raises(build.CompilerEnded, match=r"k\.cu: a signal ended the compiler"):
            kernels.compile(path)
    assert works(kernels.compile(path))


@pytest.mark.parametrize(
    "words", ["CPU time limit exceeded", "Killed signal", "g++: fatal error: Killed signal"]
)
def test_a_file_that_speaks_of_limits_has_its_own_error(tmp_path: Path, words: str) -> None:
    text = refused(tmp_path, body(f"y[0] = 1.0f;  // {words}"))
    assert text.startswith("reduce.cu:3: error: ")


def test_a_long_line_is_quoted_in_part(tmp_path: Path) -> None:
    text = refused(tmp_path, body("y[0] = 1.0f" + " + 1.0f" * 10_000 + ";"))
    assert all(len(row) <= build.MAX_QUOTED for row in text.splitlines())


def test_the_key_holds_flags_and_the_kits_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    found = build.compiler()
    keys = {build._key(found, "text", ("-O0",)), build._key(found, "text", ("-O1",))}
    keys.add(build._key(found, "other", ("-O0",)))
    monkeypatch.setattr(build, "_shipped", lambda: ("other", "files"))
    keys.add(build._key(found, "text", ("-O0",)))
    keys.add(build._key(build.Compiler(found.path, "13", False), "text", ("-O0",)))
    assert len(keys) == 5


def test_a_cache_that_cannot_be_written(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = tmp_path / "k.cu"
    path.write_text(FINE)
    module = kernels.compile(path)
    assert works(module)
    assert not module.program.is_relative_to(tmp_path)


def test_a_program_that_vanished_is_made_again(calls: list[list[str]], tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(FINE)
    module = kernels.compile(path)
    module.program.unlink()
    assert works(kernels.compile(path))


def test_the_cache_does_not_grow_for_ever(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of too many programs the older half goes, but nothing that was in use a moment ago."""
    monkeypatch.setattr(build, "MAX_KEPT", 4)
    path = tmp_path / "k.cu"
    modules = []
    for number in range(4):
        path.write_text(FINE.replace("1.0f", f"{number + 1}.0f"))
        modules.append(kernels.compile(path))
    for age, module in enumerate(modules):
        when = time.time() - 3000 * (4 - age)
        os.utime(module.program, (when, when))
    monkeypatch.setattr(cuda, "_MODULES", {})
    path.write_text(FINE)
    assert kernels.compile(path).program == modules[0].program  # and so in use again
    path.write_text(FINE.replace("1.0f", "5.0f"))
    kernels.compile(path)
    assert [module.program.is_file() for module in modules] == [True, False, False, True]


def test_without_static_libraries_it_is_linked_to_shared_ones(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_STATIC_FLAGS", ("-static", "-Wl,--no-such-flag"))
    path = tmp_path / "k.cu"
    path.write_text(FINE)
    assert works(kernels.compile(path))
    assert len(calls) == 5  # to assembly, macros expanded, to an object, link, link


def test_two_processes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(FINE)
    code = (
        "import sys, numpy as np\n"
        "from grader import kernels\n"
        "x = np.zeros(4, np.float32)\n"
        "print(kernels.compile(sys.argv[1]).launch('k', 1, 4, [x]).sentences, x.sum())\n"
    )
    # The runtime's object lies there already, so that this takes half a second.
    cache = tmp_path / "cache"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    kept = build._cache() / _runtime_key() / "runtime.o"
    build.runtime_object()
    there = cache / "infralens" / "kernels" / _runtime_key()
    there.mkdir(parents=True)
    (there / "runtime.o").write_bytes(kept.read_bytes())
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in running:
        out, faults = process.communicate(timeout=60)
        assert (out, faults) == ("[] 4.0\n", "")
    assert len(list(cache.rglob("*"))) == len([*cache.rglob("program")]) + 1 + 4


def _runtime_key() -> str:
    return build._key(build.compiler(), "", build._RUNTIME_FLAGS)


def test_clang_counts_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    path = shutil.which("clang++")
    if path is None or build.compiler().is_clang:
        pytest.skip("needs g++ and clang++")
    text = """
__device__ float twice(float v) { return 2 * v; }
extern "C" __global__ void k(const float *in, float *out, float4 *wide) {
    __shared__ float tile[32][32];
    __shared__ float4 four[32];
    int x = threadIdx.x, y = threadIdx.y;
    tile[y][x] = in[32 * y + x];
    if (y == 0) four[x] = wide[x];
    __syncthreads();
    for (int i = 0; i < 3; ++i)
        if ((x + i) & 1) out[32 * y + x] += twice(tile[x][y]);
    if (y == 0) wide[x] = four[31 - x];
    if (x == 0) atomicAdd(out, 1.0f);
}
"""
    both = []
    for found in (
        build.compiler(),
        build.Compiler(path, subprocess.check_output([path, "--version"], text=True), True),
    ):
        monkeypatch.setattr(build, "compiler", lambda found=found: found)
        monkeypatch.setattr(cuda, "_MODULES", {})
        (tmp_path / "k.cu").write_text(text)
        x, out = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
        wide = np.zeros((32, 4), np.float32)
        report = kernels.compile(tmp_path / "k.cu").launch("k", 1, (32, 32), [x, out, wide])
        both.append((report.accesses, out.tolist()))
    assert both[0] == both[1]


def test_a_compiler_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    """The driver's own children do the work, and are not told that it was killed."""
    child = tmp_path / "child"
    script = f"sleep 60 & echo $! > {child}; wait"
    with pytest.raises(DeadlineHit), deadline(1.0):
        build._run("k.cu", ["sh", "-c", script], tmp_path, build.COMPILER_SECONDS)
    running = Path(f"/proc/{child.read_text().strip()}/stat")
    for _ in range(100):
        if not running.exists() or running.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child of the killed compiler still runs")
