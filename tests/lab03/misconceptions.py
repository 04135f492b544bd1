"""Known wrong answers of lab 03. Most are the reference with one line changed."""

from grader import skeleton
from grader.skeleton import changed
from grader.suite import misconception

FILE = "train_ddp.py"


# --- shard_indices -------------------------------------------------------------------------------


@misconception("shard_indices", file=FILE)
def contiguous_blocks(text):
    """Each rank takes one contiguous block; DistributedSampler deals the order out like cards,
    rank r gets every world_size-th row."""
    return changed(text, ("order[rank::world_size]", "order[rank * each : (rank + 1) * each]"))


@misconception("shard_indices", file=FILE)
def epoch_is_not_in_the_seed(text):
    """Epoch 1 repeats epoch 0's order: seed+epoch never changed."""
    return changed(text, ("manual_seed(seed + epoch)", "manual_seed(seed)"))


@misconception("shard_indices", file=FILE)
def rank_is_in_the_seed(text):
    """Each rank shuffles with a seed of its own, so the shards overlap and rows are missing; all
    ranks must deal from one permutation."""
    return changed(text, ("manual_seed(seed + epoch)", "manual_seed(seed + epoch + rank)"))


@misconception("shard_indices", file=FILE)
def nothing_is_filled_up(text):
    """Some ranks get a row more than others and wait for ever in their last all-reduce; the list
    is filled up from its front until every rank has equally many."""
    return changed(
        text,
        (
            "[order[i % n] for i in range(each * world_size)]",
            "order[: each * world_size] if drop_last else order",
        ),
    )


@misconception("shard_indices", file=FILE)
def filled_up_with_the_last_row(text):
    """The list is filled up with its last row, which then counts several times; the sampler goes
    round from the front."""
    return changed(text, ("order[i % n]", "order[min(i, n - 1)]"))


@misconception("shard_indices", file=FILE)
def always_drops(text):
    """Rows that do not fill a round are dropped although drop_last was not asked for: up to
    world_size - 1 rows are never read in an epoch."""
    return changed(
        text, ("n // world_size if drop_last else -(-n // world_size)", "n // world_size")
    )


@misconception("shard_indices", file=FILE)
def never_drops(text):
    """drop_last is ignored: rows are repeated where the end of the order should be left out."""
    return changed(
        text, ("n // world_size if drop_last else -(-n // world_size)", "-(-n // world_size)")
    )


# --- sync_module_ --------------------------------------------------------------------------------


@misconception("sync_module_", file=FILE)
def buffers_stay_behind(text):
    """Only parameters are sent: BatchNorm's running statistics, its counter and every table stay
    as each rank made them, and evaluation differs by rank."""
    return changed(text, ("[*module.parameters(), *module.buffers()]", "module.parameters()"))


@misconception("sync_module_", file=FILE)
def only_what_a_state_dict_lists(text):
    """state_dict() leaves out buffers registered with persistent=False, but forward reads them."""
    return changed(
        text, ("[*module.parameters(), *module.buffers()]", "module.state_dict().values()")
    )


@misconception("sync_module_", file=FILE)
def frozen_parameters_stay_behind(text):
    """Parameters that need no gradient are left out; nobody trains them, so nothing will ever make
    them equal."""
    return changed(
        text,
        (
            "[*module.parameters(), *module.buffers()]",
            "[*(p for p in module.parameters() if p.requires_grad), *module.buffers()]",
        ),
    )


@misconception("sync_module_", file=FILE)
def always_from_rank_0(text):
    """src is ignored and rank 0 sends; a replica restored on another rank would be lost."""
    return changed(text, ("broadcast(tensor, src=src)", "broadcast(tensor, src=0)"))


@misconception("sync_module_", file=FILE)
def means_of_the_starts(text):
    """The ranks' numbers are averaged instead of taken from src: a mean of random layers has a
    smaller variance than any of them, and no rank's checkpoint survives."""
    return changed(
        text,
        (
            "dist.broadcast(tensor, src=src)",
            "dist.all_reduce(tensor)\n            tensor.copy_(tensor / dist.get_world_size())",
        ),
    )


# --- assign_buckets ------------------------------------------------------------------------------


@misconception("assign_buckets", file=FILE)
def closes_before_the_cap_is_exceeded(text):
    """A tensor that does not fit opens a new bucket; the reducer adds first and closes afterwards,
    so buckets overshoot (28.03 MiB under a cap of 25)."""
    return skeleton.with_block(
        text,
        "assign_buckets",
        """
    buckets, size = [[]], 0
    for index, tensor_bytes in enumerate(nbytes):
        if buckets[-1] and size + tensor_bytes > caps[min(len(buckets), len(caps)) - 1]:
            buckets.append([])
            size = 0
        buckets[-1].append(index)
        size += tensor_bytes
    return buckets""",
    )


@misconception("assign_buckets", file=FILE)
def full_is_not_full(text):
    """A bucket that is exactly full is left open (> instead of >=): four layers of 25 MiB then make
    two buckets of 50 instead of four."""
    return changed(text, ("if size >= caps", "if size > caps"))


@misconception("assign_buckets", file=FILE)
def first_cap_for_all(text):
    """Every bucket is held to the first cap; that one is small only so that the first all-reduce
    starts early."""
    return changed(text, ("caps[min(len(buckets), len(caps)) - 1]", "caps[0]"))


@misconception("assign_buckets", file=FILE)
def last_cap_for_all(text):
    """The first cap is not used: the first bucket is as large as the others, and nothing travels
    until 25 MiB of gradients are there."""
    return changed(text, ("caps[min(len(buckets), len(caps)) - 1]", "caps[-1]"))


@misconception("assign_buckets", file=FILE)
def an_empty_bucket_at_the_end(text):
    """When the last tensor closes a bucket, an empty one is left behind: an all-reduce of nothing,
    and a bucket that never gets ready."""
    return changed(text, ("[bucket for bucket in buckets if bucket]", "buckets"))


@misconception("assign_buckets", file=FILE)
def reversed_here(text):
    """The list of buckets is turned round here; the order is the caller's affair, and a caller who
    has reversed the parameters gets the last bucket first."""
    return changed(
        text, ("[bucket for bucket in buckets if bucket]", "[b for b in reversed(buckets) if b]")
    )


@misconception("assign_buckets", file=FILE)
def equal_parts(text):
    """ceil(total / cap) buckets of equal size: tensors are not cut, and 40 MiB of layers make
    three buckets under a cap of 25 MiB, not two."""
    return skeleton.with_block(
        text,
        "assign_buckets",
        """
    count = -(-sum(nbytes) // caps[-1])
    share = sum(nbytes) / count
    buckets, size = [[] for _ in range(count)], 0
    for index, tensor_bytes in enumerate(nbytes):
        buckets[min(int(size / share), count - 1)].append(index)
        size += tensor_bytes
    return [bucket for bucket in buckets if bucket]""",
    )


# --- ring_all_reduce_ ----------------------------------------------------------------------------


@misconception("ring_all_reduce_", file=FILE)
def sends_the_whole_tensor(text):
    """The whole tensor goes round twice, 2 (W - 1) S bytes a rank, W times what a ring needs: send
    one chunk a step, the one that the next rank adds to."""
    return skeleton.with_block(
        text,
        "ring_all_reduce_",
        """
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    chunks = flat.tensor_split(world_size)
    total, sent = flat, 0
    for step in range(2 * (world_size - 1)):
        incoming = torch.empty_like(flat)
        sending = dist.isend(flat, group=group, group_dst=after)
        dist.irecv(incoming, group=group, group_src=before).wait()
        sending.wait()
        sent += flat.numel() * flat.element_size()
        theirs = incoming.tensor_split(world_size)
        if step < world_size - 1:
            chunks[(rank - step - 1) % world_size].add_(theirs[(rank - step - 1) % world_size])
        else:
            at = (rank - (step - world_size + 1)) % world_size
            chunks[at].copy_(theirs[at])
    return sent""",
    )


@misconception("ring_all_reduce_", file=FILE)
def each_rank_adds_in_its_own_order(text):
    """Every rank adds up what passes by, each beginning with its own numbers: floats depend on the
    order, so the replicas' sums differ in their last bits and drift apart."""
    return skeleton.with_block(
        text,
        "ring_all_reduce_",
        """
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    passing, sent = flat.clone(), 0
    for _ in range(world_size - 1):
        incoming = torch.empty_like(flat)
        sending = dist.isend(passing, group=group, group_dst=after)
        dist.irecv(incoming, group=group, group_src=before).wait()
        sending.wait()
        sent += flat.numel() * flat.element_size()
        flat += incoming
        passing = incoming
    return sent""",
    )


@misconception("ring_all_reduce_", file=FILE)
def the_rest_of_a_ragged_tensor_stays(text):
    """Chunks of N // W elements leave the last N % W alone: a bias of 7 on 3 ranks keeps a local
    element, and with N < W nothing is reduced at all."""
    return changed(
        text,
        (
            "chunks = flat.tensor_split(world_size)\n    sent",
            "size = len(flat) // world_size\n    chunks = "
            "flat[: size * world_size].view(world_size, size).unbind()\n    sent",
        ),
    )


@misconception("ring_all_reduce_", file=FILE)
def no_all_gather(text):
    """Half of the work: after reduce-scatter every rank has ONE finished chunk; the others hold
    partial sums until W - 1 more steps have passed the finished ones on."""
    return changed(
        text,
        (
            "    for step in range(world_size - 1):\n        sent += exchange(chunks[",
            "    for step in range(0):\n        sent += exchange(chunks[",
        ),
    )


@misconception("ring_all_reduce_", file=FILE)
def counts_elements(text):
    """The number of elements is returned; bytes are elements times element_size()."""
    return changed(text, ("return out.numel() * out.element_size()", "return out.numel()"))


@misconception("ring_all_reduce_", file=FILE)
def means_instead_of_sums(text):
    """The sum is divided by W here; an all-reduce sums, and who wants the mean scales."""
    return changed(text, ("    return sent\n", "    flat /= world_size\n    return sent\n"))


@misconception("ring_all_reduce_", file=FILE)
def calls_the_library(text):
    """The library's all-reduce does the work and a formula gives the bytes; this task is to build
    that collective from sends and receives."""
    return skeleton.with_block(
        text,
        "ring_all_reduce_",
        """
    dist.all_reduce(flat, group=group)
    world_size = dist.get_world_size(group)
    return 2 * (world_size - 1) * (flat.numel() * flat.element_size() // world_size)""",
    )


# --- avg_hook ------------------------------------------------------------------------------------


@misconception("avg_hook", file=FILE)
def divides_by_w(text):
    """x/3 and x·(1/3) are different floats; the reducer multiplies by the reciprocal."""
    return changed(
        text,
        (".mul_(1 / dist.get_world_size(state))", ".div_(dist.get_world_size(state))"),
    )


@misconception("avg_hook", file=FILE)
def scales_after_the_sum(text):
    """The sum is scaled afterwards; DDP scales each rank's gradients first, which rounds
    elsewhere and keeps fp16 sums from overflowing."""
    return changed(
        text,
        (".mul_(1 / dist.get_world_size(state))", ""),
        ("future.value()[0])", "future.value()[0].mul_(1 / dist.get_world_size(state)))"),
    )


@misconception("avg_hook", file=FILE)
def sums_without_a_mean(text):
    """The gradients are summed, not averaged: with a hook nobody else divides, and the learning
    rate is W times what it says."""
    return changed(text, (".mul_(1 / dist.get_world_size(state))", ""))


@misconception("avg_hook", file=FILE)
def waits_in_the_hook(text):
    """The all-reduce is waited for inside the hook: every bucket stops the backward until the
    slowest rank has come, and nothing overlaps."""
    return changed(
        text,
        (
            "return work.get_future()",
            "work.wait()\n    return work.get_future()",
        ),
    )


@misconception("avg_hook", file=FILE)
def nothing_travels(text):
    """The hook gives back this rank's own gradients: without an all-reduce the replicas drift
    apart."""
    return skeleton.with_block(
        text,
        "avg_hook",
        """
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future""",
    )


# --- train_ddp -----------------------------------------------------------------------------------


@misconception("train_ddp", file=FILE)
def no_set_epoch(text):
    """Every epoch reads the rows in the order of epoch 0: the epoch never reached the sampler
    (set_epoch was forgotten)."""
    return changed(text, ("rank, world_size, epoch, seed)", "rank, world_size, 0, seed)"))


@misconception("train_ddp", file=FILE)
def every_rank_reads_everything(text):
    """Every rank reads all rows: DDP does not split a batch, the sampler does, and without it W
    ranks do the work of one W times."""
    return changed(
        text, ("shard_indices(len(x), rank, world_size, epoch", "shard_indices(len(x), 0, 1, epoch")
    )


@misconception("train_ddp", file=FILE)
def every_rank_saves(text):
    """Every rank writes the checkpoint: W writers of one file destroy it, on disks of their own W
    - 1 copies are wasted. Replicas are equal, rank 0 saves."""
    return changed(text, ("if rank == 0 and str(checkpoint):", "if str(checkpoint):"))


@misconception("train_ddp", file=FILE)
def local_losses_are_logged(text):
    """The logged loss is the one of this rank's own rows; the loss of the run is the mean over all
    ranks and needs a reduction."""
    return changed(text, ("dist.all_reduce(log)\n", "log *= world_size\n"))


@misconception("train_ddp", file=FILE)
def summed_losses_are_logged(text):
    """The losses are summed over the ranks and never divided: the curve is W times too high."""
    return changed(text, ("(log / world_size).tolist()", "log.tolist()"))


@misconception("train_ddp", file=FILE)
def replicas_are_never_tied(text):
    """The model is not wrapped: ranks begin with different weights, step with their own gradients,
    and W independent models are trained."""
    return changed(text, ("replica = wrap(model)", "replica = model"))


@misconception("train_ddp", file=FILE)
def the_wrapper_is_saved(text):
    """The wrapper's state dict is saved: every name begins with `module.`, and the checkpoint does
    not load into the plain model."""
    return changed(text, ("torch.save(model.state_dict()", "torch.save(replica.state_dict()"))


@misconception("train_ddp", file=FILE)
def the_group_stays(text):
    """The process group is left behind: the next run in this process cannot join another, and
    threads of the backend live on."""
    return changed(text, ("        dist.destroy_process_group()\n", "        pass\n"))


# --- BucketedDDP ---------------------------------------------------------------------------------


@misconception("BucketedDDP", file=FILE)
def one_all_reduce_after_the_last_gradient(text):
    """All buckets leave at the end of backward: every gradient waits for the last one, and the
    whole exchange is exposed."""
    return changed(
        text,
        ("        self._launch_full_buckets()\n        # END SOLUTION", "        # END SOLUTION"),
        (
            "        used = self._count_unused",
            "        self._launch_full_buckets()\n        used = self._count_unused",
        ),
    )


@misconception("BucketedDDP", file=FILE)
def one_blocking_all_reduce(text):
    """All gradients travel in ONE blocking all-reduce when backward is over: nothing is left to
    compute beside it, so this is plain data parallelism and no overlap, whatever it is called."""
    return changed(
        text,
        ("        self._launch_full_buckets()\n        # END SOLUTION", "        # END SOLUTION"),
        (
            "        used = self._count_unused",
            """        every = [p for bucket in self.buckets for p in bucket]
        flat = torch.cat([p.grad.reshape(-1) for p in every])
        dist.all_reduce(flat.mul_(1 / dist.get_world_size()))
        for p, mean in zip(every, flat.split([p.numel() for p in every])):
            p.grad.copy_(mean.view_as(p))
        self.fresh.clear()
        self.active = False
        return
        used = self._count_unused""",
        ),
    )


@misconception("BucketedDDP", file=FILE)
def waits_in_the_gradient_hook(text):
    """Each bucket is waited for where it is launched: the backward stands still until the bucket
    is back, and asynchronous becomes a word."""
    return changed(
        text,
        (
            "self.running.append((flat, dist.all_reduce(flat, async_op=True)))",
            "self.running.append((flat, dist.all_reduce(flat, async_op=True)))\n"
            "            self.running[-1][1].wait()",
        ),
    )


@misconception("BucketedDDP", file=FILE)
def buckets_leave_when_they_are_ready(text):
    """Buckets leave in the order in which they get ready, and that order is not the same on every
    rank: rank 0's left branch meets rank 1's right branch. Launch in index order."""
    return changed(
        text,
        (
            "        while len(self.running) < len(self.buckets) and "
            "self.missing[len(self.running)] == 0:\n            index = len(self.running)\n",
            "        for index in [i for i, n in enumerate(self.missing) if n == 0]:\n"
            "            self.missing[index] = -1\n",
        ),
        (
            "self.running.append((flat,",
            "self.sent = [*self.sent, index] if self.running else [index]\n"
            "            self.running.append((flat,",
        ),
        (
            "bucket = self.buckets[index]\n            for",
            "bucket = self.buckets[self.sent[index]]\n            for",
        ),
    )


@misconception("BucketedDDP", file=FILE)
def parameters_are_broadcast_instead(text):
    """Rank 0's parameters are sent before every forward and gradients stay local: the replicas are
    equal, but W - 1 ranks compute for nothing, because only rank 0's rows train the model."""
    return changed(
        text,
        (
            "            self.active = self.synced  #",
            "            sync_module_(self.module)\n            self.active = False  #",
        ),
    )


@misconception("BucketedDDP", file=FILE)
def gradients_are_summed(text):
    """The buckets are summed and never scaled: gradients are W times the mean."""
    return changed(text, ("            flat.mul_(1 / dist.get_world_size())\n", ""))


@misconception("BucketedDDP", file=FILE)
def replicas_begin_unequal(text):
    """The constructor does not send rank 0's parameters: equal gradients keep the replicas exactly
    as far apart as they began."""
    return changed(text, ("        sync_module_(module)\n        params", "        params"))


@misconception("BucketedDDP", file=FILE)
def statistics_begin_unequal(text):
    """The constructor sends rank 0's parameters and no buffer: training never reads BatchNorm's
    running statistics, so nothing shows until each rank evaluates another model."""
    return changed(
        text,
        (
            "        sync_module_(module)\n        params",
            "        for p in module.parameters():\n            dist.broadcast(p.data, src=0)\n"
            "        params",
        ),
    )


@misconception("BucketedDDP", file=FILE)
def a_bucket_for_each_parameter(text):
    """Every parameter is a bucket of its own: the latency of an all-reduce is paid for each of
    them, and small ones never use the bandwidth."""
    return changed(text, ("assign_buckets(nbytes, caps)]", "[[i] for i in range(len(nbytes))]]"))


@misconception("BucketedDDP", file=FILE)
def buckets_in_parameter_order(text):
    """The buckets are planned from the first parameter on, but gradients come from the last one:
    bucket 0 is full when backward is over, and index order holds all others back until then."""
    return changed(text, ("reversed(list(module.parameters()))", "list(module.parameters())"))


@misconception("BucketedDDP", file=FILE)
def nobody_waits(text):
    """backward returns while buckets are still on their way, and .grad keeps this rank's own
    gradients: the end of backward must wait and write the means back."""
    return changed(text, ("queue_callback(self._on_backward_end)", "queue_callback(lambda: None)"))


# --- no_sync -------------------------------------------------------------------------------------


@misconception("no_sync", file=FILE)
def backward_decides(text):
    """The gradient hook asks whether it is inside no_sync() NOW; the decision belongs to forward,
    so that a backward called outside the block still keeps its gradients to itself."""
    return changed(
        text,
        ("self.active = self.synced  #", "self.active = True  #"),
        ("        if not self.active:", "        if not self.synced:"),
    )


@misconception("no_sync", file=FILE)
def it_never_ends(text):
    """The block does not give back what held before it: after the first no_sync() no gradient is
    ever exchanged again, and the replicas drift apart."""
    return changed(text, ("            self.synced = before\n", "            pass\n"))


@misconception("no_sync", file=FILE)
def it_changes_nothing(text):
    """Every micro-step exchanges its gradients: the result is nearly the same, for N times the
    bytes."""
    return changed(text, ("before, self.synced = self.synced, False", "before = self.synced"))


# --- find_unused ---------------------------------------------------------------------------------


@misconception("find_unused", file=FILE)
def buckets_that_are_not_full_never_leave(text):
    """Rank 1 waits for a bucket rank 0 will never fill."""
    return changed(
        text,
        (
            "        self.missing = [0] * len(self.buckets)\n        self._launch_full_buckets()\n",
            "        self.buckets = self.buckets[: len(self.running)]\n",
        ),
        (
            "        params = [p for bucket in self.buckets for p in bucket]\n        users",
            "        return set(self.fresh)\n        params = []\n        users",
        ),
    )


@misconception("find_unused", file=FILE)
def zeros_for_everybody(text):
    """A parameter that no rank used gets a gradient of zeros instead of None; weight decay and
    momentum then move a layer that took no part."""
    return changed(
        text,
        (
            "return {p for p, count in zip(params, users.tolist(), strict=True) if count}",
            "return set(params)",
        ),
    )


@misconception("find_unused", file=FILE)
def only_who_used_it_gets_the_mean(text):
    """The mean is written only on the ranks that used the parameter; the others keep None, do not
    step, and the replicas drift apart."""
    return changed(
        text,
        (
            "return {p for p, count in zip(params, users.tolist(), strict=True) if count}",
            "return set(self.fresh)",
        ),
    )


@misconception("find_unused", file=FILE)
def the_mean_is_over_the_users(text):
    """The sum is divided by the number of ranks that used the parameter; a mean over the global
    batch counts the others' rows too, as zeros."""
    return changed(
        text,
        (
            "        return {p for p, count",
            "        counts = dict(zip(params, users.tolist()))\n"
            "        for (flat, work), bucket in zip(self.running, self.buckets):\n"
            "            work.wait()\n"
            "            pieces = flat.split([p.numel() for p in bucket])\n"
            "            for p, piece in zip(bucket, pieces):\n"
            "                piece.mul_(dist.get_world_size() / max(counts[p], 1))\n"
            "        return {p for p, count",
        ),
    )
