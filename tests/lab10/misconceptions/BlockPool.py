from grader.suite import lines

TAKEN_OUT = "                del self._cached[block]\n            self"
TAKEN_OUT_OF_EITHER = """                if block in self._cached:
                    del self._cached[block]
                else:
                    self._blank.remove(block)
            self"""
INTO_THE_QUEUE = """                if block in hash_of:
                    self._cached[block] = None
                else:
                    blank.append(block)
"""
KEEPS = "self._blocks_with.setdefault(content, {})[block] = None"
IS_FORGOTTEN = """        same = self._blocks_with[content]
        del same[block]
        if not same:
            del self._blocks_with[content]
"""

a_hash_of_zero_is_never_forgotten = lines(
    """A block whose hash is 0 keeps it when it is handed out, because 0 is false: whoever looks for
    0 later finds a block with another content. Ask whether there is a hash.""",
    (
        "                self._forget(block)\n",
        "                if self._hash_of[block]:\n                    self._forget(block)\n",
    ),
)

touch_goes_through_twice = lines(
    """touch goes through its blocks twice, first for the queue and then for the references; of a
    generator nothing is left the second time. One loop does both, or a list is made first.""",
    (
        TAKEN_OUT,
        "                self._cached.pop(block, None)\n"
        "        for block in blocks:\n            self",
    ),
)

blocks_without_a_hash_in_order = lines(
    """Of several blocks without a hash the first of the table stands at the front of the queue; a
    table is freed from its end, also at the head, so the last one does.""",
    ("self._blank.extend(reversed(blank))", "self._blank.extend(blank)"),
)


frees_in_forward_order = lines(
    """A table is freed from its beginning, so its first block is overwritten first: you evict the
    shared prefix before the private tail, and without the prefix the tail cannot be found.""",
    ("for block in reversed(blocks):", "for block in blocks:"),
)

frees_a_shared_block_at_once = lines(
    """The first request that ends puts a shared block into the free queue while the other still
    reads it: a double free. Subtract one reference, and free at zero.""",
    (
        "            references[block] -= 1\n            if references[block] == 0:\n",
        "            references[block] = 0\n            if block not in self._cached:\n",
    ),
    ('raise ValueError(f"block {block} is freed, but nobody holds it.")', "pass"),
)

blocks_without_a_hash_to_the_tail = lines(
    """A block without a hash waits at the tail, behind blocks that can still be found, so these are
    overwritten first. Nobody can use its content: it goes to the head.""",
    (
        "                self._forget(block)\n",
        "                block in self._hash_of and self._forget(block)\n",
    ),
    (
        "                if block in hash_of:\n                    self._cached[block] = None\n"
        "                else:\n                    blank.append(block)\n",
        "                self._cached[block] = None\n",
    ),
)

a_new_owner_keeps_the_old_hash = lines(
    """A block that is handed out keeps its old hash, so a request can find it while another one
    overwrites it. Taking a block from the queue is its eviction: forget the hash.""",
    ("                self._forget(block)\n", ""),
)

a_hit_stays_in_the_free_queue = lines(
    """A block that is touched stays in the free queue and is handed out to somebody else while it
    is in use. The first reference takes it out, wherever it stands.""",
    (
        "                del self._cached[block]\n            self",
        "                pass\n            self",
    ),
)

a_hit_on_a_held_block_is_not_counted = lines(
    """touch counts only for a free block; if somebody holds it already, the second owner goes
    uncounted, and the first one's end frees it under the second. Count every owner.""",
    (
        "del self._cached[block]\n            self._references[block] += 1\n",
        "del self._cached[block]\n                self._references[block] += 1\n",
    ),
    ('raise ValueError(f"block {block} is freed, but nobody holds it.")', "continue"),
)

the_null_block_is_one_more = lines(
    """Block 0 is handed out; it stands for "no block" in every table, and what is written there
    belongs to nobody. The free queue begins with block 1.""",
    (
        "list(range(num_blocks - 1, NULL_BLOCK, -1))",
        "list(range(num_blocks - 1, NULL_BLOCK - 1, -1))",
    ),
)

hands_out_the_null_block = lines(
    """Block 0 is handed out; it stands for "no block" in every table, and what is written there
    belongs to nobody. The free queue begins with block 1.""",
    (
        "list(range(num_blocks - 1, NULL_BLOCK, -1))",
        "list(range(num_blocks - 2, NULL_BLOCK - 1, -1))",
    ),
)

gives_what_there_is = lines(
    """With too few blocks alloc gives those that are left; the caller takes them for all it asked
    for. All or nothing: None, and nothing changes.""",
    ("            return None\n        taken", "            k = self.num_free\n        taken"),
)

a_free_block_is_forgotten = lines(
    """A block loses its hash when it is freed, so only requests that run at the same time share
    anything. Its content stays until it is overwritten: forget it when it is handed out.""",
    (
        "                if block in hash_of:\n",
        "                if block in hash_of:\n                    self._forget(block)\n"
        "                if block in hash_of:\n",
    ),
    (TAKEN_OUT, TAKEN_OUT_OF_EITHER),
)

only_held_blocks_are_found = lines(
    """lookup finds a block only while somebody holds it; free blocks that keep their content are
    most of a prefix cache.""",
    (
        "return next(iter(same)) if same else None",
        "return next((b for b in same or () if self._references[b]), None)",
    ),
)

lru_by_request = lines(
    """A hit on the beginning of an old request saves its whole table from eviction; its private
    tail is as old as it was. What was used is a block: LRU goes by blocks, not by requests.""",
    (
        "        references, hash_of = self._references, self._hash_of\n",
        "        references, hash_of = self._references, self._hash_of\n"
        "        self._tables |= dict.fromkeys(blocks, list(blocks))\n",
    ),
    (
        "        self._hash_of: dict[int, Hashable] = {}\n",
        "        self._hash_of: dict[int, Hashable] = {}\n        self._tables = {}\n",
    ),
    (
        "        for block in blocks:\n            if self._references[block] == 0:\n",
        "        for block in blocks:\n"
        "            for other in reversed(self._tables.get(block, ())):\n"
        "                if other in self._cached:\n"
        "                    self._cached.move_to_end(other)\n"
        "        for block in blocks:\n"
        "            if self._references[block] == 0:\n",
    ),
)

last_in_first_out = lines(
    """The block with a hash that was freed last is overwritten first; what was used a moment ago is
    what comes back. Take from the head, append at the tail.""",
    ("self._cached.popitem(last=False)", "self._cached.popitem()"),
)

the_newest_of_equal_blocks = lines(
    """Of two blocks with the same hash the newer one is found; requests would spread over both, and
    neither grows old enough to be evicted. The oldest one serves.""",
    ("next(iter(same)) if same", "next(reversed(same)) if same"),
)

a_hash_of_zero_is_none = lines(
    """A block whose hash is 0 counts as one without, because 0 is false: it goes to the head and is
    overwritten at once. The first block of every prompt in Mooncake's trace has the hash 0. Ask
    whether there is a hash, not whether it is true.""",
    ("                if block in hash_of:\n", "                if hash_of.get(block):\n"),
)


zero_is_not_looked_up = lines(
    """A block whose hash is 0 is never found, because 0 is false where `cache` keeps a hash or
    where `lookup` looks for one; it is a hash like any other. Ask for None.""",
    (
        "same = self._blocks_with.get(content)\n",
        "same = self._blocks_with.get(content) if content else None\n",
    ),
)

zero_is_not_cached = lines(
    """A block whose hash is 0 is never found, because 0 is false where `cache` keeps a hash or
    where `lookup` looks for one; it is a hash like any other. Ask for None.""",
    (
        "        self._hash_of[block] = content\n",
        "        if not content:\n            return\n        self._hash_of[block] = content\n",
    ),
)


searches_the_queue = lines(
    """The queue is a list, and each hit searches it from its beginning: with tens of thousands of
    blocks that is what the engine's steps would be spent on. A dict that keeps its order, or a
    linked list, takes one out from anywhere.""",
    ("self._cached: OrderedDict[int, None] = OrderedDict()", "self._cached: list[int] = []"),
    ("block, _none = self._cached.popitem(last=False)", "block = self._cached.pop(0)"),
    ("del self._cached[block]\n            self", "self._cached.remove(block)\n            self"),
    ("self._cached[block] = None\n", "self._cached.append(block)\n"),
)

looks_for_the_oldest = lines(
    """Each eviction goes through all free blocks for the one that was freed first; keep them in the
    order in which they were freed, and it is the first one.""",
    (
        "block, _none = self._cached.popitem(last=False)",
        "place = {block: number for number, block in enumerate(self._cached)}\n"
        "                block = min(place, key=place.__getitem__)\n"
        "                del self._cached[block]",
    ),
)

the_lowest_of_equal_blocks = lines(
    """Of several blocks with the same hash the lowest number is found; the one that has had it
    longest is, whatever its number.""",
    ("next(iter(same)) if same", "min(same) if same"),
)


freed_is_used_last = lines(
    """A block without a hash goes behind the other blocks without one; it was freed last and is
    used again first, at the very head of the queue.""",
    ("self._blank.extend(reversed(blank))", "self._blank[:0] = reversed(blank)"),
)


frees_in_forward_order_but_for_blanks = lines(
    """A table is freed from its beginning, so its first block is overwritten first: you evict the
    shared prefix before the private tail, and without the prefix the tail cannot be found.""",
    ("for block in reversed(blocks):", "for block in blocks:"),
    ("self._blank.extend(reversed(blank))", "self._blank.extend(blank)"),
)

a_stack_of_free_blocks = lines(
    """The block with a hash that was freed last is overwritten first; what was used a moment ago is
    what comes back. Take from the head, append at the tail.""",
    (INTO_THE_QUEUE, "                blank.append(block)\n"),
    (
        "                block = self._blank.pop()\n",
        "                block = self._blank.pop()\n"
        "                block in self._hash_of and self._forget(block)\n",
    ),
    (TAKEN_OUT, "                self._blank.remove(block)\n            self"),
)

the_lowest_number_leaves_first = lines(
    """The free block with the lowest number is handed out; a number says nothing about which
    content is worth keeping. Take the one at the head of the queue.""",
    (
        "            if self._blank:\n                block = self._blank.pop()\n",
        "            block = min([*self._blank, *self._cached])\n"
        "            if block in self._blank:\n                self._blank.remove(block)\n",
    ),
    ("block, _none = self._cached.popitem(last=False)", "del self._cached[block]"),
)

blocks_with_a_hash_are_not_free = lines(
    """Blocks that keep their hash are not counted as free, so a pool whose requests have all ended
    is full; nobody holds them, and they can be overwritten.""",
    ("return len(self._blank) + len(self._cached)", "return len(self._blank)"),
)

one_block_for_each_hash = lines(
    """A hash stands for one block only; once that is overwritten, another one with the same content
    is not found, though it is there. Keep all blocks of a hash.""",
    (KEEPS, "self._blocks_with.setdefault(content, {block: None})"),
    (
        IS_FORGOTTEN,
        "        if block in self._blocks_with.get(content, ()):\n"
        "            del self._blocks_with[content]\n",
    ),
)

takes_before_it_counts = lines(
    """alloc takes blocks one by one and gives up when there are none left; those that it took are
    lost. Compare with num_free first.""",
    (
        "            return None\n        taken",
        "            self.alloc(self.num_free)\n            return None\n        taken",
    ),
)

never_the_last_block = lines(
    """Where just as many blocks are free as are asked for, alloc gives none; what suffices
    suffices: None only if there are fewer.""",
    ("if k > self.num_free:", "if k and k >= self.num_free:"),
)

a_hit_loses_its_hash = lines(
    """A free block that is touched loses its hash, as if it were handed out; its content is what
    the hit is about, and the next request looks for it, too.""",
    (
        TAKEN_OUT,
        "                del self._cached[block]\n                self._forget(block)\n"
        "            self",
    ),
)

free_blocks_are_counted_each_time = lines(
    """num_free goes over all blocks each time it is asked; it is asked at every step, and the
    queue knows its length.""",
    (
        "        return len(self._blank) + len(self._cached)\n",
        "        return sum(count == 0 for count in self._references[1:])\n",
    ),
)

TOO_MANY = "        if k > self.num_free:\n            return None\n"
BELOW_ZERO = """        if k < 0:
            raise ValueError(f"alloc({k}): nobody needs a negative number of blocks.")
"""
NOBODY = """            if references[block] == 0:
                raise ValueError(f"block {block} is freed, but nobody holds it.")
"""
NO_BLOCK = """        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; the null block alone is one.")
"""
FOUND = """        same = self._blocks_with.get(content)
        return next(iter(same)) if same else None
"""
FORGETS_IF_ANY = "                block in self._hash_of and self._forget(block)\n"
FROM_THE_BLANKS = "                block = self._blank.pop()\n"

blocks_come_sorted = lines(
    """The blocks of alloc are sorted by number; they come in the order of the queue, which says
    what is overwritten first.""",
    ("        return taken\n", "        return sorted(taken)\n"),
)

blocks_come_from_the_back = lines(
    """The blocks of alloc come the wrong way round; the one at the head of the queue is the first
    of the table.""",
    ("        return taken\n", "        return taken[::-1]\n"),
)

alloc_counts_nobody = lines(
    """A block that is handed out has no reference yet, as if touch gave it the first one; with
    alloc somebody holds it, so it has one.""",
    ("            self._references[block] = 1\n", ""),
)

nothing_for_nobody = lines(
    """alloc(0) gives None; None says that there are too few, and of no blocks there are always
    enough: an empty list.""",
    (TOO_MANY, "        if k == 0 or k > self.num_free:\n            return None\n"),
)

too_many_gives_an_empty_list = lines(
    """With too few free blocks alloc gives an empty list, which is also what alloc(0) gives; None
    says that there are too few.""",
    (TOO_MANY, "        if k > self.num_free:\n            return []\n"),
)

the_null_block_counts_as_free = lines(
    """num_free counts the null block among the free ones; it is never handed out, so it stands in
    no queue: of n blocks n - 1 are free at first.""",
    (
        "return len(self._blank) + len(self._cached)\n",
        "return len(self._blank) + len(self._cached) + 1\n",
    ),
    ("        if k > self.num_free:\n", "        if k > self.num_free - 1:\n"),
)

remembers_that_it_had_a_hash = lines(
    """A block that is handed out can no longer be found, but it still remembers its hash: freed, it
    goes to the tail as if it were worth keeping. Forget both.""",
    ("content = self._hash_of.pop(block)", "content = self._hash_of[block]"),
    (
        IS_FORGOTTEN,
        "        same = self._blocks_with.get(content, {})\n        same.pop(block, None)\n"
        "        if not same:\n            self._blocks_with.pop(content, None)\n",
    ),
)

can_still_be_found = lines(
    """A block that is handed out keeps its old hash, so a request can find it while another one
    overwrites it. Taking a block from the queue is its eviction: forget the hash.""",
    (IS_FORGOTTEN, ""),
    (TAKEN_OUT, TAKEN_OUT_OF_EITHER),
)

the_oldest_of_a_hash_is_forgotten = lines(
    """When a block is overwritten, the oldest block of its hash is taken off, which may be another
    one; that one then cannot be found, and this one can. Take off the block itself.""",
    (
        IS_FORGOTTEN,
        "        same = self._blocks_with[content]\n        del same[next(iter(same))]\n"
        "        if not same:\n            del self._blocks_with[content]\n",
    ),
)

the_two_ends_exchanged = lines(
    """Blocks with a hash go to the head and those without to the tail, the wrong way round: what
    can be found is overwritten first. Nobody finds a block without a hash, so that one goes
    first.""",
    ("                if block in hash_of:\n", "                if block not in hash_of:\n"),
    (FROM_THE_BLANKS, FROM_THE_BLANKS + FORGETS_IF_ANY),
    ("                self._forget(block)\n            self", FORGETS_IF_ANY + "            self"),
    (TAKEN_OUT, TAKEN_OUT_OF_EITHER),
)

lookup_holds_the_block = lines(
    """lookup gives the block a reference already; nothing changes there, it is touch that holds a
    block, and whoever looks may not take it.""",
    (
        FOUND,
        "        same = self._blocks_with.get(content)\n"
        "        if same:\n            self.touch([next(iter(same))])\n"
        "        return next(iter(same)) if same else None\n",
    ),
)

looking_counts_as_use = lines(
    """lookup moves a free block to the tail of the queue, as a cache does that goes by its last
    use; nothing changes there. Only touch and free move a block.""",
    (
        FOUND,
        "        same = self._blocks_with.get(content)\n"
        "        if same and next(iter(same)) in self._cached:\n"
        "            self._cached.move_to_end(next(iter(same)))\n"
        "        return next(iter(same)) if same else None\n",
    ),
)

an_unknown_hash_is_an_error = lines(
    """lookup of a hash that nobody has raises a KeyError; a miss is the usual case in a cache, and
    None says so.""",
    ("self._blocks_with.get(content)", "self._blocks_with[content]"),
)

lookup_gives_all_of_them = lines(
    """lookup returns all blocks with that hash; one is asked for, the one that has had it
    longest.""",
    ("return next(iter(same)) if same else None", "return list(same) if same else None"),
)

touch_counts_its_blocks = lines(
    """touch asks for the length of its blocks or for one by its place; a generator has neither, and
    a set has no places. Go through them with one loop.""",
    (
        "        for block in blocks:\n            if self._references[block] == 0:\n",
        "        for place in range(len(blocks)):\n            block = blocks[place]\n"
        "            if self._references[block] == 0:\n",
    ),
)

touch_forgets_the_reference = lines(
    """A free block that is touched leaves the queue, but nobody holds it: the reference is missing.
    Each of the blocks gets one more, whether it was free or not.""",
    (
        "                del self._cached[block]\n            self._references[block] += 1\n",
        "                del self._cached[block]\n                continue\n"
        "            self._references[block] += 1\n",
    ),
    (NOBODY, "            if references[block] == 0:\n                continue\n"),
)

free_forgets_the_hash_of_held_blocks = lines(
    """A block loses its hash with the first request that lets go, although others still hold it;
    its content is there as long as it is not overwritten.""",
    (
        "            references[block] -= 1\n            if references[block] == 0:\n",
        "            references[block] -= 1\n"
        "            if references[block] and block in hash_of:\n"
        "                self._forget(block)\n"
        "            if references[block] == 0:\n",
    ),
)

looks_through_all_hashes = lines(
    """lookup goes through all blocks for the one with that hash; keep a dict from the hash to its
    blocks, or each look costs as much as the pool is large.""",
    (
        FOUND,
        "        names = self._hash_of.items()\n"
        "        return next((block for block, name in names if name == content), None)\n",
    ),
)

makes_a_new_queue = lines(
    """Each hit makes a new queue without the block, which goes through all free blocks; take it out
    of the queue where it stands.""",
    (
        TAKEN_OUT,
        "                others = [other for other in self._cached if other != block]\n"
        "                self._cached = OrderedDict.fromkeys(others)\n"
        "            self",
    ),
)

at_first_in_falling_order = lines(
    """The blocks that were free at first are handed out from the last number down; at first they
    stand in the queue in order, 1 at its head.""",
    ("list(range(num_blocks - 1, NULL_BLOCK, -1))", "list(range(NULL_BLOCK + 1, num_blocks))"),
)

the_smallest_pool_is_refused = lines(
    """A pool of the null block alone is refused; fewer than one block is an error, one is not: such
    a pool just has none to give.""",
    ("        if num_blocks < 1:\n", "        if num_blocks < 2:\n"),
    gate=False,
)

a_pool_without_a_block = lines(
    """A pool of no block, or of fewer, is made; the null block alone is one, so a number below 1
    is a mistake: a ValueError.""",
    (NO_BLOCK, "        num_blocks = max(num_blocks, 0)\n"),
    gate=False,
)

fewer_than_none_is_an_empty_list = lines(
    """alloc of a negative number gives an empty list; the caller has counted wrongly and goes on
    with it. Raise a ValueError.""",
    (BELOW_ZERO, ""),
    gate=False,
)

fewer_than_none_is_none = lines(
    """alloc of a negative number gives None, as if too few blocks were free; the caller has counted
    wrongly. Raise a ValueError.""",
    (BELOW_ZERO, "        if k < 0:\n            return None\n"),
    gate=False,
)

a_double_free_is_overlooked = lines(
    """A block that nobody holds is freed, and nothing is said; two requests think that it is
    theirs. Raise a ValueError.""",
    (NOBODY, "            if references[block] == 0:\n                continue\n"),
    gate=False,
)

a_double_free_counts_below_zero = lines(
    """A block that nobody holds is freed, and nothing is said; two requests think that it is
    theirs. Raise a ValueError.""",
    (NOBODY, ""),
    gate=False,
)

a_double_free_is_an_assertion = lines(
    """A block that nobody holds is freed, and an assert fails; a ValueError is asked for, and an
    assert is gone under python -O.""",
    (NOBODY, "            assert references[block] > 0\n"),
    gate=False,
)

the_null_block_is_held = lines(
    """The null block is given a reference for ever, so that freeing it is not noticed; nobody holds
    it, and freeing it is an error like any other.""",
    (
        "        self._references = [0] * num_blocks\n",
        "        self._references = [1] + [0] * (num_blocks - 1)\n",
    ),
    gate=False,
)

looks_before_it_counts = lines(
    """Whether somebody holds the blocks is looked at before the first one is counted down; where a
    block stands twice and has one reference, the second time nobody holds it any more.""",
    (NOBODY, "            if references[block] == 0:\n                continue\n"),
    (
        "        blank: list[int] = []\n",
        "        blank: list[int] = []\n"
        "        if not all(references[block] for block in blocks):\n"
        '            raise ValueError("a block is freed, but nobody holds it.")\n',
    ),
    gate=False,
)

a_block_of_a_table_counts_once = lines(
    """A block that stands in the table twice loses one reference only, because the table is made a
    set or a dict; it loses one for each place.""",
    ("for block in reversed(blocks):", "for block in reversed(dict.fromkeys(blocks)):"),
    gate=False,
)

touched_twice_counts_once = lines(
    """A block that stands in `blocks` twice gets one reference only, because they are made a set or
    a dict; it gets one for each place.""",
    (
        "        for block in blocks:\n            if self._references",
        "        for block in dict.fromkeys(blocks):\n            if self._references",
    ),
    gate=False,
)
