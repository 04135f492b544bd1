from grader.suite import lines

weights_stay_after_the_forward = lines(
    """Weights come before each forward and never leave: after one call everything is in fast
    memory, as without offload. A forward hook has to send them away.""",
    ("                self.hooks.append(part.register_forward_hook(self.go))\n", ""),
)

brings_everything_below = lines(
    """A module's hook brings parameters() and with them those of all modules below it, so the
    outermost module brings the whole model. Own tensors are those of recurse=False.""",
    (
        "return [*module.parameters(recurse=False), *module.buffers(recurse=False)]",
        "return [*module.parameters(), *module.buffers()]",
    ),
)

hooks_only_modules_without_children = lines(
    """Only modules without children were hooked. A module can have children and parameters of its
    own (a gain, a class token): its weights never come, and its forward stops with a wrong
    shape.""",
    ("            if own_tensors(part):\n", "            if not list(part.children()):\n"),
)

forgets_the_buffers = lines(
    """Buffers were forgotten: they are part of a module's memory as parameters are, and stayed in
    fast memory. Take buffers() beside parameters().""",
    (
        "return [*module.parameters(recurse=False), *module.buffers(recurse=False)]",
        "return [*module.parameters(recurse=False)]",
    ),
    (
        "        for tensor in [*module.parameters(), *module.buffers()]:\n"
        "            to_slow(tensor)\n",
        "        for tensor in module.parameters():\n            to_slow(tensor)\n",
    ),
)

sends_away_what_is_still_needed = lines(
    """A tied weight left with the inner module while the outer one still needed it. Count who uses
    a tensor: it leaves when the last of them is done.""",
    (
        "        self.running.remove(part)\n        for tensor in self.unused(part):\n",
        "        self.running.remove(part)\n        for tensor in own_tensors(part):\n",
    ),
    (
        "        for tensor in self.unused(part):\n            self.to_fast(tensor)\n",
        "        for tensor in own_tensors(part):\n            self.to_fast(tensor)\n",
    ),
)

brings_a_tied_weight_twice = lines(
    """A weight that an outer module had brought was brought again for the inner one: a copy over
    the link for what is there already. Bring a tensor for its first user only.""",
    (
        "        for tensor in self.unused(part):\n            self.to_fast(tensor)\n",
        "        for tensor in own_tensors(part):\n            self.to_fast(tensor)\n",
    ),
)

everything_stays_until_first_used = lines(
    """Nothing leaves on construction, so the whole model lies in fast memory until each module has
    run once. The peak of the first call is that of no offload at all.""",
    (
        "        for tensor in [*module.parameters(), *module.buffers()]:\n"
        "            to_slow(tensor)\n",
        "",
    ),
)

keeps_a_copy = lines(
    """A copy of every weight is kept beside the one that was moved: what left fast memory under its
    name is still there under another.""",
    (
        "        self.running: list[nn.Module] = []\n",
        "        self.running: list[nn.Module] = []\n        self.copies = []\n",
    ),
    (
        "            self.to_fast(tensor)\n        self.running.append(part)\n",
        "            self.to_fast(tensor)\n"
        "            self.copies.append(tensor.detach().clone())\n"
        "        self.running.append(part)\n",
    ),
)

the_old_buffer_leaves = lines(
    """What came is what left, but a forward may have put a new tensor under a buffer's name: the
    old one, which nobody needs, went to slow memory, and the new one stayed in fast memory. Look at
    what the module holds after its forward.""",
    (
        "        for tensor in self.unused(part):\n            self.to_fast(tensor)\n",
        "        part.brought = (self.unused(part),)\n"
        "        for tensor in part.brought[0]:\n            self.to_fast(tensor)\n",
    ),
    (
        "        for tensor in self.unused(part):\n            self.to_slow(tensor)\n",
        "        for tensor in part.brought[0]:\n            self.to_slow(tensor)\n",
    ),
)

moves_what_is_saved = lines(
    """What a state_dict names was moved. A buffer that is not saved (persistent=False, such as a
    table of angles) takes memory as well: take parameters() and buffers().""",
    (
        "    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]\n",
        "    saved = module.state_dict(keep_vars=True).items()\n"
        '    return list({id(t): t for name, t in saved if "." not in name}.values())\n',
    ),
    (
        "        for tensor in [*module.parameters(), *module.buffers()]:\n",
        "        parts = [t for part in module.modules() for t in own_tensors(part)]\n"
        "        for tensor in {id(t): t for t in parts}.values():\n",
    ),
)
