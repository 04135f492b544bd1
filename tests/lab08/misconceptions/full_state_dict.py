from grader.suite import lines

one_shard_is_saved = lines(
    """Rank 0 saves what it has, the first of N shards; the file looks whole, and all that the other
    ranks own is lost with the job.""",
    (
        "dist.gather(shard[key], parts, group=pg, group_dst=0)",
        "parts = parts and [shard[key], *(torch.zeros_like(part) for part in parts[1:])]",
    ),
)

shards_are_interleaved = lines(
    """Shards are put together element by element, one of each rank in turn; a rank holds a
    contiguous slice of the flat buffer, so they lie end to end.""",
    ("torch.cat(parts)", "torch.stack(parts, dim=1).reshape(-1)"),
)

padding_is_saved = lines(
    """The last parameter is given all that is left, the padding with it: a bias of 7 elements is
    saved with more, and no model with another number of ranks can load it.""",
    (
        "whole[key][name] = flat[begin : begin + p.numel()].view(p.shape).clone()",
        "end = None if name == [*params][-1] else begin + p.numel()\n"
        "                whole[key][name] = flat[begin:end].view(-1, *p.shape[1:]).clone()",
    ),
)

step_is_not_saved = lines(
    """The step counter is not in the file: AdamW corrects full-grown moments as if it were step 1,
    and with the default betas the first update has 0.32 times its size.""",
    ('{"step": shard["step"], **moments}', "moments"),
)

moments_are_not_saved = lines(
    """Only the step and the weights are saved; AdamW starts with empty moments, and the loss jumps
    at every restart.""",
    ('{"step": shard["step"], **moments}', '{"step": shard["step"]}'),
)

keys_of_a_wrapper = lines(
    """Keys begin with "module.": they are a wrapper's, and the plain model that evaluates or serves
    these weights finds none of its own.""",
    ("state[name] =", 'state["module." + name] ='),
)

parameters_alone = lines(
    """Only what an optimizer steps on is saved: running statistics, frozen layers and a tied
    weight's second name are missing, and load_state_dict refuses the file.""",
    ('return {"model": state,', 'return {"model": whole["param"],'),
)

second_name_is_stale = lines(
    """A tied weight's second name is looked up in the model, where weights are stale or freed; both
    names must get the shard's numbers.""",
    ("first_name.get(id(value))", "name if name in params else None"),
)

checkpoints_are_float32 = lines(
    """Everything is saved in float32, whatever it was: a float64 run loses digits, and a bfloat16
    one gets a file twice the size that loads as another dtype.""",
    ("torch.cat(parts)", "torch.cat(parts).float()"),
)

everybody_gathers = lines(
    """all_gather brings the whole state to every rank, 12 bytes a parameter or more where only 1/N
    of that fits, and all but rank 0's is thrown away.""",
    (" for _ in range(world_size)] if rank == 0 else None", " for _ in range(world_size)]"),
    (
        "dist.gather(shard[key], parts, group=pg, group_dst=0)",
        "dist.all_gather(parts, shard[key], group=pg)",
    ),
)

everybody_returns_it = lines(
    """Every rank returns the whole checkpoint, so N of them are in memory and N processes write the
    same file.""",
    (" for _ in range(world_size)] if rank == 0 else None", " for _ in range(world_size)]"),
    (
        "dist.gather(shard[key], parts, group=pg, group_dst=0)",
        "dist.all_gather(parts, shard[key], group=pg)",
    ),
    ("    if rank != 0:\n        return None\n", ""),
)

weights_are_read_from_the_model = lines(
    """The parameters are those of the module, which may be stale or freed: with sharded parameters
    it holds nothing. The numbers are in the shards.""",
    (
        'if known is not None:\n            value = whole["param"][known]\n        elif',
        "if",
    ),
)

views_of_the_buffer = lines(
    """Each tensor is a view of the flat buffer: torch.save writes all of that buffer, padding and
    all, and nothing of it is freed while one tensor lives.""",
    (".view(p.shape).clone()", ".view(p.shape)"),
)

shared_with_the_model = lines(
    """Buffers and frozen parameters of the checkpoint are the model's own tensors: the next forward
    changes running statistics in it, while it is being written.""",
    ("value = value.detach().clone()", "value = value.detach()"),
)

frozen_parameters_take_a_place = lines(
    """Frozen parameters are given a place in the flat buffer; they are in no shard, and all that
    comes after them is read from the wrong place.""",
    ("model.named_parameters() if p.requires_grad}", "model.named_parameters()}"),
)

all_is_received_in_the_parameters_dtype = lines(
    """What rank 0 receives into has the dtype of the parameters' shard for the moments, too, and
    these may have another, such as float32 beside bfloat16. Each of the three needs tensors of its
    own dtype.""",
    ("torch.empty_like(shard[key])", 'torch.empty_like(shard["param"])'),
)

the_step_starts_again = lines(
    """The step counter is saved as 0: AdamW corrects full-grown moments as if it were step 1, and
    with the default betas the first update has 0.32 times its size.""",
    ('{"step": shard["step"], **moments}', '{"step": 0, **moments}'),
)

trainable_parameters_come_first = lines(
    """The keys are not in the order of model.state_dict(): trainable parameters stand first, with
    frozen ones, ties and buffers behind them.""",
    ("    state = {}\n", '    state = dict(whole["param"])\n'),
)

parameters_get_the_models_dtype = lines(
    """Parameters are cast to the dtype that they have in the model: where the shards have another
    one, a checkpoint of float32 shards and a bfloat16 model say, the saved numbers are rounded. A
    checkpoint keeps the dtypes of the shards.""",
    ('value = whole["param"][known]', 'value = whole["param"][known].to(value.dtype)'),
    gate=False,
)

everything_is_a_tensor = lines(
    """A state dict may hold values that are not tensors: whatever a module's get_extra_state
    returns. Clone the tensors, and take the rest as it is.""",
    ("elif isinstance(value, Tensor):", "else:"),
    gate=False,
)
