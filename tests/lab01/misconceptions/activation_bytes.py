from grader.suite import lines

tensor_parallelism_splits_the_layer_s_input = lines(
    """Tensor parallelism leaves a layer's input whole on every rank; only sequence parallelism
    splits it.""",
    ("layer = 2 * sbh / outside", "layer = 2 * sbh / tp"),
)


activations_without_square = lines(
    """Eager attention keeps the probabilities, one for each query, key and head: 5 a s^2 b bytes
    that 34 s b h leaves out. At long context they are the larger part.""",
    ("split += (2 + 3 * mask) * heads * seq * seq * batch", "split += 0"),
)


checkpointing_frees_the_logits = lines(
    """Checkpointing recomputes *layers*; the logits come after the last one and stay (Llama-2-7B,
    batch 4, 4,096 tokens: 2.0 GiB in float32, 2.9 with a bf16 copy).""",
    ("if logits:", 'if logits and recompute == "none":'),
)


full_recompute_frees_the_logits = lines(
    """Checkpointing recomputes *layers*; the logits come after the last one and stay (Llama-2-7B,
    batch 4, 4,096 tokens: 2.0 GiB in float32, 2.9 with a bf16 copy).""",
    ("if logits:", 'if logits and recompute != "full":'),
)


activations_two_byte_masks = lines(
    """A dropout mask is one byte a value. (Two bytes is what torch's *CPU* dropout keeps: 60 s b h
    where the formula says 54.)""",
    ("2 + 2 * mask) * sbh", "2 + 4 * mask) * sbh"),
    ("(2 + 3 * mask)", "(2 + 4 * mask)"),
)


two_byte_residual_masks = lines(
    """A dropout mask is one byte a value. (Two bytes is what torch's *CPU* dropout keeps: 60 s b h
    where the formula says 54.)""",
    ("2 + 2 * mask) * sbh", "2 + 4 * mask) * sbh"),
)


two_byte_masks_of_the_probabilities = lines(
    """A dropout mask is one byte a value. (Two bytes is what torch's *CPU* dropout keeps: 60 s b h
    where the formula says 54.)""",
    ("(2 + 3 * mask)", "(2 + 4 * mask)"),
)


dropout_off_frees_masks_only = lines(
    """Without dropout the masks go, and so does the second copy of the probabilities: dropout's
    output is softmax's output, one tensor. 2 a s / h is left of the 5.""",
    ("(2 + 3 * mask)", "(4 + mask)"),
)


dropout_does_not_matter = lines(
    """34 + 5as/h counts three dropout masks and dropout's own output; with dropout=False they are
    not there.""",
    ("mask = 1 if dropout else 0", "mask = 1"),
)


dropout_does_not_matter_to_the_residuals = lines(
    """34 + 5as/h counts three dropout masks and dropout's own output; with dropout=False they are
    not there.""",
    ("2 + 2 * mask) * sbh", "2 + 2) * sbh"),
)


dropout_does_not_matter_to_attention = lines(
    """34 + 5as/h counts three dropout masks and dropout's own output; with dropout=False they are
    not there.""",
    ("(2 + 3 * mask)", "(2 + 3)"),
)


fused_kernel_keeps_nothing = lines(
    """A fused kernel recomputes the probabilities in backward, and for that it keeps one float32
    log-sum-exp a query and head: 4 a b s bytes.""",
    ("split += 4 * heads * batch * seq", "split += 0"),
)


tensor_parallelism_divides_everything = lines(
    """Tensor parallelism alone leaves 10 s b h whole on every rank: norms', blocks' inputs and
    masks. Only sequence parallelism splits those: 0.539 GiB a layer of GPT-3 on 8 ranks without
    it, 0.334 with it.""",
    ("outside = tp if sp else 1", "outside = tp"),
)


activations_of_one_layer = lines(
    """The formula is for one layer, and all num_hidden_layers wait for backward. Even with full
    recomputation each of them keeps its input.""",
    ("total = config.num_hidden_layers * layer", "total = layer"),
)


full_recompute_keeps_nothing = lines(
    """A checkpointed layer keeps its 16-bit input, 2 s b h bytes: backward has to start the
    recomputation from something.""",
    ("layer = 2 * sbh / outside", "layer = 0"),
)


activations_of_the_config_s_heads = lines(
    """The formula's layer is a GPT's: Q, K, V and the projection's input are hidden_size wide
    each, whatever the config's head_dim and key/value heads are.""",
    (
        "split = (2 + 2 + 2 + 2 + 8 + 8) * sbh",
        "width = (heads + config.num_key_value_heads) * config.head_dim\n"
        "        split = 4 * seq * batch * width + (8 + 8) * sbh",
    ),
)


activations_of_the_config_s_head_dim = lines(
    """The formula's layer is a GPT's: Q, K, V and the projection's input are hidden_size wide
    each, whatever the config's head_dim and key/value heads are.""",
    (
        "split = (2 + 2 + 2 + 2 + 8 + 8) * sbh",
        "split = (2 + 8 + 8) * sbh + 3 * 2 * seq * batch * heads * config.head_dim",
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


full_recompute_keeps_float32_inputs = lines(
    """A checkpointed layer's input is a 16-bit activation like the others: 2 s b h bytes, not
    4.""",
    ("layer = 2 * sbh / outside", "layer = 4 * sbh / outside"),
)


fused_kernel_keeps_its_mask = lines(
    """A fused kernel draws its dropout mask again in backward, from the seed: nothing of size s x
    s stays.""",
    ("split += 4 * heads * batch * seq", "split += (4 + mask * seq) * heads * batch * seq"),
)


fused_kernel_keeps_maximum_and_sum = lines(
    """A row's maximum and the sum of its exponentials are kept as one number, the log-sum-exp: 4 a
    b s bytes, not 8.""",
    ("split += 4 * heads * batch * seq", "split += 8 * heads * batch * seq"),
)


log_sum_exp_of_a_token = lines(
    """Every head has a softmax of its own, so each query has a log-sum-exp in each of the a
    heads.""",
    ("split += 4 * heads * batch * seq", "split += 4 * batch * seq"),
)


selective_frees_nothing = lines(
    """Selective recomputation keeps nothing of size s x s: the probabilities, their mask and
    dropout's output are made again from Q, K and V.""",
    ('recompute == "none" and attention == "eager"', 'attention == "eager"'),
)


selective_keeps_the_mask = lines(
    """What dropout hides is drawn again from the seed: selective recomputation frees the mask with
    the probabilities.""",
    (
        "layer = whole / outside + split / tp",
        'if recompute == "selective" and attention == "eager":\n'
        "            split += mask * heads * seq * seq * batch\n"
        "        layer = whole / outside + split / tp",
    ),
)


logits_of_every_layer = lines(
    """The head stands once, after the last layer: its logits are not multiplied by the number of
    layers.""",
    (
        "total += 4 * batch * seq * config.vocab_size / tp",
        "total += config.num_hidden_layers * 4 * batch * seq * config.vocab_size / tp",
    ),
)


logits_twice = lines(
    """What the loss keeps for backward is its float32 log-probabilities, four bytes an entry: the
    16-bit logits that it was given are not kept beside them.""",
    (
        "total += 4 * batch * seq * config.vocab_size / tp",
        "total += 6 * batch * seq * config.vocab_size / tp",
    ),
)


tensor_parallelism_leaves_the_square = lines(
    """A rank has a share of the heads, and each head's s x s is on one rank only: the square term
    is divided by t too.""",
    ("heads * seq * seq * batch", "heads * seq * seq * batch * tp"),
)


tensor_parallelism_of_the_mlp_only = lines(
    """Tensor parallelism splits the heads as it splits the MLP's inside: Q, K, V, what they make
    and the output projection's input are over t.""",
    ("split = (2 + 2 + 2 + 2 + 8 + 8) * sbh", "split = (8 * tp + 8 + 8) * sbh"),
    ("heads * seq * seq * batch", "heads * seq * seq * batch * tp"),
)


tensor_parallelism_of_attention_only = lines(
    """The MLP is split by its columns as attention is by its heads: the inputs of GELU and of the
    second linear are over t.""",
    ("split = (2 + 2 + 2 + 2 + 8 + 8) * sbh", "split = (2 + 2 + 2 + 2 + 16 * tp) * sbh"),
)


tensor_parallelism_splits_the_masks = lines(
    """The residual dropouts come after the ranks' sums are added up, on whole vectors: without
    sequence parallelism each rank has the whole masks.""",
    ("whole = (2 + 2 + 2 + 2 + 2 * mask) * sbh", "whole = (2 + 2 + 2 + 2) * sbh"),
    (
        "split = (2 + 2 + 2 + 2 + 8 + 8) * sbh",
        "split = (2 + 2 + 2 + 2 + 8 + 8 + 2 * mask) * sbh",
    ),
)


tensor_parallelism_splits_the_blocks_inputs = lines(
    """Each rank multiplies the whole input of a block by its columns of the weights: inputs of QKV
    and of the MLP stay whole, as the norms' inputs do.""",
    ("whole = (2 + 2 + 2 + 2 + 2 * mask) * sbh", "whole = (2 + 2 + 2 * mask) * sbh"),
    (
        "split = (2 + 2 + 2 + 2 + 8 + 8) * sbh",
        "split = (2 + 2 + 2 + 2 + 2 + 2 + 8 + 8) * sbh",
    ),
)

activation_log_sum_exp_whole = lines(
    """The log-sum-exp of the fused kernel is taken to be whole on every rank; it has a number for
    each head and row, and heads are split by tensor parallelism.""",
    (
        "            split += 4 * heads * batch * seq\n",
        "            whole += 4 * heads * batch * seq\n",
    ),
    gate=False,
)


one_sequence_s_vectors = lines(
    """Every sequence of the batch keeps its own vectors: the 34 bytes are multiplied by s b h, not
    by s h.""",
    ("sbh = seq * batch * config.hidden_size", "sbh = seq * config.hidden_size"),
)


one_sequence_s_square = lines(
    """Every sequence of the batch has scores of its own: the square term is 5 a s^2 b.""",
    ("* heads * seq * seq * batch", "* heads * seq * seq"),
)


square_term_is_linear = lines(
    """There is a probability for each query *and* key: the term grows with the square of s.""",
    ("* heads * seq * seq * batch", "* heads * seq * batch"),
)


causal_half_of_the_square = lines(
    """Eager attention keeps the whole s x s, the masked half too: it holds zeros, and they take
    memory like other numbers.""",
    ("* heads * seq * seq * batch", "* heads * seq * seq / 2 * batch"),
)


five_a_s_over_h_rounded_down = lines(
    """5 a s / h is a fraction: rounded down to a whole number before it is multiplied by s b h, it
    loses bytes for every value.""",
    (
        "split += (2 + 3 * mask) * heads * seq * seq * batch",
        "split += (2 + 3 * mask) * heads * seq // config.hidden_size * sbh",
    ),
)


five_a_s_over_h_outside_the_brackets = lines(
    """s b h multiplies both terms in the brackets, 34 and 5 a s / h.""",
    (
        "split += (2 + 3 * mask) * heads * seq * seq * batch",
        "split += (2 + 3 * mask) * heads * seq / config.hidden_size",
    ),
)


softmax_keeps_its_input_too = lines(
    """Softmax keeps its output and not its input: the scores are gone once the probabilities are
    made.""",
    ("(2 + 3 * mask)", "(4 + 3 * mask)"),
)


probabilities_without_dropout_s_output = lines(
    """Dropout's output is one more tensor of 16 bits: the product with V keeps it beside softmax's
    output and the mask.""",
    ("(2 + 3 * mask)", "(2 + mask)"),
)


probabilities_without_their_mask = lines(
    """Dropout on the probabilities has a mask like the others, one byte for each query, key and
    head: 5 bytes in all, not 4.""",
    ("(2 + 3 * mask)", "(2 + 2 * mask)"),
)


dropout_off_keeps_the_mask = lines(
    """With p = 0 there is no mask to keep, and the probabilities are one tensor: 2 a s / h is left
    of the 5.""",
    ("(2 + 3 * mask)", "(3 + 2 * mask)"),
)


dropout_off_frees_the_probabilities = lines(
    """The product with V needs the probabilities, with dropout or without: one copy of two bytes
    stays.""",
    ("(2 + 3 * mask)", "5 * mask"),
)


one_residual_mask = lines(
    """Both residual branches have dropout, attention's and the MLP's: two masks of one byte.""",
    ("2 + 2 * mask) * sbh", "2 + mask) * sbh"),
)


no_residual_masks = lines(
    """Both residual branches have dropout, attention's and the MLP's: two masks of one byte.""",
    ("2 + 2 * mask) * sbh", "2) * sbh"),
)


norms_without_their_inputs = lines(
    """A LayerNorm keeps its input, and the block behind it keeps what the norm makes of it: two
    tensors each time, 8 s b h in all.""",
    ("(2 + 2 + 2 + 2 + 2 * mask)", "(2 + 2 + 2 * mask)"),
)


gelu_without_its_input = lines(
    """GELU keeps its input, and the second linear keeps what GELU makes of it: two tensors of 4 h,
    16 s b h in all.""",
    ("8 + 8) * sbh", "8) * sbh"),
)


mlp_as_wide_as_hidden = lines(
    """The inside of the MLP is four times as wide as the model: its two tensors take 8 s b h
    each.""",
    ("8 + 8) * sbh", "2 + 2) * sbh"),
)


output_projection_without_its_input = lines(
    """The output projection is a linear and keeps its input: 2 s b h beside Q, K and V.""",
    ("(2 + 2 + 2 + 2 + 8 + 8)", "(2 + 2 + 2 + 8 + 8)"),
)


fused_kernel_makes_no_difference = lines(
    """A fused kernel keeps nothing of size s x s: with attention="sdpa" the square term goes, and
    a log-sum-exp comes.""",
    ('and attention == "eager"', 'and attention != ""'),
    ("split += 4 * heads * batch * seq", "split += 0"),
)


fused_kernel_keeps_the_square_too = lines(
    """A fused kernel keeps nothing of size s x s: with attention="sdpa" the square term goes, and
    a log-sum-exp comes.""",
    ('and attention == "eager"', 'and attention != ""'),
)


fused_kernel_keeps_its_output_twice = lines(
    """The fused kernel's output is the output projection's input, one tensor: it is counted there
    already.""",
    (
        "split += 4 * heads * batch * seq",
        "split += 4 * heads * batch * seq + 2 * sbh",
    ),
)


fused_kernel_always_with_masks = lines(
    """34 s b h counts the masks of the two residual branches: without dropout they are gone with
    attention="sdpa" too.""",
    ("mask = 1 if dropout else 0", 'mask = 1 if dropout or attention == "sdpa" else 0'),
)


selective_drops_the_projection_s_input = lines(
    """Selective recomputation ends where the output projection begins: the projection's input
    stays, 2 s b h.""",
    ("8 + 8) * sbh", '8 + 8 - 2 * (recompute == "selective")) * sbh'),
)


selective_keeps_the_probabilities = lines(
    """Softmax lies between Q, K, V and the output projection, so its output is computed again:
    with selective recomputation none of the square term is kept.""",
    (
        "layer = whole / outside + split / tp",
        'if recompute == "selective" and attention == "eager":\n'
        "            split += 2 * heads * seq * seq * batch\n"
        "        layer = whole / outside + split / tp",
    ),
)


selective_is_full = lines(
    """Selective recomputation makes only attention's inside again: of 34 s b h everything stays;
    only "full" keeps the layer's input alone.""",
    ('if recompute == "full":', 'if recompute != "none":'),
)


full_is_selective = lines(
    """Full recomputation makes the whole layer again and keeps its input only, 2 s b h: 34 s b h
    is what selective recomputation keeps.""",
    ('if recompute == "full":', "if False:"),
)


full_recompute_with_a_layer_in_work = lines(
    """What a layer's recomputation makes in backward is not kept by forward: with full
    recomputation only the layers' inputs count.""",
    (
        "        layer = 2 * sbh / outside\n",
        "        layer = 2 * sbh / outside\n"
        "        work = 34 * sbh + 5 * heads * seq * seq * batch\n"
        "        layer += work / config.num_hidden_layers\n",
    ),
)


statistics_in_float32 = lines(
    """The statistics of the LayerNorms are not counted here, as in the paper: two numbers a token
    and norm beside 34 h bytes.""",
    ("layer = whole / outside", "layer = 16 * batch * seq + whole / outside"),
)


logits_never = lines(
    """With logits=True the log-probabilities that the loss keeps come on top of the layers.""",
    ("    if logits:\n", "    if False:\n"),
)


logits_and_log_probabilities = lines(
    """The loss keeps one float32 tensor of b s vocab_size, its log-probabilities: 4 bytes an
    entry, not 8.""",
    ("total += 4 * batch", "total += 8 * batch"),
)


tensor_parallelism_does_nothing = lines(
    """tp ranks share a layer: heads, the MLP's inside and what is s x s are divided by tp, and the
    figure asked for is one rank's.""",
    (
        "    heads = config.num_attention_heads\n",
        "    tp = 1\n    heads = config.num_attention_heads\n",
    ),
)


sequence_parallelism_leaves_the_blocks_inputs = lines(
    """With sequence parallelism a rank keeps its slice of the blocks' inputs as well and gathers
    them again in backward: everything is over t.""",
    (
        "layer = whole / outside + split / tp",
        "layer = (whole - 4 * sbh) / outside + 4 * sbh + split / tp",
    ),
)

full_recompute_ignores_sequence_parallelism = lines(
    """With sequence parallelism a checkpointed layer's input is a rank's slice, too: 2 s b h over
    t.""",
    ("layer = 2 * sbh / outside", "layer = 2 * sbh"),
    gate=False,
)

logits_whole_on_every_rank = lines(
    """The head's columns are split by tensor parallelism: each rank has its share of the
    vocabulary, so the logits are over t.""",
    ("config.vocab_size / tp", "config.vocab_size"),
    gate=False,
)

selective_always_with_masks = lines(
    """34 s b h counts the masks of the two residual branches: without dropout selective
    recomputation keeps 32 s b h.""",
    ("mask = 1 if dropout else 0", 'mask = 1 if dropout or recompute == "selective" else 0'),
    gate=False,
)

unknown_attention_is_not_refused = lines(
    """The check of `attention` is forgotten: what is neither "eager" nor "sdpa" must be a
    ValueError.""",
    (
        '    if attention not in ("eager", "sdpa"):\n'
        '        raise ValueError(f"attention is {attention!r}; it must be'
        " 'eager' or 'sdpa'.\")\n",
        "",
    ),
    gate=False,
)

unknown_recompute_is_not_refused = lines(
    """The check of `recompute` is forgotten: what is not "none", "selective" or "full" must be a
    ValueError.""",
    (
        '    if recompute not in ("none", "selective", "full"):\n'
        '        raise ValueError(f"recompute is {recompute!r}; it must be'
        " 'none', 'selective' or 'full'.\")\n",
        "",
    ),
    gate=False,
)

unknown_attention_passes_where_it_is_not_used = lines(
    """`attention` is checked only where the figure depends on it; an unknown one must be refused
    with recomputation too.""",
    (
        'if attention not in ("eager", "sdpa"):',
        'if recompute == "none" and attention not in ("eager", "sdpa"):',
    ),
    gate=False,
)

unknown_attention_passes_with_full_recomputation = lines(
    """`attention` is checked only where the figure depends on it; an unknown one must be refused
    with recomputation too.""",
    (
        'if attention not in ("eager", "sdpa"):',
        'if recompute != "full" and attention not in ("eager", "sdpa"):',
    ),
    gate=False,
)

modes_in_any_letters = lines(
    """Modes are made lower case before they are checked: "SDPA" and "Full" are not in the list, so
    they must be refused.""",
    (
        '    if attention not in ("eager", "sdpa"):\n',
        "    attention, recompute = attention.lower(), recompute.lower()\n"
        '    if attention not in ("eager", "sdpa"):\n',
    ),
    gate=False,
)
