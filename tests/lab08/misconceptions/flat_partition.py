from grader.suite import lines

flat_tail_dropped = lines(
    """With floor(total / N) elements each, the last elements belong to nobody and are never
    stepped: the buffer is padded until N divides it.""",
    ("each = -(-total // (N * align)) * align", "each = total // (N * align) * align"),
    (
        "    for param, numel in [*enumerate(numels), (None, padding)]:\n        lo = 0\n",
        "    for param, numel in enumerate(numels):\n        lo = 0\n"
        "        numel = min(numel, max(0, N * each - begin))\n",
    ),
)

the_last_share_is_short = lines(
    """Padding is held as well: reduce-scatter and all-gather take equal shares, so the last rank's
    buffer is as long as the others', and a Slice with param=None stands for the padding.""",
    ("[*enumerate(numels), (None, padding)]", "enumerate(numels)"),
)

whole_parameters = lines(
    """Flat slices were asked for: a parameter is cut wherever a share ends. Whole parameters for
    each rank are what ZeroRedundancyOptimizer deals out, 18,432 and 17,472 bytes of the small MLP
    instead of 17,952 and 17,952.""",
    (
        "    slices, begin = [], 0\n",
        "    held = [0] * N\n    owners = {}\n"
        "    for index in sorted(range(len(numels)), key=lambda i: -numels[i]):\n"
        "        owners[index] = held.index(min(held))\n"
        "        held[owners[index]] += numels[index]\n"
        "    whole = [Slice(owners[i], i, 0, n) for i, n in enumerate(numels) if n]\n"
        "    return sorted(whole, key=lambda piece: (piece.rank, piece.param))\n"
        "    slices, begin = [], 0\n",
    ),
)

the_rank_where_a_parameter_begins = lines(
    """A parameter that crosses the end of a share is cut there; given whole to the rank in which it
    begins, shares are no longer equal and collectives do not fit.""",
    ("hi = min(numel, lo + each - used)", "hi = numel"),
)

every_parameter_cut_into_n = lines(
    """That cuts every parameter into N parts, as FSDP2 does with rows; flat means one buffer of all
    parameters and N - 1 cuts in it.""",
    (
        "    slices, begin = [], 0\n",
        "    parts = []\n"
        "    for rank in range(N):\n"
        "        for index, numel in enumerate(numels):\n"
        "            size = -(-numel // N)\n"
        "            lo, hi = min(numel, rank * size), min(numel, (rank + 1) * size)\n"
        "            parts += [Slice(rank, index, lo, hi)] if hi > lo else []\n"
        "    return parts\n"
        "    slices, begin = [], 0\n",
    ),
)

places_in_the_buffer = lines(
    """lo and hi count within the parameter, from its own first element: p.view(-1)[lo:hi] must be
    what the rank holds. These count from the beginning of the buffer.""",
    ("Slice(rank, param, lo, hi)", "Slice(rank, param, begin + lo, begin + hi)"),
)

places_in_the_share = lines(
    """lo and hi count within the parameter; these count from the beginning of the rank's own
    share.""",
    ("Slice(rank, param, lo, hi)", "Slice(rank, param, used, used + hi - lo)"),
)

hi_is_the_last_element = lines(
    """hi is one past the last element, as in Python and in [0:4], [4:8], so that hi - lo is the
    size.""",
    ("Slice(rank, param, lo, hi)", "Slice(rank, param, lo, hi - 1)"),
)

shares_differ_by_one = lines(
    """Shares are equal, the last one by padding; sizes that differ by one need no padding, and no
    collective with equal shares takes them.""",
    (
        "    slices, begin = [], 0\n",
        "    if align == 1:\n"
        "        found, rank, room = [], 0, total // N + (total % N > 0)\n"
        "        for index, numel in enumerate(numels):\n"
        "            lo = 0\n"
        "            while lo < numel:\n"
        "                hi = min(numel, lo + room)\n"
        "                found.append(Slice(rank, index, lo, hi))\n"
        "                room, lo = room - (hi - lo), hi\n"
        "                if room == 0:\n"
        "                    rank += 1\n"
        "                    room = total // N + (rank < total % N)\n"
        "        return found\n"
        "    slices, begin = [], 0\n",
    ),
)

the_buffer_is_aligned = lines(
    """Each SHARE is a multiple of `align` elements, so that every rank's buffer begins at an
    aligned place; a whole buffer that is such a multiple does not ensure that.""",
    (
        "each = -(-total // (N * align)) * align",
        "each = -(-(-(-total // align) * align) // N)",
    ),
)

align_is_ignored = lines(
    """`align` makes each rank's share a multiple of so many elements; here a share is ceil(total /
    N) whatever was asked for.""",
    ("each = -(-total // (N * align)) * align", "each = -(-total // N)"),
)

every_parameter_is_aligned = lines(
    """The padding stands once, behind the last parameter: parameters follow each other without a
    gap, only the shares are aligned.""",
    (
        "    total = sum(numels)\n",
        "    numels = [-(-numel // align) * align for numel in numels]\n    total = sum(numels)\n",
    ),
)

padding_belongs_to_the_last_parameter = lines(
    """Padding is not part of a parameter: it is a Slice with param=None. Otherwise the last
    parameter seems to have elements that it does not have.""",
    (
        "[*enumerate(numels), (None, padding)]",
        "[*enumerate([*numels[:-1], numels[-1] + padding] if numels else [])]",
    ),
)

padding_in_front = lines(
    """The padding stands behind the last parameter; in front it moves every cut.""",
    ("[*enumerate(numels), (None, padding)]", "[(None, padding), *enumerate(numels)]"),
)

largest_first = lines(
    """Parameters are concatenated in the order in which they come; sorted by size, nearly every
    offset moves, and a checkpoint written in the usual order does not fit.""",
    (
        "[*enumerate(numels), (None, padding)]",
        "[*sorted(enumerate(numels), key=lambda item: -item[1]), (None, padding)]",
    ),
)

padding_is_the_last_ranks = lines(
    """All of the padding is given to the last rank, in one Slice. It may be longer than a share:
    then it lies on several ranks, and each of them holds its own part of it.""",
    ("[*enumerate(numels), (None, padding)]", "enumerate(numels)"),
    (
        "        begin += numel\n    return slices",
        "        begin += numel\n"
        "    if padding:\n"
        "        slices.append(Slice(N - 1, None, 0, padding))\n"
        "    return slices",
    ),
)

padding_begins_again_on_each_rank = lines(
    """There is one padding, behind the last parameter, which may lie on several ranks: lo and hi
    count from where it begins, not from 0 again on each rank.""",
    (
        "slices.append(Slice(rank, param, lo, hi))",
        "first = 0 if param is None else lo\n"
        "            slices.append(Slice(rank, param, first, first + hi - lo))",
    ),
)

empty_parameters_have_no_number = lines(
    """A parameter without elements has no Slice, but it keeps its number: those behind it are
    numbered as if it were not there.""",
    ("[*enumerate(numels), (None", "[*enumerate(n for n in numels if n), (None"),
    gate=False,
)
