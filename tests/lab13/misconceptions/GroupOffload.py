from grader.suite import lines

a_group_leaves_after_each_block = lines(
    """A group leaves after each of its blocks and comes again for the next one: k times the copies.
    It leaves after its last block.""",
    (
        "            self.hooks.append(group[-1].register_forward_hook(self.go))\n",
        "            self.hooks += [block.register_forward_hook(self.go) for block in group]\n",
    ),
)

groups_never_leave = lines(
    """A group comes and never leaves, so after one step all blocks are in fast memory. The hook of
    a group's last block has to send it away.""",
    ("            self.hooks.append(group[-1].register_forward_hook(self.go))\n", ""),
    (
        "            self.go()\n            self.resident = next",
        "            self.resident = next",
    ),
)

a_group_waits_for_the_next = lines(
    """A group leaves only when the next one is called, so after the last block of a step the
    last group stays, and lies beside whatever runs between two steps. It leaves after its last
    block.""",
    ("            self.hooks.append(group[-1].register_forward_hook(self.go))\n", ""),
)

the_next_group_comes_too_early = lines(
    """The next group comes before the old one leaves, and two groups are there at once: that is
    what prefetching pays, and here it was not asked for.""",
    (
        "            self.hooks.append(group[-1].register_forward_hook(self.go))\n",
        "            self.hooks.append(group[0].register_forward_hook(self.go_before))\n",
    ),
    (
        "    def go(self, *_: object) -> None:\n",
        "    def go_before(self, block, *_):\n"
        "        for before in self.groups:\n"
        "            if block not in before and before is self.last:\n"
        "                self.move(before, self.to_slow)\n"
        "        self.last = self.resident\n\n"
        "    last = None\n\n"
        "    def go(self, *_: object) -> None:\n",
    ),
    (
        "            self.go()\n            self.resident = next(",
        "            self.resident = next(",
    ),
)

every_kth_block = lines(
    """Blocks 0, k, 2k... were put into one group. Blocks run in their order, so a group is k blocks
    in a row: block i belongs to group i // k.""",
    (
        "self.groups = [self.blocks[start : start + k] for start in range(0, len(self.blocks), k)]",
        "count = -(-len(self.blocks) // k)\n"
        "        self.groups = [self.blocks[start::count] for start in range(count)]",
    ),
)

makes_k_groups = lines(
    """k was taken for the number of groups. It is the number of blocks in a group: 40 blocks with k
    = 2 are 20 groups.""",
    (
        "self.groups = [self.blocks[start : start + k] for start in range(0, len(self.blocks), k)]",
        "size = -(-len(self.blocks) // k)\n"
        "        starts = range(0, len(self.blocks), size)\n"
        "        self.groups = [self.blocks[start : start + size] for start in starts]",
    ),
)

loses_the_last_blocks = lines(
    """The last, smaller group got no hooks: with 7 blocks and k = 3 the last block's weights never
    come. The number of groups is ceil(L / k).""",
    (
        "for start in range(0, len(self.blocks), k)]",
        "for start in range(0, len(self.blocks) - k + 1, k)]",
    ),
)

moves_shared_weights_with_each_block = lines(
    """A weight that two blocks of a group share moved with each of them: twice over the link for
    one tensor. Move each distinct tensor of the group once.""",
    (
        "for tensor in {id(tensor): tensor for tensor in tensors}.values():",
        "for tensor in tensors:",
    ),
)

buffers_of_blocks_stay = lines(
    """Buffers were forgotten: they stayed in fast memory while their group was away. A block is its
    parameters() and its buffers().""",
    (
        "for t in [*block.parameters(), *block.buffers()]]",
        "for t in block.parameters()]",
    ),
)

a_skipped_last_block_leaves_its_group = lines(
    """A group left only after its last block. Where that one is skipped, the group is still there
    when the next one comes: make room before a group comes.""",
    (
        "            self.go()\n            self.resident = next",
        "            self.resident = next",
    ),
)

only_the_first_block_brings_its_group = lines(
    """Only the first block of a group brings it. Where that one is skipped, the others find
    nothing: whichever block is called brings its group.""",
    (
        "                self.hooks.append(block.register_forward_pre_hook(self.come))\n",
        "                if block is group[0]:\n"
        "                    self.hooks.append(block.register_forward_pre_hook(self.come))\n",
    ),
)

walks_an_iterator_twice = lines(
    """The blocks were walked twice. An iterator is used up by then: no groups are made, and nothing
    comes back. Make a list of them first.""",
    (
        "        self.blocks, self.to_fast, self.to_slow = list(blocks), to_fast, to_slow\n",
        "        self.to_fast, self.to_slow, walked = to_fast, to_slow, list(blocks)\n"
        "        self.blocks = list(blocks)\n",
    ),
)

moves_a_groups_old_tensors = lines(
    """What moves was listed once, in the beginning. A forward may put a new tensor under a buffer's
    name: then the old one moves, which nobody needs, and the new one stays.""",
    (
        "        self.resident: list[nn.Module] = []\n",
        "        self.resident: list[nn.Module] = []\n"
        "        self.listed = {b: [*b.parameters(), *b.buffers()] for b in self.blocks}\n",
    ),
    ("for t in [*block.parameters(), *block.buffers()]]", "for t in self.listed[block]]"),
)

sends_the_blocks_away_first = lines(
    """The blocks were walked twice. An iterator is used up by then: no groups are made, and nothing
    comes back. Make a list of them first.""",
    (
        "        self.blocks, self.to_fast, self.to_slow = list(blocks), to_fast, to_slow\n",
        "        self.to_fast, self.to_slow = to_fast, to_slow\n"
        "        self.move(blocks, to_slow)\n"
        "        self.blocks = list(blocks)\n",
    ),
    (
        "        self.resident: list[nn.Module] = []\n        self.move(self.blocks, to_slow)\n",
        "        self.resident: list[nn.Module] = []\n",
    ),
)
