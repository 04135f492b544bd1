from grader.suite import lines, misconception


@misconception()
def slices_the_keys(q, k, v, heads_per_slice, queries_per_slice):
    """The keys were sliced and each slice was given a softmax of its own. A softmax divides by a
    sum over all keys; whoever slices them has to carry a running maximum and sum along (online
    softmax)."""
    for size in (heads_per_slice, queries_per_slice):
        if size < 1:
            raise ValueError(size)
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
    parts = range(0, k.shape[2], queries_per_slice)
    for h in range(0, q.shape[1], heads_per_slice):
        some = slice(h, h + heads_per_slice)
        for t in parts:
            keys = slice(t, t + queries_per_slice)
            scores = (q[:, some] * q.shape[3] ** -0.5) @ k[:, some, keys].transpose(2, 3)
            out[:, some] += scores.softmax(-1) @ v[:, some, keys] / len(parts)
    return out


makes_all_scores_first = lines(
    """All scores are made first and only their softmax is sliced, so the largest tensor is there as
    before. The product of q and k is what has to be sliced.""",
    (
        "    for h in range(0, heads, heads_per_slice):\n",
        "    every = (q * q.shape[3] ** -0.5) @ k.transpose(2, 3)\n"
        "    for h in range(0, heads, heads_per_slice):\n",
    ),
    (
        "            scores = (q[:, some, rows] * q.shape[3] ** -0.5) @ k[:, some].transpose(2, 3)",
        "            scores = every[:, some, rows]",
    ),
)

slices_only_heads = lines(
    """Only the heads are sliced: each slice still has a score for every pair of tokens, the part
    that grows with the square of the image. Slice the queries as well.""",
    ("for s in range(0, queries, queries_per_slice):", "for s in (0,):"),
    ("rows = slice(s, s + queries_per_slice)", "rows = slice(None)"),
)

slices_only_queries = lines(
    """Only the queries are sliced, and the scores of all heads are made at once. heads_per_slice
    was to be kept, too: the two sizes multiply.""",
    ("for h in range(0, heads, heads_per_slice):", "for h in (0,):"),
    ("some = slice(h, h + heads_per_slice)", "some = slice(None)"),
)

one_head_and_query_at_a_time = lines(
    """Each slice is one head, whatever size was allowed. Memory is saved that nobody asked for, and
    every slice costs its launches: take slices as large as allowed.""",
    ("for h in range(0, heads, heads_per_slice):", "for h in range(heads):"),
    ("some = slice(h, h + heads_per_slice)", "some = slice(h, h + 1)"),
)

scales_by_the_slice = lines(
    """The scores are scaled by a size of the slice. The scale belongs to the head: 1 / sqrt(D),
    with D the last axis of q, however q is cut.""",
    ("(q[:, some, rows] * q.shape[3] ** -0.5)", "(q[:, some, rows] * queries_per_slice**-0.5)"),
)

calls_the_fused_kernel = lines(
    """A fused attention call holds no scores in the first place, so slicing around it saves nothing
    and costs launches (so it is in diffusers, too: attention slicing on top of it is no gain). Here
    the slices are to be made by hand.""",
    (
        "            scores = (q[:, some, rows] * q.shape[3] ** -0.5) @ k[:, "
        "some].transpose(2, 3)\n"
        "            out[:, some, rows] = scores.softmax(-1) @ v[:, some]\n"
        "            del scores  # or it is still there while the next slice's are made\n",
        "            out[:, some, rows] = torch.nn.functional.scaled_dot_product_attention(\n"
        "                q[:, some, rows], k[:, some], v[:, some]\n"
        "            )\n",
    ),
)

scales_by_the_width_of_v = lines(
    """The scores are scaled by the width of v. They are sums over the width of q and k, so the
    scale is 1 / sqrt(D) with D the last axis of q; v may have another width.""",
    ("q.shape[3] ** -0.5", "v.shape[3] ** -0.5"),
)

softmax_over_the_queries = lines(
    """The softmax was taken over the queries of a slice. Each query's weights over all *keys* add
    up to 1: it goes along the last axis of the scores.""",
    ("scores.softmax(-1)", "scores.softmax(-2)"),
)

WIDE = """Scores, or their softmax, were made in float32 whatever the inputs' dtype: for fp16 that
is twice the bytes that slicing is there to save."""

scores_are_widened_to_float32 = lines(
    WIDE,
    (
        "            scores = (q[:, some, rows] * q.shape[3] ** -0.5) @ "
        "k[:, some].transpose(2, 3)\n",
        "            scaled = q[:, some, rows] * q.shape[3] ** -0.5\n"
        "            scores = scaled.float() @ k[:, some].transpose(2, 3).float()\n"
        "            scores = scores if q.dtype != torch.float64 else (\n"
        "                scaled @ k[:, some].transpose(2, 3)\n"
        "            )\n",
    ),
    ("scores.softmax(-1) @", "scores.softmax(-1).to(v.dtype) @"),
)

softmax_without_its_largest_score = lines(
    """The exponentials were taken as they are: of a large score that is infinite, and of a row of
    very small ones 0 / 0. Subtract each row's largest score first, as softmax does.""",
    (
        "scores.softmax(-1) @ v[:, some]",
        "(scores.exp() / scores.exp().sum(-1, keepdim=True)) @ v[:, some]",
    ),
)

leaves_the_last_queries_out = lines(
    """Only whole slices were computed: queries that are left over, fewer than a slice, got nothing.
    The last slice may be smaller.""",
    (
        "    out = q.new_empty(*q.shape[:3], v.shape[3])\n",
        "    out = q.new_zeros(*q.shape[:3], v.shape[3])\n"
        "    queries_per_slice = min(queries_per_slice, queries)\n",
    ),
    (
        "range(0, queries, queries_per_slice)",
        "range(0, queries - queries_per_slice + 1, queries_per_slice)",
    ),
)

softmax_is_widened_to_float32 = lines(
    WIDE,
    (
        "scores.softmax(-1) @",
        "scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype) @",
    ),
)

keeps_the_slice_before = lines(
    """What a slice computed keeps its memory as long as a name points to it: scores, scaled scores
    and softmax of the last slice are still there while the next one's scores are made, a fourth
    tensor of that size. Let them go with `del`, or compute in place.""",
    (
        "            scores = (q[:, some, rows] * q.shape[3] ** -0.5) @ "
        "k[:, some].transpose(2, 3)\n"
        "            out[:, some, rows] = scores.softmax(-1) @ v[:, some]\n"
        "            del scores  # or it is still there while the next slice's are made\n",
        "            scores = q[:, some, rows] @ k[:, some].transpose(2, 3)\n"
        "            scaled = scores * q.shape[3] ** -0.5\n"
        "            weights = scaled.softmax(-1)\n"
        "            out[:, some, rows] = weights @ v[:, some]\n",
    ),
)

slices_are_evened = lines(
    """The slices were made equally large: 8 heads by 5 as 4 and 4. A slice has as many heads and
    queries as it may, and the last one what is left: 5 and 3.""",
    (
        "    out = q.new_empty(*q.shape[:3], v.shape[3])\n",
        "    out = q.new_empty(*q.shape[:3], v.shape[3])\n"
        "    heads_per_slice = -(-heads // -(-heads // heads_per_slice))\n"
        "    queries_per_slice = -(-queries // -(-queries // queries_per_slice))\n",
    ),
)

the_output_is_as_wide_as_the_queries = lines(
    """The output was made in the shape of q. Each query gets a mean of the values, so the output is
    as wide as v, which need not be as wide as q.""",
    ("out = q.new_empty(*q.shape[:3], v.shape[3])", "out = torch.empty_like(q)"),
)
