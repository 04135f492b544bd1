from grader.suite import misconception


@misconception()
def broadcast_is_a_conflict(byte_addresses, width):
    """Lanes that want the same word are served together, by a broadcast; the lanes of a bank are
    counted here, where its different words should be."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    lanes = {8: 16, 16: 8}.get(width, 32)
    worst = 0
    for start in range(0, len(byte_addresses), lanes):
        banks = [a // 4 % 32 for a in byte_addresses[start : start + lanes] if a is not None]
        worst = max([worst, *(banks.count(bank) for bank in banks)])
    return worst


@misconception()
def degree_by_byte_banks(byte_addresses, width):
    """The bank is taken as the address modulo 32; a bank is a word of 4 bytes wide, so it is the
    address divided by 4, modulo 32."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    lanes = {8: 16, 16: 8}.get(width, 32)
    worst = 0
    for start in range(0, len(byte_addresses), lanes):
        words = {}
        for a in byte_addresses[start : start + lanes]:
            for byte in range(a or 0, (a or 0) + (width if a is not None else 0), 4):
                words.setdefault(byte % 32, set()).add(byte // 4)
        worst = max(worst, max(map(len, words.values()), default=0))
    return worst


@misconception()
def no_phases(byte_addresses, width):
    """All 32 lanes are put into one pass; lanes of 8 bytes go as two half-warps and lanes of 16
    bytes as four quarter-warps, so float4 in a row have no conflict."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    words = {}
    for a in byte_addresses:
        for byte in range(a or 0, (a or 0) + (width if a is not None else 0), 4):
            words.setdefault(byte // 4 % 32, set()).add(byte // 4)
    return max(map(len, words.values()), default=0)


@misconception()
def lanes_of_a_bank_all_at_once(byte_addresses, width):
    """The lanes of each bank are counted, all 32 at once; count its different words instead, and
    for lanes of 8 and 16 bytes half- or quarter-warp by half- or quarter-warp."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    banks = [a // 4 % 32 for a in byte_addresses if a is not None]
    return max((banks.count(bank) for bank in banks), default=0)


@misconception()
def wavefronts_of_all_phases(byte_addresses, width):
    """The phases are added up: that is the number of wavefronts, which is 4 for float4 at its best;
    the degree of the conflict is that of the worst phase."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    lanes = {8: 16, 16: 8}.get(width, 32)
    total = 0
    for start in range(0, len(byte_addresses), lanes):
        words = {}
        for a in byte_addresses[start : start + lanes]:
            for byte in range(a or 0, (a or 0) + (width if a is not None else 0), 4):
                words.setdefault(byte // 4 % 32, set()).add(byte // 4)
        total += max(map(len, words.values()), default=0)
    return total


@misconception()
def one_less(byte_addresses, width):
    """An access without conflict has degree 1, one pass, not 0: the degree counts the passes, not
    the extra ones."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    lanes = {8: 16, 16: 8}.get(width, 32)
    worst = 0
    for start in range(0, len(byte_addresses), lanes):
        words = {}
        for a in byte_addresses[start : start + lanes]:
            for byte in range(a or 0, (a or 0) + (width if a is not None else 0), 4):
                words.setdefault(byte // 4 % 32, set()).add(byte // 4)
        worst = max(worst, max(map(len, words.values()), default=0))
    return max(worst - 1, 0)


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


@misconception()
def phases_of_interleaved_lanes(byte_addresses, width):
    """The phases take every second or fourth lane here; a phase is a run of neighbours, lanes 0
    to 15 or 0 to 7."""
    if width not in (1, 2, 4, 8, 16) or len(byte_addresses) > 32:
        raise ValueError("no request of a warp")
    if any((address or 0) % width for address in byte_addresses):
        raise ValueError("misaligned")
    step = {8: 2, 16: 4}.get(width, 1)
    worst = 0
    for start in range(step):
        words = {}
        for a in byte_addresses[start::step]:
            for byte in range(a or 0, (a or 0) + (width if a is not None else 0), 4):
                words.setdefault(byte // 4 % 32, set()).add(byte // 4)
        worst = max(worst, max(map(len, words.values()), default=0))
    return worst


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
