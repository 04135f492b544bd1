from grader.suite import misconception


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
