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
    """A claim inside its range is not a contradiction: only claims that the inputs contradict are
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


audit_four_bits_for_a_byte = lines(
    """precision_bytes is in bytes, and 4-bit weights have half a byte: bits and bytes do not go
    into one fraction.""",
    ("0.5 / n.precision_bytes", "4 / n.precision_bytes"),
)


audit_times_smaller = lines(
    """`int4_weight_fraction` is what is left of the weights, 4-bit over the notebook's: a quarter,
    not four.""",
    ("0.5 / n.precision_bytes", "n.precision_bytes / 0.5"),
)


audit_int4_in_per_cent = lines(
    """`int4_weight_fraction` is a fraction: a quarter is 0.25, not 25 per cent.""",
    ("0.5 / n.precision_bytes", "50 / n.precision_bytes"),
)


audit_activation_values = lines(
    """activation_scale counts values of precision_bytes: without it the notebook's 28.0 GiB are
    14.0.""",
    ("n.precision_bytes * n.activation_scale", "n.activation_scale"),
)


audit_scale_always_seven = lines(
    """The notebook says its own activation_scale: 7.0 is only what most of them have.""",
    ("n.precision_bytes * n.activation_scale", "n.precision_bytes * 7.0"),
)


audit_states_always_16 = lines(
    """The notebook says its own state_bytes: 16 bytes a parameter is one recipe of several.""",
    ("n.params * n.state_bytes", "n.params * 16"),
)


audit_activations_of_one_layer = lines(
    """Every layer's activations wait for backward: those of one layer are multiplied by
    layers.""",
    ("tokens * n.layers * n.hidden", "tokens * n.hidden"),
)


audit_activations_of_the_heads = lines(
    """Activations are counted in units of hidden; heads * head_dim is the width of K and V.""",
    ("n.layers * n.hidden", "n.layers * n.heads * n.head_dim"),
)


audit_tokens_of_one_sequence = lines(
    """A batch has batch * seq tokens: each of its sequences has activations and a cache of its
    own.""",
    ("tokens = n.batch * n.seq", "tokens = n.seq"),
)


audit_cache_of_one_layer = lines(
    """Every layer has a K and a V of its own: the cache of one is multiplied by layers.""",
    ("tokens * n.layers * n.heads", "tokens * n.heads"),
)


audit_cache_always_in_16_bit = lines(
    """A cached value takes precision_bytes; the 2 beside it counts K and V.""",
    ("n.head_dim * 2 * n.precision_bytes", "n.head_dim * 2 * 2"),
)


audit_weights_always_in_16_bit = lines(
    """The weights take precision_bytes a parameter, which need not be 2.""",
    ("weights = n.params * n.precision_bytes", "weights = n.params * 2"),
)


audit_training_with_a_cache = lines(
    """Training keeps no KV cache: `training_gib` is weights, gradients, optimizer states and
    activations.""",
    ("n.state_bytes + activations)", "n.state_bytes + activations + kv)"),
)


audit_inference_without_cache = lines(
    """`inference_gib` is weights *and* KV cache: 12.6 GiB are the weights alone, 20.6 are both.""",
    ("(weights + kv) / GIB", "weights / GIB"),
)


audit_inference_with_states = lines(
    """Serving needs the weights at precision_bytes; state_bytes is for training, with gradients
    and optimizer states.""",
    ("(weights + kv) / GIB", "(n.params * n.state_bytes + kv) / GIB"),
)


audit_doubling_upside_down = lines(
    """`context_doubling` is memory at twice the context over memory at once, so that it is above
    1.""",
    ("(weights + 2 * kv) / (weights + kv)", "(weights + kv) / (weights + 2 * kv)"),
)


audit_growth_in_per_cent = lines(
    """`context_doubling` is a multiple, 1.39: not 139 per cent and not 39.""",
    ("(weights + 2 * kv) / (weights + kv)", "100 * (weights + 2 * kv) / (weights + kv)"),
)


audit_doubling_adds_two_caches = lines(
    """At twice the context there are two caches' bytes instead of one: one more is added, not two
    more.""",
    ("(weights + 2 * kv) / (weights + kv)", "(weights + 3 * kv) / (weights + kv)"),
)


audit_doubling_squares_the_cache = lines(
    """The cache grows linearly: twice the context is twice the cache, not four times.""",
    ("(weights + 2 * kv) / (weights + kv)", "(weights + 4 * kv) / (weights + kv)"),
)


audit_doubling_of_training = lines(
    """`context_doubling` speaks of inference: weights and cache, no activations.""",
    (
        "(weights + 2 * kv) / (weights + kv)",
        "(weights + 2 * kv + 2 * activations) / (weights + kv + activations)",
    ),
)


audit_compares_as_printed = lines(
    """A figure rounded to one decimal is held against the range; the claim is about the figure
    itself.""",
    ("<= value <=", "<= round(value, 1) <="),
)


audit_with_tolerance = lines(
    """A range says itself how exact a claim is: nothing is added to its ends.""",
    ("claim.low <= value <= claim.high", "0.95 * claim.low <= value <= 1.05 * claim.high"),
)


audit_looks_at_the_lower_end = lines(
    """A figure contradicts a claim from above as well: one that is larger than `high` is as
    wrong as one below `low`.""",
    ("claim.low <= value <= claim.high", "claim.low <= value"),
)


audit_stops_at_the_first = lines(
    """Every claim is judged: after the first contradiction the others still have to be looked
    at.""",
    ("    return findings\n", "    return findings[:1]\n"),
)


audit_in_the_order_of_quantities = lines(
    """Findings stand in the order of the claims, not in an order of the quantities.""",
    (
        "    return findings\n",
        "    return sorted(findings, key=lambda found: list(actual).index(found.quantity))\n",
    ),
)


audit_in_the_order_of_the_alphabet = lines(
    """Findings stand in the order of the claims, not in an order of the quantities.""",
    (
        "    return findings\n",
        "    return sorted(findings, key=lambda found: found.quantity)\n",
    ),
)


audit_first_claim_a_quantity = lines(
    """Of several claims about one quantity only the first is looked at; each claim is true or
    false for itself.""",
    (
        "    for claim in n.claims:\n",
        "    for claim in {one.quantity: one for one in reversed(n.claims)}.values():\n",
    ),
    (
        "    return findings\n",
        "    return findings[::-1]\n",
    ),
)


audit_without_the_ends = lines(
    """The ends of a range belong to it: a figure that is exactly low or high is not
    a contradiction.""",
    ("claim.low <= value <= claim.high", "claim.low < value < claim.high"),
    gate=False,
)


audit_passes_over_the_unknown = lines(
    """A claim about a quantity that is not known is passed over; nobody has checked it, so it must
    be refused with a ValueError.""",
    (
        "raise ValueError(f\"Claim about {claim.quantity!r}; known are {', '.join(actual)}.\")",
        "continue",
    ),
    gate=False,
)


audit_unknown_is_a_key_error = lines(
    """A quantity that is not known is looked up before it is checked: a KeyError comes out in
    place of the ValueError.""",
    (
        "        if claim.quantity not in actual:\n"
        '            raise ValueError(f"Claim about {claim.quantity!r}; known are'
        " {', '.join(actual)}.\")\n",
        "",
    ),
    gate=False,
)
