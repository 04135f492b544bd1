from grader.suite import lines

workers_count_alike = lines(
    """The workers' parts are merged with equal weights; a worker whose keys score high carries more
    of the softmax, exp(lse_worker).""",
    (
        "    m, l, o = state\n    return (o / l.masked_fill(l == 0, 1.0)[..., None])",
        "    m, l, o = state\n    busy = max(-(-S_kv // max(n, 1)), 1)\n"
        "    o = sum(o_w for _, _, o_w in parts[:busy]) / busy\n    return o",
    ),
)

states_count_alike = lines(
    """The workers' parts are merged with equal weights; a worker whose keys score high carries more
    of the softmax, exp(lse_worker).""",
    (
        "state = merge(state, part)",
        "state = (torch.maximum(state[0], part[0]), state[1] + part[1], state[2] + part[2])",
    ),
)

lse_of_the_largest_worker = lines(
    """The merged lse is the largest worker's; it is the logarithm of the SUM of all
    exp(lse_worker).""",
    ("m + torch.log(l)", "m"),
)

weights_are_counted_twice = lines(
    """A worker's weight is counted twice in l: through m, which is its lse, and as exp(lse) once
    more, while its output carries it once. Ask what the sum of a finished part is when it is
    measured from that part's own lse.""",
    ("torch.ones_like(lse_w)", "torch.exp(lse_w)"),
)

one_worker_does_it_all = lines(
    """All keys go through one product: with one query row there is then one block of work for the
    whole GPU.""",
    ("n = -(-S_kv // num_splits)", "num_splits, n = 1, S_kv"),
)

the_rest_of_the_keys_is_lost = lines(
    """The number of keys per worker is rounded down, and no worker sees the keys that are left
    over: n is the ceiling of S_kv / num_splits.""",
    ("n = -(-S_kv // num_splits)", "n = S_kv // num_splits"),
)

the_rest_of_the_keys_is_lost_unless_workers_idle = lines(
    """The number of keys per worker is rounded down, and no worker sees the keys that are left
    over: n is the ceiling of S_kv / num_splits.""",
    ("n = -(-S_kv // num_splits)", "n = max(1, S_kv // num_splits)"),
)

the_last_worker_takes_the_rest = lines(
    """The number of keys per worker is rounded down and the last worker takes the rest: it has more
    than the others, and all wait for it. n is the ceiling of S_kv / num_splits.""",
    ("n = -(-S_kv // num_splits)", "n = S_kv // num_splits"),
    ("min((w + 1) * n, S_kv))", "S_kv if w == num_splits - 1 else (w + 1) * n)"),
    ("1, max(n, 1), scale", "1, max(S_kv, 1), scale"),
)

parts_are_rounded_before_they_are_merged = lines(
    """Each worker's output is rounded to the type of q, and then merged; where parts cancel, what
    is left is their rounding. Merge in float32, and round once.""",
    ("q.to(wide), k[:, :, keys]", "q, k[:, :, keys]"),
)

keys_are_dealt_out_evenly = lines(
    """The keys are dealt out evenly, in parts that differ by one at most; here each worker has n =
    ceil(S_kv / num_splits) of them, in order, and the last ones what is left, or nothing.""",
    (
        "keys = slice(min(w * n, S_kv), min((w + 1) * n, S_kv))",
        "even, more = divmod(S_kv, num_splits)\n"
        "        first = w * even + min(w, more)\n"
        "        keys = slice(first, first + even + (w < more))",
    ),
)

keys_in_turn = lines(
    """Keys are dealt out in turn, every num_splits-th to the same worker; a worker has n
    neighbouring keys, which lie together in memory.""",
    ("keys = slice(min(w * n, S_kv), min((w + 1) * n, S_kv))", "keys = slice(w, None, num_splits)"),
)
