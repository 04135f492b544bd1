from grader.lab.skeleton import changed
from grader.suite import lines, misconception

ASKS = "flash_forward_skips(i, i_stop, j, j_stop, S, S_kv)"


@misconception(replaces="flash_forward")
def tiles_are_masked_but_not_skipped(q, k, v, block_q, block_k, causal=False, scale=None):
    """flash_forward does not call flash_forward_skips: hidden tiles are loaded, multiplied and then
    masked away, which is twice the work."""
    S, S_kv, off = q.shape[2], k.shape[2], k.shape[2] - q.shape[2]
    o, lse = torch.zeros_like(q), q.new_zeros(q.shape[:3])
    for i in range(0, S, block_q):
        q_i = q[:, :, i : i + block_q] * (1 / math.sqrt(q.shape[3]) if scale is None else scale)
        state = (q_i.new_full(q_i.shape[:3], -math.inf), q_i.new_zeros(q_i.shape[:3]), q_i * 0)
        for j in range(0, S_kv, block_k):
            s = q_i @ k[:, :, j : j + block_k].mT
            if causal:
                s = s.masked_fill(
                    ~torch.ones_like(s[0, 0], dtype=torch.bool).tril(off + i - j), -math.inf
                )
            m = s.amax(-1)
            p = torch.exp(s - m.masked_fill(m == -math.inf, 0.0)[..., None])
            state = merge(state, (m, p.sum(-1), p @ v[:, :, j : j + block_k]))
        m, l, acc = state
        o[:, :, i : i + block_q] = acc / l.masked_fill(l == 0, 1.0)[..., None]
        lse[:, :, i : i + block_q] = m + torch.log(l)
    return o, lse


nothing_is_skipped = lines(
    """No tile is ever skipped: the mask makes the upper half invisible, but it is still computed
    and loaded.""",
    ("return k_start > (q_stop - 1) + (S_kv - S)", "return False"),
)

the_diagonal_is_skipped = lines(
    """A tile that the diagonal cuts is skipped whole; it holds visible pairs and must be computed
    and masked.""",
    ("return k_start > (q_stop - 1) + (S_kv - S)", "return k_stop - 1 > q_start + S_kv - S"),
)

the_first_row_decides = lines(
    """The tile's first row decides here; the LAST row sees furthest, and if it sees the first key
    the tile is needed.""",
    ("return k_start > (q_stop - 1) + (S_kv - S)", "return k_start > q_start + S_kv - S"),
)

the_offset_is_forgotten = lines(
    """The diagonal is taken to start at key 0; aligned to the end it starts at key S_kv - S.""",
    ("return k_start > (q_stop - 1) + (S_kv - S)", "return k_start > q_stop - 1"),
)

the_last_key_decides = lines(
    """The tile's last key decides here; the tile is needed as soon as its last row sees the FIRST
    one, its lower left corner.""",
    ("return k_start > (q_stop - 1) + (S_kv - S)", "return k_stop - 1 > (q_stop - 1) + (S_kv - S)"),
)

one_pair_too_many = lines(
    """Off by one: q_stop is the first row AFTER the tile, its last row is q_stop - 1, and a key AT
    the diagonal is visible.""",
    ("return k_start > (q_stop - 1) + (S_kv - S)", "return k_start >= q_stop - 1 + S_kv - S"),
)

a_tile_may_reach_its_own_end = lines(
    """q_stop is taken for the tile's last row: tiles that start one key beyond the diagonal are
    computed for nothing.""",
    ("return k_start > (q_stop - 1) + (S_kv - S)", "return k_start > q_stop + S_kv - S"),
)


@misconception(file="flashattention_mental_model.py")
def skips_equal_lengths_only(text):
    """Tiles are skipped only where S = S_kv; with a cache, or with more queries than keys, the
    diagonal lies elsewhere, and what is beyond it is hidden all the same."""
    return changed(
        text,
        (
            f"if causal and {ASKS}:\n                break",
            f"if causal and S == S_kv and {ASKS}:\n                break",
        ),
    )


offset_is_never_negative = lines(
    """S_kv - S is clamped to 0 or more; with more queries than keys it is negative: the first S -
    S_kv rows see nothing, and their tiles are skipped.""",
    ("(q_stop - 1) + (S_kv - S)", "(q_stop - 1) + max(0, S_kv - S)"),
)


@misconception(file="flashattention_mental_model.py", gate=False)
def key_blocks_are_cast_before_asking(text):
    """The key block is cast before flash_forward asks whether the tile is hidden, so a block that
    is skipped is read and copied all the same."""
    cast = "k_j, v_j = k[:, :, j:j_stop].to(wide), v[:, :, j:j_stop].to(wide)\n"
    ask = f"if causal and {ASKS}:\n"
    return changed(
        text,
        (
            f"{ask}                break\n            {cast}",
            f"{cast}            {ask}                continue\n",
        ),
    )


@misconception(file="flashattention_mental_model.py", gate=False)
def keys_are_cast_before_asking(text):
    """The key block is cast before flash_forward asks whether the tile is hidden, so a block that
    is skipped is read and copied all the same."""
    k_j, v_j = "k[:, :, j:j_stop].to(wide)", "v[:, :, j:j_stop].to(wide)"
    ask = f"if causal and {ASKS}:\n"
    return changed(
        text,
        (
            f"{ask}                break\n            k_j, v_j = {k_j}, {v_j}\n",
            f"k_j = {k_j}\n            {ask}                continue\n            v_j = {v_j}\n",
        ),
    )
