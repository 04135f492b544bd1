"""Lab 08: questions of an interview with figures that can be done on paper."""

from grader.suite.questions import Ask, CaseAsk, CaseVerdict, Knob, question
from grader.suite.shown_programs import ran

# recipe: what is said of it, bytes a parameter
RECIPES = {
    "fp32": ("everything in float32, with Adam", (4, 4, 8)),
    "bf16_mixed": (
        "bf16 weights and gradients, Adam with a float32 master copy and two float32 moments",
        (2, 2, 12),
    ),
    "bf16_fp32grads": (
        "bf16 weights, float32 gradients, Adam with a float32 master copy and two float32 moments",
        (2, 4, 12),
    ),
}
STAGES = {
    0: "plain DDP",
    1: "ZeRO stage 1",
    2: "ZeRO stage 2",
    3: "ZeRO stage 3 (FSDP)",
}


def _share(parts, stage, N):
    """Working and bytes a parameter of one rank."""
    names = ("weights", "gradients", "optimizer")
    sharded = (stage >= 3, stage >= 2, stage >= 1)
    rows = [
        f"{name} {size}/{N}" if cut else f"{name} {size}"
        for name, size, cut in zip(names, parts, sharded, strict=True)
    ]
    return " + ".join(rows), sum(
        size / N if cut else size for size, cut in zip(parts, sharded, strict=True)
    )


def _states(rng, stage):
    recipe = rng.choice(sorted(RECIPES))
    said, parts = RECIPES[recipe]
    billions, N = rng.choice([1, 8, 16, 64]), rng.choice([4, 8, 16, 64])
    P = billions * 10**9
    row, each = _share(parts, stage, N)
    return Ask(
        f"{billions} billion parameters are trained on {N} GPUs with {STAGES[stage]}: {said}. "
        "How many bytes of model states does one GPU hold?",
        lambda code: code.state_bytes(P, N, stage, recipe)["total"],
        working=[
            f"bytes a parameter: {row} = {each:g}",
            f"{each:g} x {billions} billion = {each * billions:g} GB",
        ],
        check=each * P,
    )


@question("states_of_ddp", task="state_bytes", unit="bytes")
def states_of_ddp(rng):
    """Nothing is sharded: weights, gradients and optimizer in full."""
    return _states(rng, 0)


@question("states_of_stage_1", task="state_bytes", unit="bytes", minutes=1.5)
def states_of_stage_1(rng):
    """The optimizer's states are divided by the ranks, the rest is not."""
    return _states(rng, 1)


@question("states_of_stage_2", task="state_bytes", unit="bytes", minutes=1.5)
def states_of_stage_2(rng):
    """The parameters alone are whole."""
    return _states(rng, 2)


@question("states_of_stage_3", task="state_bytes", unit="bytes", section="Read first")
def states_of_stage_3(rng):
    """All of it is divided by the ranks."""
    return _states(rng, 3)


@question("gradients_of_a_rank", task="state_bytes", unit="bytes")
def gradients_of_a_rank(rng):
    """Stage 1 shards the optimizer and nothing else."""
    stage, N = rng.choice([1, 2]), rng.choice([8, 16, 64])
    billions = rng.choice([8, 16, 64])
    each = 2 if stage == 1 else 2 / N
    return Ask(
        f"{billions} billion bf16 parameters with bf16 gradients on {N} GPUs under "
        f"{STAGES[stage]}. How many bytes of gradients does one GPU hold at the end of backward?",
        lambda code: code.state_bytes(billions * 10**9, N, stage, "bf16_mixed")["grad"],
        working=[
            f"stage {stage} {'shards' if stage == 2 else 'does not shard'} gradients: {each:g} "
            "bytes a parameter",
            f"{each:g} x {billions} billion = {each * billions:g} GB",
        ],
        check=each * billions * 10**9,
    )


@question("padding_of_a_flat_buffer", task="state_bytes", unit="bytes", minutes=1.5)
def padding_of_a_flat_buffer(rng):
    """Every rank holds the same number of elements, the last one too."""
    N = rng.choice([3, 7, 8, 12])
    P = rng.choice([10, 20, 50, 100])
    each = -(-P // N)
    return Ask(
        f"A flat buffer of {P} float32 parameters is cut into equal slices for {N} ranks (ZeRO "
        "stage 3, float32, Adam). How many bytes of parameters does one rank hold?",
        lambda code: code.state_bytes(P, N, 3, "fp32")["param"],
        working=[
            f"padded at the end until {N} divides it: {each} element{'s' * (each > 1)} a rank",
            f"{each} x 4 bytes = {4 * each} bytes",
        ],
        check=4 * each,
    )


@question("rows_of_a_chunk", task="dim0_shard", minutes=1)
def rows_of_a_chunk(rng):
    """Chunks have ceil(rows / N) rows until they are used up."""
    rows, N = rng.choice([(10, 4), (100, 8), (9, 4), (17, 8), (5, 4)])
    rank = rng.randrange(N)
    each = -(-rows // N)
    held = min(each, max(0, rows - rank * each))
    return Ask(
        f"FSDP2 (fully_shard) cuts a parameter of ({rows}, 64) along its first dimension for {N} "
        f"ranks, as torch.chunk does. How many rows does rank {rank} hold?",
        lambda code: code.dim0_shard((rows, 64), N, rank)[0],
        working=[
            f"a chunk: ceil({rows} / {N}) = {each} rows",
            f"before rank {rank}: {min(rows, rank * each)} rows; left: "
            f"{max(0, rows - rank * each)}, so it holds {held}",
        ],
        check=held,
    )


@question("slices_of_a_parameter", task="flat_partition", minutes=2)
def slices_of_a_parameter(rng):
    """A parameter may lie in several ranks' slices."""
    N = rng.choice([2, 4])
    numels = [rng.choice([3, 6, 10]), rng.choice([8, 12, 20]), rng.choice([2, 5])]
    each = -(-sum(numels) // N)
    first, last = numels[0], numels[0] + numels[1] - 1
    ranks = last // each - first // each + 1
    return Ask(
        f"Parameters of {numels[0]}, {numels[1]} and {numels[2]} elements are laid end to end and "
        f"cut into equal slices for {N} ranks. On how many ranks does the second parameter lie?",
        lambda code: len({s.rank for s in code.flat_partition(numels, N) if s.param == 1}),
        working=[
            f"a slice: ceil({sum(numels)} / {N}) = {each} elements",
            f"the second parameter has places {first} to {last}: slices {first // each} to "
            f"{last // each}, so {ranks}",
        ],
        check=ranks,
    )


@question("gpus_that_are_needed", task="state_bytes", minutes=2)
def gpus_that_are_needed(rng):
    """Divide what one GPU may hold into all states; then round up."""
    billions, room = rng.choice([(70, 60), (30, 40), (13, 20), (8, 16)])
    needed = -(-16 * billions // room)
    return Ask(
        f"{billions} billion parameters in bf16 with Adam (2 + 2 + 12 bytes) under ZeRO stage 3. A "
        f"GPU has {room} GB left for model states. How many GPUs does it take at least?",
        lambda code: next(
            N
            for N in range(1, 4096)
            if code.state_bytes(billions * 10**9, N, 3, "bf16_mixed")["total"] <= room * 10**9
        ),
        working=[
            f"all states: 16 x {billions} billion = {16 * billions:,} GB",
            f"{16 * billions:,} / {room} = {16 * billions / room:.2f}, rounded up: {needed}",
        ],
        check=needed,
    )


# -- programs that are shown ----------------------------------------------------------------------


def _collectives(code, **names):
    """Elements that a rank sends by a program of collectives, each on a ring."""
    N = names["N"]
    counts = {"sent": 0, "calls": 0}

    def collective(elements):
        counts["sent"] += (N - 1) * elements // N
        counts["calls"] += 1

    def all_reduce(elements):
        counts["sent"] += 2 * (N - 1) * elements // N
        counts["calls"] += 1

    ran(code, all_gather=collective, reduce_scatter=collective, all_reduce=all_reduce, **names)
    return counts


@question("collectives_of_fsdp", task="state_bytes", minutes=1.5, kind="count")
def collectives_of_fsdp(rng):
    """A gather in forward, a gather and a reduce-scatter in backward."""
    layers, micro = rng.choice([4, 8, 32]), rng.choice([1, 2, 4])
    kept = rng.random() < 0.3
    gather = "" if kept else "        all_gather(P)\n"
    code = f"""for batch in range(MICRO):
    for layer in range(LAYERS):              # forward
        all_gather(P)
    for layer in reversed(range(LAYERS)):    # backward
{gather}        reduce_scatter(P)"""
    each = 2 if kept else 3
    total = each * layers * micro
    return Ask(
        f"LAYERS = {layers}, MICRO = {micro}. How many collectives does a rank run?",
        lambda _: _collectives(code, LAYERS=layers, MICRO=micro, P=64, N=8)["calls"],
        working=[
            f"a layer and micro-batch: {each}",
            f"{each} x {layers} x {micro} = {total}",
        ],
        check=total,
        code=code,
    )


@question("elements_of_a_stage", task="state_bytes", minutes=2, kind="count")
def elements_of_a_stage(rng):
    """A gather or a reduce-scatter sends (N - 1) / N of its elements, an all-reduce twice that."""
    N, P = rng.choice([4, 8]), rng.choice([8000, 16_000, 80_000])
    program, rows, times = rng.choice(
        [
            ("all_reduce(P)", "an all-reduce", 2),
            ("reduce_scatter(P)\nall_gather(P)", "a reduce-scatter and an all-gather", 2),
            (
                "all_gather(P)\nall_gather(P)\nreduce_scatter(P)",
                "two all-gathers and a reduce-scatter",
                3,
            ),
            ("all_reduce(P)\nall_gather(P)", "an all-reduce and an all-gather", 3),
        ]
    )
    total = times * (N - 1) * P // N
    return Ask(
        f"The collectives run on a ring of N = {N} ranks; P = {P:,} elements is what each rank has "
        "before or after. How many elements does one rank send?",
        lambda _: _collectives(program, N=N, P=P)["sent"],
        working=[
            f"{rows}: {times} x {N - 1}/{N} x {P:,} = {total:,}",
        ],
        check=total,
        code=program,
    )


@question("pieces_of_a_buffer", task="flat_partition", minutes=2, kind="count")
def pieces_of_a_buffer(rng):
    """A parameter that reaches over a boundary lies on several ranks."""
    N = 4
    numels = [rng.choice([2, 3, 5, 6, 9]) for _ in range(5)]
    share = -(-sum(numels) // N)
    code = f"""numels, N = {numels}, {N}
share = -(-sum(numels) // N)     # rounded up
begin = pieces = 0
for numel in numels:
    first, last = begin // share, (begin + numel - 1) // share
    pieces += last - first + 1
    begin += numel"""
    found, begin = [], 0
    for numel in numels:
        found.append((begin + numel - 1) // share - begin // share + 1)
        begin += numel
    return Ask(
        "A flat buffer is cut into N equal slices. Into how many pieces are its parameters cut in "
        "all (`pieces`)?",
        lambda _: ran(code)["pieces"],
        working=[
            f"share: {sum(numels)} / {N}, rounded up: {share}",
            f"by parameters: {' + '.join(map(str, found))} = {sum(found)}",
        ],
        check=sum(found),
        code=code,
    )


# -- designs ---------------------------------------------------------------------------------------


@question("stage_that_fits", task="state_bytes", minutes=4, kind="case")
def stage_that_fits(rng):
    """The lowest stage that fits: each one more has more collectives."""
    N, recipe = rng.choice([8, 16, 64]), rng.choice(["bf16_mixed", "bf16_fp32grads"])
    said, parts = RECIPES[recipe]
    room = 60
    billions = rng.choice([b for b in (1, 3, 7, 13, 30, 70) if sum(parts) * b / N <= room])

    def judge(code, values):
        each = code.state_bytes(billions * 10**9, N, values["stage"], recipe)
        lines = [
            f"weights {each['param'] / 1e9:.1f}, gradients {each['grad'] / 1e9:.1f}, optimizer "
            f"{each['opt'] / 1e9:.1f}: {each['total'] / 1e9:.1f} of {room} GB."
        ]
        if each["total"] > room * 1e9:
            return CaseVerdict(0.0, [*lines, "It does not fit."])
        lower = [
            stage
            for stage in range(values["stage"])
            if code.state_bytes(billions * 10**9, N, stage, recipe)["total"] <= room * 1e9
        ]
        if lower:
            return CaseVerdict(0.5, [*lines, f"Stage {lower[0]} fits, too."])
        return CaseVerdict(1.0, lines)

    fits = [stage for stage in range(4) if _share(parts, stage, N)[1] * billions <= room]
    return CaseAsk(
        f"{billions} billion parameters are trained on {N} GPUs: {said}. {room} GB (10^9 bytes) of "
        "a GPU are free for model states. Which ZeRO stage do you take, 0 for none: the lowest "
        "that fits?",
        knobs=[Knob("stage", (0, 1, 2, 3), "of ZeRO")],
        judge=judge,
        good=lambda _: {"stage": fits[0]},
        poor={"stage": 3 if fits[0] == 0 else 0},
    )
