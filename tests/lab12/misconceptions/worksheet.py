from grader.lab.skeleton import changed
from grader.suite import lines, misconception


def _seventy(text, plan, peak, bubble, wait):
    """The worksheet with another plan for Llama-3-70B, and claims that are right for it."""
    old = "  tp: 4\n  pp: 1\n  cp: 1\n  dp: 16\n  zero: 3\n  micro: 1\n  recompute: selective\n"
    return changed(
        text,
        (old, "".join(f"  {line}\n" for line in plan.split(", "))),
        ("peak_gb: 70.7\n  bubble: 0\n", f"peak_gb: {peak}\n  bubble: {bubble}\n"),
        ("exposed_s: 1.22", f"exposed_s: {wait}"),
    )


@misconception(file="topology_design_worksheet.md")
def tp_over_two_nodes(text):
    """TP 16 puts 4 all-reduces a layer on the 50 GB/s link; a node has 8 GPUs, and what talks in
    every layer belongs inside it."""
    return _seventy(
        text, "tp: 16, pp: 2, cp: 1, dp: 2, micro: 1, recompute: selective", 39.1, 0.0154, 9.6
    )


@misconception(file="topology_design_worksheet.md")
def recomputes_to_be_safe(text):
    """Full recompute where selective fits: every layer's forward is done twice, kernels and
    collectives, a third more of the step for memory that nobody needs."""
    return _seventy(
        text,
        "tp: 4, pp: 1, cp: 1, dp: 16, zero: 3, micro: 1, recompute: full",
        25.7,
        0,
        1.83,
    )


@misconception(file="topology_design_worksheet.md")
def a_pipeline_without_micro_batches(text):
    """With micro 4, stage 0 holds pp micro-batches that are 4 times as large. Fewer micro-batches
    also make the bubble of a long pipeline larger."""
    return _seventy(
        text, "tp: 8, pp: 8, cp: 1, dp: 1, micro: 4, recompute: selective", 116.9, 0.1795, 2.76
    )


three_sequences_at_once = lines(
    """Each replica's share of the batch has to be a whole number of micro-batches: 128 sequences on
    DP 16 do not divide by 3.""",
    ("  micro: 1\n  recompute", "  micro: 3\n  recompute"),
)

three_chunks_of_eight_layers = lines(
    """A stage's 8 layers do not divide into 3 chunks; pp * vpp has to divide the layers.""",
    ("ep: 8, vpp: 4", "ep: 8, vpp: 3"),
)

ep_takes_gpus = lines(
    """PP 4 x DP 2 x EP 8 = 64 counts EP as an axis of its own; EP re-uses the ranks of DP, so this
    plan takes 8 GPUs.""",
    ("cp: 1, dp: 16, ep: 8", "cp: 1, dp: 2, ep: 8"),
)

ep_makes_room_enough = lines(
    """With PP 1 each GPU has one expert of all 32 layers and everything else of the model:
    activations and states together need 85.6 GB of 80.""",
    ("{tp: 1, pp: 4, cp: 1, dp: 16, ep: 8, vpp: 4", "{tp: 1, pp: 1, cp: 1, dp: 64, ep: 8"),
)

one_micro_batch_in_flight = lines(
    """The claimed memory has the activations of one micro-batch; stage 0 of 1F1B keeps pp of them
    in flight (and interleaving some more), so PP does not shrink them.""",
    ("peak_gb: 58.9", "peak_gb: 26.2"),
)

memory_in_gib = lines(
    """The claimed memory is in GiB, 2^30 bytes; peak_gb is in 10^9 bytes, and the two are 7.4 %
    apart.""",
    ("peak_gb: 70.7", "peak_gb: 65.8"),
)

bubble_of_the_work = lines(
    """The claimed bubble is (pp - 1) / (vpp * m), which is its ratio to the work; of the whole
    step it is a smaller part.""",
    ("bubble: 0.0448", "bubble: 0.0469"),
)

bubble_without_dp = lines(
    """The claimed bubble counts the micro-batches of the whole batch; a pipeline has those of its
    own replica, dp times fewer.""",
    ("bubble: 0.0448", "bubble: 0.0029"),
)

the_ring_counts_although_hidden = lines(
    """CP is claimed to be what kernels wait for; the ring is long, but attention over 131,072 keys
    is longer and hides it: exposed is what is left.""",
    ("exposed: tp\n  exposed_s: 0.326", "exposed: cp\n  exposed_s: 8.02"),
)

the_fence_stays_open = lines(
    """A block that is not closed swallows the rest of the file: end it with three backquotes.""",
    ("what it gathers.\n```\n", "what it gathers.\n"),
)

a_tab_in_a_block = lines(
    """YAML indents with spaces; a tab is an error at its line and column.""",
    ("  tp: 4\n", "\ttp: 4\n"),
)

names_of_its_own = lines(
    """`data_parallel` is not a key of the worksheet, so it cannot be read. The key is dp.""",
    ("  dp: 16\n  zero", "  data_parallel: 16\n  zero"),
)

a_unit_behind_a_number = lines(
    """`70.7 GB` is a text; the unit is in the key, and the value is a number.""",
    ("peak_gb: 70.7", "peak_gb: 70.7 GB"),
)

one_design_twice = lines(
    """Two blocks are for the same design; each of the designs has one block.""",
    ("design: llama3-8b-128k", "design: llama3-70b"),
)

fsdp_of_small_micro_batches = lines(
    """FSDP gathers all weights twice for each micro-batch, and the few tokens that a GPU computes
    meanwhile take less time than that. A smaller CP, or more tokens a micro-batch, hides it.""",
    (
        "  tp: 4\n  pp: 1\n  cp: 1\n  dp: 16\n  zero: 3\n",
        "  tp: 1\n  pp: 1\n  cp: 8\n  dp: 8\n  zero: 3\n",
    ),
)
