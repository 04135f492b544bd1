from grader.suite import lines, misconception

_IDLE = "            if address is None:\n                continue\n"
_WORDS = "words: dict[int, set[int]] = defaultdict(set)"
_ADD = "words[bank_of(byte)].add(byte // BANK_BYTES)"
_EACH = "for byte in range(address, address + width, BANK_BYTES):\n                " + _ADD
_LANES = "lanes_a_phase = {8: 16, 16: 8}.get(width, WARP)"
_WORST = "worst = max(worst, max(map(len, words.values()), default=0))"
_START = "    worst = 0\n"

broadcast_is_a_conflict = lines(
    """Lanes that want the same word are served together, by a broadcast; the lanes of a bank are
    counted here, where its different words should be.""",
    (_WORDS, "words = defaultdict(list)"),
    (_ADD, _ADD.replace("add", "append")),
)

degree_by_byte_banks = lines(
    """The bank is taken as the address modulo 32; a bank is a word of 4 bytes wide, so it is the
    address divided by 4, modulo 32.""",
    ("words[bank_of(byte)]", "words[byte % BANKS]"),
)

banks_as_wide_as_a_lane = lines(
    """The banks are taken to be as wide as a lane; they are 4 bytes wide for lanes of 8 and 16
    bytes too, so such a lane wants words of two or four banks.""",
    (
        _EACH,
        "unit = max(width, BANK_BYTES)\n            words[address // unit % BANKS].add(address)",
    ),
)

no_phases = lines(
    """All 32 lanes are put into one pass; lanes of 8 bytes go as two half-warps and lanes of 16
    bytes as four quarter-warps, so float4 in a row have no conflict.""",
    (_LANES, "lanes_a_phase = WARP"),
)

halves_for_all_wide_lanes = lines(
    """Lanes of 16 bytes go in halves of the warp here; 16 of them want 256 bytes, twice what the
    banks give at once, so they go in quarters.""",
    (_LANES, "lanes_a_phase = {8: 16, 16: 16}.get(width, WARP)"),
)

lanes_of_a_bank_all_at_once = lines(
    """The lanes of each bank are counted, all 32 at once; count its different words instead, and
    for lanes of 8 and 16 bytes half- or quarter-warp by half- or quarter-warp.""",
    (_LANES, "lanes_a_phase = WARP"),
    (_WORDS, "words = defaultdict(list)"),
    (_ADD, _ADD.replace("add", "append")),
)

wavefronts_of_all_phases = lines(
    """The phases are added up: that is the number of wavefronts, which is 4 for float4 at its best;
    the degree of the conflict is that of the worst phase.""",
    (_WORST, "worst += max(map(len, words.values()), default=0)"),
)

one_less = lines(
    """An access without conflict has degree 1, one pass, not 0: the degree counts the passes, not
    the extra ones.""",
    ("return worst", "return max(worst - 1, 0)"),
)

bytes_of_a_word_conflict = lines(
    """Lanes of 1 and 2 bytes that want different bytes of one word are counted as a conflict; a
    bank gives the whole word, to all of them at once.""",
    (_ADD, "words[bank_of(byte)].add(byte // min(width, BANK_BYTES))"),
)

idle_lanes_close_up = lines(
    """Idle lanes are taken out before the phases are cut, so later lanes move into earlier phases;
    a lane keeps its number, whoever takes part.""",
    (
        _START,
        _START + "    byte_addresses = [a for a in byte_addresses if a is not None]\n",
    ),
)

idle_lanes_want_word_0 = lines(
    """An idle lane is counted as one that wants word 0; it wants none, and bank 0 has one word less
    to give.""",
    (_IDLE, "            address = address or 0\n"),
)


@misconception()
def only_the_stride_is_looked_at(byte_addresses, width):
    """gcd(stride, 32) holds for lanes at one stride; the stride of the first two lanes says nothing
    about a permutation, a gather or two halves that differ."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    import math

    known = [a for a in byte_addresses if a is not None]
    if len(known) < 2:
        return len(known)
    units = abs(known[1] - known[0]) // width
    lanes = {8: 16, 16: 8}.get(width, 32)
    return math.gcd(units, lanes) if units else 1


phases_of_interleaved_lanes = lines(
    """The phases take every second or fourth lane here; a phase is a run of neighbours, lanes 0
    to 15 or 0 to 7.""",
    (
        "for start in range(0, len(byte_addresses), lanes_a_phase):",
        "for start in range(WARP // lanes_a_phase):",
    ),
    ("[start : start + lanes_a_phase]", "[start :: WARP // lanes_a_phase]"),
)


@misconception()
def lanes_over_banks(byte_addresses, width):
    """Lanes divided by the banks that they use is a mean; the fullest bank decides, and the others
    wait for it."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    lanes = {8: 16, 16: 8}.get(width, 32)
    worst = 0
    for start in range(0, len(byte_addresses), lanes):
        part = {a for a in byte_addresses[start : start + lanes] if a is not None}
        words = {byte // 4 for a in part for byte in range(a, a + width, 4)}
        if words:
            worst = max(worst, -(-len(words) // len({word % 32 for word in words})))
    return worst


equal_addresses_merged_first = lines(
    """Equal addresses are merged before the phases are cut, so later lanes move up into earlier
    phases. Merge words within a phase: a lane keeps its number.""",
    (_START, _START + "    byte_addresses = list(dict.fromkeys(byte_addresses))\n"),
)

multiples_of_a_word_will_do = lines(
    """A lane of 8 or 16 bytes may begin at any word here; its address must be a multiple of its
    width, or a GPU stops the kernel.""",
    ("if address % width:", "if address % min(width, BANK_BYTES):"),
    gate=False,
)

idle_lanes_are_not_counted = lines(
    """Only the active lanes are counted against the 32; a list of 33 is more than a warp has, idle
    lanes and all.""",
    (
        "if len(byte_addresses) > WARP:",
        "if sum(a is not None for a in byte_addresses) > WARP:",
    ),
    gate=False,
)
