"""Known wrong answers of lab 10, as code. Each docstring is what the learner who gave it reads."""

# Executed among the reference's names: `BlockPool`, `match_prefix`, `hashlib`, ... are the
# reference's.
from grader.skeleton import changed
from grader.suite import misconception

SERVING = "serving.py"


# --- block_hashes --------------------------------------------------------------------------------


@misconception("block_hashes")
def hashes_the_block_alone(tokens, block_size, salt=None):
    """Each block is hashed by itself, so the same tokens behind another beginning are taken for the
    same block; their keys and values are others. Hash the parent's hash with the block."""

    def digest(*content):
        return int.from_bytes(hashlib.sha256(repr(content).encode()).digest()[:8])

    ends = range(block_size, len(tokens) + 1, block_size)
    return [digest(salt, *tokens[end - block_size : end]) for end in ends]


@misconception("block_hashes")
def hashes_place_and_block(tokens, block_size, salt=None):
    """A block's number is no substitute for its prefix: two prompts with different beginnings would
    share every later block that is the same. Chain the parent's hash."""

    def digest(*content):
        return int.from_bytes(hashlib.sha256(repr(content).encode()).digest()[:8])

    ends = range(block_size, len(tokens) + 1, block_size)
    return [digest(salt, end, *tokens[end - block_size : end]) for end in ends]


@misconception("block_hashes")
def hashes_a_last_block_that_is_not_full(tokens, block_size, salt=None):
    """The rest that does not fill a block gets a hash as well; more tokens will come into that
    block, and whoever finds it then reads other keys. Hash full blocks only."""
    hashes, parent = [], f"salt {salt!r}"
    for start in range(0, len(tokens), block_size):
        content = f"{parent}: {list(tokens[start : start + block_size])}"
        hashes.append(int.from_bytes(hashlib.sha256(content.encode()).digest()[:8]))
        parent = f"after {hashes[-1]}"
    return hashes


@misconception("block_hashes", file=SERVING)
def forgets_the_salt(text):
    """The salt is not hashed, so two tenants with the same prompt share blocks, and one of them can
    tell from its TTFT what the other has asked. Begin the chain with the salt."""
    return changed(text, ('parent = f"salt {salt!r}"', 'parent = "salt"'))


@misconception("block_hashes", file=SERVING)
def order_within_a_block_is_lost(text):
    """The tokens of a block are hashed as a set or a sum, so "dog bites man" finds the block of
    "man bites dog". Hash them in their order."""
    return changed(
        text, ("{list(tokens[end - block_size : end])}", "{sorted(tokens[end - block_size : end])}")
    )


@misconception("block_hashes", file=SERVING)
def hashes_the_whole_prompt_into_each_block(text):
    """What stands *behind* a block goes into its hash, too, so only identical prompts share
    anything. A block depends on itself and on what is before it."""
    return changed(text, ('parent = f"salt {salt!r}"', 'parent = f"salt {salt!r} {list(tokens)}"'))


@misconception("block_hashes", file=SERVING)
def the_last_full_block_is_lost(text):
    """range ends before its stop: a prompt of exactly k blocks gets k - 1 hashes here, and its last
    block is never shared. Let the ends run to len(tokens) inclusive."""
    return changed(
        text,
        (
            "range(block_size, len(tokens) + 1, block_size)",
            "range(block_size, len(tokens), block_size)",
        ),
    )


# --- BlockPool -----------------------------------------------------------------------------------


@misconception("BlockPool", file=SERVING)
def frees_in_forward_order(text):
    """A table is freed from its beginning, so its first block is overwritten first: you evict the
    shared prefix before the private tail, and without the prefix the tail cannot be found."""
    return changed(text, ("for block in reversed(blocks):", "for block in blocks:"))


@misconception("BlockPool", file=SERVING)
def frees_a_shared_block_at_once(text):
    """The first request that ends puts a shared block into the free queue while the other still
    reads it: a double free. Subtract one reference, and free at zero."""
    return changed(
        text,
        (
            "            references[block] -= 1\n            if references[block] == 0:\n",
            "            references[block] = 0\n            if block not in self._cached:\n",
        ),
        ('raise ValueError(f"block {block} is freed, but nobody holds it.")', "pass"),
    )


@misconception("BlockPool", file=SERVING)
def blocks_without_a_hash_to_the_tail(text):
    """A block without a hash waits at the tail, behind blocks that can still be found, so these are
    overwritten first. Nobody can use its content: it goes to the head."""
    return changed(
        text,
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


@misconception("BlockPool", file=SERVING)
def a_new_owner_keeps_the_old_hash(text):
    """A block that is handed out keeps its old hash, so a request can find it while another one
    overwrites it. Taking a block from the queue is its eviction: forget the hash."""
    return changed(text, ("                self._forget(block)\n", ""))


@misconception("BlockPool", file=SERVING)
def a_hit_stays_in_the_free_queue(text):
    """A block that is touched stays in the free queue and is handed out to somebody else while it
    is in use. The first reference takes it out, wherever it stands."""
    return changed(
        text,
        (
            "                del self._cached[block]\n            self",
            "                pass\n            self",
        ),
    )


@misconception("BlockPool", file=SERVING)
def a_hit_on_a_held_block_is_not_counted(text):
    """touch counts only for a free block; if somebody holds it already, the second owner goes
    uncounted, and the first one's end frees it under the second. Count every owner."""
    return changed(
        text,
        (
            "del self._cached[block]\n            self._references[block] += 1\n",
            "del self._cached[block]\n                self._references[block] += 1\n",
        ),
        ('raise ValueError(f"block {block} is freed, but nobody holds it.")', "continue"),
    )


@misconception("BlockPool", file=SERVING)
def hands_out_the_null_block(text):
    """Block 0 is handed out; it stands for "no block" in every table, and what is written there
    belongs to nobody. The free queue begins with block 1."""
    return changed(
        text,
        (
            "list(range(num_blocks - 1, NULL_BLOCK, -1))",
            "list(range(num_blocks - 2, NULL_BLOCK - 1, -1))",
        ),
    )


@misconception("BlockPool", file=SERVING)
def gives_what_there_is(text):
    """With too few blocks alloc gives those that are left; the caller takes them for all it asked
    for. All or nothing: None, and nothing changes."""
    return changed(
        text,
        ("            return None\n        taken", "            k = self.num_free\n        taken"),
    )


@misconception("BlockPool", file=SERVING)
def a_free_block_is_forgotten(text):
    """A block loses its hash when it is freed, so only requests that run at the same time share
    anything. Its content stays until it is overwritten: forget it when it is handed out."""
    return changed(
        text,
        (
            "                if block in hash_of:\n",
            "                if block in hash_of:\n                    self._forget(block)\n"
            "                if block in hash_of:\n",
        ),
    )


@misconception("BlockPool", file=SERVING)
def only_held_blocks_are_found(text):
    """lookup finds a block only while somebody holds it; free blocks that keep their content are
    most of a prefix cache."""
    return changed(
        text,
        (
            "return next(iter(same)) if same else None",
            "return next((b for b in same or () if self._references[b]), None)",
        ),
    )


@misconception("BlockPool", file=SERVING)
def lru_by_request(text):
    """A hit on the beginning of an old request saves its whole table from eviction; its private
    tail is as old as it was. What was used is a block: LRU goes by blocks, not by requests."""
    return changed(
        text,
        (
            "        references, hash_of = self._references, self._hash_of\n",
            "        references, hash_of = self._references, self._hash_of\n"
            "        for block in blocks:\n            self._tables[block] = list(blocks)\n",
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


@misconception("BlockPool", file=SERVING)
def last_in_first_out(text):
    """The block with a hash that was freed last is overwritten first; what was used a moment ago is
    what comes back. Take from the head, append at the tail."""
    return changed(text, ("self._cached.popitem(last=False)", "self._cached.popitem()"))


@misconception("BlockPool", file=SERVING)
def the_newest_of_equal_blocks(text):
    """Of two blocks with the same hash the newer one is found; requests would spread over both, and
    neither grows old enough to be evicted. The oldest one serves."""
    return changed(text, ("next(iter(same)) if same", "next(reversed(same)) if same"))


# --- match_prefix --------------------------------------------------------------------------------


@misconception("match_prefix")
def hits_the_whole_prompt(pool, hashes, num_tokens, block_size):
    """All n tokens come from the cache; then nothing is computed, and there is no output to sample
    the next token from. At most n - 1 count, so a full hit gives back its last block."""
    found = []
    for content in hashes[: num_tokens // block_size]:
        block = pool.lookup(content)
        if block is None:
            break
        found.append(block)
    return found


@misconception("match_prefix")
def counts_the_last_block_that_is_not_full(pool, hashes, num_tokens, block_size):
    """The last block of a trace's list is counted although it is not full: 36.64 % of Mooncake's
    conversation blocks instead of 38.19 % of the full ones. Only full blocks are in the cache."""
    found = []
    for content in hashes:
        block = pool.lookup(content)
        if block is None:
            break
        found.append(block)
    return found


@misconception("match_prefix")
def goes_on_behind_a_hole(pool, hashes, num_tokens, block_size):
    """Blocks behind a missing one are counted, too; the tokens in between have no keys, and the
    request would compute with a gap in its context. Stop at the first miss."""
    blocks = [pool.lookup(content) for content in hashes[: (num_tokens - 1) // block_size]]
    return [block for block in blocks if block is not None]


@misconception("match_prefix")
def always_leaves_a_block(pool, hashes, num_tokens, block_size):
    """One whole block is always left to compute; only the last token must be, and where it stands
    in a block of its own everything before it may come from the cache."""
    found = []
    for content in hashes[: max(0, num_tokens // block_size - 1)]:
        block = pool.lookup(content)
        if block is None:
            break
        found.append(block)
    return found


@misconception("match_prefix")
def all_or_nothing(pool, hashes, num_tokens, block_size):
    """Nothing is used unless everything is there; a system prompt in front of a new question is
    just what a prefix cache is for. Take the longest run from the beginning."""
    blocks = [pool.lookup(content) for content in hashes[: (num_tokens - 1) // block_size]]
    return [] if None in blocks else blocks


@misconception("match_prefix")
def from_the_end(pool, hashes, num_tokens, block_size):
    """The search begins at the last block and takes the longest run that ends there; what is needed
    is a run that begins at the first block."""
    found = []
    for content in reversed(hashes[: (num_tokens - 1) // block_size]):
        block = pool.lookup(content)
        if block is None:
            break
        found.insert(0, block)
    return found


# --- Scheduler -----------------------------------------------------------------------------------

ADMISSION = (
    "while self.waiting and not preempted and budget > 0 and len(running) < cfg.max_num_seqs:"
)
MISSING = "while missing > pool.num_free and request.blocks:"
FITS = "if blocks_for(to_fit, size) - len(hits) + awoken > pool.num_free:"
AT_ADMISSION = "tokens = min(request.num_tokens - cached, budget)"


@misconception("Scheduler", file=SERVING)
def admits_in_a_step_that_preempted(text):
    """A request is admitted in a step that preempted another: it takes the blocks that were just
    freed, and the next step preempts again. With a preemption nobody is admitted."""
    return changed(
        text,
        (ADMISSION, ADMISSION.replace("not preempted and ", "")),
        ("        if self.waiting:\n", "        if True:\n"),
    )


@misconception("Scheduler", file=SERVING)
def prefill_first(text):
    """Waiting requests are served before the running ones, so one long prompt stops everybody's
    decode. Running requests first; the waiting ones get what is left."""
    return changed(
        text,
        (
            "chain(running, self._admitted(scheduled, preempted))",
            "chain(self._admitted(scheduled, preempted), list(running))",
        ),
        (
            "        for request in everybody:\n",
            "        for request in everybody:\n"
            "            if request not in running:\n                continue\n",
        ),
        (
            "preempted.append(self._preempt_last())",
            "preempted.append(self._preempt_last())\n"
            "                    budget += scheduled.pop(preempted[-1], 0)",
        ),
    )


@misconception("Scheduler", file=SERVING)
def evicts_the_oldest(text):
    """The request that runs longest is preempted, the one whose recomputation costs most and that
    everybody has waited for. First come first served: the last of the running ones gives way."""
    return changed(
        text,
        (
            "        victim = self.running.pop()\n",
            "        victim = self.running.pop(0)\n",
        ),
        (
            "preempted.append(self._preempt_last())",
            "preempted.append(self._preempt_last())\n"
            "                    budget += scheduled.pop(preempted[-1], 0)",
        ),
    )


@misconception("Scheduler", file=SERVING)
def preempted_to_the_tail(text):
    """A preempted request goes to the end of the queue, behind requests that came after it; it came
    first and is served first. Put it at the head."""
    return changed(text, ("self.waiting.appendleft(victim)", "self.waiting.append(victim)"))


@misconception("Scheduler", file=SERVING)
def resumes_without_its_cached_blocks(text):
    """A preempted request computes everything again; its full blocks were freed with their hashes
    and most are still there. Look it up like any other request."""
    return changed(
        text,
        (
            "        victim.blocks = []\n",
            "        victim.blocks = []\n        victim.hashes = ()\n",
        ),
    )


@misconception("Scheduler", file=SERVING)
def generated_blocks_are_not_hashed(text):
    """Only the prompt's blocks are hashed; a full block of generated tokens is as good as any, and
    a resumed request or the next turn of a conversation finds it."""
    return changed(
        text,
        (
            "[*req.prompt_tokens, *[GENERATED_TOKEN] * req.out_tokens]",
            "list(req.prompt_tokens)",
        ),
    )


@misconception("Scheduler", file=SERVING)
def a_preempted_request_starts_from_its_prompt(text):
    """A preempted request forgets what it had generated; these tokens were sent to the user. Only
    their keys and values are gone: all known tokens are computed again."""
    return changed(
        text,
        (
            "        victim.blocks = []\n",
            "        victim.blocks = []\n"
            "        again = victim.num_tokens - victim.prompt\n"
            "        victim.num_tokens, victim.left = victim.prompt, victim.left + again\n",
        ),
        ("    num_hashed: int = 0\n", "    num_hashed: int = 0\n    prompt: int = 0\n"),
        (
            "Running(req.id, prompt, req.out_tokens, hashes)",
            "Running(req.id, prompt, req.out_tokens, hashes, prompt=prompt)",
        ),
    )


@misconception("Scheduler", file=SERVING)
def a_hit_may_skip_the_whole_prompt(text):
    """A prompt that is cached to its last token is scheduled with 0 tokens; nothing runs, so there
    is no output to take the next token from. At least the last token is computed."""
    return changed(
        text,
        (
            "hits = match_prefix(pool, request.hashes, request.num_tokens, size)",
            "hits = match_prefix(pool, request.hashes, request.num_tokens + 1, size)",
        ),
    )


@misconception("Scheduler", file=SERVING)
def recomputes_only_the_last_token(text):
    """A full hit is cut by one token and not by its last block: off by one at a block boundary.
    That token would be written into a block that others read; give the whole block back."""
    return changed(
        text,
        (
            "hits = match_prefix(pool, request.hashes, request.num_tokens, size)",
            "hits = match_prefix(pool, request.hashes, request.num_tokens + 1, size)",
        ),
        ("cached = len(hits) * size", "cached = min(len(hits) * size, request.num_tokens - 1)"),
    )


@misconception("Scheduler", file=SERVING)
def the_budget_turns_negative(text):
    """A prompt longer than the rest of the budget is not cut, and the budget turns negative: that
    step takes as long as the whole prompt. Schedule a chunk and go on in the next step."""
    return changed(
        text,
        (AT_ADMISSION, "tokens = request.num_tokens - cached"),
        (
            "            if tokens > budget:\n"
            "                if budget == 0:\n"
            "                    break\n"
            "                reach -= tokens - budget\n"
            "                tokens = budget\n",
            "            if budget <= 0:\n                break\n",
        ),
    )


@misconception("Scheduler", file=SERVING)
def only_new_requests_pay_from_the_budget(text):
    """The running requests' tokens are not taken from the budget, so admission begins with a whole
    one; max_num_batched_tokens is for all tokens of a step."""
    return changed(
        text,
        ("cfg.max_num_batched_tokens - sum(scheduled.values())", "cfg.max_num_batched_tokens"),
        (
            "        context_tokens = 0\n",
            "        context_tokens = 0\n        new = {request.id for request in self.waiting}\n",
        ),
        (
            "            budget -= tokens\n",
            "            if request.id in new:\n                budget -= tokens\n",
        ),
    )


@misconception("Scheduler", file=SERVING)
def takes_blocks_before_touching_hits(text):
    """New blocks are taken before the hits are touched: a hit that waited at the head of the free
    queue is handed out as an empty block, to the same request. Touch first."""
    take = "            request.blocks = hits + pool.alloc(blocks_for(reach, size) - len(hits))\n"
    touch = "            pool.touch(hits)\n"
    return changed(text, (touch + take, take + touch))


@misconception("Scheduler", file=SERVING)
def a_hit_costs_no_free_block(text):
    """A hit that nobody holds is counted as costing nothing; it stands in the free queue, and
    touching it leaves one free block less for the new ones. Count such hits as needed."""
    return changed(
        text,
        (FITS, "if blocks_for(to_fit, size) - len(hits) > pool.num_free:"),
        (
            "pool.alloc(blocks_for(reach, size) - len(hits))",
            "pool.alloc(min(blocks_for(reach, size) - len(hits), pool.num_free))",
        ),
        (
            "min(request.num_computed // self.cfg.block_size, len(request.hashes))",
            "min(request.num_computed // size, len(request.hashes), len(request.blocks))",
        ),
        (
            "    def _hash_full_blocks(self, request: Running) -> None:\n",
            "    def _hash_full_blocks(self, request: Running) -> None:\n"
            "        size = self.cfg.block_size\n",
        ),
    )


@misconception("Scheduler", file=SERVING)
def never_returns_blocks(text):
    """A finished request keeps its blocks, so the pool runs dry and everybody waits. Free its table
    when its last token is there."""
    return changed(
        text,
        (
            "            for request in finished:\n                pool.free(request.blocks)\n",
            "",
        ),
    )


@misconception("Scheduler", file=SERVING)
def frees_before_it_admits(text):
    """Requests that end in this step free their blocks before the step has run, and new ones are
    admitted on them. They finish after the step: their blocks are free in the next one."""
    return changed(
        text,
        (
            f"        {ADMISSION}\n",
            "        for request in running[: len(scheduled)]:\n"
            "            if request.left == 0:\n"
            "                pool.free(request.blocks)\n"
            "                request.blocks = []\n"
            f"        {ADMISSION}\n",
        ),
    )


@misconception("Scheduler", file=SERVING)
def one_request_too_many(text):
    """One request more than max_num_seqs runs at once; the limit is how many may run, so admit only
    below it."""
    return changed(text, (ADMISSION, ADMISSION.replace("<", "<=")))


@misconception("Scheduler", file=SERVING)
def a_first_chunk_is_enough(text):
    """reserve_full_isl is ignored: a prompt is admitted on the blocks of its first chunk, grows
    into a full pool and is preempted. With the switch all of its tokens must fit."""
    return changed(text, ("request.num_tokens if cfg.reserve_full_isl else reach", "reach"))


@misconception("Scheduler", file=SERVING)
def always_reserves_everything(text):
    """All known tokens must fit even with reserve_full_isl off; with it off the blocks of this
    step's chunk are enough."""
    return changed(
        text, ("request.num_tokens if cfg.reserve_full_isl else reach", "request.num_tokens")
    )


@misconception("Scheduler", file=SERVING)
def looks_past_the_first(text):
    """Where the first waiting request does not fit, the next is tried; small requests then overtake
    a large one for ever. First come first served: the first that does not fit ends admission."""
    return changed(
        text,
        (
            "            request = self.waiting[0]\n",
            "            if tried == len(self.waiting):\n                break\n"
            "            request = self.waiting[0]\n",
        ),
        (f"        {ADMISSION}\n", f"        tried = 0\n        {ADMISSION}\n"),
        (
            f"            {FITS}\n                break\n",
            f"            {FITS}\n"
            "                tried += 1\n"
            "                self.waiting.rotate(-1)\n"
            "                continue\n",
        ),
        (
            "        if finished:\n",
            "        self.waiting = deque(sorted(self.waiting, key=lambda r: r.id))\n"
            "        if finished:\n",
        ),
    )


@misconception("Scheduler", file=SERVING)
def hashes_blocks_before_they_are_full(text):
    """A block is hashed while tokens are still missing in it; a request that finds it reads keys
    that nobody has computed. Only full blocks are hashed."""
    return changed(
        text,
        (
            "min(request.num_computed // self.cfg.block_size, len(request.hashes))",
            "min(len(request.blocks), len(request.hashes))",
        ),
    )


@misconception("Scheduler", file=SERVING)
def hashes_appear_when_the_request_ends(text):
    """Blocks get their hashes only when a request lets them go, so two requests with one prompt at
    the same time compute it twice. A full block can be found as soon as it is scheduled."""
    return changed(
        text,
        ("            if request.hashes:\n                self._hash_full_blocks(request)\n", ""),
        (
            "        self.pool.free(victim.blocks)\n",
            "        self._hash_full_blocks(victim)\n        self.pool.free(victim.blocks)\n",
        ),
        (
            "                pool.free(request.blocks)\n",
            "                self._hash_full_blocks(request)\n"
            "                pool.free(request.blocks)\n",
        ),
    )


@misconception("Scheduler", file=SERVING)
def a_block_too_early(text):
    """A new block is taken when the last one becomes full, one token before anything is written
    into it: off by one at the block boundary. n tokens need ceil(n / block_size) blocks."""
    return changed(
        text,
        (
            "if reach > request.room:\n                missing = blocks_for(reach, size)",
            "if reach >= request.room:\n                missing = blocks_for(reach + 1, size)",
        ),
    )


@misconception("Scheduler", file=SERVING)
def computes_the_last_token_too(text):
    """A request runs one step more to compute its last token; nobody needs its keys. It ends in the
    step that generates it."""
    return changed(
        text,
        (
            "                generated.append(request.id)\n"
            "                request.num_tokens = reach + 1\n"
            "                request.left -= 1\n"
            "                if request.left == 0:\n",
            "                if request.left:\n"
            "                    generated.append(request.id)\n"
            "                request.num_tokens += 1\n"
            "                request.left -= 1\n"
            "                if request.left < 0:\n",
        ),
        (
            "[request for request in running if request.left]",
            "[request for request in running if request.left >= 0]",
        ),
    )


@misconception("Scheduler", file=SERVING)
def every_scheduled_request_generates(text):
    """A request generates in each step it runs; a chunk in the middle of a prompt has no next token
    yet. It generates once it has caught up with all its known tokens."""
    return changed(
        text,
        (
            "            if reach == request.num_tokens:\n"
            "                generated.append(request.id)\n"
            "                request.num_tokens = reach + 1\n",
            "            if True:\n"
            "                generated.append(request.id)\n"
            "                request.num_tokens += request.num_computed == request.num_tokens\n",
        ),
    )


@misconception("Scheduler", file=SERVING)
def gives_up_instead_of_preempting(text):
    """A running request without a free block just waits for one, and so do all the others: nobody
    ends, nobody frees. Preempt the last one."""
    return changed(
        text,
        (
            "                while missing > pool.num_free and request.blocks:\n"
            "                    preempted.append(self._preempt_last())\n"
            "                if not request.blocks:  # it was the last one itself\n",
            "                if missing > pool.num_free:\n",
        ),
    )


@misconception("Scheduler", file=SERVING)
def preempts_everybody_behind(text):
    """Everybody behind the request that needs a block is preempted, although one of them freed
    enough. Preempt one, look again, and go on only while blocks are missing."""
    return changed(
        text,
        (
            "                    preempted.append(self._preempt_last())\n",
            "                    while running[-1] is not request:\n"
            "                        preempted.append(self._preempt_last())\n"
            "                    if missing > pool.num_free:\n"
            "                        preempted.append(self._preempt_last())\n",
        ),
    )


@misconception("Scheduler", file=SERVING)
def the_switch_is_not_read(text):
    """Blocks are hashed and found although enable_prefix_caching is off; without it nothing is
    shared, and a resumed request computes everything again."""
    return changed(
        text,
        ("if cfg.enable_prefix_caching and not by_number:", "if not by_number:"),
    )


# === traces, metrics, capacity, simulate ===

# --- load_azure, load_mooncake --------------------------------------------------------------------


@misconception("load_azure", file=SERVING)
def six_digits(text):
    """strptime's %f reads at most six digits of a second, and this trace has seven: cutting the
    last one off moves requests by up to 900 ns, and not cutting it is an error."""
    return changed(
        text,
        ('int(fraction.ljust(9, "0"))', 'int(fraction[:6].ljust(6, "0")) * 1000'),
    )


@misconception("load_azure", file=SERVING)
def strptime_reads_the_fraction(text):
    """%f of strptime takes one to six digits; the trace's times have seven, so every row is refused
    as malformed. Read the fraction yourself."""
    return changed(
        text,
        (
            '    whole, _point, fraction = stamp.partition(".")\n'
            '    moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S")',
            '    fraction = "0"\n    moment = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f")',
        ),
        (
            'return int(moment.timestamp()) * 10**9 + int(fraction.ljust(9, "0"))',
            "return round(moment.timestamp() * 10**6) * 1000",
        ),
    )


@misconception("load_azure", file=SERVING)
def a_float_since_1970(text):
    """Seconds since 1970 are 1.7e9, where floats lie 2.4e-7 apart: the last digits of each time are
    noise, and two requests 100 ns apart arrive together or in the wrong order. Subtract whole
    numbers, then divide."""
    return changed(
        text,
        ("(time_ns - first) / 1e9", "time_ns / 1e9 - first / 1e9"),
    )


@misconception("load_azure", file=SERVING)
def the_last_row_is_lost(text):
    """The file does not end in a line end, and its last row is a request all the same: a loop over
    what stands before each line end loses it."""
    return changed(
        text,
        (
            ".splitlines()\n    if not lines or lines[0] !=",
            '.split("\\n")[:-1]\n    lines = [line.rstrip("\\r") for line in lines]\n'
            "    if not lines or lines[0] !=",
        ),
    )


@misconception("load_azure", file=SERVING)
def the_clock_starts_at_midnight(text):
    """Times are counted from midnight, not from the first request: a simulated engine would idle
    for 18 hours first."""
    return changed(
        text,
        (
            "first = time_ns if first is None else first",
            "first = time_ns - time_ns % (86_400 * 10**9) if first is None else first",
        ),
    )


@misconception("load_azure", file=SERVING)
def only_the_time_of_day(text):
    """The date is ignored, and after midnight every request comes before those of the evening."""
    return changed(
        text,
        (
            "return int(moment.timestamp()) * 10**9",
            "return (int(moment.timestamp()) % 86_400) * 10**9",
        ),
        ("if before is not None and time_ns < before:", "if before is None and first is not None:"),
    )


@misconception("load_azure", file=SERVING)
def prompt_and_output_swapped(text):
    """The second column is the context (the prompt), the third what was generated; exchanged, a
    prefill-heavy trace becomes a decode-heavy one."""
    return changed(
        text,
        (
            "prompt_tokens, out_tokens = int(prompt), int(out)\n",
            "prompt_tokens, out_tokens = int(out), int(prompt)\n",
        ),
    )


@misconception("load_azure", file=SERVING)
def whole_seconds(text):
    """The fraction is dropped, so all requests of a second arrive at once: a burst that the trace
    does not have."""
    return changed(text, ('int(fraction.ljust(9, "0"))', "0"))


@misconception("load_mooncake", file=SERVING)
def milliseconds_as_seconds(text):
    """timestamp is in milliseconds; as seconds an hour of traffic becomes 41 days, and no queue
    ever forms."""
    return changed(text, ("(time_ms - first) / 1000", "float(time_ms - first)"))


@misconception("load_mooncake", file=SERVING)
def not_from_the_first_line(text):
    """Times count from the first line's, as for every trace here; a slice of the file would start
    with an idle engine."""
    return changed(text, ("(time_ms - first) / 1000", "time_ms / 1000"))


@misconception("load_mooncake", file=SERVING)
def the_partial_block_is_dropped(text):
    """The hash of the last block is dropped, because the block is not full; the file's hashes are
    to be kept as they stand, and it is the scheduler that uses full blocks only."""
    return changed(
        text,
        (
            "prompt, out, hashes))\n    return requests",
            "prompt, out, hashes[: prompt // 512]))\n    return requests",
        ),
    )


@misconception("load_mooncake", file=SERVING)
def the_last_line_is_lost(text):
    """A last line without an end is a request, too; a loop over what stands before each line end
    loses it."""
    return changed(
        text,
        (
            '(path.read_text(encoding="utf-8").splitlines(), start=1):',
            '(path.read_text(encoding="utf-8").split("\\n")[:-1], start=1):',
        ),
    )


@misconception("load_mooncake", file=SERVING)
def hashes_are_numbered_anew(text):
    """The hashes are replaced by the blocks' places in the prompt; then all requests share all
    their blocks, and the cache hits nearly always."""
    return changed(
        text,
        (
            "prompt, out, hashes))\n    return requests",
            "prompt, out, list(range(len(hashes)))))\n    return requests",
        ),
    )


# --- metrics --------------------------------------------------------------------------------------

TPOT_SERIES = (
    '"tpot": [tpot for out, tpot in zip(done, tpots, strict=True) if out.output_tokens > 1]'
)
TPOT = "(out.latency_s - out.ttft_s) / (out.output_tokens - 1) if out.output_tokens > 1 else 0.0"


@misconception("metrics", file=SERVING)
def mean_itl_as_tpot(text):
    """The gaps of all requests stand under TPOT: TPOT weights requests, ITL weights tokens. One
    long answer would outvote a hundred short ones."""
    return changed(text, (TPOT_SERIES, '"tpot": [gap for out in done for gap in out.itl_s]'))


@misconception("metrics", file=SERVING)
def one_token_has_a_tpot_of_zero(text):
    """Requests of one token stand with 0 in TPOT's series and pull its mean down; they have no time
    per further token, so they are left out of it (and count as 0 for goodput only)."""
    return changed(text, (TPOT_SERIES, '"tpot": tpots'))


@misconception("metrics", file=SERVING)
def one_token_is_never_good(text):
    """Requests of one token are left out of goodput; they have no TPOT to miss, so 0 is what they
    are compared with."""
    return changed(
        text,
        (
            "good += bool(asked) and all(asked)",
            "good += bool(asked) and all(asked) and out.output_tokens > 1",
        ),
    )


@misconception("metrics", file=SERVING)
def divided_by_all_tokens(text):
    """TPOT is divided by the number of tokens; the first token belongs to TTFT, so n tokens have
    n - 1 gaps."""
    return changed(text, (TPOT, "(out.latency_s - out.ttft_s) / out.output_tokens"))


@misconception("metrics", file=SERVING)
def latency_over_tokens(text):
    """TPOT is taken from the whole latency, TTFT included: a long prompt would look like slow
    decoding."""
    return changed(text, ("(out.latency_s - out.ttft_s) / (out", "out.latency_s / (out"))


@misconception("metrics", file=SERVING)
def itl_averaged_by_request(text):
    """Each request's mean gap is one value of ITL here; ITL has one value for every gap, which is
    how a single stall of a long answer shows in its p99."""
    return changed(
        text,
        (
            "[gap for out in done for gap in out.itl_s]",
            "[sum(out.itl_s) / len(out.itl_s) for out in done if out.itl_s]",
        ),
    )


@misconception("metrics", file=SERVING)
def tpot_from_the_gaps(text):
    """TPOT is the mean of the gaps that were seen; where two tokens arrive at once there are fewer
    gaps than tokens, and (latency - TTFT) / (tokens - 1) is smaller."""
    return changed(text, (TPOT, "sum(out.itl_s) / len(out.itl_s) if out.itl_s else 0.0"))


@misconception("metrics", file=SERVING)
def the_nearest_rank(text):
    """p99 is the value at the nearest rank; numpy's percentile, and so vLLM's, lies between two
    ranks, linearly: of three TTFTs 100, 100 and 500 ms it is 492."""
    return changed(
        text,
        ("np.percentile(array, 99)", "np.percentile(array, 99, method='nearest')"),
    )


@misconception("metrics", file=SERVING)
def the_sample_deviation(text):
    """std divides by n - 1; vLLM's is that of the population, by n."""
    return changed(text, ("float(array.std())", "float(array.std(ddof=min(1, len(array) - 1)))"))


@misconception("metrics", file=SERVING)
def goodput_of_averages(text):
    """Goodput compares the averages with the SLO: all requests are good, or none. An average is no
    promise to anybody; ask each request."""
    return changed(
        text,
        (
            "((slo.ttft_ms, out.ttft_s), (slo.tpot_ms, tpot), (slo.e2el_ms, out.latency_s))",
            "[(slo.ttft_ms, np.mean([o.ttft_s for o in done])),"
            " (slo.tpot_ms, np.mean(tpots)), (slo.e2el_ms, np.mean([o.latency_s for o in done]))]",
        ),
    )


@misconception("metrics", file=SERVING)
def one_part_is_enough(text):
    """A request counts as good if it keeps any part of the SLO; it has to keep each: a fast first
    token does not pay for a stalled answer."""
    return changed(text, ("bool(asked) and all(asked)", "any(asked)"))


@misconception("metrics", file=SERVING)
def failures_count(text):
    """Requests without success are counted as if they had been served: a server that refuses
    everything at once would have the best TTFT."""
    return changed(text, ("done = [out for out in outputs if out.success]", "done = list(outputs)"))


@misconception("metrics", file=SERVING)
def goodput_is_a_share(text):
    """Goodput is given as a share of the requests; it is a rate, requests a second, so that it can
    be compared with the throughput."""
    return changed(text, ("good / duration_s", "good / max(1, len(done))"))


@misconception("metrics", file=SERVING)
def seconds_for_milliseconds(text):
    """The figures are in seconds, under names that end in _ms."""
    return changed(text, ("1000 * np.array(values or [0.0])", "np.array(values or [0.0])"))


@misconception("metrics", file=SERVING)
def output_only(text):
    """total_token_throughput counts generated tokens only; it is input and output together."""
    return changed(text, ("(total_in + total_out) / duration_s", "total_out / duration_s"))


# --- capacity -------------------------------------------------------------------------------------

LEFT = "left = budget - model.weight_bytes / tp - activation_bytes - other_bytes"


@misconception("capacity", file=SERVING)
def utilization_of_free_memory(text):
    """The utilization is taken of what is free after the weights; it is a part of the *card*, a
    ceiling for everything the engine holds. With 80 GiB, 0.9, 16 of weights and 6 of the rest that
    makes 57.6 GiB less 6 instead of 50."""
    return changed(
        text,
        (
            LEFT,
            "free = gpu_bytes - model.weight_bytes / tp\n"
            "    left = gpu_memory_utilization * free - activation_bytes - other_bytes",
        ),
    )


@misconception("capacity", file=SERVING)
def utilization_after_everything(text):
    """The utilization is taken of what is free after everything else; it is a part of the *card*,
    out of which weights, activations and the rest are paid."""
    return changed(
        text,
        (
            LEFT,
            "free = gpu_bytes - model.weight_bytes / tp - activation_bytes - other_bytes\n"
            "    left = gpu_memory_utilization * free",
        ),
    )


@misconception("capacity", file=SERVING)
def the_whole_card(text):
    """The utilization is not applied: the engine may use a part of the card only."""
    return changed(text, ("budget = gpu_memory_utilization * gpu_bytes", "budget = gpu_bytes"))


@misconception("capacity", file=SERVING)
def heads_below_one(text):
    """8 key/value heads over 16 GPUs are half a head each; a head is not divided further, both
    GPUs hold the same one, so more GPUs than heads do not shrink the cache any more."""
    return changed(
        text,
        ("heads_here = max(1, heads // tp)", "heads_here = heads / tp"),
        (
            "return Capacity(num_blocks, kv_bytes_per_block, concurrency)",
            "return Capacity(num_blocks, int(kv_bytes_per_block), concurrency)",
        ),
    )


@misconception("capacity", file=SERVING)
def every_gpu_holds_all_heads(text):
    """Each GPU is given all key/value heads; tensor parallelism splits them, so 8 GPUs hold one of
    8 heads each."""
    return changed(text, ("heads_here = max(1, heads // tp)", "heads_here = heads"))


@misconception("capacity", file=SERVING)
def every_gpu_holds_all_weights(text):
    """Each GPU is charged with all weights; tensor parallelism splits them, which is why a 70B
    model fits eight cards and not one."""
    return changed(text, ("model.weight_bytes / tp", "model.weight_bytes"))


@misconception("capacity", file=SERVING)
def keys_without_values(text):
    """A block holds keys *and* values; with one of both only, twice as many seem to fit (a public
    calculator has this mistake)."""
    return changed(
        text, ("2 * model.num_hidden_layers * vector", "model.num_hidden_layers * vector")
    )


@misconception("capacity", file=SERVING)
def decimal_gigabytes(text):
    """The bytes of the card are taken for decimal ones and scaled: 1 GiB is 1.074 GB, and
    everything here is in bytes already."""
    return changed(
        text,
        (
            "budget = gpu_memory_utilization * gpu_bytes",
            "budget = gpu_memory_utilization * gpu_bytes * 1e9 / 2**30",
        ),
    )


@misconception("capacity", file=SERVING)
def negative_blocks(text):
    """A budget below zero gives a negative number of blocks; the weights alone do not fit, so there
    are none."""
    return changed(
        text, ("max(0, int(left // kv_bytes_per_block))", "int(left // kv_bytes_per_block)")
    )


@misconception("capacity", file=SERVING)
def the_amount_of_the_budget(text):
    """A budget below zero is used as if it were above: the sign says that the weights do not
    fit."""
    return changed(
        text, ("int(left // kv_bytes_per_block)", "int(abs(left) // kv_bytes_per_block)")
    )


@misconception("capacity", file=SERVING)
def rounded_up(text):
    """The last block does not fit whole; half a block holds nothing."""
    return changed(
        text,
        ("max(0, int(left // kv_bytes_per_block))", "max(0, int(left // kv_bytes_per_block) + 1)"),
    )


@misconception("capacity", file=SERVING)
def the_cache_has_the_weights_dtype(text):
    """The cache is taken to be in 16 bits whatever kv_dtype_bytes says; an 8-bit cache holds twice
    as many tokens."""
    return changed(text, ("model.head_dim * kv_dtype_bytes", "model.head_dim * 2"))


@misconception("capacity", file=SERVING)
def fractions_of_a_block(text):
    """Concurrency divides tokens by tokens; a request takes whole blocks, so its last one counts
    even if a single token is in it."""
    return changed(
        text,
        (
            "num_blocks / blocks_for(max_model_len, block_size)",
            "num_blocks * block_size / max_model_len",
        ),
    )


@misconception("capacity", file=SERVING)
def activations_cost_nothing(text):
    """The activations of the largest step are forgotten; they are there in every step, and the
    first full one would end in an out-of-memory error."""
    return changed(text, (" - activation_bytes - other_bytes", " - other_bytes"))


# --- simulate -------------------------------------------------------------------------------------


@misconception("simulate", file=SERVING)
def compute_plus_memory(text):
    """FLOPs and bytes are added; a GPU reads while it computes, so the slower of the two decides
    and the other is hidden behind it."""
    return changed(
        text,
        (
            "return max(compute_s, moved / cost.hbm_bytes_per_s) + cost.overhead_s",
            "return compute_s + moved / cost.hbm_bytes_per_s + cost.overhead_s",
        ),
    )


@misconception("simulate", file=SERVING)
def overhead_for_each_token(text):
    """The overhead is paid for each token; it is what the host needs to launch a step, however many
    tokens are in it, and sharing it is what batches are for."""
    return changed(text, ("+ cost.overhead_s", "+ cost.overhead_s * num_tokens"))


@misconception("simulate", file=SERVING)
def weights_for_each_token(text):
    """The weights are read once for each token; a step reads them once for all of its tokens, which
    is why decoding many requests together costs little more than decoding one."""
    return changed(
        text,
        ("moved = cost.weight_bytes + context", "moved = cost.weight_bytes * num_tokens + context"),
    )


@misconception("simulate", file=SERVING)
def no_cache_is_read(text):
    """The keys and values of the context are not read; with long contexts they are more than the
    weights."""
    return changed(
        text,
        (
            "moved = cost.weight_bytes + context_tokens * cost.kv_bytes_per_token",
            "moved = cost.weight_bytes",
        ),
    )


@misconception("simulate", file=SERVING)
def decoding_is_free_of_flops(text):
    """Only bytes count; a step of 512 prompt tokens is bound by compute, and that is what a large
    step costs everybody."""
    return changed(
        text,
        (
            "return max(compute_s, moved / cost.hbm_bytes_per_s) +",
            "return moved / cost.hbm_bytes_per_s +",
        ),
    )


@misconception("simulate", file=SERVING)
def ttft_from_the_schedule(text):
    """TTFT is counted from the step that first scheduled the request; its user has waited since it
    *arrived*, and under load the queue is the longer part."""
    return changed(
        text,
        (
            "        now += step_seconds(cost,",
            "        for number in done.scheduled:\n"
            "            begun.setdefault(number, now)\n"
            "        now += step_seconds(cost,",
        ),
        (
            "    engine = scheduler(cfg)\n",
            "    engine = scheduler(cfg)\n    begun: dict[int, float] = {}\n",
        ),
        ("Result(req.id, seen[0] - arrival,", "Result(req.id, seen[0] - begun[req.id],"),
    )


@misconception("simulate", file=SERVING)
def tokens_at_the_steps_begin(text):
    """Tokens are noted with the time at which their step begins; they are there when it ends, so
    every time is one step early."""
    return changed(
        text,
        ("            times[number].append(now)\n", "            times[number].append(begin)\n"),
        (
            "        now += step_seconds(cost,",
            "        begin = now\n        now += step_seconds(cost,",
        ),
    )


@misconception("simulate", file=SERVING)
def everybody_is_there_at_once(text):
    """All requests are added at the beginning; a request cannot be scheduled before it arrives,
    which here gives it a TTFT below zero."""
    return changed(
        text,
        ("while coming and coming[0].t_arrival_s <= now:", "while coming:"),
    )


@misconception("simulate", file=SERVING)
def an_idle_engine_stands(text):
    """While there is nothing to do the clock goes on as if steps were taken; it jumps to the next
    arrival, or every request after a pause is served late."""
    return changed(
        text,
        (
            "            now = max(now, coming[0].t_arrival_s)\n",
            "            while now < coming[0].t_arrival_s:\n"
            "                now += max(step_seconds(cost, 1, 0), 1e-3)\n",
        ),
    )


@misconception("simulate", file=SERVING)
def latency_without_the_wait(text):
    """Latency is counted from the first token; it begins with the arrival, as TTFT does."""
    return changed(text, ("seen[-1] - arrival))", "seen[-1] - seen[0]))"))


@misconception("simulate", file=SERVING)
def in_the_order_of_arrival(text):
    """The results are in the order of arrival; the trace's own order is asked for, or a caller who
    pairs both up reads other people's times."""
    return changed(
        text,
        (
            "    for req in rows:\n        seen",
            "    for req in sorted(rows, key=lambda req: req.t_arrival_s):\n        seen",
        ),
    )


@misconception("simulate", file=SERVING)
def one_arrival_a_step(text):
    """One request is added before each step; all that have arrived are, or a burst waits in front
    of the engine instead of in its batch."""
    return changed(
        text,
        (
            "while coming and coming[0].t_arrival_s <= now:",
            "if coming and coming[0].t_arrival_s <= now:",
        ),
    )


@misconception("simulate", file=SERVING)
def whoever_is_scheduled_has_a_token(text):
    """Every scheduled request is given a token; a chunk that leaves prompt tokens to compute
    generates none, see Step.generated."""
    return changed(text, ("for number in done.generated:", "for number in done.scheduled:"))


# --- config ---------------------------------------------------------------------------------------

YAML = "benchmark_config.yaml"


@misconception("config", file=YAML)
def swap_space_is_set(text):
    """swap_space is from older versions: vLLM no longer swaps a preempted request's blocks to the
    host, it computes them again, and the argument is gone."""
    return changed(
        text, ("dtype: bfloat16  #", "swap_space: 4  # for preempted requests\ndtype: bfloat16  #")
    )


@misconception("config", file=YAML)
def partial_prefills_are_set(text):
    """max_num_partial_prefills is gone from vLLM: how many prompts share a step follows from the
    token budget alone."""
    return changed(
        text,
        (
            "dtype: bfloat16  #",
            "max_num_partial_prefills: 2  # two prompts a step\ndtype: bfloat16  #",
        ),
    )


@misconception("config", file=YAML)
def a_tab(text):
    """YAML indents and separates with spaces; a tab before a key or a value that needs one is an
    error at that line and column."""
    return changed(text, ("max_num_seqs: 64", "\tmax_num_seqs: 64"))


@misconception("config", file=YAML)
def fewer_tokens_than_requests(text):
    """A step has fewer tokens than requests may run: vLLM refuses it, since each running request
    needs a token a step."""
    return changed(text, ("max_num_seqs: 64", "max_num_seqs: 1024"))


@misconception("config", file=YAML)
def no_chunks_and_a_small_budget(text):
    """Without chunked prefill a prompt is computed in one step, so a budget below max_model_len is
    refused: the longest prompt would wait for ever."""
    return changed(text, ("enable_chunked_prefill: true", "enable_chunked_prefill: false"))


@misconception("config", file=YAML)
def ninety_five_per_cent(text):
    """gpu_memory_utilization is a part, 0.95, not a percentage."""
    return changed(text, ("gpu_memory_utilization: 0.95", "gpu_memory_utilization: 95.0"))


@misconception("config", file=YAML)
def scientific_notation(text):
    """YAML 1.1 takes 1e4 as a text; write the digits."""
    return changed(text, ("max_model_len: 16384", "max_model_len: 2e4"))


@misconception("config", file=YAML)
def requests_cut_short(text):
    """max_model_len is below the trace's longest request, which the server would refuse; the mean
    says nothing about the longest."""
    return changed(text, ("max_model_len: 16384", "max_model_len: 8192"))


@misconception("config", file=YAML)
def the_defaults(text):
    """The defaults for this card, 0.92, 8,192 tokens and 1,024 requests, are made for throughput:
    their large steps stall everybody's next token, and their activations take 1.5 GiB of cache."""
    return changed(
        text,
        ("gpu_memory_utilization: 0.95", "gpu_memory_utilization: 0.92"),
        ("max_num_batched_tokens: 512", "max_num_batched_tokens: 8192"),
        ("max_num_seqs: 64", "max_num_seqs: 1024"),
        ("num_blocks = 3308", "num_blocks = 2322"),
        ("max_concurrency = 3.23", "max_concurrency = 2.27"),
        ("goodput = 3.37", "goodput = 1.0"),
    )


@misconception("config", file=YAML)
def too_few_at_once(text):
    """16 requests at once keep every step short, and everybody else waits in the queue: TPOT is
    perfect and TTFT is gone."""
    return changed(
        text,
        ("max_num_seqs: 64", "max_num_seqs: 16"),
        ("num_blocks = 3308", "num_blocks = 3315"),
        ("max_concurrency = 3.23", "max_concurrency = 3.24"),
        ("goodput = 3.37", "goodput = 0.14"),
    )


@misconception("config", file=YAML)
def a_capacity_of_the_whole_card(text):
    """The claimed blocks are those of the whole card without weights; the pool is what weights,
    activations and the rest leave."""
    return changed(text, ("num_blocks = 3308", "num_blocks = 19212"))


@misconception("config", file=YAML)
def throughput_as_goodput(text):
    """The claimed goodput is the throughput: requests that came too late were served, and do not
    count."""
    return changed(text, ("goodput = 3.37", "goodput = 3.61"))


@misconception("config", file=YAML)
def requests_at_once_as_concurrency(text):
    """The claimed concurrency is max_num_seqs; vLLM's is how many requests of max_model_len tokens
    the blocks hold, the worst case."""
    return changed(text, ("max_concurrency = 3.23", "max_concurrency = 64"))
