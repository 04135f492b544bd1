from grader.suite import lines

scale_is_bytes = lines(
    """The scale counts values, not bytes: seven values of two bytes are 14 bytes. Without
    precision_bytes the notebook's 28.0 GiB become 14.0.""",
    ("precision_bytes * scale", "scale"),
)

one_layer_of_activations = lines(
    """Without checkpointing every layer's activations wait for backward, not one layer's.""",
    ("layers * hidden", "hidden"),
)

scale_is_always_seven = lines(
    """The scale is an argument: 7.0 is the notebook's choice, ZeRO's is 12, a GPT layer's 17 and
    more.""",
    ("precision_bytes * scale", "precision_bytes * 7.0"),
)

one_sequence_of_activations = lines(
    """Activations scale with tokens, and a batch has batch * seq of them.""",
    ("batch * seq", "seq"),
)

activations_in_gib = lines(
    """The function returns bytes; GiB are for printing.""",
    ("precision_bytes * scale", "precision_bytes * scale / GIB"),
)

activations_of_backward_too = lines(
    """The scale already counts everything that a token leaves behind in a layer: backward reads it
    and adds no second copy.""",
    ("precision_bytes * scale", "precision_bytes * scale * 2"),
)

activations_of_one_token_a_sequence = lines(
    """Every token of a sequence keeps its own vectors until backward, not only the last one.""",
    ("batch * seq", "batch"),
)

activations_always_in_16_bit = lines(
    """precision_bytes is an argument: a kept value need not have two bytes.""",
    ("precision_bytes * scale", "2 * scale"),
)

activations_of_one_channel = lines(
    """A kept vector has `hidden` values: the width of the model belongs to the product.""",
    ("layers * hidden", "layers"),
)

activations_of_a_whole_scale = lines(
    """The scale need not be a whole number of vectors: half a vector counts as half a one.""",
    ("precision_bytes * scale", "precision_bytes * int(scale)"),
)

activations_of_pairs_of_tokens = lines(
    """By this rule a token's share does not depend on the others: twice the context is twice the
    bytes, not four times.""",
    ("batch * seq", "batch * seq * seq"),
)

activations_in_gb = lines(
    """The function returns bytes; GB and GiB are for printing.""",
    ("precision_bytes * scale", "precision_bytes * scale / 1e9"),
)
