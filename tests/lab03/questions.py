"""Lab 03: questions of an interview with figures that can be done on paper."""

from grader.suite.questions import Ask, question
from grader.suite.shown_programs import ran

MIB = 1 << 20


@question("rows_of_a_rank", task="shard_indices", section="Line by line")
def rows_of_a_rank(rng):
    """Every rank gets the same number; the list is filled up, or cut."""
    n, world = rng.choice([(10, 4), (11, 4), (100, 8), (17, 8), (1000, 16)])
    drop = rng.random() < 0.5
    each = n // world if drop else -(-n // world)
    how = (
        "what does not divide is dropped (drop_last)"
        if drop
        else "the list is filled up by repeating it from its front"
    )
    return Ask(
        f"A dataset of {n} rows is shared by {world} ranks as torch's DistributedSampler does; "
        f"{how}. How many rows does each rank read in an epoch?",
        lambda code: len(code.shard_indices(n, 0, world, shuffle=False, drop_last=drop)),
        working=[
            f"{n} / {world} = {n / world:g}, rounded {'down' if drop else 'up'}: {each}",
        ],
        check=each,
    )


@question("row_of_a_rank", task="shard_indices")
def row_of_a_rank(rng):
    """A rank takes every world_size-th row, from its own number on."""
    n, world = rng.choice([(12, 4), (16, 4), (24, 8), (40, 8)])
    rank, place = rng.randrange(world), rng.randrange(n // world)
    row = rank + place * world
    return Ask(
        f"{n} rows, {world} ranks, without shuffling, as torch's DistributedSampler shares them. "
        f"Which row (from 0) does rank {rank} read as its number {place} (from 0)?",
        lambda code: code.shard_indices(n, rank, world, shuffle=False)[place],
        working=[
            f"rank {rank} reads {rank}, {rank} + {world}, {rank} + 2 x {world}, ...",
            f"{rank} + {place} x {world} = {row}",
        ],
        check=row,
    )


@question("row_that_is_read_twice", task="shard_indices", minutes=1.5)
def row_that_is_read_twice(rng):
    """What is missing to a multiple of the ranks comes from the front again."""
    n, world = rng.choice([(10, 4), (13, 8), (9, 4), (21, 8), (11, 4)])
    each = -(-n // world)
    rank = world - 1
    row = (rank + (each - 1) * world) % n
    return Ask(
        f"{n} rows, {world} ranks, without shuffling and without drop_last, as torch's "
        f"DistributedSampler shares them. Which row does rank {rank} read last?",
        lambda code: code.shard_indices(n, rank, world, shuffle=False)[-1],
        working=[
            f"each rank reads ceil({n} / {world}) = {each} rows; the list has {each * world} "
            f"places, the last {each * world - n} of which are filled from the front",
            f"place {rank} + {each - 1} x {world} = {rank + (each - 1) * world} is row {row}",
        ],
        check=row,
    )


@question("rows_read_twice", task="shard_indices", minutes=1.5)
def rows_read_twice(rng):
    """All ranks' rows together, less the dataset."""
    n, world = rng.choice([(10, 4), (13, 8), (100, 16), (1000, 64), (9, 8)])
    more = -(-n // world) * world - n
    return Ask(
        f"{n} rows, {world} ranks, no drop_last, as torch's DistributedSampler shares them. How "
        "many rows more than the dataset has are read in an epoch, by all ranks together?",
        lambda code: (
            sum(len(code.shard_indices(n, r, world, shuffle=False)) for r in range(world)) - n
        ),
        working=[
            f"{world} x ceil({n} / {world}) = {-(-n // world) * world}",
            f"{-(-n // world) * world} - {n} = {more}",
        ],
        check=more,
    )


def _plan(sizes, caps):
    """Buckets by hand: closed when they have reached their cap."""
    found, size = [[]], 0
    for one in sizes:
        found[-1].append(one)
        size += one
        if size >= caps[min(len(found), len(caps)) - 1]:
            found.append([])
            size = 0
    return [bucket for bucket in found if bucket]


def _buckets(code, sizes, caps):
    """`assign_buckets` of sizes and caps in MiB."""
    return code.assign_buckets([MIB * size for size in sizes], [MIB * cap for cap in caps])


def _sizes(rng):
    count = rng.choice([6, 8, 10])
    return [rng.choice([1, 2, 4, 8, 10]) for _ in range(count)]


@question("number_of_buckets", task="assign_buckets", minutes=2, section="Line by line")
def number_of_buckets(rng):
    """A tensor joins the open bucket, which closes once it has reached its cap."""
    sizes = _sizes(rng)
    caps = rng.choice([[1, 25], [1, 10], [4, 16]])
    buckets = _plan(sizes, caps)
    return Ask(
        f"Gradients become ready in this order, in MiB: {', '.join(map(str, sizes))}. DDP's first "
        f"bucket has a cap of {caps[0]} MiB, each further one of {caps[1]} MiB; a bucket closes "
        "when its size has reached its cap. How many buckets are there?",
        lambda code: len(_buckets(code, sizes, caps)),
        working=[
            "buckets: " + ", ".join("+".join(map(str, bucket)) for bucket in buckets),
            f"that is {len(buckets)}",
        ],
        check=len(buckets),
    )


@question("bytes_of_a_bucket", task="assign_buckets", unit="bytes", minutes=2)
def bytes_of_a_bucket(rng):
    """A bucket may overshoot its cap: no tensor is cut."""
    sizes = _sizes(rng)
    caps = rng.choice([[1, 25], [1, 10], [4, 16]])
    largest = max(map(sum, _plan(sizes, caps)))
    return Ask(
        f"Gradients become ready in this order, in MiB: {', '.join(map(str, sizes))}. DDP's first "
        f"bucket has a cap of {caps[0]} MiB, each further one of {caps[1]} MiB; no tensor is cut. "
        "How many bytes does the largest bucket have?",
        lambda code: max(
            sum(MIB * sizes[i] for i in bucket)
            for bucket in _buckets(code, sizes, caps)
        ),
        working=[
            "buckets: "
            + ", ".join("+".join(map(str, bucket)) for bucket in _plan(sizes, caps)),
            f"the largest: {largest} MiB",
        ],
        check=largest * MIB,
    )  # fmt: skip


@question("first_bucket", task="assign_buckets", minutes=1.5)
def first_bucket(rng):
    """The first bucket is small, so that the first all-reduce starts early."""
    sizes = [rng.choice([256, 384, 512, 1024, 2048]) for _ in range(6)]
    first = len(_plan(sizes, [1024, 25 * 1024])[0])
    return Ask(
        f"Gradients become ready in this order, in KiB: {', '.join(map(str, sizes))}. DDP's first "
        "bucket closes when it has reached 1 MiB. How many gradients does it hold?",
        lambda code: len(
            code.assign_buckets([1024 * s for s in sizes], [MIB, 25 * MIB])[0]
        ),
        working=[
            f"{' + '.join(map(str, sizes[:first]))} = {sum(sizes[:first])} KiB, 1,024 are reached",
            f"so {first}",
        ],
        check=first,
    )  # fmt: skip


@question("bucket_of_a_gradient", task="assign_buckets", minutes=2)
def bucket_of_a_gradient(rng):
    """Count the buckets that close before it."""
    sizes = _sizes(rng)
    caps = rng.choice([[1, 10], [4, 16], [8, 8]])
    said = f"The first bucket's cap is {caps[0]} MiB, that of all others {caps[1]} MiB."
    if caps[0] == caps[1]:
        said = f"Every bucket's cap is {caps[0]} MiB."
    buckets = _plan(sizes, caps)
    which = rng.randrange(1, len(sizes))
    place, seen = 0, 0
    while seen + len(buckets[place]) <= which:
        seen += len(buckets[place])
        place += 1
    return Ask(
        "DDP fills a bucket until its size has reached its cap, then begins another one. Gradients "
        f"become ready in this order, in MiB: {', '.join(map(str, sizes))}. {said} In which bucket "
        f"(from 0) is gradient {which} (from 0)?",
        lambda code: next(
            at for at, bucket in enumerate(_buckets(code, sizes, caps)) if which in bucket
        ),
        working=[
            "buckets: " + ", ".join("+".join(map(str, bucket)) for bucket in buckets),
            f"gradient {which} is in bucket {place}",
        ],
        check=place,
    )


# -- programs that are shown ----------------------------------------------------------------------


def _sent(code, **names):
    """Calls and elements that a rank sends by a program."""
    counts = {"calls": 0, "elements": 0, "all_reduces": 0}

    def send(count, to):
        counts["calls"] += 1
        counts["elements"] += count

    def all_reduce(bucket):
        counts["all_reduces"] += 1

    ran(code, send=send, all_reduce=all_reduce, **names)
    return counts


@question("elements_of_a_ring", task="ring_all_reduce_", minutes=1.5, kind="count")
def elements_of_a_ring(rng):
    """W - 1 steps that add, and W - 1 that copy, of a chunk each."""
    W = rng.choice([4, 8, 16])
    chunk = rng.choice([100, 250, 1000])
    N = W * chunk
    code = """chunk = N // W
for step in range(W - 1):        # reduce-scatter
    send(chunk, (rank + 1) % W)
for step in range(W - 1):        # all-gather
    send(chunk, (rank + 1) % W)"""
    total = 2 * (W - 1) * chunk
    return Ask(
        f"A ring all-reduce of N = {N:,} elements over W = {W} ranks. How many elements does one "
        "rank send?",
        lambda _: _sent(code, N=N, W=W, rank=0)["elements"],
        working=[
            f"a chunk: {N:,} / {W} = {chunk:,}",
            f"2 x {W - 1} steps: {2 * (W - 1)} x {chunk:,} = {total:,}",
        ],
        check=total,
        code=code,
    )


@question("all_reduces_of_a_step", task="no_sync", minutes=1.5, kind="count")
def all_reduces_of_a_step(rng):
    """With no_sync the last micro-batch alone communicates."""
    micro, buckets, steps = rng.choice([4, 8]), rng.choice([3, 5]), rng.choice([2, 10])
    last_only = rng.random() < 0.5
    reduce = "for bucket in range(BUCKETS):\n            all_reduce(bucket)"
    if last_only:
        reduce = f"if last:\n            {reduce.replace('            ', '                ')}"
    code = f"""for step in range(STEPS):
    for i in range(MICRO):
        last = i == MICRO - 1
        # forward and backward
        {reduce}"""
    rounds = 1 if last_only else micro
    total = steps * rounds * buckets
    return Ask(
        f"STEPS = {steps}, MICRO = {micro} micro-batches, BUCKETS = {buckets}. How many "
        "all-reduces run?",
        lambda _: _sent(code, STEPS=steps, MICRO=micro, BUCKETS=buckets)["all_reduces"],
        working=[
            f"micro-batches that communicate in a step: {rounds}",
            f"{steps} x {rounds} x {buckets} = {total}",
        ],
        check=total,
        code=code,
    )


@question("buckets_that_close", task="assign_buckets", minutes=2, kind="count")
def buckets_that_close(rng):
    """A bucket is closed once it has reached its cap; no tensor is cut."""
    sizes = [rng.choice([2, 4, 6, 10]) for _ in range(8)]
    first, cap = rng.choice([1, 4]), rng.choice([8, 12])
    code = f"""buckets, size, cap = 0, 0, {first}     # MB; the first bucket's cap
for tensor in {sizes}:
    size += tensor
    if size >= cap:
        buckets, size, cap = buckets + 1, 0, {cap}
if size:
    buckets += 1"""
    parts, size, limit = [[]], 0, first
    for number, tensor in enumerate(sizes):
        parts[-1].append(tensor)
        size += tensor
        if size >= limit and number + 1 < len(sizes):
            parts, size, limit = [*parts, []], 0, cap
    shown = " | ".join(" + ".join(map(str, part)) for part in parts)
    return Ask(
        "How many buckets are there in the end?",
        lambda _: ran(code)["buckets"],
        working=[f"{shown}: {len(parts)}"],
        check=len(parts),
        code=code,
    )
