from grader.suite import lines

leaves_after_every_call = lines(
    """The component leaves after every call, so the denoiser's weights cross the link once a step
    and not once a run. It has to stay until another component is called.""",
    (
        "        self.hooks = [part.register_forward_pre_hook(self.come) for part in self.chain]\n",
        "        self.hooks = [part.register_forward_pre_hook(self.come) for "
        "part in self.chain]\n"
        "        self.hooks += [\n"
        "            part.register_forward_hook(lambda *_: self.finish()) for "
        "part in self.chain\n"
        "        ]\n",
    ),
)

comes_before_the_other_leaves = lines(
    """The new component comes before the old one has left, so for a moment both are in fast memory:
    the peak is the sum of two components, not the largest. First make room.""",
    (
        "            self.finish()\n"
        "            self.move(part, self.to_fast)\n"
        "            self.resident = part\n",
        "            self.move(part, self.to_fast)\n"
        "            self.finish()\n"
        "            self.resident = part\n",
    ),
)

nothing_leaves = lines(
    """Components come when they are called and none of them leaves: at the end of a run all of them
    are there. Whoever is there leaves before the next one comes.""",
    (
        "            self.finish()\n            self.move(part, self.to_fast)\n",
        "            self.move(part, self.to_fast)\n",
    ),
)

comes_again_in_every_step = lines(
    """The component is brought before every call, also when it is there: the denoiser crosses the
    link once a step. Look first whether it is the one that is resident.""",
    (
        "            self.resident = part\n",
        "            self.resident = part\n"
        "        else:\n"
        "            self.move(part, self.to_fast)\n",
    ),
)

moves_tied_weights_twice = lines(
    """The component was walked module by module, and a weight that two of them hold moved twice.
    parameters() of the whole component names every tensor once.""",
    (
        "        for tensor in [*part.parameters(), *part.buffers()]:  # both "
        "name a tied tensor once\n"
        "            mover(tensor)\n",
        "        for module in part.modules():\n"
        "            for tensor in [*module.parameters(recurse=False), "
        "*module.buffers(recurse=False)]:\n"
        "                mover(tensor)\n",
    ),
)

buffers_of_a_component_stay = lines(
    """Buffers were forgotten: they are in fast memory, too, and stayed there. A component is its
    parameters() and its buffers().""",
    (
        "        for tensor in [*part.parameters(), *part.buffers()]:  # both "
        "name a tied tensor once\n",
        "        for tensor in part.parameters():\n",
    ),
)

the_last_one_never_leaves = lines(
    """finish() does nothing, so the decoder lies in fast memory between two runs, beside whatever
    the program does then.""",
    (
        "if self.resident is not None:\n"
        "            self.move(self.resident, self.to_slow)\n"
        "            self.resident = None",
        "pass",
    ),
    (
        "            self.finish()",
        "            if self.resident is not None:\n"
        "                self.move(self.resident, self.to_slow)",
    ),
)

others_leave_as_well = lines(
    """Components that seq does not name left as well, and nothing ever brings them back: those stay
    where they are.""",
    (
        "        for part in self.chain:\n            self.move(part, to_slow)\n",
        "        for part in components.values():\n            self.move(part, to_slow)\n",
    ),
)

finish_forgets_that_it_left = lines(
    """finish() sent the component away and still thinks that it is there: the next call of it finds
    nothing. Whoever leaves is not resident any more.""",
    (
        "            self.move(self.resident, self.to_slow)\n            self.resident = None\n",
        "            self.move(self.resident, self.to_slow)\n",
    ),
)

moves_a_components_old_tensors = lines(
    """What moves was listed once, in the beginning. A forward may put a new tensor under a buffer's
    name: then the old one moves, which nobody needs, and the new one stays.""",
    (
        "        self.resident: nn.Module | None = None\n",
        "        self.resident: nn.Module | None = None\n"
        "        self.listed = {p: [*p.parameters(), *p.buffers()] for p in self.chain}\n",
    ),
    (
        "        for tensor in [*part.parameters(), *part.buffers()]:"
        "  # both name a tied tensor once\n",
        "        for tensor in self.listed[part]:\n",
    ),
)

moves_while_it_looks = lines(
    """Each component leaves as soon as its own name is found, so those in front of a wrong name are
    away when the error comes. Look at all names first, then move.""",
    (
        'named once")\n',
        'named once")\n            self.move(components[name], to_slow)\n',
    ),
    ("        for part in self.chain:\n            self.move(part, to_slow)\n", ""),
    gate=False,
)
