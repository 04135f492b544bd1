from grader.suite import lines, misconception

tensor_parallelism_splits_the_layer_s_input = lines(
    """Tensor parallelism leaves a layer's input whole on every rank; only sequence parallelism
    splits it.""",
    ("layer = 2 * sbh / outside", "layer = 2 * sbh / tp"),
)


@misconception()
def activations_without_square(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """Eager attention keeps the probabilities, one for each query, key and head: 5 a s^2 b bytes
    that 34 s b h leaves out. At long context they are the larger part."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        layer = (10 if dropout else 8) * sbh / outside + 24 * sbh / tp
        if attention == "sdpa" and recompute == "none":
            layer += 4 * config.num_attention_heads * batch * seq / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


@misconception()
def checkpointing_frees_the_logits(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """Checkpointing recomputes *layers*; the logits come after the last one and stay (Llama-2-7B,
    batch 4, 4,096 tokens: 2.0 GiB in float32, 2.9 with a bf16 copy)."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        return config.num_hidden_layers * 2 * sbh / outside
    split = 24 * sbh
    if recompute == "none" and attention == "eager":
        split += (5 if dropout else 2) * heads * seq * seq * batch
    if recompute == "none" and attention == "sdpa":
        split += 4 * heads * batch * seq
    layer = (10 if dropout else 8) * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits and recompute == "none" else 0
    return config.num_hidden_layers * layer + end


@misconception()
def activations_two_byte_masks(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """A dropout mask is one byte a value. (Two bytes is what torch's *CPU* dropout keeps: 60 s b h
    where the formula says 54.)"""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += (6 if dropout else 2) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = (12 if dropout else 8) * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


@misconception()
def dropout_off_frees_masks_only(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """Without dropout the masks go, and so does the second copy of the probabilities: dropout's
    output is softmax's output, one tensor. 2 a s / h is left of the 5."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += (5 if dropout else 4) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = (10 if dropout else 8) * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


@misconception()
def dropout_does_not_matter(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """34 + 5as/h counts three dropout masks and dropout's own output; with dropout=False they are
    not there."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += 5 * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = 10 * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


@misconception()
def fused_kernel_keeps_nothing(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """A fused kernel recomputes the probabilities in backward, and for that it keeps one float32
    log-sum-exp a query and head: 4 a b s bytes."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += (5 if dropout else 2) * heads * seq * seq * batch
        layer = (10 if dropout else 8) * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


@misconception()
def tensor_parallelism_divides_everything(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """Tensor parallelism alone leaves 10 s b h whole on every rank: norms', blocks' inputs and
    masks. Only sequence parallelism splits those: 0.539 GiB a layer of GPT-3 on 8 ranks without
    it, 0.334 with it."""
    sbh, heads = seq * batch * config.hidden_size, config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh
    else:
        layer = (34 if dropout else 32) * sbh
        if recompute == "none" and attention == "eager":
            layer += (5 if dropout else 2) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            layer += 4 * heads * batch * seq
    end = 4 * batch * seq * config.vocab_size if logits else 0
    return (config.num_hidden_layers * layer + end) / tp


@misconception()
def activations_of_one_layer(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """The formula is for one layer, and all num_hidden_layers wait for backward. Even with full
    recomputation each of them keeps its input."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 2 * sbh / outside
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += (5 if dropout else 2) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = (10 if dropout else 8) * sbh / outside + split / tp
    return layer + (4 * batch * seq * config.vocab_size / tp if logits else 0)


@misconception()
def full_recompute_keeps_nothing(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    """A checkpointed layer keeps its 16-bit input, 2 s b h bytes: backward has to start the
    recomputation from something."""
    sbh, outside = seq * batch * config.hidden_size, tp if sp else 1
    heads = config.num_attention_heads
    if recompute == "full":
        layer = 0
    else:
        split = 24 * sbh
        if recompute == "none" and attention == "eager":
            split += (5 if dropout else 2) * heads * seq * seq * batch
        if recompute == "none" and attention == "sdpa":
            split += 4 * heads * batch * seq
        layer = (10 if dropout else 8) * sbh / outside + split / tp
    end = 4 * batch * seq * config.vocab_size / tp if logits else 0
    return config.num_hidden_layers * layer + end


activations_of_the_config_s_heads = lines(
    """The formula's layer is a GPT's: Q, K, V and the projection's input are hidden_size wide each,
    whatever the config's head_dim and key/value heads are.""",
    (
        "split = (2 + 2 + 2 + 2 + 8 + 8) * sbh",
        "width = (heads + config.num_key_value_heads) * config.head_dim\n"
        "        split = 4 * seq * batch * width + (8 + 8) * sbh",
    ),
)


activations_of_kv_heads = lines(
    """Every *query* head has its probabilities: a is num_attention_heads, also where key/value
    heads are fewer.""",
    ("heads = config.num_attention_heads", "heads = config.num_key_value_heads"),
)


activations_of_the_config_s_mlp = lines(
    """The formula's MLP is 4 hidden_size wide, whatever intermediate_size says: 8 + 8 bytes for
    each of s b h.""",
    ("8 + 8) * sbh", "0) * sbh + 4 * seq * batch * config.intermediate_size"),
)


one_head_s_square = lines(
    """Every head has an s x s of its own: the square term carries a factor a.""",
    ("* heads * seq * seq * batch", "* seq * seq * batch"),
)


log_sum_exp_in_16_bit = lines(
    """The log-sum-exp is float32 whatever the dtype of the activations: 4 a b s bytes.""",
    ("split += 4 * heads", "split += 2 * heads"),
)


selective_keeps_the_log_sum_exp = lines(
    """The log-sum-exp is made between Q, K, V and the projection's input, so selective
    recomputation makes it again and does not keep it.""",
    (
        'if recompute == "none" and attention == "sdpa"',
        'if attention == "sdpa"',
    ),
)


selective_drops_q_k_and_v = lines(
    """Selective recomputation starts from Q, K and V, so these stay: of 34 s b h it frees
    nothing.""",
    ("8 + 8) * sbh", '8 + 8 - 6 * (recompute == "selective")) * sbh'),
)


full_recompute_keeps_one_layer = lines(
    """Every layer's input waits for backward: full recomputation keeps 2 s b h for each layer, not
    for one.""",
    (
        "total = config.num_hidden_layers * layer",
        'total = layer if recompute == "full" else config.num_hidden_layers * layer',
    ),
)


sequence_parallelism_does_nothing = lines(
    """Sequence parallelism splits what tensor parallelism leaves whole: with it all of a layer's
    activations are over t.""",
    ("outside = tp if sp else 1", "outside = 1"),
)


logits_in_16_bit = lines(
    """The loss keeps its log-probabilities in float32: four bytes for each position and vocabulary
    entry.""",
    ("total += 4 * batch", "total += 2 * batch"),
)


logits_of_the_last_position = lines(
    """In training every position predicts its next token, so all b s of them have logits; one
    position a sequence is enough for decoding only.""",
    ("total += 4 * batch * seq", "total += 4 * batch"),
)


statistics_counted_too = lines(
    """The statistics of the LayerNorms are not counted here, as in the paper: two numbers a token
    and norm beside 34 h bytes.""",
    ("layer = whole / outside", "layer = 8 * batch * seq + whole / outside"),
)
