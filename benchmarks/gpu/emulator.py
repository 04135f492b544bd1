"""The counts of the CPU's emulator against the hardware counters that `ncu` reads."""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
from typing import Any

from clock import ROOT

SUMS, SIDE = 1 << 16, 256
CASES: dict[str, str] = {  # kernels and their files
    "reduce_interleaved": "lab04/reduce.cu",
    "reduce_strided": "lab04/reduce.cu",
    "reduce_sequential": "lab04/reduce.cu",
    "reduce_warp": "lab04/reduce.cu",
    "reduce_vec4": "lab04/reduce.cu",
    "transpose_naive": "lab05/transpose.cu",
    "transpose_tiled": "lab05/transpose.cu",
    "transpose_padded": "lab05/transpose.cu",
    "transpose_swizzled": "lab05/transpose.cu",
    "transpose_vec4": "lab05/transpose.cu",
}
METRICS = {
    "global read requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global read sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global write requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global write sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "atomic requests": "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "shared read requests": "smsp__inst_executed_op_shared_ld.sum",
    "shared write requests": "smsp__inst_executed_op_shared_st.sum",
    "shared read wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared write wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared read conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared write conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}


def launch(name: str, device: str) -> Any:
    """One launch of a case; on the CPU its report."""
    import numpy as np

    sys.path.insert(0, str(ROOT))
    from grader import kernels

    module = kernels.compile(ROOT / "solutions" / CASES[name])
    generator = np.random.default_rng(0)
    if name.startswith("reduce"):
        x, out = generator.integers(-8, 9, SUMS).astype(np.float32), np.zeros(1, np.float32)
        grid = SUMS // 256 if name in ("reduce_interleaved", "reduce_strided") else 64
        grid = SUMS // 256 if name == "reduce_sequential" else grid
        return module.launch(name, grid, 256, [x, out, SUMS], 1024, device=device, races=False)
    x = generator.random((SIDE, SIDE), np.float32)
    grid2, args = (SIDE // 32, SIDE // 32), [x, np.empty_like(x), SIDE, SIDE]
    return module.launch(name, grid2, (32, 8), args, device=device, races=False)


def emulated(name: str) -> dict[str, int]:
    """The emulator's counts by the names of METRICS."""
    counts = dict.fromkeys(METRICS, 0)
    for access in launch(name, "cpu").accesses:
        if access.kind == "atomic":
            counts["atomic requests"] += access.requests
            continue
        place = f"{access.space} {access.kind}"
        counts[f"{place} requests"] += access.requests
        if access.space == "global":
            counts[f"{place} sectors"] += access.sectors
        else:
            counts[f"{place} wavefronts"] += access.wavefronts
            counts[f"{place} conflicts"] += access.wavefronts - access.ideal_wavefronts
    return counts


def counted() -> dict[str, dict[str, int]]:
    """What ncu counts of the same launches on this GPU."""
    tool = shutil.which("ncu")
    if tool is None:
        raise SystemExit("Nsight Compute (ncu) is not installed")
    call = [tool, "--csv", "--clock-control", "none", "--metrics", ",".join(METRICS.values())]
    done = subprocess.run(
        [*call, sys.executable, __file__], capture_output=True, text=True, check=False, cwd=ROOT
    )
    found: dict[str, dict[str, int]] = {}
    names = {metric: name for name, metric in METRICS.items()}
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    for row in csv.DictReader(lines):
        name = row["Kernel Name"].split("(")[0]
        if name in CASES and row["Metric Name"] in names:
            count = int(float(row["Metric Value"].replace(",", "")))
            found.setdefault(name, {})[names[row["Metric Name"]]] = count
    if not found:
        raise SystemExit(f"ncu counted nothing: {(done.stdout + done.stderr)[-800:]}")
    return found


def part(options: argparse.Namespace) -> list[str]:
    there = counted()
    lines = [
        f"`emulator / ncu` where they differ, one number where they agree. {SUMS:,} floats and a "
        f"{SIDE} x {SIDE} matrix; conflicts are wavefronts beyond those of no conflict.",
        "",
        "| kernel | " + " | ".join(METRICS) + " |",
        "|" + " --- |" * (len(METRICS) + 1),
    ]
    differences = 0
    for name in CASES:
        here, cells = emulated(name), []
        for what in METRICS:
            mine, theirs = here[what], there.get(name, {}).get(what, -1)
            differences += mine != theirs
            cells.append(f"{mine:,}" if mine == theirs else f"**{mine:,} / {theirs:,}**")
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    lines += [
        "",
        f"{differences} of {len(CASES) * len(METRICS)} counts differ. ncu's requests to shared "
        "memory are executed instructions (smsp__inst_executed_op_shared_*), and the compiler "
        "guards one with a predicate: a warp whose lanes are all switched off executes it and asks "
        "the memory for nothing, so it is in that count, and neither in the wavefronts nor here.",
    ]
    print(lines[-1])
    return lines


if __name__ == "__main__":
    for each in CASES:
        launch(each, "gpu")
