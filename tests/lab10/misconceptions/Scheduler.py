from grader.lab.skeleton import changed
from grader.suite import lines, misconception

ADMISSION = (
    "while self.waiting and not preempted and budget > 0 and len(running) < cfg.max_num_seqs:"
)

admits_in_a_step_that_preempted = lines(
    """A request is admitted in a step that preempted another: it takes the blocks that were just
    freed, and the next step preempts again. With a preemption nobody is admitted.""",
    (ADMISSION, ADMISSION.replace("not preempted and ", "")),
)

admits_whom_it_preempted = lines(
    """A request is admitted in a step that preempted another: it takes the blocks that were just
    freed, and the next step preempts again. With a preemption nobody is admitted.""",
    (ADMISSION, ADMISSION.replace("not preempted and ", "")),
    (
        "            if not request.blocks:  # it was the last one itself\n                break\n",
        "            if not request.blocks:  # the admission goes on\n                continue\n",
    ),
)

prefill_first = lines(
    """Waiting requests are served before the running ones, so one long prompt stops everybody's
    decode. Running requests first; the waiting ones get what is left.""",
    (
        "chain(running, self._admitted(scheduled, preempted))",
        "chain(self._admitted(scheduled, preempted), list(running))",
    ),
    (
        "            tokens = min(request.num_tokens - request.num_computed, budget)\n",
        "            if request not in running:\n                continue\n"
        "            tokens = min(request.num_tokens - request.num_computed, budget)\n",
    ),
    (
        "preempted.append(self._preempt_last())",
        "preempted.append(self._preempt_last())\n"
        "                budget += scheduled.pop(preempted[-1], 0)",
    ),
)

evicts_the_oldest = lines(
    """The request that runs longest is preempted, the one whose recomputation costs most and that
    everybody has waited for. First come first served: the last of the running ones gives way.""",
    (
        "        victim = self.running.pop()\n",
        "        victim = self.running.pop(0)\n",
    ),
    (
        "preempted.append(self._preempt_last())",
        "preempted.append(self._preempt_last())\n"
        "                budget += scheduled.pop(preempted[-1], 0)",
    ),
)

preempted_to_the_tail = lines(
    """A preempted request goes to the end of the queue, behind requests that came after it; it came
    first and is served first. Put it at the head.""",
    ("self.waiting.appendleft(victim)", "self.waiting.append(victim)"),
)

resumes_without_its_cached_blocks = lines(
    """A preempted request computes everything again; its full blocks were freed with their hashes
    and most are still there. Look it up like any other request.""",
    (
        "        victim.blocks = []\n",
        "        victim.blocks = []\n        victim.hashes = ()\n",
    ),
)

generated_blocks_are_not_hashed = lines(
    """Only the prompt's blocks are hashed; a full block of generated tokens is as good as any, and
    a resumed request or the next turn of a conversation finds it.""",
    (
        "[*req.prompt_tokens, *[GENERATED_TOKEN] * req.out_tokens]",
        "list(req.prompt_tokens)",
    ),
)


@misconception(file="serving.py")
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


a_hit_may_skip_the_whole_prompt = lines(
    """A prompt that is cached to its last token is scheduled with 0 tokens; nothing runs, so there
    is no output to take the next token from. At least the last token is computed.""",
    (
        "hits = match_prefix(pool, request.hashes, request.num_tokens, size)",
        "hits = match_prefix(pool, request.hashes, request.num_tokens + 1, size)",
    ),
)

recomputes_only_the_last_token = lines(
    """A full hit is cut by one token and not by its last block: off by one at a block boundary.
    That token would be written into a block that others read; give the whole block back.""",
    (
        "hits = match_prefix(pool, request.hashes, request.num_tokens, size)",
        "hits = match_prefix(pool, request.hashes, request.num_tokens + 1, size)",
    ),
    ("cached = len(hits) * size", "cached = min(len(hits) * size, request.num_tokens - 1)"),
)

AT_ADMISSION = "tokens = min(request.num_tokens - cached, budget)"

the_budget_turns_negative = lines(
    """A prompt longer than the rest of the budget is not cut, and the budget turns negative: that
    step takes as long as the whole prompt. Schedule a chunk and go on in the next step.""",
    (AT_ADMISSION, "tokens = request.num_tokens - cached"),
    (
        "            tokens = min(request.num_tokens - request.num_computed, budget)\n"
        "            if tokens == 0:\n"
        "                break\n",
        "            tokens = request.num_tokens - request.num_computed\n"
        "            if budget <= 0:\n"
        "                break\n",
    ),
)

only_new_requests_pay_from_the_budget = lines(
    """The running requests' tokens are not taken from the budget, so admission begins with a whole
    one; max_num_batched_tokens is for all tokens of a step.""",
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

takes_blocks_before_touching_hits = lines(
    """New blocks are taken before the hits are touched: a hit that waited at the head of the free
    queue is handed out as an empty block, to the same request. Touch first.""",
    (
        "running.append(self.waiting.popleft())",
        "running.append(self.waiting.popleft())\n"
        "            request.blocks = hits + pool.alloc(blocks_for(reach, size) - len(hits))",
    ),
    (
        "pool.touch(hits)\n"
        "            request.blocks = hits + pool.alloc(blocks_for(reach, size) - len(hits))",
        "pool.touch(hits)",
    ),
)

FITS = "if blocks_for(to_fit, size) - len(hits) + awoken > pool.num_free:"

a_hit_costs_no_free_block = lines(
    """A hit that nobody holds is counted as costing nothing; it stands in the free queue, and
    touching it leaves one free block less for the new ones. Count such hits as needed.""",
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

a_hit_costs_nothing_and_alloc_fails = lines(
    """A hit that nobody holds is counted as costing nothing; it stands in the free queue, and
    touching it leaves one free block less for the new ones. Count such hits as needed.""",
    (FITS, "if blocks_for(to_fit, size) - len(hits) > pool.num_free:"),
)

a_hit_costs_nothing_and_blocks_are_missing = lines(
    """A hit that nobody holds is counted as costing nothing; it stands in the free queue, and
    touching it leaves one free block less for the new ones. Count such hits as needed.""",
    (FITS, "if blocks_for(to_fit, size) - len(hits) > pool.num_free:"),
    (
        "hits + pool.alloc(blocks_for(reach, size) - len(hits))",
        "hits + (pool.alloc(blocks_for(reach, size) - len(hits)) or [])",
    ),
    (
        "        context_tokens = 0\n",
        "        context_tokens = 0\n        new = [*self.waiting]\n",
    ),
    (
        "while missing > pool.num_free and request.blocks:",
        "while missing > pool.num_free and request.blocks and request not in new:",
    ),
    ("if not request.blocks:", "if not request.blocks and request not in new:"),
    ("request.blocks += pool.alloc(missing)", "request.blocks += pool.alloc(missing) or []"),
)

hits_count_as_new_blocks = lines(
    """The blocks of the cached prefix are counted among those that must be free, also where others
    hold them; a block that is held is shared. Only the rest, and hits that nobody holds, take free
    blocks.""",
    (FITS, "if blocks_for(to_fit, size) > pool.num_free:"),
)

never_returns_blocks = lines(
    """A finished request keeps its blocks, so the pool runs dry and everybody waits. Free its table
    when its last token is there.""",
    (
        "        for request in finished:\n            pool.free(request.blocks)\n",
        "",
    ),
)

frees_before_it_admits = lines(
    """Requests that end in this step free their blocks before the step has run, and new ones are
    admitted on them. They finish after the step: their blocks are free in the next one.""",
    (
        f"        {ADMISSION}\n",
        "        for request in running[: len(scheduled)]:\n"
        "            if request.left == 0:\n"
        "                pool.free(request.blocks)\n"
        "                request.blocks = []\n"
        f"        {ADMISSION}\n",
    ),
)

frees_as_soon_as_it_ends = lines(
    """Requests that end in this step free their blocks before the step has run, and new ones are
    admitted on them. They finish after the step: their blocks are free in the next one.""",
    (
        "                    finished.append(request)\n",
        "                    finished.append(request)\n"
        "                    pool.free(request.blocks)\n"
        "                    request.blocks = []\n",
    ),
)

one_request_too_many = lines(
    """One request more than max_num_seqs runs at once; the limit is how many may run, so admit only
    below it.""",
    (ADMISSION, ADMISSION.replace("<", "<=")),
)

a_first_chunk_is_enough = lines(
    """reserve_full_isl is ignored: a prompt is admitted on the blocks of its first chunk, grows
    into a full pool and is preempted. With the switch all of its tokens must fit.""",
    ("request.num_tokens if cfg.reserve_full_isl else reach", "reach"),
)

always_reserves_everything = lines(
    """All known tokens must fit even with reserve_full_isl off; with it off the blocks of this
    step's chunk are enough.""",
    ("request.num_tokens if cfg.reserve_full_isl else reach", "request.num_tokens"),
)

looks_past_the_first = lines(
    """Where the first waiting request does not fit, the next is tried; small requests then overtake
    a large one for ever. First come first served: the first that does not fit ends admission.""",
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
        "        for request in finished:\n",
        "        self.waiting = deque(sorted(self.waiting, key=lambda r: r.id))\n"
        "        for request in finished:\n",
    ),
)

hashes_blocks_before_they_are_full = lines(
    """A block is hashed while tokens are still missing in it; a request that finds it reads keys
    that nobody has computed. Only full blocks are hashed.""",
    (
        "min(request.num_computed // self.cfg.block_size, len(request.hashes))",
        "min(len(request.blocks), len(request.hashes))",
    ),
)

hashes_appear_when_the_request_ends = lines(
    """Blocks get their hashes only when a request lets them go, so two requests with one prompt at
    the same time compute it twice. A full block can be found as soon as it is scheduled.""",
    ("            self._hash_full_blocks(request)\n", ""),
    (
        "        self.pool.free(victim.blocks)\n",
        "        self._hash_full_blocks(victim)\n        self.pool.free(victim.blocks)\n",
    ),
    (
        "            pool.free(request.blocks)\n",
        "            self._hash_full_blocks(request)\n            pool.free(request.blocks)\n",
    ),
)

hashes_appear_when_the_step_ends = lines(
    """Blocks get their hashes at the end of the step, so a request that is admitted in the same
    step does not find them. A full block can be found as soon as it is scheduled.""",
    ("            self._hash_full_blocks(request)\n", ""),
    (
        "        for request in finished:\n",
        "        for request in running:\n"
        "            self._hash_full_blocks(request)\n"
        "        for request in finished:\n",
    ),
)

hashed_only_once = lines(
    """What a preempted request had hashed counts as hashed when it comes back; it has other blocks
    then, and those that it computes again get no hash. Begin with the blocks that were found.""",
    (
        "request.num_hashed, request.num_computed = len(hits), cached",
        "request.num_hashed = max(request.num_hashed, len(hits))\n"
        "            request.num_computed = cached",
    ),
)

a_block_too_early = lines(
    """A new block is taken when the last one becomes full, one token before anything is written
    into it: off by one at the block boundary. n tokens need ceil(n / block_size) blocks.""",
    (
        "missing = blocks_for(reach, size) - len(request.blocks)",
        "missing = blocks_for(reach + 1, size) - len(request.blocks)",
    ),
)

computes_the_last_token_too = lines(
    """A request runs one step more to compute its last token; nobody needs its keys. It ends in the
    step that generates it.""",
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

every_scheduled_request_generates = lines(
    """A request generates in each step it runs; a chunk in the middle of a prompt has no next token
    yet. It generates once it has caught up with all its known tokens.""",
    (
        "            if reach == request.num_tokens:\n"
        "                generated.append(request.id)\n"
        "                request.num_tokens = reach + 1\n",
        "            if True:\n"
        "                generated.append(request.id)\n"
        "                request.num_tokens += request.num_computed == request.num_tokens\n",
    ),
)

gives_up_instead_of_preempting = lines(
    """A running request without a free block just waits for one, and so do all the others: nobody
    ends, nobody frees. Preempt the last one.""",
    (
        "            while missing > pool.num_free and request.blocks:\n"
        "                preempted.append(self._preempt_last())\n"
        "            if not request.blocks:  # it was the last one itself\n",
        "            if missing > pool.num_free:\n",
    ),
)

preempts_everybody_behind = lines(
    """Everybody behind the request that needs a block is preempted, although one of them freed
    enough. Preempt one, look again, and go on only while blocks are missing.""",
    (
        "                preempted.append(self._preempt_last())\n",
        "                while running[-1] is not request:\n"
        "                    preempted.append(self._preempt_last())\n"
        "                if missing > pool.num_free:\n"
        "                    preempted.append(self._preempt_last())\n",
    ),
)

the_switch_is_not_read = lines(
    """Blocks are hashed and found although enable_prefix_caching is off; without it nothing is
    shared, and a resumed request computes everything again.""",
    ("if cfg.enable_prefix_caching and not by_number:", "if not by_number:"),
)

writes_into_the_request = lines(
    """The tokens to come are appended to the request's own list of prompt tokens; its owner, and
    whoever shares the list, finds a longer prompt. Make a new list.""",
    (
        "known = [*req.prompt_tokens, *[GENERATED_TOKEN] * req.out_tokens]",
        "known = req.prompt_tokens\n            known += [GENERATED_TOKEN] * req.out_tokens",
    ),
)

in_the_order_of_ids = lines(
    """Waiting requests are ordered by their ids; an id is a name, and whoever came first is served
    first. A queue needs no sorting.""",
    (
        "self.waiting.append(Running(req.id, prompt, req.out_tokens, hashes))",
        "self.waiting.append(Running(req.id, prompt, req.out_tokens, hashes))\n"
        "        self.waiting = deque(sorted(self.waiting, key=lambda one: one.id))",
    ),
)

the_lowest_id_stays = lines(
    """The running request with the greatest id is preempted; an id says nothing about who was
    admitted last. The last of the running ones gives way.""",
    (
        "        victim = self.running.pop()\n",
        "        victim = max(self.running, key=lambda one: one.id)\n"
        "        self.running.remove(victim)\n",
    ),
)

a_partly_filled_block_keeps_its_hash = lines(
    """The hash of a prompt's last block is used although the prompt does not fill it; generated
    tokens do, and a longer prompt with that hash then finds another content. Use the hashes of full
    blocks only.""",
    ("req.block_hashes[: prompt // cfg.block_size]", "req.block_hashes"),
)

a_traces_hashes_are_always_used = lines(
    """The hashes of a trace are used although enable_prefix_caching is off; without it nothing is
    hashed and nothing is found.""",
    ("elif cfg.enable_prefix_caching and req.block_hashes:", "elif req.block_hashes:"),
)

salts_are_forgotten = lines(
    """The request's salt does not go into its hashes, so tenants share blocks and can tell from a
    TTFT what others have asked. Hand it to block_hashes.""",
    ("block_hashes(known, cfg.block_size, req.salt)", "block_hashes(known, cfg.block_size)"),
)

the_last_to_finish_frees_first = lines(
    """Finished requests free their blocks in reverse; they do so in the order in which they were
    scheduled, which decides what is overwritten first.""",
    ("        for request in finished:\n", "        for request in reversed(finished):\n"),
)

the_last_token_needs_a_block = lines(
    """A request is refused because the blocks for all of its tokens are more than the pool has; the
    last token is never computed, so it needs no room.""",
    ("blocks_for(prompt + req.out_tokens - 1,", "blocks_for(prompt + req.out_tokens,"),
)

who_came_last_is_first = lines(
    """A new request waits in front of those that came before it; that is the place of preempted
    ones. First come first served: it waits behind all that do.""",
    ("self.waiting.append(Running(", "self.waiting.appendleft(Running("),
)

reserves_the_output_too = lines(
    """A request is admitted when the blocks of all tokens that it will ever have are free, as
    PlainScheduler does; most of them would be empty for long. Its known tokens have to fit, or
    without reserve_full_isl the first chunk.""",
    (
        "request.num_tokens if cfg.reserve_full_isl else reach",
        "request.num_tokens + request.left - 1",
    ),
)

with_the_switch_the_output_too = lines(
    """A request is admitted when the blocks of all tokens that it will ever have are free, as
    PlainScheduler does; most of them would be empty for long. Its known tokens have to fit, or
    without reserve_full_isl the first chunk.""",
    (
        "request.num_tokens if cfg.reserve_full_isl else reach",
        "request.num_tokens + request.left - 1 if cfg.reserve_full_isl else reach",
    ),
)

one_admission_a_step = lines(
    """One waiting request is admitted in a step; as many are as budget, blocks and max_num_seqs
    allow, or a burst waits in front of an empty engine.""",
    ("            budget -= scheduled[request.id]\n", "            budget = 0\n"),
)

keeps_a_block_free = lines(
    """A request is admitted only if a block stays free, like the watermark of older versions; to
    the last free block it fits.""",
    (FITS, FITS.replace("> pool", ">= pool")),
)

preempts_although_it_fits = lines(
    """A request is preempted although the missing blocks are just those that are free; it is done
    only while there are fewer.""",
    (
        "while missing > pool.num_free and request.blocks:",
        "while missing and missing >= pool.num_free and request.blocks:",
    ),
)

the_one_in_need_gives_way = lines(
    """The request that lacks a block is preempted itself; the *last* of the running ones gives way,
    and who was admitted first goes on.""",
    (
        "chain(running, self._admitted(scheduled, preempted))",
        "chain(list(running), self._admitted(scheduled, preempted))",
    ),
    (
        "            while missing > pool.num_free and request.blocks:\n"
        "                preempted.append(self._preempt_last())\n"
        "            if not request.blocks:  # it was the last one itself\n"
        "                break\n",
        "            if missing > pool.num_free:\n"
        "                running.append(running.pop(running.index(request)))\n"
        "                preempted.append(self._preempt_last())\n"
        "                continue\n",
    ),
)

victims_in_the_order_of_their_loss = lines(
    """Of several requests that one step preempts the first stands in front; the last one was
    admitted before the others. Each goes to the head of the queue when it is preempted.""",
    ("        context_tokens = 0\n", "        context_tokens = 0\n        self.lost = 0\n"),
    (
        "        self.waiting.appendleft(victim)\n",
        "        self.waiting.insert(self.lost, victim)\n        self.lost += 1\n",
    ),
)

goes_on_where_it_was = lines(
    """A preempted request goes on where it was, as if its keys and values had been kept; its blocks
    are somebody else's now. Nothing of it counts as computed but the prefix that it finds.""",
    ("cached = len(hits) * size", "cached = max(len(hits) * size, request.num_computed)"),
)

the_table_is_turned_twice = lines(
    """The table is handed to free with its end first, and free turns it around itself: the
    beginning goes into the queue first and is overwritten first. Free the table in its order.""",
    ("            pool.free(request.blocks)\n", "            pool.free(request.blocks[::-1])\n"),
    ("self.pool.free(victim.blocks)", "self.pool.free(victim.blocks[::-1])"),
)

the_table_is_turned_at_the_end = lines(
    """The table is handed to free with its end first, and free turns it around itself: the
    beginning goes into the queue first and is overwritten first. Free the table in its order.""",
    ("            pool.free(request.blocks)\n", "            pool.free(request.blocks[::-1])\n"),
)

the_victims_table_is_turned = lines(
    """The table is handed to free with its end first, and free turns it around itself: the
    beginning goes into the queue first and is overwritten first. Free the table in its order.""",
    ("self.pool.free(victim.blocks)", "self.pool.free(victim.blocks[::-1])"),
)

IN_LINE = "            tokens = min(request.num_tokens - request.num_computed, budget)\n"
MISSING = "missing = blocks_for(reach, size) - len(request.blocks)"
TAKES = "request.blocks = hits + pool.alloc(blocks_for(reach, size) - len(hits))"
COUNTS = "request.num_hashed, request.num_computed = len(hits), cached"
TO_FIT = "request.num_tokens if cfg.reserve_full_isl else reach"
HASHES = "            self._hash_full_blocks(request)\n"
CONTEXT = "            context_tokens += reach\n"
BEGIN = "        context_tokens = 0\n"
TOLD = "return Step(scheduled, preempted, ended, pool.num_free, generated, context_tokens)"
NEVER = "        if need > cfg.num_blocks - 1:\n"
NO_TOKEN = "        if prompt < 1 or req.out_tokens < 1:\n"

# -- add

taken_although_it_never_fits = lines(
    """A request is taken that the whole pool cannot hold, and waits for ever with everybody behind
    it. Count the blocks for all of its tokens but the last; the null block is not one of the
    pool's.""",
    (NEVER, "        if need > cfg.num_blocks:\n"),
    gate=False,
)

who_fills_the_pool_is_refused = lines(
    """A request that needs exactly all blocks is refused; it can run alone, so it fits. Only one
    that needs more is refused.""",
    (NEVER, "        if need >= cfg.num_blocks - 1:\n"),
)

no_prompt_token_is_taken = lines(
    """A request without a prompt token, or without one to generate, is taken; it could never end
    as it should. Refuse fewer than one of either, negative numbers too.""",
    (NO_TOKEN, "        if req.out_tokens < 1:\n"),
    gate=False,
)

a_traces_hashes_are_not_used = lines(
    """A prompt that is a number of tokens is never found, although the trace has hashes of its
    blocks; where the request has hashes, they are its full blocks'.""",
    ("elif cfg.enable_prefix_caching and req.block_hashes:", "elif False:"),
)

# -- the running ones

a_running_request_gets_one_token = lines(
    """A request that runs already gets one token a step, as if it were decoding; a prompt that was
    cut is still many tokens behind, and gets as many of them as the budget has left.""",
    (BEGIN, BEGIN + "        new = {request.id for request in self.waiting}\n"),
    (
        IN_LINE,
        "            behind = request.num_tokens - request.num_computed\n"
        "            tokens = min(behind if request.id in new else min(behind, 1), budget)\n",
    ),
)

a_block_too_late = lines(
    """A new block is taken one token too late, when the one before is overfull: off by one at the
    block boundary. n tokens need ceil(n / block_size) blocks before the step runs.""",
    (MISSING, "missing = max(0, blocks_for(reach - 1, size) - len(request.blocks))"),
    (
        "min(request.num_computed // self.cfg.block_size, len(request.hashes))",
        "min(request.num_computed // self.cfg.block_size, len(request.hashes),"
        " len(request.blocks))",
    ),
    (
        "            if not request.blocks:  # it was the last one itself\n",
        "            if not request.blocks and missing:\n",
    ),
)

the_victims_blocks_are_lost = lines(
    """A preempted request loses its blocks and nobody gets them: they are taken out of its table
    and not freed, so preempting does not help. Hand them to the pool first.""",
    ("        self.pool.free(victim.blocks)\n", ""),
)

# -- the waiting ones

prompts_are_not_cut = lines(
    """A prompt that is longer than what is left of the budget is not admitted; it is cut, gets the
    rest of the budget, and goes on in the next step.""",
    (
        "            awoken = sum(",
        "            if tokens < request.num_tokens - cached:\n                break\n"
        "            awoken = sum(",
    ),
)

admitted_without_a_token = lines(
    """A request is admitted though the budget is used up: it holds blocks and does nothing. Admit
    only while budget is left.""",
    (ADMISSION, ADMISSION.replace("budget > 0 and ", "")),
)

max_num_seqs_is_not_read = lines(
    """max_num_seqs is not looked at; no more than so many requests run at once, those that run
    already among them.""",
    (ADMISSION, ADMISSION.replace(" and len(running) < cfg.max_num_seqs", "")),
)

a_batch_runs_to_its_end = lines(
    """Nobody is admitted while anybody runs, so a batch runs to its end together; that is dynamic
    batching. In continuous batching a request joins at the next step that has room.""",
    (
        f"        {ADMISSION}\n",
        f"        idle = not running\n        {ADMISSION.replace('while ', 'while idle and ')}\n",
    ),
)

hits_save_memory_only = lines(
    """The blocks that were found are shared, but their tokens are computed and paid for once more;
    the cached prefix counts as computed, and only what is behind it is scheduled.""",
    (COUNTS, "request.num_hashed, request.num_computed = len(hits), 0"),
    (AT_ADMISSION, "tokens = min(request.num_tokens, budget)"),
    ("            reach = cached + tokens\n", "            reach = tokens\n"),
    (TAKES, "request.blocks = hits + pool.alloc(max(0, blocks_for(reach, size) - len(hits)))"),
    (MISSING, "missing = max(0, blocks_for(reach, size) - len(request.blocks))"),
)

all_blocks_at_once = lines(
    """With reserve_full_isl a request is given the blocks of all its tokens when it is admitted;
    the switch asks whether they are free, and a step takes those for its own tokens only.""",
    (TAKES, "request.blocks = hits + pool.alloc(blocks_for(to_fit, size) - len(hits))"),
    (MISSING, "missing = max(0, blocks_for(reach, size) - len(request.blocks))"),
)

hits_have_no_reference = lines(
    """The blocks found stand in the request's table without being touched; the pool still counts
    them as free or as the other's alone, and hands them out. Touch them first.""",
    ("            pool.touch(hits)\n", ""),
)

the_prefix_is_not_looked_up = lines(
    """A waiting request is never looked up in the cache, so it computes its whole prompt; its
    cached prefix counts as computed.""",
    ("hits = match_prefix(pool, request.hashes, request.num_tokens, size)", "hits = []"),
)


@misconception(file="serving.py")
def only_the_prompt_must_fit(text):
    """With reserve_full_isl only the prompt must fit; one that was preempted has generated tokens
    as well, and all that it knows is computed again. All of its known tokens must fit."""
    return changed(
        text,
        ("    num_hashed: int = 0\n", "    num_hashed: int = 0\n    prompt: int = 0\n"),
        (
            "Running(req.id, prompt, req.out_tokens, hashes)",
            "Running(req.id, prompt, req.out_tokens, hashes, prompt=prompt)",
        ),
        (TO_FIT, "max(request.prompt, reach) if cfg.reserve_full_isl else reach"),
    )


the_switch_the_wrong_way_round = lines(
    """reserve_full_isl is read the wrong way round: with it all known tokens must fit, without it
    the blocks of this step's tokens are enough.""",
    (TO_FIT, "reach if cfg.reserve_full_isl else request.num_tokens"),
)

# -- hashes

hashed_when_caught_up = lines(
    """The blocks of a prompt get their hashes when the whole prompt is computed; each block that is
    full can be found as soon as it is scheduled, also one of a first chunk.""",
    (
        HASHES,
        "            if reach == request.num_tokens:\n"
        "                self._hash_full_blocks(request)\n",
    ),
)

# -- generating and ending

one_token_too_few = lines(
    """A request ends one token early; the one that its prompt gives is the first of out_tokens, so
    out_tokens - 1 more follow.""",
    (
        "                request.left -= 1\n",
        "                request.left -= 1 if request.left != 2 else 2\n",
    ),
)

free_blocks_before_the_end = lines(
    """free_blocks is counted before the finished requests have freed theirs; it is what is free
    *after* the step.""",
    (
        "        for request in finished:\n",
        "        free_blocks = pool.num_free\n        for request in finished:\n",
    ),
    (TOLD, TOLD.replace("pool.num_free", "free_blocks")),
)

context_without_the_new_tokens = lines(
    """context_tokens leaves out the tokens of this step; it is what the scheduled requests' cache
    holds once the step has run, those just computed included.""",
    (CONTEXT, "            context_tokens += reach - tokens\n"),
    gate=False,
)

context_with_the_generated_token = lines(
    """context_tokens counts the token that was generated in this step; its keys and values are
    computed in the next one.""",
    (CONTEXT, "            context_tokens += reach + (reach == request.num_tokens)\n"),
    gate=False,
)

generated_is_scheduled = lines(
    """Step.generated names everybody who was scheduled; a chunk that leaves prompt tokens to
    compute generates none.""",
    (TOLD, TOLD.replace("pool.num_free, generated", "pool.num_free, [*scheduled]")),
    gate=False,
)
