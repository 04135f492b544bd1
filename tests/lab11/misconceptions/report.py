from grader.suite import lines

scales_are_free = lines(
    """Only codes are counted. Each group stores a scale as well: int4 with fp16 scales in groups of
    128 has 4.125 bits a weight, NF4 with float32 maxima of 64 has 4.5.""",
    ("scales * fmt.scale_bits,", "0,"),
)

zero_points_are_free = lines(
    """An asymmetric format stores a zero point beside each scale: 4 more bits a group.""",
    ("scales * fmt.zero_bits)", "0)"),
)

double_quantization_is_free = lines(
    """Scales of 8 bits are themselves quantized, and each `nested` of them keep a float32; with
    NF4's 256 that is 0.002 bits a weight, small but stored.""",
    ("shared = -(-scales // fmt.nested) if fmt.nested else 0", "shared = 0"),
)

the_tensors_own_bits_are_free = lines(
    """NVFP4 has one float32 for the whole tensor, without which its E4M3 scales mean nothing; it is
    stored with each layer.""",
    ("32 * shared, fmt.tensor_bits)", "32 * shared)"),
)

one_scale_a_tensor = lines(
    """group None was taken for one scale for the whole tensor; it is one for each row, N of
    them.""",
    (
        "scales = n * -(-k // (fmt.group or k))",
        "scales = n * -(-k // fmt.group) if fmt.group else 1",
    ),
)

scales_along_the_rows = lines(
    """Groups were taken along N. A scale covers weights of one output, which stand in one row: N
    times ceil(K / group) scales.""",
    ("scales = n * -(-k // (fmt.group or k))", "scales = k * -(-n // (fmt.group or n))"),
)

everything_is_quantized = lines(
    """Embedding and head were counted at the format's bits too. They stay in bf16, and in an 8B
    model with 128,256 tokens they are 2.1 GB, more than a third of the int4 file.""",
    (
        "for shape in model.linear.values()) + 2 * (\n        math.prod(model.head)"
        " + sum(math.prod(shape) for shape in model.other.values())\n    )",
        "for shape in [*model.linear.values(), model.head]) + sum(\n"
        "        _layer_bytes((math.prod(s[:-1]), s[-1]), fmt) for s in model.other.values()\n"
        "    )",
    ),
)

the_rest_in_float32 = lines(
    """What is not quantized was counted with 4 bytes. It stays in bf16, 2 bytes an element.""",
    (
        "for shape in model.linear.values()) + 2 * (",
        "for shape in model.linear.values()) + 4 * (",
    ),
)

fewer_bits_are_fewer_flops = lines(
    """Fewer bits were taken for fewer FLOPs, so W4A16 speeds up prefill: weights shrink, FLOPs do
    not; batch-1 decode gains, large-batch prefill does not. They are brought back to bf16 before
    they are multiplied.""",
    (
        "math.prod(shape) / gpu.flops[fmt.math]",
        "math.prod(shape) / (gpu.flops['bf16'] * 16 / fmt.code_bits)",
    ),
)

always_the_bf16_peak = lines(
    """Every format is multiplied at the bf16 peak, so FP8 and int8 gain nothing in prefill. Their
    tensor cores do twice as much: take gpu.flops[fmt.math].""",
    ("math.prod(shape) / gpu.flops[fmt.math]", "math.prod(shape) / gpu.flops['bf16']"),
)

times_are_added = lines(
    """Reading and multiplying were added up. A kernel reads the next weights while it multiplies
    these; a roofline takes the longer of the two.""",
    (
        "max(compute, _layer_bytes(shape, fmt) / gpu.bytes_per_s)",
        "compute + _layer_bytes(shape, fmt) / gpu.bytes_per_s",
    ),
)

one_bound_for_the_model = lines(
    """The longer time was taken once, of the sums over the whole model. Matrices run one after
    another: while one waits for memory, another one's spare FLOPs are of no use to it.""",
    (
        "    for shape in model.linear.values():\n"
        "        compute = 2 * tokens * math.prod(shape) / gpu.flops[fmt.math]\n"
        "        seconds += max(compute, _layer_bytes(shape, fmt) / gpu.bytes_per_s)\n"
        "    return seconds\n",
        "    flops = sum(2 * tokens * math.prod(s) for s in model.linear.values())\n"
        "    size = sum(_layer_bytes(s, fmt) for s in model.linear.values())\n"
        "    return seconds + max(flops / gpu.flops[fmt.math], size / gpu.bytes_per_s)\n",
    ),
)

a_multiply_add_is_one_flop = lines(
    """N * K multiply-adds were counted as N * K FLOPs. Peaks count a multiplication and an addition
    as two: 2 * tokens * N * K.""",
    ("compute = 2 * tokens * math.prod(shape)", "compute = tokens * math.prod(shape)"),
)

the_batch_is_read_again = lines(
    """The weights' bytes were multiplied with the tokens. A pass reads each weight once, for all of
    its tokens; that is why large batches are bound by FLOPs.""",
    (
        "max(compute, _layer_bytes(shape, fmt) / gpu.bytes_per_s)",
        "max(compute, tokens * _layer_bytes(shape, fmt) / gpu.bytes_per_s)",
    ),
)

the_head_is_forgotten = lines(
    """The head is left out. It is read for every token in bf16; beside 4-bit layers of an 8B model
    it is more than a fifth of the time of a step at batch 1.""",
    (
        'seconds = max(2 * head / gpu.flops["bf16"], 2 * head / gpu.bytes_per_s)',
        "seconds = 0.0",
    ),
)

logits_of_every_token = lines(
    """The head was run for every token of the prompt. Only the last one's logits are wanted.""",
    (
        'seconds = max(2 * head / gpu.flops["bf16"],',
        'seconds = max(2 * tokens * head / gpu.flops["bf16"],',
    ),
)

speed_up_is_upside_down = lines(
    """The plan's time over bf16's is a slow-down: below 1 where the plan is faster. A speed-up is
    bf16's time over the plan's.""",
    (
        "pass_seconds(model, BF16, gpu, tokens) /",
        "1 / pass_seconds(model, BF16, gpu, tokens) *",
    ),
)

decibels_of_a_power_twice = lines(
    """20 log10 belongs to a ratio of amplitudes. Sums of squares are powers: 10 log10.""",
    ("10 * math.log10(signal / noise)", "20 * math.log10(signal / noise)"),
)

noise_over_signal = lines(
    """Noise over signal has the wrong sign: a better format would have a lower figure. SQNR is 10
    log10(signal / noise).""",
    ("math.log10(signal / noise)", "math.log10(noise / signal)"),
)

mean_of_the_layers_decibels = lines(
    """Decibels were averaged over the layers. A mean of logarithms lets good layers hide a bad one;
    add up the squares of all layers, then take one ratio.""",
    (
        "        sums = torch.zeros(4, dtype=torch.float64)\n",
        "        sums, levels = torch.zeros(4, dtype=torch.float64), []\n",
    ),
    (
        "            sums += torch.stack([part.square().sum() for part in parts])\n",
        "            sums = torch.stack([part.square().sum() for part in parts])\n"
        "            each = [_decibel(float(sums[i]), float(sums[i + 1])) for i in (0, 2)]\n"
        "            levels.append(each)\n",
    ),
    (
        "[_decibel(float(sums[i]), float(sums[i + 1])) for i in (0, 2)]\n        found",
        "[sum(each) / len(each) for each in zip(*levels)]\n        found",
    ),
)

outputs_are_not_looked_at = lines(
    """The second SQNR is again that of the weights. An error counts as much as the input that it
    meets: in an outlier channel a small one is a large error of the output.""",
    ("parts = (w, noise, x @ w.T, x @ noise.T)", "parts = (w, noise, w, noise)"),
)

perplexity_of_the_original = lines(
    """The perplexity is that of the model as it was, the same in every row: the plan's weights were
    not put in the places of the layers'.""",
    ("{**weights, **plan.weights}", "weights"),
)

bits_of_the_layers_alone = lines(
    """Bytes of the whole model were divided by the parameters of the linear layers. Embedding, head
    and norms are parameters, too: divide by all of them.""",
    (
        "params = sum(one.numel() for one in weights.values())",
        "params = sum(weights[name].numel() for name in plans[0].weights)",
    ),
)

bits_are_rounded_up_together = lines(
    """The bits of a layer's arrays were added up and rounded to bytes once. Codes, scales and zero
    points are arrays of their own in a file, and each of them takes whole bytes.""",
    (
        "return sum(-(-bits // 8) for bits in (*arrays, 32 * shared, fmt.tensor_bits))",
        "return -(-sum((*arrays, 32 * shared, fmt.tensor_bits)) // 8)",
    ),
)

plans_pile_up = lines(
    """A plan's weights stayed in the model for the next plan, whose noise and perplexity are then
    measured against the plan before. Begin each row with the unquantized weights.""",
    (
        "        ppl = tiny_lm.perplexity({**weights, **plan.weights}, rows)\n",
        "        weights = {**weights, **plan.weights}\n"
        "        ppl = tiny_lm.perplexity(weights, rows)\n",
    ),
)

plans_in_memory_order = lines(
    """`view` needs a tensor that lies in memory row by row, and a transposed one does not;
    `reshape` copies where it must.""",
    ("noise = w - stored.double()", "noise = w - stored.view(-1).view(w.shape).double()"),
    gate=False,
)
