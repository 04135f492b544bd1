"""A correct answer, from lists: each recipe is a list of the tensors that it keeps, and a share
walks on from where the last one ended."""

from types_lab08 import Slice

KEPT = {
    "fp32": [("param", 4), ("grad", 4), ("opt", 4), ("opt", 4)],
    "bf16_mixed": [("param", 2), ("grad", 2), ("opt", 4), ("opt", 4), ("opt", 4)],
    "bf16_fp32grads": [("param", 2), ("grad", 4), ("opt", 4), ("opt", 4), ("opt", 4)],
    "fp16_fp16grads": [("param", 2), ("grad", 2)] + 4 * [("opt", 4)],
    "deepspeed": [("param", 2), ("grad", 2)] + 4 * [("opt", 4)],
}
SHARDED = [[], ["opt"], ["opt", "grad"], ["opt", "grad", "param"]]


def state_bytes(P, N, stage, recipe):
    if recipe not in KEPT:
        raise ValueError(f"unknown recipe {recipe!r}")
    if stage not in range(4):
        raise ValueError(f"unknown stage {stage!r}")
    if N <= 0:
        raise ValueError(f"N is {N}")
    if P < 0:
        raise ValueError(f"P is {P}")
    padded = P
    if P % N:
        padded += N - P % N
    held = dict.fromkeys(("param", "grad", "opt", "total"), 0)
    for name, size in KEPT[recipe]:
        if recipe == "deepspeed" and stage == 3 and name == "grad":
            continue
        count = padded // N if name in SHARDED[stage] else P
        held[name] += size * count
        held["total"] += size * count
    return held


def dim0_shard(shape, N, rank):
    if len(shape) == 0 or N <= 0 or rank not in range(N):
        raise ValueError(f"no shard {rank} of {N} of {shape}")
    rows = range(shape[0])
    size = (len(rows) + N - 1) // N
    mine = rows[rank * size : (rank + 1) * size]
    return (len(mine), *shape[1:])


def flat_partition(numels, N, align=1):
    if N <= 0 or align <= 0 or any(n < 0 for n in numels):
        raise ValueError(f"cannot cut {numels} for {N} ranks aligned to {align}")
    total = sum(numels)
    share = 0
    while share * N < total and share < total // N - align:
        share = total // N // align * align
    while share * N < total:
        share += align
    waiting = [[index, 0, size] for index, size in enumerate(numels)]
    waiting.append([None, 0, share * N - total])
    found = []
    for rank in range(N):
        room = share
        while room:
            if waiting[0][1] == waiting[0][2]:
                waiting.pop(0)
                continue
            param, lo, end = waiting[0]
            hi = lo + room if lo + room < end else end
            found.append(Slice(rank, param, lo, hi))
            waiting[0][1] = hi
            room -= hi - lo
    return found
