from grader.suite import lines, misconception

lazy_state_is_temporary = lines(
    """The optimizer's state, made in its first step, is counted as temporary: look into opt.state
    again after each phase, for it is empty before that step.""",
    ("        for kind, tensor in self._owned():\n            self._follow(tensor, kind)  #",
     '        for kind, tensor in (row for row in self._owned() if row[0] != "opt"):\n'
     "            self._follow(tensor, kind)  #"),
)  # fmt: skip


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


the_batch_is_counted = lines(
    """Views of tensors from before the block are taken for new memory: what an operator was given
    and shows again was not born there.""",
    (
        "isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in given",
        "isinstance(leaf, Tensor)",
    ),
)

gradients_are_temporary = lines(
    """Gradients are counted as temporary memory of the backward: the parameters' `.grad` keeps
    them until they are zeroed.""",
    ("        for kind, tensor in self._owned():\n            self._follow(tensor, kind)  #",
     '        for kind, tensor in (row for row in self._owned() if row[0] != "grad"):\n'
     "            self._follow(tensor, kind)  #"),
)  # fmt: skip

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
    ("        highest: dict[str, int] = {}\n", ""),
    (
        "if sum(total.values()) > highest.get(name, -1):\n"
        "                highest[name] = sum(total.values())\n"
        "                self.peak[name] = dict(total)",
        "self.peak[name] = dict(total)",
    ),
)


BORN_INSIDE = """What exists when the ledger opens is left out: parameters, and the optimizer's
state from the second step on, are the larger part of the memory."""

only_what_is_born_inside = lines(
    BORN_INSIDE,
    ('        for p in self.model.parameters():\n            self._follow(p, "param")\n', ""),
    ("        for kind, tensor in self._owned():\n            self._follow(tensor, kind)\n", ""),
)

starts_without_the_first_phase = lines(
    """What a phase finds alive when it begins is not looked at: a phase in which nothing is
    born has a peak, too.""",
    (
        "        self.now = name\n        self.course.append((name, None, 0))\n",
        "        self.now = name\n",
    ),
)

the_peak_at_births_only = lines(
    """The peak is looked at when a tensor is born, and when a phase is entered for the first
    time: a later turn that finds much alive and only frees has a peak, too, its first moment.""",
    (
        "if sum(total.values()) > highest.get(name, -1):",
        "if (sign > 0 or name not in highest) and sum(total.values()) > highest.get(name, -1):",
    ),
)

the_first_owner_stays = lines(
    """A storage keeps the first owner that it had; it has the first kind of the list that EVER
    fits: what was state at the end of one phase and is a `.grad` at the end of a later one is
    grad.""",
    (
        "if record and KINDS.index(kind) < KINDS.index(record[0]):",
        'if record and record[0] in ("act", "temp"):',
    ),
    gate=False,
)

arguments_by_position_only = lines(
    """What an operator is given by name is not looked at: a tensor from before the block that is
    passed as `out=` is taken for a new one. Look through args and kwargs.""",
    ("tree_leaves((args, kwargs))", "tree_leaves(args)"),
)

bytes_of_the_tensor = lines(
    """What is counted are the elements of the tensor that is seen first, not the bytes of its
    storage: a view keeps the whole of the buffer alive that it shows a part of.""",
    ("[kind, storage.nbytes(), self.now]", "[kind, tensor.nbytes, self.now]"),
    gate=False,
)

the_last_of_equal_moments = lines(
    """Of several moments with equally many bytes the last is told; a peak is the first moment at
    which most bytes were alive. Change the row only where the sum is higher.""",
    ("if sum(total.values()) > highest", "if sum(total.values()) >= highest"),
    gate=False,
)

single_results_only = lines(
    """An operator's result is followed only if it is a single tensor; what stands in a tuple or a
    list (a sort gives two, a foreach operator many) is memory as well.""",
    ("for leaf in tree_leaves(out):", "for leaf in [out]:"),
    gate=False,
)
