from grader.lab.skeleton import changed
from grader.suite import lines, misconception


@misconception(file="parallelism.py")
def nvlink_s_nine_hundred(text):
    """The data sheet's 900 GB/s of NVLink4 count both directions together; a ring sends one way, at
    450 GB/s, so all times inside a node come out half as long."""
    return changed(
        text,
        (
            "near, far = per_node, n // per_node",
            "cluster = replace(cluster, intra_Bps=2 * cluster.intra_Bps)\n"
            "    near, far = per_node, n // per_node",
        ),
        ("import math\n", "import math\nfrom dataclasses import replace\n"),
    )


an_all_reduce_goes_round_once = lines(
    """After one round of the ring each rank has the sum of one piece only; the pieces still
    have to go to everybody. An all-reduce is a reduce-scatter and an all-gather, 2(n-1)/n of
    the tensor.""",
    ('halves = ("reduce_scatter", "all_gather")', 'halves = ("reduce_scatter",)'),
)

an_all_gather_s_size_is_taken_for_one_share = lines(
    """`nbytes` of an all-gather is what comes out, of which each rank brings 1/n; taken for the
    share of one rank, the time is n times too long.""",
    (
        "near, far = per_node, n // per_node",
        'near, far = per_node, n // per_node\n    if op == "all_gather":\n        nbytes *= n',
    ),
)

one_flat_ring_over_all_nodes = lines(
    """One ring through all nodes pulls the whole tensor through every network card. If the GPUs of
    a node first divide it among themselves, each card carries 1/g of it.""",
    (
        "moved = nbytes * (near - 1) / near / cluster.intra_Bps\n",
        "moved = nbytes * (n - 1) / n / cluster.inter_Bps\n"
        "    if near < n:\n        return moved + (near - 1 + far - 1) * cluster.lat_s\n"
        "    moved = nbytes * (near - 1) / near / cluster.intra_Bps\n",
    ),
)

latency_once_for_a_collective = lines(
    """A ring of n ranks has n - 1 steps, each of which waits for the one before, so small messages
    on many ranks cost (n - 1) latencies and not one.""",
    ("(near - 1 + far - 1) * cluster.lat_s", "cluster.lat_s"),
)

an_all_to_all_stays_inside = lines(
    """Of an all-to-all over nodes only the g - 1 pieces for the own node travel over NVLink; the
    n - g others cross the network, at a ninth of the speed.""",
    (
        "nbytes * (n - near) / n / cluster.inter_Bps",
        "nbytes * (n - near) / n / cluster.intra_Bps",
    ),
)

nvlink_s_nine_hundred_for_everything = lines(
    """The data sheet's 900 GB/s of NVLink4 count both directions together; a ring sends one way, at
    450 GB/s, so all times inside a node come out half as long.""",
    ("nbytes / (cluster.intra_Bps if inside", "nbytes / (2 * cluster.intra_Bps if inside"),
    ("(near - 1) / n / cluster.intra_Bps", "(near - 1) / n / (2 * cluster.intra_Bps)"),
    ("(near - 1) / near / cluster.intra_Bps", "(near - 1) / near / (2 * cluster.intra_Bps)"),
)

an_all_gather_alone_is_given_a_share = lines(
    """`nbytes` of an all-gather is what comes out, of which each rank brings 1/n; taken for the
    share of one rank, the time is n times too long.""",
    ('halves = ("reduce_scatter", "all_gather")', 'halves = ("reduce_scatter", "reduce_scatter")'),
    (
        "near, far = per_node, n // per_node",
        'near, far = per_node, n // per_node\n    if op == "all_gather":\n        nbytes *= n',
    ),
)

a_rank_sends_its_own_share_as_well = lines(
    """A rank keeps 1/n of the bytes: (n-1)/n of them move, and not all; with two ranks that is
    half.""",
    (
        "moved = nbytes * (near - 1) / near / cluster.intra_Bps",
        "moved = nbytes * (near > 1) / cluster.intra_Bps",
    ),
    (
        "nbytes / near * (far - 1) / far / cluster.inter_Bps",
        "nbytes / near * (far > 1) / cluster.inter_Bps",
    ),
)

the_whole_tensor_crosses_nodes = lines(
    """Between nodes each rank sends the whole tensor here. After the stage inside a node a GPU has
    one gth of it, and its network card carries that part only.""",
    (
        "nbytes / near * (far - 1) / far / cluster.inter_Bps",
        "nbytes * (far - 1) / far / cluster.inter_Bps",
    ),
)

shares_are_whole_bytes = lines(
    """What goes between nodes is rounded down to whole bytes. This is a model of time: one gth of
    the tensor is a quotient, whether g divides it or not.""",
    ("nbytes / near * (far - 1)", "nbytes // near * (far - 1)"),
)

more_a_node_than_ranks = lines(
    """A per_node above n was cut down to n. n has to be a multiple of per_node: two ranks cannot
    stand eight a node, so such a group is refused.""",
    (
        "    if n < 1 or per_node < 1 or n % per_node:\n",
        "    per_node = min(per_node, n)\n    if n < 1 or per_node < 1 or n % per_node:\n",
    ),
    gate=False,
)
