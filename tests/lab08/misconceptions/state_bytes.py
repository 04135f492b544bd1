from grader.lab.skeleton import changed
from grader.suite import lines, misconception

ledger_in_gib = lines(
    """The dict is in bytes; GB and GiB are for printing, and differ by 7.4 %: 120 GB are 111.8
    GiB.""",
    (
        'return held | {"total": sum(held.values())}',
        "held = {name: size / 1024**3 for name, size in held.items()}\n"
        '    return held | {"total": sum(held.values())}',
    ),
)

ledger_in_gb = lines(
    """The dict is in bytes, not in GB: a caller who wants GB divides by 10**9 when it prints.""",
    (
        'return held | {"total": sum(held.values())}',
        "held = {name: size / 10**9 for name, size in held.items()}\n"
        '    return held | {"total": sum(held.values())}',
    ),
)

gradients_sharded_at_stage_1 = lines(
    """Stage 1 shards the optimizer's states only: each rank still holds every gradient, which is
    the difference between 31.4 and 16.6 GB.""",
    ("2 else P", "1 else P"),
)

parameters_sharded_at_stage_2 = lines(
    """Stage 2 keeps every parameter on every rank, because forward needs them all; only stage 3
    gathers them when they are needed: 16.6 GB, not 1.88.""",
    ("3 else P", "2 else P"),
)


def _stage(text, name, first):
    """That state is sharded from another stage on."""
    old = {"param": 3, "grad": 2, "opt": 1}[name]
    return changed(
        text,
        (
            f"{name} * (shard if stage >= {old} else P)",
            f"{name} * (shard if stage >= {first} else P)",
        ),
    )


@misconception(file="zero_memory_accounting.py")
def everything_sharded_at_stage_1(text):
    """ZeRO-1 does not shard everything: parameters and gradients stay whole, 31.4 GB and not
    1.88."""
    return _stage(_stage(text, "grad", 1), "param", 1)


gradients_whole_at_stage_2 = lines(
    """Stage 2 is the one that shards gradients: a gradient that was sent to its owner is freed,
    16.6 GB and not 31.4.""",
    ("2 else P", "3 else P"),
)

one_stage_one_state = lines(
    """Stages add up: stage 3 shards parameters AND gradients AND the optimizer's states.""",
    (
        '"param": param * (shard if stage >= 3 else P),\n'
        '        "grad": grad * (shard if stage >= 2 else P),\n'
        '        "opt": opt * (shard if stage >= 1 else P),',
        '"param": param * (shard if stage == 3 else P),\n'
        '        "grad": grad * (shard if stage == 2 else P),\n'
        '        "opt": opt * (shard if stage == 1 else P),',
    ),
)

optimizer_is_never_sharded = lines(
    """The optimizer's states are what is sharded first, from stage 1 on: they are 12 of the 16
    bytes.""",
    ("opt * (shard if stage >= 1 else P)", "opt * P"),
)

no_master_copy = lines(
    """Mixed precision keeps a float32 master copy of the parameters beside Adam's two moments: 12
    bytes, not 8. At N = 64 it hardly shows (30.9 against 31.4 GB), at N = 4 it is 45.0 against
    52.5.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4),', '"bf16_mixed": (2, 2, 4 + 4),'),
)

master_copy_is_a_parameter = lines(
    """The float32 master copy belongs to the optimizer, which alone reads it, and is sharded with
    it from stage 1 on; only the 16-bit copy is what forward computes with.""",
    ('"bf16_mixed": (2, 2, 4 + 4 + 4),', '"bf16_mixed": (2 + 4, 2, 4 + 4),'),
)

master_copy_stays_whole = lines(
    """All of the optimizer's states are sharded, its master copy too: a rank that never steps an
    element has no use for that element's master.""",
    (
        "opt * (shard if stage >= 1 else P)",
        "(opt - master) * (shard if stage >= 1 else P) + master * P",
    ),
    ("    held = {\n", '    master = 0 if recipe == "fp32" else 4\n    held = {\n'),
)

master_copy_of_float32 = lines(
    """Where the parameters are float32 already, they are their own master: 16 bytes in all, not
    20.""",
    ('"fp32": (4, 4, 4 + 4),', '"fp32": (4, 4, 4 + 4 + 4),'),
)

float32_gradients_come_on_top = lines(
    """`bf16_fp32grads` keeps its gradients in float32 INSTEAD of bf16: 2 + 4 + 12 = 18 bytes, not
    20.""",
    ('"bf16_fp32grads": (2, 4, 4 + 4 + 4),', '"bf16_fp32grads": (2, 2 + 4, 4 + 4 + 4),'),
)

gradients_in_the_parameters_dtype = lines(
    """In `bf16_fp32grads` gradients are accumulated in float32, 4 bytes although the parameters
    have 2; Megatron's 18 bytes instead of 16.""",
    ('"bf16_fp32grads": (2, 4, 4 + 4 + 4),', '"bf16_fp32grads": (2, 2, 4 + 4 + 4),'),
)

no_float32_copy_of_the_gradients = lines(
    """With 16-bit gradients the optimizer makes a float32 copy of its share before it steps: 4 +
    16/N bytes, not 4 + 12/N.""",
    ('"fp16_fp16grads": (2, 2, 4 + 4 + 4 + 4),', '"fp16_fp16grads": (2, 2, 4 + 4 + 4),'),
)

float32_copy_is_a_gradient = lines(
    """The float32 copy of the gradients is the optimizer's and is sharded with its states at stage
    1; counted as a gradient it would stay whole, 8 + 12/N bytes instead of 4 + 16/N.""",
    ('"fp16_fp16grads": (2, 2, 4 + 4 + 4 + 4),', '"fp16_fp16grads": (2, 2 + 4, 4 + 4 + 4),'),
)

deepspeed_keeps_gradients_at_stage_3 = lines(
    """DeepSpeed's stage 3 keeps 18 bytes a parameter, not 20: a layer's 16-bit gradients are gone
    when its backward ends, and are counted with the layer that is gathered (4 bytes of the
    largest).""",
    ("0 if stage == 3 else 2", "2"),
)

the_tail_is_dropped = lines(
    """P // N drops up to N - 1 elements that no rank would step: the buffer is padded, a share is
    ceil(P / N).""",
    ("shard = -(-P // N)", "shard = P // N"),
)

shares_are_fractions = lines(
    """No rank holds a fraction of an element: the buffer is padded until N divides it, and every
    rank holds ceil(P / N) elements, a whole number of bytes.""",
    ("shard = -(-P // N)", "shard = P / N"),
)

bytes_are_rounded_up = lines(
    """What is rounded up are elements, not bytes: 12 bytes of an element stay together, so a share
    is 12 * ceil(P / N) and not ceil(12 P / N).""",
    (
        '"param": param * (shard if stage >= 3 else P),\n'
        '        "grad": grad * (shard if stage >= 2 else P),\n'
        '        "opt": opt * (shard if stage >= 1 else P),',
        '"param": -(-param * P // (N if stage >= 3 else 1)),\n'
        '        "grad": -(-grad * P // (N if stage >= 2 else 1)),\n'
        '        "opt": -(-opt * P // (N if stage >= 1 else 1)),',
    ),
)

bytes_of_all_ranks = lines(
    """The dict is what ONE rank keeps; all ranks together keep N times as much.""",
    (
        'return held | {"total": sum(held.values())}',
        "held = {name: N * size for name, size in held.items()}\n"
        '    return held | {"total": sum(held.values())}',
    ),
)

total_without_parameters = lines(
    """`total` is the sum of all three, the parameters included.""",
    ("sum(held.values())", 'held["grad"] + held["opt"]'),
)


shares_go_through_a_float = lines(
    """P / N is a float, which has 53 bits: beyond 9e15 the share is off by elements. -(-P // N) is
    the ceiling in whole numbers.""",
    ("shard = -(-P // N)", "shard = math.ceil(P / N)"),
)


@misconception(file="zero_memory_accounting.py")
def parameters_before_gradients(text):
    """Stage 2 shards gradients and stage 3 the parameters, not the other way round: parameters are
    what forward needs, so they are the last to go."""
    return _stage(_stage(text, "grad", 3), "param", 2)


whole_states_are_padded_too = lines(
    """Only what is cut is padded: a state that is still whole on every rank has P elements. These
    whole ones have N * ceil(P / N), the length of the padded buffer.""",
    ("    held = {\n", "    whole = shard * N if stage >= 1 else P\n    held = {\n"),
    ("(shard if stage >= 3 else P)", "(shard if stage >= 3 else whole)"),
    ("(shard if stage >= 2 else P)", "(shard if stage >= 2 else whole)"),
)

stages_between_pass = lines(
    """There are four stages and nothing between them: 1.5 lies between 0 and 3, so a check of these
    ends alone lets it pass.""",
    ("if stage not in (0, 1, 2, 3):", "if not 0 <= stage <= 3:"),
    gate=False,
)
