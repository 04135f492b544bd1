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


# --- sharded optimizer state ---------------------------------------------------------------------


class Zero1AdamW:
    """AdamW whose state is sharded over the ranks of `pg` (None: all): ZeRO stage 1.

    The trainable ones among `params`, each once, are laid end to end in the order given (the last
    index runs first, however a parameter lies in memory) and padded with zeros to N equal slices of
    `shard_numel` = ceil(total / N) elements; a parameter may lie in two slices. Rank r owns slice
    r. Between steps it holds `exp_avg` and `exp_avg_sq`, (shard_numel,), in the parameters' dtype,
    and nothing else of the size of a parameter: the ranks together hold 2 (total + padding)
    elements. Replicas must be equal when this begins.

    `step` does what `torch.optim.AdamW` (decoupled weight decay `wd`, bias correction) does in one
    process on the concatenated batch: `.grad` is the gradient of the mean over this rank's rows,
    ranks have equally many, so the gradient of all rows is the MEAN over the ranks. A `.grad` that
    is None counts as zeros, because a slice of a flat buffer has no None; a rank without any
    gradient, and a step in which no rank has one, are no exceptions: moments and parameters decay.

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
        # TODO(lab08.Zero1AdamW): Each rank steps its own slice
        raise NotImplementedError("lab08.Zero1AdamW")

    def step(self) -> None:
        """Average the gradients, update the own slice, and give every rank all parameters."""
        self.step_shard(self.reduce_gradients())

    def reduce_gradients(self) -> Tensor:
        """This rank's slice, (shard_numel,), of the mean gradient over the ranks."""
        # TODO(lab08.Zero1AdamW): Each rank steps its own slice
        raise NotImplementedError("lab08.Zero1AdamW")

    @torch.no_grad()
    def step_shard(self, grad: Tensor) -> None:
        """AdamW on the own slice, whose mean gradient is `grad`, (shard_numel,); then every rank
        gets all slices.

        Of the parameters it uses what this rank owns, as it is now, and nothing that others own:
        that comes from its owner, in the all-gather. `grad` is left as it was.
        """
        # TODO(lab08.Zero1AdamW): Each rank steps its own slice
        raise NotImplementedError("lab08.Zero1AdamW")

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for p in self.params:
            p.grad = None

    def local_state_bytes(self) -> int:
        """Bytes of optimizer state on this rank."""
        # TODO(lab08.Zero1AdamW): Each rank steps its own slice
        raise NotImplementedError("lab08.Zero1AdamW")


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
    reduce-scattered, so always in the order of their index, whatever came first: `shards[i]` is
    then this rank's slice of bucket i's mean gradient, the bucket's full gradients are gone, and
    `.grad` of its parameters is None. So at most one bucket
    of full gradients is alive at once, besides its slices on their way and the one gradient that
    autograd has just made. Parameters that got no gradient keep their bucket, and those after it,
    waiting until `finish`, where they count as zeros.

    `model` must be equal on every rank; gradients may come in another order on each, or not at all:
    a step without any is a step with zeros, on one rank or on all.
    One backward a step: a second gradient for a parameter is a RuntimeError, also while its bucket
    still waits. Raises ValueError as `Zero1AdamW` does, and for bucket_bytes < 1.
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
        # TODO(lab08.Zero2): Gradients that leave during backward
        raise NotImplementedError("lab08.Zero2")

    def _on_gradient(self, index: int, at: int, param: Tensor) -> None:
        """Autograd has just written `param.grad`; its place in bucket `index` begins at `at`."""
        # TODO(lab08.Zero2): Gradients that leave during backward
        raise NotImplementedError("lab08.Zero2")

    def _flat(self, index: int) -> Tensor:
        """The padded flat gradients of a bucket, made when the first of them comes."""
        # TODO(lab08.Zero2): Gradients that leave during backward
        raise NotImplementedError("lab08.Zero2")

    def _reduce_next(self) -> None:
        """Reduce-scatter the mean of the next bucket in line, and let go of its full gradients."""
        # TODO(lab08.Zero2): Gradients that leave during backward
        raise NotImplementedError("lab08.Zero2")

    def finish(self) -> list[Tensor]:
        """Let the buckets go that wait for a gradient which did not come; all `shards`."""
        # TODO(lab08.Zero2): Gradients that leave during backward
        raise NotImplementedError("lab08.Zero2")

    def step(self) -> None:
        """Every bucket's AdamW step on the own slice, and its all-gather; gradients are forgotten.

        As in `Zero1AdamW.step_shard`, of the parameters only what this rank owns is read.
        """
        # TODO(lab08.Zero2): Gradients that leave during backward
        raise NotImplementedError("lab08.Zero2")

    def local_state_bytes(self) -> int:
        """Bytes of optimizer state on this rank."""
        return sum(optimizer.local_state_bytes() for optimizer in self.optimizers)


# --- sharded parameters --------------------------------------------------------------------------


class Zero3Module(nn.Module):
    """One block of a model whose parameters are there while it computes, and not otherwise: ZeRO
    stage 3.

    The block's trainable parameters, each once and in their order, contiguous or not, are one flat
    buffer, padded with zeros to N equal slices; its frozen ones (requires_grad=False) are another.
    `shards` holds this rank's slice of each, as an `nn.Parameter` of (slice,) that requires a
    gradient or not: first the trainable one, either left out where there is none. An optimizer
    steps on these.

    When idle, every parameter of the block keeps its shape and has a storage of 0 bytes; the shards
    are all that is left. Around it, at four places:

    1. before forward: all-gather the slices as they are now, so that parameters hold their values;
    2. after forward: release, that is, set the storage to 0 bytes;
    3. before backward: all-gather again;
    4. after backward: reduce-scatter the MEAN gradient over the ranks into the `.grad` of the
       trainable shard, adding to one that is there; a parameter without gradient counts as zeros,
       also where no parameter of the block has one; `.grad` of the block's own parameters is None
       again; release.

    `chain` says which blocks come next. With `prefetch` = d, the next d, or all that are left, are
    being gathered while this one computes (forward those that follow, backward those before):
    issued before it begins, and waited for only when their own turn comes. So at most d + 1 blocks
    are whole at once. Payload of a step for Psi trainable parameters (and padding): 3 Psi, and 2
    for frozen.

    `block` must be equal on every rank, share no parameter with another block, use the same
    parameters on every rank, and run once before each backward. It returns a tensor or a tuple of
    them. Its backward is over when the gradients of its inputs are there; if no input needs one,
    when all trainable parameters have theirs; and where one of these does not come, when the whole
    backward is over. Raises ValueError for prefetch < 0, and where the trainable, or the frozen,
    parameters have several dtypes; these two kinds may differ.
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
        # TODO(lab08.Zero3Module): Parameters that are whole for one block
        raise NotImplementedError("lab08.Zero3Module")

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
        # TODO(lab08.Zero3Module): Parameters that are whole for one block
        raise NotImplementedError("lab08.Zero3Module")

    def _wait(self) -> None:
        """Parameters may be read when this returns."""
        # TODO(lab08.Zero3Module): Parameters that are whole for one block
        raise NotImplementedError("lab08.Zero3Module")

    def _release(self) -> None:
        """Only the shards are left; shapes stay."""
        # TODO(lab08.Zero3Module): Parameters that are whole for one block
        raise NotImplementedError("lab08.Zero3Module")

    def before_forward(self) -> None:
        """Call site 1."""
        # TODO(lab08.Zero3Module): Parameters that are whole for one block
        raise NotImplementedError("lab08.Zero3Module")

    def after_forward(self) -> None:
        """Call site 2."""
        # TODO(lab08.Zero3Module): Parameters that are whole for one block
        raise NotImplementedError("lab08.Zero3Module")

    def before_backward(self) -> None:
        """Call site 3."""
        # TODO(lab08.Zero3Module): Parameters that are whole for one block
        raise NotImplementedError("lab08.Zero3Module")

    @torch.no_grad()
    def after_backward(self) -> None:
        """Call site 4."""
        # TODO(lab08.Zero3Module): Parameters that are whole for one block
        raise NotImplementedError("lab08.Zero3Module")


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
    is padding, which may hold anything and counts nothing; it may be multiplied or left as it is.
    A rank that holds no gradients at all, with empty lists, takes part like the others.

    The norm is float32, (), before clipping; squares are taken and added in float32, or in float64.
    Every gradient is multiplied by max_norm / (norm + 1e-6), or by 1 where that is larger. So a
    norm of max_norm, or of a little less, is made smaller too: by half where both are 1e-6. One
    all-reduce of one number is all that travels. A norm that is infinite or NaN is treated as torch
    does: the gradients are multiplied all the same, or, with `error_if_nonfinite`, EVERY rank
    raises RuntimeError and nothing is changed. ValueError for a negative max_norm.
    """
    # TODO(lab08.clip_grad_norm_sharded): One norm for all shards
    raise NotImplementedError("lab08.clip_grad_norm_sharded")


def full_state_dict(
    model: nn.Module, shard: dict[str, Any], pg: dist.ProcessGroup | None = None
) -> dict[str, Any] | None:
    """One checkpoint from the shards of all ranks of `pg` (None: all), which says nothing of how
    many there were. Rank 0 of `pg` returns it, the others None.

    model: the module that is trained, not wrapped; it tells names, shapes, ties, and what is not
    sharded: buffers and frozen parameters. What its trainable parameters hold is not read: it may
    be stale. There is at least one of them.

    shard: {"step": int, "param", "exp_avg", "exp_avg_sq": flat shards, (S,)}; the moments may have
    another dtype than the parameters, and both than the model; the step is the same on all ranks.

    Returns {"model": the keys of `model.state_dict()` in its order, trainable parameters from the
    shards, all else from rank 0's model, what is no tensor (a module's `get_extra_state`) as it
    stands there; "optimizer": {"step": int, "exp_avg": {name: tensor},
    "exp_avg_sq": {name: tensor}}}, with the names and the order of `model.named_parameters()`,
    where a tied parameter stands once, and without the frozen ones. Tensors have the shapes of the
    parameters and the dtypes of the shards, hold no padding and own their memory: what training
    does next to the model or the shards does not show in them. Names of one tensor in the model,
    tied parameters or one buffer registered twice, may share one or have two equal ones. Only rank
    0 receives shards.
    """
    # TODO(lab08.full_state_dict): One checkpoint from all shards
    raise NotImplementedError("lab08.full_state_dict")


def reshard(full: dict[str, Any], rank: int, world_size: int) -> dict[str, Any]:
    """What `rank` of `world_size` ranks needs of a checkpoint: its flat shards.

    full: what `full_state_dict` returned, on however many ranks; nothing travels here. The order of
    the flat buffer is that of full["optimizer"]["exp_avg"], which names each parameter once, and
    one at least.

    Returns {"step": int, "param", "exp_avg", "exp_avg_sq": (S,)}, S = ceil(total / world_size),
    each in the dtype that the checkpoint has it in; padding is zeros. The shards own their memory,
    S elements each: the checkpoint can be freed. ValueError for a rank outside 0..world_size - 1.
    """
    # TODO(lab08.reshard): That checkpoint on any number of ranks
    raise NotImplementedError("lab08.reshard")


class MasterWeights:
    """AdamW for bfloat16 parameters: every rank computes with all of them in 2 bytes each, and
    updates one flat shard of them, of which it alone has a float32 copy, the master.

    params: bfloat16, each once, contiguous or not. A rank uses its own slice of them, in the
    constructor, and no more. `master`, `exp_avg`, `exp_avg_sq`: (S,) float32, this rank's flat
    shards; what stands in their padding is nobody's business. Between steps a rank holds 2 bytes a
    parameter and 4 + 8 bytes an element of its shard, nothing else.

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
        # TODO(lab08.MasterWeights): Updates smaller than a bf16 step
        raise NotImplementedError("lab08.MasterWeights")

    @torch.no_grad()
    def step(self, grad: Tensor) -> None:
        """One step; afterwards all parameters on all ranks are the rounded master.

        grad: (S,), this rank's flat shard of the gradient, the mean over the ranks already, in
        bfloat16 or float32, and is left as it was; in its padding there may be anything. What
        travels is bfloat16: one all-gather. Parameters are written in place.
        """
        # TODO(lab08.MasterWeights): Updates smaller than a bf16 step
        raise NotImplementedError("lab08.MasterWeights")
