from grader.suite import lines, misconception


@misconception(replaces="MemoryLedger._end_of_phase")
def lazy_state_is_temporary(self):
    """The optimizer's state, made in its first step, is counted as temporary: look into opt.state
    again after each phase, for it is empty before that step."""
    for p in self.model.parameters():
        record = p.grad is not None and self.living.get(p.grad.untyped_storage().data_ptr())
        if record and record[0] == "temp":
            record[0] = "grad"
    for record in self.living.values():
        if self.now == "fwd" and record[0] == "temp" and record[2] == "fwd":
            record[0] = "act"


@misconception(replaces="MemoryLedger._follow")
def views_count_again(self, tensor, kind):
    """Tensors are counted, not storages: a view of a tensor is counted as if it had memory of its
    own. Key by the storage."""
    key = id(tensor)
    record = [kind, tensor.nbytes, self.now]
    self.living[key] = record
    self.watched[key] = weakref.ref(tensor, lambda _: self._freed(key))
    self.course.append((self.now, record, +1))


@misconception(replaces="MemoryLedger._freed")
def nothing_is_ever_freed(self, address):
    """What dies is never taken off, so the ledger tells what was allocated in all and not what was
    alive: a weak reference to the storage tells its end."""
    self.living.pop(address, None)
    self.watched.pop(address, None)


@misconception(replaces="MemoryLedger.__torch_dispatch__")
def the_batch_is_counted(self, func, types, args=(), kwargs=None):
    """Views of tensors from before the block are taken for new memory: what an operator was given
    and shows again was not born there."""
    out = func(*args, **(kwargs or {}))
    for leaf in tree_leaves(out):
        if isinstance(leaf, Tensor):
            self._follow(leaf, "temp")
    return out


@misconception(replaces="MemoryLedger._end_of_phase")
def gradients_are_temporary(self):
    """Gradients are counted as temporary memory of the backward: the parameters' `.grad` keeps
    them until they are zeroed."""
    for record in self.living.values():
        if self.now == "fwd" and record[0] == "temp" and record[2] == "fwd":
            record[0] = "act"
    for state in self.opt.state.values():
        for leaf in tree_leaves(state):
            record = isinstance(leaf, Tensor) and self.living.get(leaf.untyped_storage().data_ptr())
            if record and record[0] == "temp":
                record[0] = "opt"


everything_of_the_forward_is_an_activation = lines(
    """Every tensor that the forward makes is called an activation; those that die before it ends
    were temporary: an activation is what waits for the backward.""",
    (
        "for record in self.living.values():\n"
        '            if self.now == "fwd" and record[0] == "temp" and record[2] == "fwd":',
        "for _, record, _ in self.course:\n"
        '            if record and record[0] == "temp" and record[2] == "fwd":',
    ),
)

each_kinds_own_peak = lines(
    """The peak of a phase is put together from moments that never were: each kind's own highest
    value. What ran out of memory is the sum at ONE moment.""",
    ("super().__exit__(*error)", "TorchDispatchMode.__exit__(self, *error)"),
    ("        highest: dict[str, int] = {}\n", ""),
    (
        "if sum(total.values()) > highest.get(name, -1):\n"
        "                highest[name] = sum(total.values())\n"
        "                self.peak[name] = dict(total)",
        "row = self.peak.setdefault(name, dict(total))\n"
        "            self.peak[name] = {kind: max(row[kind], total[kind]) for kind in KINDS}",
    ),
)

the_end_of_a_phase = lines(
    """What is told is what was alive when a phase ended, not its peak: the highest moment lies
    somewhere inside.""",
    ("super().__exit__(*error)", "TorchDispatchMode.__exit__(self, *error)"),
    ("        highest: dict[str, int] = {}\n", ""),
    (
        "if sum(total.values()) > highest.get(name, -1):\n"
        "                highest[name] = sum(total.values())\n"
        "                self.peak[name] = dict(total)",
        "self.peak[name] = dict(total)",
    ),
)


@misconception(replaces="MemoryLedger.__enter__")
def only_what_is_born_inside(self):
    """What exists when the ledger opens is left out: parameters, and the optimizer's state from
    the second step on, are the larger part of the memory."""
    self.course.append((self.now, None, 0))
    TorchDispatchMode.__enter__(self)
    return self
