from grader.suite import lines, misconception

WEIGHTS = '    model.load_state_dict(state["model"])\n'
OPT = '    opt.load_state_dict(state["opt"])\n'
SCALER = '        scaler.load_state_dict(state["scaler"])\n'
PLACE = 'sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]\n'
TORCH = '    torch.set_rng_state(rng["torch"])\n'
NUMPY = '    numpy.random.set_state(rng["numpy"])\n'
PYTHON = '    random.setstate(rng["python"])\n'

only_the_weights = lines(
    """Only the weights are loaded: the optimizer's means, the loss scale, the sampler's place and
    the random generators start anew, so the run is another one.""",
    (OPT, ""),
    (SCALER, "        pass\n"),
    ("    " + PLACE, ""),
    (TORCH, ""),
    (NUMPY, ""),
    (PYTHON, ""),
)

starts_the_epoch_again = lines(
    """The sampler starts its epoch again at row 0: rows that were seen come twice. The offset in
    the epoch is part of the state.""",
    ('state["sampler"]["epoch"], state["sampler"]["cursor"]', 'state["sampler"]["epoch"], 0'),
)

the_first_epoch_again = lines(
    """The cursor is restored and the epoch is not, so the rows come in the order of another
    epoch's shuffle.""",
    ('state["sampler"]["epoch"], state["sampler"]["cursor"]', '0, state["sampler"]["cursor"]'),
)

generators_are_not_restored = lines(
    """The random generators are not restored: the first dropout mask after loading is another one,
    and every loss from there on.""",
    (TORCH, ""),
    (NUMPY, ""),
    (PYTHON, ""),
)

OTHER_GENERATORS = """Only torch's generator is restored; augmentation draws from NumPy's and
Python's, which are generators of their own."""

only_torchs_generator = lines(OTHER_GENERATORS, (NUMPY, ""), (PYTHON, ""))

without_pythons_generator = lines(
    """Python's generator is not restored: what `random` draws after loading is drawn from another
    place in its sequence.""",
    (PYTHON, ""),
)

without_numpys_generator = lines(
    """NumPy's generator is not restored: what `numpy.random` draws after loading is drawn from
    another place in its sequence.""",
    (NUMPY, ""),
)

without_torchs_generator = lines(
    """torch's generator is not restored: the first dropout mask after loading is another one.""",
    (TORCH, ""),
)

numpys_stock_is_lost = lines(
    """NumPy makes normal numbers in pairs and keeps the second; has_gauss and cached_gaussian of
    get_state() are that one, and without them the next normal number is another.""",
    ('set_state(rng["numpy"])', 'set_state(rng["numpy"][:3])'),
)

pythons_stock_is_lost = lines(
    """random.gauss makes normal numbers in pairs and keeps the second; the last part of getstate()
    is that one, and without it the next normal number is another.""",
    ('random.setstate(rng["python"])', 'random.setstate((*rng["python"][:2], None))'),
)

SEED = """The generators are seeded again as at the start of the run, which repeats its first random
numbers instead of going on: a seed is not a state."""

a_seed_instead_of_a_state = lines(
    SEED,
    (TORCH, "    torch.manual_seed(1)\n"),
    (NUMPY, "    numpy.random.seed(1)\n"),
    (PYTHON, "    random.seed(1)\n"),
)

torchs_seed_instead_of_its_state = lines(SEED, (TORCH, "    torch.manual_seed(1)\n"))

without_the_optimizer = lines(
    """The optimizer's state is not restored: the first loss is right, and AdamW's next step starts
    from empty means, so the second is not.""",
    (OPT, ""),
)

without_the_groups = lines(
    """The optimizer's means are restored and its groups are not: the learning rate that a schedule
    had come to is part of the state.""",
    (
        'load_state_dict(state["opt"])',
        'load_state_dict({**opt.state_dict(), "state": state["opt"]["state"]})',
    ),
)

without_the_scaler = lines(
    """The loss scaler starts anew: its scale and its count of clean steps are part of the run.""",
    (SCALER, "        pass\n"),
)

BUFFERS = """The file has the model's parameters and not its buffers: a batch norm's running
means are part of the model. Save state_dict()."""

without_the_buffers = lines(
    BUFFERS,
    ('"model": model.state_dict(),', '"model": dict(model.named_parameters()),'),
    ('(state["model"])', '(state["model"], strict=False)'),
)

LIVE = """What is no plain data is pickled; torch.load(weights_only=True) refuses it, for reading it
would run code. Save state_dicts, tensors, numbers, lists and texts."""

saves_live_objects = lines(
    LIVE,
    ('"opt": opt.state_dict(),', '"opt": opt,'),
    ('(state["opt"])', '(state["opt"].state_dict())'),
    ("torch.load(path, weights_only=True)", "torch.load(path, weights_only=False)"),
)

pickles_numpys_array = lines(
    LIVE,
    ("keys.tolist()", "keys"),
    ("torch.load(path, weights_only=True)", "torch.load(path, weights_only=False)"),
)


@misconception()
def forgets_keys(path, model, opt, scaler, sampler):
    """The file lacks parts of the state: model, opt, scaler, sampler and rng all belong in it."""
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, path)
