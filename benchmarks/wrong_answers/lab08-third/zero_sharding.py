"""Lab 08: ZeRO-1, 2 and 3 from collectives.

N data-parallel ranks need not hold everything N times. First the optimizer's state is cut into N
slices, then the gradients, then the parameters; what travels is a reduce-scatter of gradients and
an all-gather of parameters, over gloo on a CPU. Everything here is *flat*: parameters are laid end
to end, padded with zeros to a multiple of N, and rank r owns the r-th of N equal slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only


def one_dtype(params: Sequence[Tensor]) -> torch.dtype:
    """Given: the dtype of all of them; ValueError where they have several, or where none is."""
    found = sorted({str(p.dtype) for p in params})
    if len(found) != 1:
        raise ValueError(f"A flat buffer has one dtype; these parameters have {found or 'none'}.")
    return params[0].dtype


def read_slice(params: Sequence[Tensor], start: int, stop: int, out: Tensor) -> Tensor:
    """Fill the front of `out` with elements start to stop - 1 of the parameters laid end to end."""
    begin = 0
    for p in params:
        lo, hi = max(start, begin), min(stop, begin + p.numel())
        if lo < hi:
            out[lo - start : hi - start] = p.detach().reshape(-1)[lo - begin : hi - begin]
        begin += p.numel()
    return out


def write_back(params: Sequence[Tensor], flat: Tensor) -> None:
    """Copy a flat buffer into the parameters."""
    begin = 0
    for p in params:
        p.copy_(flat[begin : begin + p.numel()].view_as(p))
        begin += p.numel()


# --- sharded optimizer state ---------------------------------------------------------------------


class Zero1AdamW:
    """AdamW whose state is sharded over the ranks of `pg` (None: all): ZeRO stage 1.

    The trainable ones among `params`, each once, are laid end to end in the order given and padded
    with zeros to N equal slices of `shard_numel` = ceil(total / N) elements; a parameter may lie in
    two slices. Rank r owns slice r. Between steps it holds `exp_avg` and `exp_avg_sq`,
    (shard_numel,), in the parameters' dtype, and nothing else of the size of a parameter: the ranks
    together hold 2 (total + padding) elements. Replicas must be equal when this begins.

    `step` does what `torch.optim.AdamW` (decoupled weight decay `wd`, bias correction) does in one
    process on the concatenated batch: `.grad` is the gradient of the mean over this rank's rows,
    ranks have equally many, so the gradient of all rows is the MEAN over the ranks. A `.grad` that
    is None counts as zeros, because a slice of a flat buffer has no None.

    Traffic of a step, in payload bytes: one reduce-scatter of all gradients and one all-gather of
    all parameters, no other collective. `steps` counts steps, the same on every rank.

    Raises ValueError for no trainable parameter, parameters of several dtypes, a negative lr, eps
    or wd, and a beta outside [0, 1).
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        pg: dist.ProcessGroup | None = None,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        wd: float = 1e-2,
    ) -> None:
        self.params = [p for p in dict.fromkeys(params) if p.requires_grad]
        self.dtype = one_dtype(self.params)
        if min(lr, eps, wd) < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"lr={lr}, betas={betas}, eps={eps}, wd={wd}: out of range.")
        self.pg, self.lr, self.betas, self.eps, self.wd = pg, lr, betas, eps, wd
        self.steps = 0
        self.world_size, self.rank = dist.get_world_size(pg), dist.get_rank(pg)
        self.shard_numel = -(-sum(p.numel() for p in self.params) // self.world_size)
        device = self.params[0].device
        self.exp_avg = torch.zeros(self.shard_numel, dtype=self.dtype, device=device)
        self.exp_avg_sq = torch.zeros_like(self.exp_avg)

    def step(self) -> None:
        """Average the gradients, update the own slice, and give every rank all parameters."""
        self.step_shard(self.reduce_gradients())

    def reduce_gradients(self) -> Tensor:
        """This rank's slice, (shard_numel,), of the mean gradient over the ranks."""
        flat = self.exp_avg.new_zeros(self.world_size * self.shard_numel)
        begin = 0
        for p in self.params:
            if p.grad is not None:
                flat[begin : begin + p.numel()] = p.grad.reshape(-1)
            begin += p.numel()
        shard = torch.empty_like(self.exp_avg)
        dist.reduce_scatter_tensor(shard, flat, group=self.pg)
        return shard.div_(self.world_size)

    @torch.no_grad()
    def step_shard(self, grad: Tensor) -> None:
        """AdamW on the own slice, whose mean gradient is `grad`, (shard_numel,); then every rank
        gets all slices.

        Of the parameters it reads what this rank owns, as it is now, and nothing that others own:
        that comes from its owner, in the all-gather.
        """
        self.steps += 1
        b1, b2 = self.betas
        start = self.rank * self.shard_numel
        own = read_slice(
            self.params, start, start + self.shard_numel, torch.zeros_like(self.exp_avg)
        )
        own.mul_(1 - self.lr * self.wd)
        self.exp_avg.mul_(b1).add_(grad, alpha=1 - b1)
        self.exp_avg_sq.mul_(b2).addcmul_(grad, grad, value=1 - b2)
        root = (self.exp_avg_sq / (1 - b2**self.steps)).sqrt_().add_(self.eps)
        own.addcdiv_(self.exp_avg, root, value=-self.lr / (1 - b1**self.steps))
        flat = own.new_empty(self.world_size * self.shard_numel)
        dist.all_gather_into_tensor(flat, own, group=self.pg)
        write_back(self.params, flat)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for p in self.params:
            p.grad = None

    def local_state_bytes(self) -> int:
        """Bytes of optimizer state on this rank."""
        return self.exp_avg.nbytes + self.exp_avg_sq.nbytes


# --- sharded gradients ---------------------------------------------------------------------------


def plan_buckets(params: Sequence[Tensor], bucket_bytes: int) -> list[list[Tensor]]:
    """Given: `params` in order, cut into buckets of at most `bucket_bytes`; a larger parameter is a
    bucket of its own."""
    buckets: list[list[Tensor]] = []
    room = -1
    for p in params:
        if p.nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(p)
        room -= p.nbytes
    return buckets


class Zero2(nn.Module):
    """A model whose gradients and optimizer state are sharded over the ranks of `pg`: ZeRO stage 2.

    Trainable parameters, in REVERSE order of `model.parameters()`, which is about the order in
    which their gradients come, are cut into `buckets` by `plan_buckets`. Each bucket is a flat
    buffer of its own: padded and cut into N slices as `Zero1AdamW` does, with a `Zero1AdamW` of its
    own in `optimizers`, made with the keywords `adamw`.

    During backward, as soon as a bucket is full and all buckets before it have gone, it is
    reduce-scattered: `shards[i]` is then this rank's slice of bucket i's mean gradient, the
    bucket's full gradients are gone, and `.grad` of its parameters is None. So at most one bucket
    of full gradients is alive at once, besides its slices on their way and the one gradient that
    autograd has just made. Parameters that got no gradient keep their bucket, and those after it,
    waiting until `finish`, where they count as zeros.

    `model` must be equal on every rank. One backward a step: a second gradient for a parameter is a
    RuntimeError. Raises ValueError as `Zero1AdamW` does, and for bucket_bytes < 1.
    """

    def __init__(
        self,
        model: nn.Module,
        pg: dist.ProcessGroup | None = None,
        bucket_bytes: int = 25 << 20,
        **adamw: Any,
    ) -> None:
        super().__init__()
        if bucket_bytes < 1:
            raise ValueError(f"bucket_bytes is {bucket_bytes}; a bucket holds at least one byte.")
        self.module, self.pg = model, pg
        trainable = [p for p in model.parameters() if p.requires_grad]
        one_dtype(trainable)
        self.buckets = plan_buckets(trainable[::-1], bucket_bytes)
        self.optimizers = [Zero1AdamW(bucket, pg, **adamw) for bucket in self.buckets]
        for index, bucket in enumerate(self.buckets):
            at = 0
            for p in bucket:
                p.register_post_accumulate_grad_hook(partial(self._on_gradient, index, at))
                at += p.numel()
        self.zero_grad()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, those that wait in buckets and the shards."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.shards: list[Tensor | None] = [None] * len(self.buckets)
        self.flats: list[Tensor | None] = [None] * len(self.buckets)
        self.missing = [len(bucket) for bucket in self.buckets]
        self.arrived: set[tuple[int, int]] = set()
        self.next_bucket = 0

    def _on_gradient(self, index: int, at: int, param: Tensor) -> None:
        """Autograd has just written `param.grad`; its place in bucket `index` begins at `at`."""
        if (index, at) in self.arrived:
            raise RuntimeError("a second gradient for a parameter in one step")
        self.arrived.add((index, at))
        self._flat(index)[at : at + param.numel()] = param.grad.reshape(-1)
        param.grad = None
        self.missing[index] -= 1
        while self.next_bucket < len(self.buckets) and self.missing[self.next_bucket] == 0:
            self._reduce_next()

    def _flat(self, index: int) -> Tensor:
        """The padded flat gradients of a bucket, made when the first of them comes."""
        if self.flats[index] is None:
            optimizer = self.optimizers[index]
            self.flats[index] = optimizer.exp_avg.new_zeros(
                optimizer.world_size * optimizer.shard_numel
            )
        return self.flats[index]

    def _reduce_next(self) -> None:
        """Reduce-scatter the mean of the next bucket in line, and let go of its full gradients."""
        index = self.next_bucket
        self.next_bucket += 1
        shard = torch.empty_like(self.optimizers[index].exp_avg)
        dist.reduce_scatter_tensor(shard, self._flat(index), group=self.pg)
        self.flats[index] = None
        self.shards[index] = shard.div_(dist.get_world_size(self.pg))

    def finish(self) -> list[Tensor]:
        """Let the buckets go that wait for a gradient which did not come; all `shards`."""
        while self.next_bucket < len(self.buckets):
            self._reduce_next()
        return self.shards

    def step(self) -> None:
        """Every bucket's AdamW step on the own slice, and its all-gather; gradients are forgotten.

        As in `Zero1AdamW.step_shard`, of the parameters only what this rank owns is read.
        """
        for optimizer, shard in zip(self.optimizers, self.finish()):
            optimizer.step_shard(shard)
        self.zero_grad()

    def local_state_bytes(self) -> int:
        """Bytes of optimizer state on this rank."""
        return sum(optimizer.local_state_bytes() for optimizer in self.optimizers)


# --- sharded parameters --------------------------------------------------------------------------


class Zero3Module(nn.Module):
    """One block of a model whose parameters are there while it computes, and not otherwise: ZeRO
    stage 3.

    The block's trainable parameters, each once and in their order, are one flat buffer, padded with
    zeros to N equal slices; its frozen ones (requires_grad=False) are another. `shards` holds this
    rank's slice of each, as an `nn.Parameter` of (slice,) that requires a gradient or not: first
    the trainable one, either left out where there is none. An optimizer steps on these.

    When idle, every parameter of the block keeps its shape and has a storage of 0 bytes; the shards
    are all that is left. Around it, at four places:

    1. before forward: all-gather the slices as they are now, so that parameters hold their values;
    2. after forward: release, that is, set the storage to 0 bytes;
    3. before backward: all-gather again;
    4. after backward: reduce-scatter the MEAN gradient over the ranks into the `.grad` of the
       trainable shard, adding to one that is there; a parameter without gradient counts as zeros;
       `.grad` of the block's own parameters is None again; release.

    `chain` says which blocks come next. With `prefetch` = d, up to d of them are being gathered
    while this one computes (forward those that follow, backward those before), so at most d + 1
    blocks are whole at once. Payload of a step for Psi trainable parameters (and padding): 3 Psi.

    `block` must be equal on every rank, share no parameter with another block, and use the same
    parameters on every rank. It returns a tensor or a tuple of them. Where one of its trainable
    parameters gets no gradient, or it has none, it stays whole until the whole backward is over.
    Raises ValueError for prefetch < 0, and where the trainable, or the frozen, parameters have
    several dtypes.
    """

    def __init__(
        self, block: nn.Module, pg: dist.ProcessGroup | None = None, prefetch: int = 1
    ) -> None:
        super().__init__()
        if prefetch < 0:
            raise ValueError(f"prefetch is {prefetch}; it is a number of blocks, 0 or more.")
        self.block, self.pg, self.prefetch = block, pg, prefetch
        self.next_blocks: Sequence[Zero3Module] = ()
        self.previous_blocks: Sequence[Zero3Module] = ()
        self.in_backward = self.ends_with_inputs = False
        self.trainable = [p for p in block.parameters() if p.requires_grad]
        frozen = [p for p in block.parameters() if not p.requires_grad]
        self.groups = [group for group in (self.trainable, frozen) if group]
        for p in self.trainable:
            p.register_post_accumulate_grad_hook(self._on_gradient)
        self.world_size, self.rank = dist.get_world_size(pg), dist.get_rank(pg)
        self.shards = nn.ParameterList()
        self.flats: list[Tensor] = []
        self.works: list[Any] | None = None  # None: released
        for group in self.groups:
            dtype = one_dtype(group)
            total = sum(p.numel() for p in group)
            S = -(-total // self.world_size)
            shard = torch.zeros(S, dtype=dtype, device=group[0].device)
            read_slice(group, self.rank * S, (self.rank + 1) * S, shard)
            self.shards.append(nn.Parameter(shard, requires_grad=group[0].requires_grad))
            flat = torch.empty(S * self.world_size, dtype=dtype, device=group[0].device)
            at = 0
            for p in group:
                p.data = flat[at : at + p.numel()].view(p.shape)
                at += p.numel()
            flat.untyped_storage().resize_(0)
            self.flats.append(flat)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Given: the block between its call sites, and hooks that tell where backward is."""
        inputs: list[Tensor] = []

        def enter(x: Tensor) -> Tensor:
            """A view: its gradient is there when this block, and no other, is done with `x`."""
            if torch.is_grad_enabled() and x.requires_grad:
                x = x.view_as(x)
                inputs.append(x)
            return x

        args, kwargs = tree_map_only(Tensor, enter, (args, kwargs))
        self.ends_with_inputs = bool(inputs)
        if inputs:
            torch.autograd.graph.register_multi_grad_hook(inputs, self._on_inputs, mode="all")
        self.before_forward()
        out = self.block(*args, **kwargs)
        self.after_forward()
        outs = [t for t in (out if isinstance(out, tuple) else (out,)) if t.requires_grad]
        if outs:
            torch.autograd.graph.register_multi_grad_hook(outs, self._on_output, mode="any")
        return out

    def _on_output(self, grad: Tensor) -> None:
        """Given: the gradient of the block's output is there, its backward is about to begin."""
        self.in_backward = True
        self.awaited = len(self.trainable)
        torch.autograd.Variable._execution_engine.queue_callback(self._on_end)
        self.before_backward()

    def _on_inputs(self, grads: Sequence[Tensor | None]) -> None:
        """Given: with the gradients of its inputs the block's backward is over. Before, a frozen
        parameter may still be needed for them."""
        self._on_end()

    def _on_gradient(self, param: Tensor) -> None:
        """Given: where no input has a gradient, it is over with the last one of a parameter."""
        self.awaited -= 1
        if self.awaited == 0 and not self.ends_with_inputs:
            self._on_end()

    def _on_end(self) -> None:
        """Given: over now, or at the end of the whole backward where a gradient did not come."""
        if self.in_backward:
            self.in_backward = False
            self.after_backward()

    def _start_gather(self) -> None:
        """Give the parameters their storage back and start to fill it, unless that was done."""
        if self.works is not None:
            return
        self.works = []
        for flat, shard in zip(self.flats, self.shards):
            flat.untyped_storage().resize_(flat.numel() * flat.element_size())
            self.works.append(
                dist.all_gather_into_tensor(flat, shard.detach(), group=self.pg, async_op=True)
            )

    def _wait(self) -> None:
        """Parameters may be read when this returns."""
        for work in self.works or []:
            work.wait()
        self.works = []

    def _release(self) -> None:
        """Only the shards are left; shapes stay."""
        self._wait()
        for flat in self.flats:
            flat.untyped_storage().resize_(0)
        self.works = None

    def before_forward(self) -> None:
        """Call site 1."""
        self._start_gather()
        self._wait()
        for module in self.next_blocks[: self.prefetch]:
            module._start_gather()

    def after_forward(self) -> None:
        """Call site 2."""
        self._release()

    def before_backward(self) -> None:
        """Call site 3."""
        self._start_gather()
        self._wait()
        for module in self.previous_blocks[: self.prefetch]:
            module._start_gather()

    @torch.no_grad()
    def after_backward(self) -> None:
        """Call site 4."""
        if self.trainable:
            flat = torch.zeros_like(self.shards[0]).repeat(self.world_size)
            at = 0
            for p in self.trainable:
                if p.grad is not None:
                    flat[at : at + p.numel()] = p.grad.reshape(-1)
                    p.grad = None
                at += p.numel()
            shard = torch.empty_like(self.shards[0])
            dist.reduce_scatter_tensor(shard, flat, group=self.pg)
            shard.div_(self.world_size)
            if self.shards[0].grad is None:
                self.shards[0].grad = shard
            else:
                self.shards[0].grad.add_(shard)
        self._release()


def chain(modules: Sequence[Zero3Module]) -> None:
    """Given: tell blocks that run one after the other who comes next, for prefetching."""
    for index, module in enumerate(modules):
        module.next_blocks = tuple(modules[index + 1 :])
        module.previous_blocks = tuple(reversed(modules[:index]))


# --- clipping, checkpoints, master weights --------------------------------------------------------
#
# A flat shard, below: the trainable parameters, each once, are flattened and put end to end in
# their order, then zeros up to a multiple of N; rank r holds elements r S to (r + 1) S - 1 of that,
# with S = ceil(total / N). The zeros are padding: the last ranks may hold little else. Nothing
# below needs the classes above; it is called with what they hold.


def clip_grad_norm_sharded(
    grads: Sequence[Tensor],
    real: Sequence[int],
    max_norm: float,
    pg: dist.ProcessGroup | None = None,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Clip gradients that lie in shards by the norm of all of them, in place, and return the norm:
    on every rank of `pg` (None: all) what `torch.nn.utils.clip_grad_norm_` does to the whole.

    grads: this rank's shards, (S_i,) each, already reduced over the ranks, of any floating dtype.
    A tied parameter's may be listed twice, as the same tensor: it counts, and is scaled, once.
    real[i]: how many elements at the front of grads[i] are gradient, maybe 0. What lies behind them
    is padding, which may hold anything and counts nothing.

    The norm is float32, (), before clipping; squares are taken and added in float32. Every gradient
    is multiplied by max_norm / (norm + 1e-6), or by 1 where that is larger. One all-reduce of one
    number is all that travels. A norm that is infinite or NaN is treated as torch does: the
    gradients are multiplied all the same, or, with `error_if_nonfinite`, EVERY rank raises
    RuntimeError and nothing is changed. ValueError for a negative max_norm.
    """
    if max_norm < 0:
        raise ValueError(f"max_norm is {max_norm}")
    fronts = {id(grad): (grad, count) for grad, count in zip(grads, real)}
    total = torch.zeros((), dtype=torch.float32)
    for grad, count in fronts.values():
        total += grad.detach()[:count].float().square().sum()
    dist.all_reduce(total, group=pg)
    norm = total.sqrt()
    if error_if_nonfinite and not bool(torch.isfinite(norm)):
        raise RuntimeError(f"the norm of the gradients is {norm.item()}")
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    with torch.no_grad():
        for grad, _ in fronts.values():
            grad.mul_(factor)
    return norm


def full_state_dict(
    model: nn.Module, shard: dict[str, Any], pg: dist.ProcessGroup | None = None
) -> dict[str, Any] | None:
    """One checkpoint from the shards of all ranks of `pg` (None: all), which says nothing of how
    many there were. Rank 0 of `pg` returns it, the others None.

    model: the module that is trained, not wrapped; it tells names, shapes, ties, and what is not
    sharded: buffers and frozen parameters. What its trainable parameters hold is not read: it may
    be stale. shard: {"step": int, "param", "exp_avg", "exp_avg_sq": flat shards, (S,)}; the moments
    may have another dtype than the parameters; the step is the same on all ranks.

    Returns {"model": the keys of `model.state_dict()` in its order, trainable parameters from the
    shards, all else from rank 0's model; "optimizer": {"step": int, "exp_avg": {name: tensor},
    "exp_avg_sq": {name: tensor}}}, with the names and the order of `model.named_parameters()`,
    where a tied parameter stands once, and without the frozen ones. Tensors have the shapes of the
    parameters and the dtypes of the shards, hold no padding and own their memory. Only rank 0
    receives shards.
    """
    rank, world_size = dist.get_rank(pg), dist.get_world_size(pg)
    first = dist.get_global_rank(pg, 0) if pg is not None else 0
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    whole: dict[str, dict[str, Tensor]] = {}
    for key in ("param", "exp_avg", "exp_avg_sq"):
        mine = shard[key].contiguous()
        parts = [torch.empty_like(mine) for _ in range(world_size)] if rank == 0 else None
        dist.gather(mine, parts, dst=first, group=pg)
        if parts is None:
            continue
        flat = torch.cat(parts)
        begin = 0
        whole[key] = {}
        for name, p in trainable:
            whole[key][name] = flat[begin : begin + p.numel()].view(p.shape).clone()
            begin += p.numel()
    if rank != 0:
        return None
    by_id = {id(p): whole["param"][name] for name, p in trainable}
    state = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) in by_id:
            state[name] = by_id[id(value)]
        else:
            state[name] = value.detach().clone() if isinstance(value, Tensor) else value
    moments = {key: whole[key] for key in ("exp_avg", "exp_avg_sq")}
    return {"model": state, "optimizer": {"step": shard["step"], **moments}}


def reshard(full: dict[str, Any], rank: int, world_size: int) -> dict[str, Any]:
    """What `rank` of `world_size` ranks needs of a checkpoint: its flat shards.

    full: what `full_state_dict` returned, on however many ranks; nothing travels here. The order of
    the flat buffer is that of full["optimizer"]["exp_avg"], which names each parameter once.

    Returns {"step": int, "param", "exp_avg", "exp_avg_sq": (S,)}, S = ceil(total / world_size),
    each in the dtype that the checkpoint has it in; padding is zeros. The shards own their memory,
    S elements each: the checkpoint can be freed. ValueError for a rank outside 0..world_size - 1.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} of {world_size}")
    optimizer = full["optimizer"]
    names = list(optimizer["exp_avg"])
    sources = {
        "param": [full["model"][name] for name in names],
        "exp_avg": [optimizer["exp_avg"][name] for name in names],
        "exp_avg_sq": [optimizer["exp_avg_sq"][name] for name in names],
    }
    S = -(-sum(t.numel() for t in sources["param"]) // world_size)
    result: dict[str, Any] = {"step": optimizer["step"]}
    for key, tensors in sources.items():
        out = torch.zeros(S, dtype=tensors[0].dtype)
        result[key] = read_slice(tensors, rank * S, (rank + 1) * S, out)
    return result


class MasterWeights:
    """AdamW for bfloat16 parameters: every rank computes with all of them in 2 bytes each, and
    updates one flat shard of them, of which it alone has a float32 copy, the master.

    params: bfloat16, each once. A rank reads its own slice of them, in the constructor, and no
    more. `master`, `exp_avg`, `exp_avg_sq`: (S,) float32, this rank's flat shards; what stands in
    their padding is nobody's business. Between steps a rank holds 2 bytes a parameter and
    4 + 8 bytes an element of its shard, nothing else.

    AdamW as torch's, on the master: lr, betas, eps, and wd, the decoupled weight decay.
    Source: Micikevicius et al. 2018, section 3.1 (the master copy); Rajbhandari et al. 2020,
    section 5.1 (its shards).
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        pg: dist.ProcessGroup | None = None,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        wd: float = 0.01,
    ) -> None:
        self.params, self.pg = list(params), pg
        self.lr, self.betas, self.eps, self.wd = lr, betas, eps, wd
        self.steps = 0
        self.world_size, self.rank = dist.get_world_size(pg), dist.get_rank(pg)
        S = -(-sum(p.numel() for p in self.params) // self.world_size)
        self.master = torch.zeros(S, dtype=torch.float32)
        read_slice(self.params, self.rank * S, (self.rank + 1) * S, self.master)
        self.exp_avg = torch.zeros_like(self.master)
        self.exp_avg_sq = torch.zeros_like(self.master)

    @torch.no_grad()
    def step(self, grad: Tensor) -> None:
        """One step; afterwards all parameters on all ranks are the rounded master.

        grad: (S,), this rank's flat shard of the gradient, the mean over the ranks already, in
        bfloat16 or float32; in its padding there may be anything. What travels is bfloat16: one
        all-gather. Parameters are written in place.
        """
        self.steps += 1
        b1, b2 = self.betas
        grad = grad.float()
        self.master.mul_(1 - self.lr * self.wd)
        self.exp_avg.mul_(b1).add_(grad, alpha=1 - b1)
        self.exp_avg_sq.mul_(b2).addcmul_(grad, grad, value=1 - b2)
        root = (self.exp_avg_sq / (1 - b2**self.steps)).sqrt_().add_(self.eps)
        self.master.addcdiv_(self.exp_avg, root, value=-self.lr / (1 - b1**self.steps))
        rounded = self.master.to(torch.bfloat16)
        flat = rounded.new_empty(self.world_size * len(rounded))
        dist.all_gather_into_tensor(flat, rounded, group=self.pg)
        write_back(self.params, flat)
