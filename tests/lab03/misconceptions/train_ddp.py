from grader.suite import lines

no_set_epoch = lines(
    """Every epoch reads the rows in the order of epoch 0: the epoch never reached the sampler
    (set_epoch was forgotten).""",
    ("rank, world_size, epoch, seed)", "rank, world_size, 0, seed)"),
)

every_rank_reads_everything = lines(
    """Every rank reads all rows: DDP does not split a batch, the sampler does, and without it W
    ranks do the work of one W times.""",
    ("shard_indices(len(x), rank, world_size, epoch", "shard_indices(len(x), 0, 1, epoch"),
)

every_rank_saves = lines(
    """Every rank writes the checkpoint: W writers of one file destroy it, on disks of their own W
    - 1 copies are wasted. Replicas are equal, rank 0 saves.""",
    ("if rank == 0 and str(checkpoint):", "if str(checkpoint):"),
)

local_losses_are_logged = lines(
    """The logged loss is the one of this rank's own rows; the loss of the run is the mean over all
    ranks and needs a reduction.""",
    ("dist.all_reduce(log)\n", "log *= world_size\n"),
)

summed_losses_are_logged = lines(
    """The losses are summed over the ranks and never divided: the curve is W times too high.""",
    ("(log / world_size).tolist()", "log.tolist()"),
)

replicas_are_never_tied = lines(
    """The model is not wrapped: ranks begin with different weights, step with their own gradients,
    and W independent models are trained.""",
    ("replica = wrap(model)", "replica = model"),
)

the_wrapper_is_saved = lines(
    """The wrapper's state dict is saved: every name begins with `module.`, and the checkpoint does
    not load into the plain model.""",
    ("torch.save(model.state_dict()", "torch.save(replica.state_dict()"),
)

the_group_stays = lines(
    """The process group is left behind: the next run in this process cannot join another, and
    threads of the backend live on.""",
    ("        dist.destroy_process_group()\n", "        pass\n"),
)
