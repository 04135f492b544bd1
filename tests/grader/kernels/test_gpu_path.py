"""What a launch on a GPU hands to CuPy, seen by a CuPy that only writes down; and, where there is a
GPU, that its values are those of the CPU."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader import kernels
from grader.kernels import gpu
from grader.lab import capabilities

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

TEXT = """// bytes, “quotes” and all
extern "C" __global__ void scale(const float *in, float *out, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = by * in[i];
}
extern "C" __global__ void scalars(bool a, unsigned char b, short c, unsigned int d, long long e,
                                   size_t f, float g, double h, float *null) {}
extern "C" __global__ void sum(const float *in, float *out) {
    __shared__ float sdata[128];
    int t = threadIdx.x;
    sdata[t] = in[blockIdx.x * 128 + t];
    __syncthreads();
    for (int s = 64; s > 0; s /= 2) {
        if (t < s) sdata[t] += sdata[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = sdata[0];
}
"""


class OnGpu:
    """An array of a GPU: NumPy's own memory, under another class."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def reshape(self, *shape: int) -> OnGpu:
        return OnGpu(self.inside.reshape(*shape))

    def __getitem__(self, index: Any) -> OnGpu:
        return OnGpu(self.inside[index])

    @property
    def address(self) -> int:
        return int(self.inside.__array_interface__["data"][0])


class Function:
    def __init__(self, fake: Fake, name: str) -> None:
        self.fake, self.name = fake, name
        self.max_dynamic_shared_size_bytes = 0

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        self.fake.launches.append((self, grid, block, args, shared_mem))
        self.fake.kernel(args)
        self.fake.waited = False


class Fake(types.ModuleType):
    """As much of CuPy as a launch needs."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
        self.present = True
        self.waited = True
        self.modules: list[tuple[str, Any]] = []
        self.launches: list[tuple[Function, Any, Any, Any, int]] = []
        self.uploads = 0
        self.kernel: Any = lambda args: None
        stream = types.SimpleNamespace(synchronize=self._wait)
        self.cuda = types.SimpleNamespace(
            is_available=lambda: self.present, get_current_stream=lambda: stream
        )

    def _wait(self) -> None:
        self.waited = True

    def RawModule(self, *, code: str, options: Any) -> Any:
        self.modules.append((code, options))
        return types.SimpleNamespace(get_function=lambda name: Function(self, name))

    def asarray(self, array: Any) -> OnGpu:
        self.uploads += 1
        return OnGpu(array.copy())

    def asnumpy(self, array: OnGpu) -> Any:
        assert self.waited, "read back before the kernel ended"
        return array.inside.copy()


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(gpu, "_RAW", {})
    return fake


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> kernels.Module:
    path: Path = tmp_path_factory.mktemp("cu") / "k.cu"
    path.write_text(TEXT, encoding="utf-8")
    return kernels.compile(path)


def test_the_files_bytes_are_compiled_once(module: kernels.Module, cupy: Fake) -> None:
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    for _ in range(2):
        module.launch("scale", 1, 8, [x, out, 8, 2.0], device="gpu")
    module.launch("sum", 1, 128, [np.zeros(128, np.float32), out], device="gpu")
    assert cupy.modules == [(TEXT, ("-std=c++17",))]


def test_sizes_name_and_dynamic_shared_memory(module: kernels.Module, cupy: Fake) -> None:
    x = np.zeros(8, np.float32)
    args = [x, x.copy(), 8, 1]
    report = module.launch("scale", (4, 2), (32, 8), args, 49153, device="gpu")
    function, grid, block, _, shared = cupy.launches[0]
    assert (function.name, grid, block, shared) == ("scale", (4, 2, 1), (32, 8, 1), 49153)
    assert function.max_dynamic_shared_size_bytes == 49153
    assert (report.grid, report.block, report.accesses, report.sentences) == (grid, block, [], [])
    module.launch("scale", 1, 32, args, 1024, device="gpu")
    assert cupy.launches[1][0].max_dynamic_shared_size_bytes == 0
    assert cupy.launches[1][4] == 1024


def test_arrays_go_there_and_come_back(module: kernels.Module, cupy: Fake) -> None:
    def scale(args: Any) -> None:
        args[1].inside[...] = args[0].inside * args[3]

    cupy.kernel = scale
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    x.flags.writeable = False
    out = np.zeros_like(x)
    module.launch("scale", 1, 12, [x, out, 12, 3.0], device="gpu")
    np.testing.assert_array_equal(out, 3 * x)
    np.testing.assert_array_equal(x, np.arange(12).reshape(3, 4))


def test_a_read_only_array_is_left_alone(module: kernels.Module, cupy: Fake) -> None:
    cupy.kernel = lambda args: args[1].inside.fill(9)
    out = np.zeros(4, np.float32)
    out.flags.writeable = False
    module.launch("scale", 1, 4, [out.copy(), out, 4, 1], device="gpu")
    assert not out.any()


def test_the_same_memory_goes_there_once(module: kernels.Module, cupy: Fake) -> None:
    x = np.arange(16, dtype=np.float32)
    args = [x, kernels.Pointer(x[:], 5), 4, 1]
    module.launch("scale", 1, 4, args, device="gpu")
    given = cupy.launches[0][3]
    assert cupy.uploads == 1
    assert given[1].address - given[0].address == 20


def test_scalars_go_there_bit_for_bit(module: kernels.Module, cupy: Fake) -> None:
    nan = np.array([0x7F800123], np.uint32).view(np.float32)[0]
    values = [True, 200, -5, 2**32 - 1, -(2**63), 2**64 - 1, nan, 0.1, None]
    module.launch("scalars", 1, 1, values, device="gpu")
    given = cupy.launches[0][3]
    assert [v.nbytes for v in given] == [1, 1, 2, 4, 8, 8, 4, 8, 8]
    bits = [int.from_bytes(v.tobytes(), "little") for v in given]
    assert bits == [1, 200, 2**16 - 5, 2**32 - 1, 2**63, 2**64 - 1, 0x7F800123,
                    int(np.float64(0.1).view(np.uint64)), 0]  # fmt: skip
    assert all(isinstance(v, np.generic) for v in given)


def test_a_wrong_call_is_refused_before_any_gpu(module: kernels.Module, cupy: Fake) -> None:
    with pytest.raises(kernels.LaunchError):
        module.launch("scale", 1, 2000, [None, None, 8, 1], device="gpu")
    assert cupy.launches == cupy.modules == []


def test_no_gpu_is_told(
    module: kernels.Module, cupy: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.zeros(8, np.float32)
    cupy.present = False
    assert not gpu.available()
    with pytest.raises(gpu.NoGpu, match="no GPU here, or CuPy is not installed"):
        module.launch("scale", 1, 8, [x, x.copy(), 8, 1.0], device="gpu")
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not gpu.available()
    with pytest.raises(gpu.NoGpu):
        module.launch("scale", 1, 8, [x, x.copy(), 8, 1.0], device="gpu")


def test_another_device_is_refused(module: kernels.Module) -> None:
    x = np.zeros(8, np.float32)
    with pytest.raises(kernels.LaunchError, match='device is \'tpu\': give "cpu" or "gpu"'):
        module.launch("scale", 1, 8, [x, x.copy(), 8, 1.0], device="tpu")


@pytest.mark.gpu
@pytest.mark.skipif(not gpu.available(), reason="no GPU here, or CuPy is not installed")
def test_a_gpu_gives_the_same_values(module: kernels.Module) -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(-8, 9, 1024).astype(np.float32)
    both = []
    for device in ("cpu", "gpu"):
        scaled, sums = np.zeros(1024, np.float32), np.zeros(8, np.float32)
        module.launch("scale", 5, 256, [x, scaled, 1000, 0.5], device=device)
        module.launch("sum", 8, 128, [x, sums], device=device)
        both.append((scaled, sums))
    np.testing.assert_array_equal(both[0][0], both[1][0])
    np.testing.assert_array_equal(both[0][1], both[1][1])
    np.testing.assert_array_equal(both[0][1], x.reshape(8, 128).sum(1))
