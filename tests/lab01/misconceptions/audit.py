from grader.suite import lines

audit_doubles_everything = lines(
    """Doubling the context doubles the cache only; the weights stay. 20.6 GiB become 28.6, 39 %
    more, not 100.""",
    ("(weights + 2 * kv) / (weights + kv)", "2.0"),
)


audit_reduces_by_a_quarter = lines(
    """4-bit weights shrink *to* a quarter of 16-bit ones, not *by* a quarter: half a byte over two
    bytes is 0.25, not 0.75.""",
    ("0.5 / n.precision_bytes", "1 - 0.5 / n.precision_bytes"),
)


audit_in_gb = lines(
    """The notebook speaks of GiB, 2**30 bytes: divided by 10**9 its 128.4 become 137.9.""",
    ("activations) / GIB", "activations) / 1e9"),
    ("(weights + kv) / GIB", "(weights + kv) / 1e9"),
)


audit_inference_in_gb = lines(
    """The notebook speaks of GiB, 2**30 bytes: divided by 10**9 its 128.4 become 137.9.""",
    ("(weights + kv) / GIB", "(weights + kv) / 1e9"),
)


audit_training_in_gb = lines(
    """The notebook speaks of GiB, 2**30 bytes: divided by 10**9 its 128.4 become 137.9.""",
    ("activations) / GIB", "activations) / 1e9"),
)


audit_states_only = lines(
    """Training memory is states *and* activations: 100.4 GiB are the states alone, 128.4 are
    both.""",
    ("(n.params * n.state_bytes + activations)", "n.params * n.state_bytes"),
)


audit_finds_every_claim = lines(
    """A claim inside its range is no contradiction: only claims that the inputs contradict are
    findings.""",
    ("if not claim.low <= value <= claim.high:", "if claim.low <= claim.high:"),
)


audit_weights_twice = lines(
    """state_bytes covers weights, gradients and optimizer states together: the weights are not
    added again.""",
    (
        "(n.params * n.state_bytes + activations)",
        "(n.params * n.state_bytes + weights + activations)",
    ),
)


audit_growth_for_a_multiple = lines(
    """`context_doubling` is a multiple of the memory at the plain context: 39 % more is 1.39, not
    0.39.""",
    ("(weights + 2 * kv) / (weights + kv)", "kv / (weights + kv)"),
)


audit_always_a_quarter = lines(
    """4-bit weights are half a byte each: a quarter of 16-bit ones, half of 8-bit ones. The
    notebook's precision_bytes says which.""",
    ("0.5 / n.precision_bytes", "0.25"),
)


audit_cache_as_wide_as_hidden = lines(
    """K and V are heads * head_dim wide, and that need not be hidden.""",
    ("n.heads * n.head_dim", "n.hidden"),
)


audit_only_k = lines(
    """The cache holds K and V: two vectors for each token and layer.""",
    ("n.head_dim * 2", "n.head_dim"),
)


audit_inference_with_activations = lines(
    """`inference_gib` is weights and KV cache: nothing is kept for a backward that never comes.""",
    ("(weights + kv) / GIB", "(weights + kv + activations) / GIB"),
)


audit_finds_what_holds = lines(
    """A finding is a claim that the inputs contradict: those inside their range are left out.""",
    ("if not claim.low", "if claim.low"),
)


audit_looks_at_one_end = lines(
    """A figure contradicts a claim from above or from below: both ends of the range count.""",
    ("claim.low <= value <= claim.high", "value <= claim.high"),
)


audit_rounds_the_figure = lines(
    """A finding carries the figure itself; rounding is for printing.""",
    ("value = actual[claim.quantity]", "value = round(actual[claim.quantity], 2)"),
)

audit_one_claim_a_quantity = lines(
    """Of several claims about one quantity only the last is looked at; each claim is true or false
    for itself.""",
    (
        "    for claim in n.claims:\n",
        "    for claim in {claim.quantity: claim for claim in n.claims}.values():\n",
    ),
)
