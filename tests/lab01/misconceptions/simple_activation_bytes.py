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
