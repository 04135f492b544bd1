from grader.suite import lines

inference_active_weights = lines(
    """Memory follows total parameters, compute follows active ones: any token may be sent to any
    expert, so all of them are loaded.""",
    ("params = total_params(config)", "params = total_params(config, active=True)"),
)

inference_all_logits = lines(
    """Decoding needs logits of the last position only, one row of the vocabulary a sequence; it is
    training that has them for every position.""",
    ("* config", "* seq * config"),
)

inference_logits_in_bf16 = lines(
    """Sampling works on float32 logits: four bytes each, whatever the weights' dtype.""",
    ("4 * batch", "dtype_bytes * batch"),
)

inference_like_training = lines(
    """Nothing is trained here: gradients and optimizer states do not exist in inference.""",
    (
        "params = total_params(config)",
        'states = training_state_bytes(total_params(config), "bf16_mixed")',
    ),
    (
        "params=params,\n        weights=params * dtype_bytes,",
        "params=states.params,\n"
        "        weights=states.params * dtype_bytes,\n"
        "        gradients=states.gradients,\n"
        "        optimizer=states.optimizer,",
    ),
)

inference_without_overhead = lines(
    """overhead_bytes (CUDA context, workspaces) is in memory too: it belongs to `other`.""",
    ("vocab_size + overhead_bytes", "vocab_size"),
)
