"""Lab 12: questions of an interview with figures that can be done on paper."""

from dataclasses import replace

from types_lab12 import Cluster, Model, Plan

from grader.suite.questions import Ask, CaseAsk, CaseVerdict, Knob, question

# No latencies: figures for paper.
FAST = Cluster(lat_s=0.0)
MODELS = {
    "Llama-3-70B": Model(L=80, h=8192, heads=64, kv_heads=8, ffn=28_672, vocab=128_256, seq=8192),
    "Llama-3-8B": Model(L=32, h=4096, heads=32, kv_heads=8, ffn=14_336, vocab=128_256, seq=8192),
}


@question("ring_all_reduce", task="coll_time", unit="s", minutes=1.5, section="Read first")
def ring_all_reduce(rng):
    """A reduce-scatter and an all-gather, each of which sends (n - 1) / n of the tensor."""
    n = rng.choice([4, 8])
    size = rng.choice([100, 200, 400, 800])
    op = rng.choice(["all_reduce", "all_reduce", "all_gather", "reduce_scatter"])
    rounds = 2 if op == "all_reduce" else 1
    seconds = rounds * (n - 1) / n * size * 1e6 / 400e9
    said = {
        "all_reduce": f"all-reduce of a tensor of {size} MB",
        "all_gather": f"all-gather after which each has {size} MB",
        "reduce_scatter": f"reduce-scatter of {size} MB on each",
    }[op]
    cluster = Cluster(lat_s=0.0, intra_Bps=400e9)
    return Ask(
        f"{n} GPUs of one node run a ring {said}; each sends 400 GB/s one way, latencies left out. "
        "How long does it take?",
        lambda code: code.coll_time(op, size * 1e6, n, n, cluster),
        working=[
            f"each sends {f'{rounds} x ' if rounds > 1 else ''}{n - 1}/{n} of {size} MB: "
            f"{rounds * (n - 1) / n * size:g} MB",
            f"{rounds * (n - 1) / n * size:g} MB / 400 GB/s = {seconds * 1e6:g} us",
        ],
        check=seconds,
        within=0.005,
    )


@question("latency_of_a_ring", task="coll_time", unit="s")
def latency_of_a_ring(rng):
    """Small messages pay for steps, not for bytes."""
    n, lat = rng.choice([8, 16, 64]), rng.choice([5, 10])
    cluster = Cluster(gpus=64, lat_s=lat * 1e-6)
    return Ask(
        f"A ring all-reduce over {n} GPUs on one fast link has next to no bytes. A step takes "
        f"{lat} us before its first byte. How long does the all-reduce take?",
        lambda code: code.coll_time("all_reduce", 0.0, n, n, cluster),
        working=[
            f"{n} - 1 steps of reduce-scatter and {n} - 1 of all-gather: {2 * (n - 1)}",
            f"{2 * (n - 1)} x {lat} us = {2 * (n - 1) * lat} us",
        ],
        check=2 * (n - 1) * lat * 1e-6,
        within=1e-9,
    )


@question("ranks_of_a_group", task="rank_groups", minutes=1.5, section="Line by line")
def ranks_of_a_group(rng):
    """A step along an axis is the product of the sizes left of it."""
    tp, cp, dp, pp = rng.choice([(4, 2, 2, 4), (8, 1, 4, 2), (2, 2, 4, 4), (4, 1, 4, 4)])
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    axis = rng.choice([name for name in ("tp", "dp", "pp") if sizes[name] > 1])
    step = 1
    for name in ("tp", "cp", "dp", "pp"):
        if name == axis:
            break
        step *= sizes[name]
    place = rng.randrange(1, sizes[axis])
    return Ask(
        f"64 ranks in the order tp-cp-dp-pp (tp changes fastest), with TP {tp}, CP {cp}, DP {dp}, "
        f"PP {pp}. The group of rank 0 along {axis} has {sizes[axis]} ranks in ascending order. "
        f"Which rank is number {place} of them (rank 0 is number 0)?",
        lambda code: code.rank_groups(sizes, "tp-cp-dp-pp", axis)[0][place],
        working=[
            f"a step along {axis} is the product of the axes left of it: {step}",
            f"{place} x {step} = {place * step}",
        ],
        check=place * step,
    )


@question("bubble", task="simulate_pipeline", minutes=1.5, section="Read first")
def bubble(rng):
    """(p - 1) / m of the work, or (p - 1) / (m + p - 1) of the whole time."""
    p, m = rng.choice([(4, 8), (8, 8), (4, 16), (8, 32), (2, 8)])
    ideal = rng.random() < 0.5
    share = (p - 1) / m if ideal else (p - 1) / (m + p - 1)
    what = "of the time that a rank works" if ideal else "of the whole step"
    formula = f"{p - 1} / {m}" if ideal else f"{p - 1} / ({m} + {p - 1})"
    name = "bubble_of_ideal" if ideal else "bubble_of_total"
    return Ask(
        f"A 1F1B pipeline of {p} equal stages runs {m} micro-batches. What share {what} is a rank "
        "idle?",
        lambda code: getattr(code.simulate_pipeline("1f1b", p, m, 1, 1.0, 2.0), name),
        working=[
            f"lost at the two ends: the time of {p} - 1 = {p - 1} "
            f"micro-batch{'es' * (p > 2)}; worked: that of {m}",
            f"{formula} = {share:.4g}, that is {100 * share:.3g} %",
        ],
        check=share,
        within=0.005,
    )


@question("bubble_interleaved", task="simulate_pipeline", minutes=1.5)
def bubble_interleaved(rng):
    """v chunks a rank divide the bubble by v."""
    p, m, v = rng.choice([(4, 8, 2), (4, 16, 4), (8, 16, 2), (2, 8, 4)])
    share = (p - 1) / (v * m)
    return Ask(
        f"{p} ranks, {m} micro-batches, interleaved 1F1B with {v} chunks of layers a rank. What "
        "share of the time that a rank works is it idle?",
        lambda code: code.simulate_pipeline("interleaved", p, m, v, 1.0, 2.0).bubble_of_ideal,
        working=[
            f"without interleaving: {p - 1} / {m} = {(p - 1) / m:g}",
            f"a chunk is 1/{v} of a rank's layers: {(p - 1) / m:g} / {v} = {share:g}",
        ],
        check=share,
        within=0.005,
    )


@question("in_flight", task="simulate_pipeline", minutes=1.5)
def in_flight(rng):
    """1F1B holds as many micro-batches as there are stages from here to the end."""
    p, m = rng.choice([(4, 8), (8, 32), (8, 16)])
    rank = rng.randrange(p)
    schedule = rng.choice(["1f1b", "1f1b", "gpipe"])
    held = m if schedule == "gpipe" else min(m, p - rank)
    why = (
        "GPipe does all forwards first"
        if schedule == "gpipe"
        else f"1F1B on rank {rank}: stages from here to the end: {p} - {rank} = {p - rank}"
    )
    return Ask(
        f"{'GPipe' if schedule == 'gpipe' else '1F1B'}, {p} stages, {m} micro-batches. Of how many "
        f"micro-batches does rank {rank} (0 is the first) hold activations at most?",
        lambda code: code.simulate_pipeline(schedule, p, m, 1, 1.0, 2.0).peak_in_flight[rank],
        working=[why, f"{held} micro-batch{'es' * (held > 1)}"],
        check=held,
    )


@question("optimizer_of_a_stage", task="memory", unit="bytes", minutes=2)
def optimizer_of_a_stage(rng):
    """12 bytes a parameter, over all replicas of the weight."""
    pp, dp, cp = rng.choice([(4, 2, 2), (2, 4, 2), (4, 4, 1)])
    model = MODELS["Llama-3-70B"]
    # a stage in the middle has layers alone
    layers, tp = model.L // pp, 64 // (pp * dp * cp)
    layer = 2 * 8192 * 8192 / tp + 2 * 8192 * 1024 / tp + 3 * 8192 * 28_672 / tp + 2 * 8192
    first = layers * layer + 128_256 * 8192 / tp
    plan = Plan(tp=tp, pp=pp, cp=cp, dp=dp, micro=1, gbs=128)
    return Ask(
        f"The first stage of a Llama-3-70B on TP {tp}, PP {pp}, CP {cp}, DP {dp} holds "
        f"{first / 1e9:.2f} billion parameters a GPU. The distributed optimizer (zero 1) shards "
        "12 bytes a parameter over all replicas of a weight. How many bytes of optimizer states "
        "does a GPU hold?",
        lambda code: code.memory(plan, model)[0].opt,
        working=[
            f"replicas of a weight: DP x CP = {dp} x {cp} = {dp * cp}",
            f"12 / {dp * cp} x {first / 1e9:.2f} billion = {12 / (dp * cp) * first / 1e9:.2f} GB",
        ],
        check=12 / (dp * cp) * first,
        within=0.01,
    )


@question("two_nodes", task="coll_time", unit="s", minutes=2)
def two_nodes(rng):
    """Inside the node first, so that a network card carries one GPU's share."""
    nodes, size = rng.choice([2, 4, 8]), rng.choice([400, 800, 1600])
    inside, between = 400e9, 50e9
    cluster = Cluster(nodes=8, gpus=8, intra_Bps=inside, inter_Bps=between, lat_s=0.0)
    near = 7 / 8 * size * 1e6 / inside
    far = size * 1e6 / 8 * (nodes - 1) / nodes / between
    return Ask(
        f"A reduce-scatter of {size} MB over {nodes} nodes of 8 GPUs runs inside the nodes first "
        "(400 GB/s a GPU, one way), then between them (50 GB/s a GPU), latencies left out. How "
        "long does it take?",
        lambda code: code.coll_time("reduce_scatter", size * 1e6, 8 * nodes, 8, cluster),
        working=[
            f"inside: 7/8 x {size} MB / 400 GB/s = {near * 1e3:.4g} ms",
            f"between: {size} / 8 = {size / 8:g} MB, {nodes - 1}/{nodes} of it / 50 GB/s = "
            f"{far * 1e3:.4g} ms",
            f"{near * 1e3:.4g} + {far * 1e3:.4g} = {(near + far) * 1e3:.4g} ms",
        ],
        check=near + far,
        within=0.005,
    )


# -- designs ---------------------------------------------------------------------------------------


@question("layout_of_64_gpus", task="step_time", minutes=6, kind="case")
def layout_of_64_gpus(rng):
    """Memory first, then the links: tensor parallelism inside a node, few stages."""
    gbs, seq = rng.choice([64, 128, 256]), rng.choice([4096, 8192])
    name = rng.choice(["Llama-3-70B", "Llama-3-8B"])
    model, cluster = replace(MODELS[name], seq=seq), Cluster()
    grid = (1, 2, 4, 8, 16)

    def plan_of(values):
        tp, pp, micro = (values[each] for each in ("tp", "pp", "micro"))
        return Plan(tp, pp, 1, max(1, 64 // (tp * pp)), micro, gbs)

    def seconds(code, values):
        plan = plan_of(values)
        broken = code.validate(plan, model, cluster)
        if broken:
            return None, broken[0].message
        held = max(stage.total for stage in code.memory(plan, model))
        if held > cluster.hbm_bytes:
            return None, f"The fullest GPU would hold {held / 1e9:.0f} of 80 GB."
        return code.step_time(plan, model, cluster), f"The fullest GPU holds {held / 1e9:.0f} GB."

    def best_of(code):
        tried = [
            {"tp": tp, "pp": pp, "micro": micro}
            for tp in grid
            for pp in grid
            for micro in (1, 2, 4)
        ]
        found = [(each, seconds(code, each)[0]) for each in tried]
        return min(((t, each) for each, t in found if t), key=lambda row: row[0].total_s)[1]

    def judge(code, values):
        mine, said = seconds(code, values)
        if mine is None:
            return CaseVerdict(0.0, [said])
        best = seconds(code, best_of(code))[0].total_s
        share = best / mine.total_s
        lines = [
            said,
            f"A step takes {mine.total_s:.2f} s (MFU {100 * mine.mfu:.0f} %), the best of all "
            f"choices {best:.2f} s.",
            f"Of it {mine.compute_s:.2f} s compute, {mine.tp_s:.2f} s tensor parallelism, "
            f"{mine.pp_bubble_s:.2f} s bubble, {mine.dp_exposed_s:.2f} s gradients.",
        ]
        return CaseVerdict(1.0 if share >= 0.95 else 0.5 if share >= 0.8 else 0.0, lines)

    return CaseAsk(
        f"{name} is trained on 8 nodes of 8 H100s (80 GB, NVLink 450 GB/s one way, network 50 GB/s "
        f"a GPU), {gbs} sequences of {seq:,} tokens a step, sequence parallelism, selective "
        "recomputation, optimizer states sharded over the replicas. Choose a layout; data "
        "parallelism takes the GPUs that are left. Within 5 % of the fastest is right.",
        knobs=[
            Knob("tp", grid, "tensor parallelism"),
            Knob("pp", grid, "pipeline stages"),
            Knob("micro", (1, 2, 4), "sequences of a micro-batch"),
        ],
        judge=judge,
        good=best_of,
        poor={"tp": 16, "pp": 1, "micro": 1},
    )


@question("bubble_of_a_pipeline", task="simulate_pipeline", minutes=4, kind="case")
def bubble_of_a_pipeline(rng):
    """(p - 1) / (v m) of the work: more micro-batches, or more chunks a rank."""
    p, limit = rng.choice([4, 8]), rng.choice([0.05, 0.1, 0.15])
    micros, chunks = (8, 16, 32, 64, 128), (1, 2, 4)

    def bubble(code, values):
        m, v = values["m"], values["v"]
        run = code.simulate_pipeline("interleaved" if v > 1 else "1f1b", p, m, v, 1.0, 2.0)
        return run.bubble_of_ideal

    def judge(code, values):
        found = bubble(code, values)
        m, v = values["m"], values["v"]
        lines = [f"The bubble is {100 * found:.1f} % of the work; {100 * limit:g} % are allowed."]
        if found > limit:
            return CaseVerdict(0.0, lines)
        if m > 8 and bubble(code, {"m": m // 2, "v": v}) <= limit:
            return CaseVerdict(0.5, [*lines, "Half as many micro-batches would do."])
        if v > 1 and bubble(code, {"m": m, "v": v // 2}) <= limit:
            return CaseVerdict(0.5, [*lines, "Half as many chunks would do."])
        return CaseVerdict(1.0, lines)

    good = next((m, v) for v in chunks for m in micros if (p - 1) / (v * m) <= limit)
    return CaseAsk(
        f"A pipeline of {p} stages, backward twice as long as forward. Choose the number of "
        f"micro-batches and of chunks a rank (1 is plain 1F1B) for a bubble of at most "
        f"{100 * limit:g} % of the work, with neither larger than it must be for the other.",
        knobs=[
            Knob("m", micros, "micro-batches of a step on a replica"),
            Knob("v", chunks, "chunks of layers a rank"),
        ],
        judge=judge,
        good=lambda _: {"m": good[0], "v": good[1]},
        poor={"m": 8, "v": 1} if (p - 1) / 8 > limit else {"m": 128, "v": 4},
    )
