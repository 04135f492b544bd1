"""Which lanes make one request together. Every access below goes to the same bank of shared memory,
each lane to a word of its own, so a request's way of conflict is the number of its lanes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grader import kernels
from grader.lab import capabilities

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

HEAD = r"""
__shared__ int cell[1024];
__device__ void touch(int t) {
    cell[32 * t] = 1;  // @touch
}
__device__ int sometimes(int t) {
    if (t < 5) return 0;
    cell[32 * t] = 1;  // @sometimes
    return 1;
}
__device__ int leaves_a_loop(int t) {
    for (int j = 0; j < 8; ++j) {
        if (j == t) return j;
        cell[32 * t] = j;  // @leaves
    }
    return -1;
}
__device__ void down(int t, int n) {
    cell[32 * t] = n;  // @down
    if (n > 0 && t < 16) down(t, n - 1);
    cell[32 * t] = n;  // @up
}
__device__ int gives(int t) {
    cell[32 * t] = 1;  // @gives
    return t;
}
template <int N> __device__ void many(int t) {
    for (int i = 0; i < N; ++i)
        if ((t + i) % N == 0) touch(t);
}
"""

# A kernel's body, and by line the expected number of requests for each number of lanes.
BODIES: dict[str, tuple[str, dict[str, dict[int, int]]]] = {
    "alternating": (
        """
        for (int i = 0; i < 8; ++i)
            if ((t + i) & 1) cell[32 * t] = i;  // @a
        cell[32 * t] = 0;  // @b""",
        {"a": {16: 8}, "b": {32: 1}},
    ),
    "both_branches": (
        """
        if (t < 10) touch(t);
        else touch(t);
        cell[32 * t] = 0;  // @b""",
        {"touch": {10: 1, 22: 1}, "b": {32: 1}},
    ),
    "twice_on_one_line": ("touch(t), touch(t);", {"touch": {32: 2}}),
    "alternating_calls": (
        """
        for (int i = 0; i < 4; ++i)
            if ((t + i) & 1) touch(t);
        touch(t);""",
        {"touch": {16: 4, 32: 1}},
    ),
    "alternating_values": (
        """
        int got = 0;
        for (int i = 0; i < 4; ++i) {
            if ((t + i) & 1) got += gives(t);
            cell[32 * t] = got;  // @a
        }
        for (int i = 0; i < 6; ++i)
            if ((t + i) % 3 == 0) got += gives(t) + gives(t);""",
        {"gives": {16: 4, 11: 8, 10: 4}, "a": {32: 4}},
    ),
    "calls_in_nested_loops": (
        """
        for (int a = 0; a < 2; ++a)
            for (int b = 0; b < 4; ++b)
                if ((t + a + b) % 4 == 0) touch(t);
        many<2>(t);""",
        {"touch": {8: 8, 16: 2}},
    ),
    "two_calls_a_turn": (
        """
        for (int i = 0; i < 3; ++i) {
            touch(t);
            if (t < 8 * (i + 1)) touch(t);
        }""",
        {"touch": {32: 3, 8: 1, 16: 1, 24: 1}},
    ),
    "turns_by_lane": (
        """
        for (int j = 0; j < t; ++j) cell[32 * t] = j;  // @a
        cell[32 * t] = 0;  // @b""",
        {"a": dict.fromkeys(range(1, 32), 1), "b": {32: 1}},
    ),
    "calls_by_lane": (
        """
        for (int j = 0; j <= t; ++j) touch(t);""",
        {"touch": dict.fromkeys(range(1, 33), 1)},
    ),
    "nested": (
        """
        for (int a = 0; a < t % 4; ++a) {
            for (int b = 0; b <= a; ++b) cell[32 * t] = b;  // @a
            cell[32 * t] = a;  // @b
        }
        cell[32 * t] = 0;  // @c""",
        {"a": {24: 1, 16: 2, 8: 3}, "b": {24: 1, 16: 1, 8: 1}, "c": {32: 1}},
    ),
    "broken": (
        """
        for (int j = 0; j < 10; ++j) {
            if (j == t) break;
            cell[32 * t] = j;  // @a
        }
        cell[32 * t] = 0;  // @b""",
        {"a": dict.fromkeys(range(22, 32), 1), "b": {32: 1}},
    ),
    "continued": (
        """
        for (int j = 0; j < 4; ++j) {
            cell[32 * t] = j;  // @a
            if (t % 4 == j) continue;
            cell[32 * t] = j;  // @b
        }
        cell[32 * t] = 0;  // @c""",
        {"a": {32: 4}, "b": {24: 4}, "c": {32: 1}},
    ),
    "continued_while": (
        """
        int j = 0;
        while (j < 6) {
            ++j;
            if ((t + j) % 2) continue;
            if (j == 5) break;
            cell[32 * t] = j;  // @a
        }
        cell[32 * t] = 0;  // @b""",
        {"a": {16: 5}, "b": {32: 1}},
    ),
    "while_loop": (
        """
        int n = t;
        while (n > 16) {
            cell[32 * t] = n;  // @a
            --n;
        }
        cell[32 * t] = 0;  // @b""",
        {"a": dict.fromkeys(range(1, 16), 1), "b": {32: 1}},
    ),
    "do_while": (
        """
        int j = 0;
        do {
            cell[32 * t] = j;  // @a
            ++j;
        } while (j < t % 3);
        cell[32 * t] = 0;  // @b""",
        {"a": {32: 1, 10: 1}, "b": {32: 1}},
    ),
    "switched": (
        """
        switch (t % 3) {
        case 0:
            cell[32 * t] = 0;  // @a
            break;
        case 1:
            cell[32 * t] = 1;  // @b
            break;
        default:
            cell[32 * t] = 2;  // @c
        }
        cell[32 * t] = 3;  // @d""",
        {"a": {11: 1}, "b": {11: 1}, "c": {10: 1}, "d": {32: 1}},
    ),
    "recursion": ("down(t, 2);", {"down": {32: 1, 16: 2}, "up": {32: 1, 16: 2}}),
    "helper_returns": (
        """
        int got = sometimes(t);
        cell[32 * t] = got;  // @b""",
        {"sometimes": {27: 1}, "b": {32: 1}},
    ),
    "helper_leaves_its_loop": (
        """
        for (int i = 0; i < 2; ++i) {
            int got = leaves_a_loop(t);
            cell[32 * t] = got;  // @b
        }""",
        {"leaves": dict.fromkeys(range(24, 32), 2), "b": {32: 2}},
    ),
    "ternary": (
        """
        cell[32 * t] = 1;
        __syncthreads();
        int v = t < 7 ? cell[32 * t]  // @a
                      : 1 + cell[32 * t];  // @b
        cell[32 * t] = v;  // @c""",
        {"a": {7: 1}, "b": {25: 1}, "c": {32: 1}},
    ),
    "logic": (
        """
        cell[32 * t] = 0;
        if (t < 20 && cell[32 * t]  // @a
            == 0)
            cell[32 * t] = 0;  // @b
        if (t < 20 || cell[32 * t]  // @c
            == 1)
            cell[32 * t] = 2;  // @d""",
        {"a": {20: 1}, "b": {20: 1}, "c": {12: 1}, "d": {20: 1}},
    ),
    "lambda": (
        """
        auto put = [&](int i) {
            cell[32 * t] = i;  // @a
        };
        for (int i = 0; i < 2; ++i)
            if (t % 2 == i) put(i);
        put(2);""",
        {"a": {16: 2, 32: 1}},
    ),
    "backwards": (
        """
        int n = 0;
    again:
        cell[32 * t] = n;  // @a
        if (++n <= t % 4) goto again;
        cell[32 * t] = 0;  // @b""",
        {"a": {32: 1, 24: 1, 16: 1, 8: 1}, "b": {32: 1}},
    ),
    "barriers_inside": (
        """
        for (int i = 0; i < 3; ++i) {
            if (t < i + 1) cell[32 * t] = i;  // @a
            __syncthreads();
        }""",
        {"a": {1: 1, 2: 1, 3: 1}},
    ),
    "after_a_shuffle": (
        """
        for (int i = 0; i < 2; ++i) {
            if (t < 8) touch(t);
            __shfl_sync(0xffffffff, t, 0);
            touch(t);
        }""",
        {"touch": {8: 2, 32: 2}},
    ),
    "some_have_ended": (
        """
        if (t >= 30) return;
        cell[32 * t] = 1;  // @a""",
        {"a": {30: 1}},
    ),
}


def text() -> str:
    return HEAD + "".join(
        f'extern "C" __global__ void {name}() {{\n    int t = threadIdx.x;{body}\n}}\n'
        for name, (body, _) in BODIES.items()
    )


def line(name: str, mark: str) -> int:
    """The line of a mark: in that kernel, or in a helper above."""
    lines = text().splitlines()
    start = next(i for i, row in enumerate(lines) if f"void {name}()" in row)
    rows = [*range(start, len(lines)), *range(start)]
    return next(i + 1 for i in rows if lines[i].endswith(f"// @{mark}"))


@pytest.fixture(scope="module")
def module(cu: Callable[[str], kernels.Module]) -> kernels.Module:
    return cu(text())


@pytest.mark.parametrize("name", list(BODIES))
def test_lanes_of_a_request(module: kernels.Module, name: str) -> None:
    report = module.launch(name, 1, 32, [])
    assert report.errors == []
    for mark, expected in BODIES[name][1].items():
        at = line(name, mark)
        (access,) = [row for row in report.accesses if row.line == at]
        assert access.ways == expected, mark
        assert access.requests == sum(expected.values())
        assert access.lanes == sum(lanes * many for lanes, many in expected.items())


def test_the_mask_of_a_request(module: kernels.Module) -> None:
    report = module.launch("alternating", 1, 32, [])
    access = next(row for row in report.accesses if row.line == line("alternating", "a"))
    halves = [tuple(128 * t if t % 2 == odd else None for t in range(32)) for odd in (0, 1)]
    assert access.worst_offsets in halves


def test_each_warp_makes_its_own_requests(module: kernels.Module) -> None:
    report = module.launch("some_have_ended", 3, 32, [])
    access = next(row for row in report.accesses if row.line == line("some_have_ended", "a"))
    assert access.ways == {30: 3}
