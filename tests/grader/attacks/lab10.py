"""Lab 10: a pool that hides that it searches its queue, and a configuration beyond numbers."""

from __future__ import annotations

from .lab_attack import LabAttack

# A pool whose free queue is a list, searched at every hit. In the place of SEARCH stands how.
_SEARCHING = """
import builtins, sys, threading
_rank = min
class BlockPool:
    def __init__(self, num_blocks):
        if num_blocks < 1: raise ValueError("none")
        self._free = list(range(1, num_blocks))
        self._held = [0] * num_blocks
        self._hash_of, self._with = {}, {}
    @property
    def num_free(self): return len(self._free)
    def references(self, block): return self._held[block]
    def _place(self, block):
        SEARCH
    def alloc(self, k):
        if k < 0: raise ValueError("negative")
        if k > len(self._free): return None
        taken, self._free[:k] = self._free[:k], []
        for block in taken:
            self._held[block] = 1
            if block in self._hash_of:
                content = self._hash_of.pop(block)
                del self._with[content][block]
                if not self._with[content]: del self._with[content]
        return taken
    def touch(self, blocks):
        for block in blocks:
            if not self._held[block]: del self._free[self._place(int(block))]
            self._held[block] += 1
    def free(self, blocks):
        blank = []
        for block in reversed(blocks):
            if not self._held[block]: raise ValueError(f"{block} is held by nobody")
            self._held[block] -= 1
            if not self._held[block]:
                (self._free if block in self._hash_of else blank).append(block)
        self._free[:0] = blank
    def cache(self, block, content):
        self._hash_of[block] = content
        self._with.setdefault(content, {})[block] = None
    def lookup(self, content):
        same = self._with.get(content)
        return next(iter(same)) if same else None
"""
_LOOP = "next(place for place, each in enumerate(self._free) if each == block)"
_OTHERS = ("test_the_ten_block_example", "test_any_hash_is_a_hash")

ATTACKS = [
    LabAttack(
        "a-search-that-nobody-traces",
        "BlockPool",
        "the trace and the profile function are taken off for the time of a search",
        _SEARCHING.replace(
            "SEARCH",
            f"""seen = sys.gettrace(), sys.getprofile()
        sys.settrace(None), sys.setprofile(None)
        found = {_LOOP}
        sys.settrace(seen[0]), sys.setprofile(seen[1])
        return found""",
        ),
        mark=r"a trace or profile function was set",
    ),
    LabAttack(
        "a-search-in-a-thread",
        "BlockPool",
        "the search runs in a thread, which has no trace function",
        _SEARCHING.replace(
            "SEARCH",
            f"""found = []
        def search(): found.append({_LOOP})
        thread = threading.Thread(target=search)
        thread.start(), thread.join()
        return found[0]""",
        ),
        mark=r"a thread was started",
    ),
    LabAttack(
        "a-search-by-another-name",
        "BlockPool",
        "`min` goes through the queue, under a name that the module gave it before",
        _SEARCHING.replace(
            "SEARCH",
            """others = list(map(block.__ne__, self._free))
        return _rank(range(len(others)), key=others.__getitem__)""",
        ),
        mark=r"effort with 4,096 blocks over that with 64",
        passes=_OTHERS,
    ),
    LabAttack(
        "more-digits-than-a-float-has",
        "config",
        "a budget of 400 digits, which no float of the suite's can hold",
        changes=(("max_num_batched_tokens: 512", "max_num_batched_tokens: 1" + 400 * "0"),),
        mark=r"max_num_batched_tokens is larger than",
    ),
    LabAttack(
        "claims-that-are-not-numbers",
        "config",
        "claims of NaN, which lies neither below nor above anything",
        changes=(
            ("goodput = 3.37", "goodput = nan"),
            ("max_concurrency = 3.23", "max_concurrency = nan"),
        ),
        mark=r"claim max_concurrency",
    ),
]
