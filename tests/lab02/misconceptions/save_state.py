from grader.suite import misconception


@misconception(replaces="load_state")
def only_the_weights(path, model, opt, scaler, sampler):
    """Only the weights are loaded: the optimizer's means, the loss scale, the sampler's place and
    the random generators start anew, so the run is another one."""
    model.load_state_dict(torch.load(path, weights_only=True)["model"])


@misconception(replaces="load_state")
def starts_the_epoch_again(path, model, opt, scaler, sampler):
    """The sampler starts its epoch again at row 0: rows that were seen come twice. The offset in
    the epoch is part of the state."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], 0
    torch.set_rng_state(state["rng"]["torch"])
    numpy.random.set_state(state["rng"]["numpy"])
    random.setstate(state["rng"]["python"])


@misconception(replaces="load_state")
def the_first_epoch_again(path, model, opt, scaler, sampler):
    """The cursor is restored and the epoch is not, so the rows come in the order of another
    epoch's shuffle."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = 0, state["sampler"]["cursor"]
    torch.set_rng_state(state["rng"]["torch"])
    numpy.random.set_state(state["rng"]["numpy"])
    random.setstate(state["rng"]["python"])


@misconception(replaces="load_state")
def generators_are_not_restored(path, model, opt, scaler, sampler):
    """The random generators are not restored: the first dropout mask after loading is another one,
    and every loss from there on."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]


@misconception(replaces="load_state")
def only_torchs_generator(path, model, opt, scaler, sampler):
    """Only torch's generator is restored; augmentation draws from NumPy's and Python's, which are
    generators of their own."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]
    torch.set_rng_state(state["rng"]["torch"])


@misconception(replaces="load_state")
def a_seed_instead_of_a_state(path, model, opt, scaler, sampler):
    """The generators are seeded again as at the start of the run, which repeats its first random
    numbers instead of going on: a seed is not a state."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]
    torch.manual_seed(1)
    numpy.random.seed(1)
    random.seed(1)


@misconception(replaces="load_state")
def without_the_optimizer(path, model, opt, scaler, sampler):
    """The optimizer's state is not restored: the first loss is right, and AdamW's next step starts
    from empty means, so the second is not."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]
    torch.set_rng_state(state["rng"]["torch"])
    numpy.random.set_state(state["rng"]["numpy"])
    random.setstate(state["rng"]["python"])


@misconception(replaces="load_state")
def without_the_scaler(path, model, opt, scaler, sampler):
    """The loss scaler starts anew: its scale and its count of clean steps are part of the run."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]
    torch.set_rng_state(state["rng"]["torch"])
    numpy.random.set_state(state["rng"]["numpy"])
    random.setstate(state["rng"]["python"])


@misconception()
def saves_live_objects(path, model, opt, scaler, sampler):
    """Whole objects are pickled; torch.load(weights_only=True) refuses them, for reading them
    would run code. Save state_dicts and plain data."""
    torch.save({"model": model.state_dict(), "rng": numpy.random.get_state(), "opt": opt}, path)


@misconception()
def forgets_keys(path, model, opt, scaler, sampler):
    """The file lacks parts of the state: model, opt, scaler, sampler and rng all belong in it."""
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, path)
