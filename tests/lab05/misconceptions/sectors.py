from grader.suite import lines, misconception

_TOUCHED = "touched.update(range(address // SECTOR_BYTES, last + 1))"
_LINES = "lines = {sector * SECTOR_BYTES // LINE_BYTES for sector in touched}"

lines_for_sectors = lines(
    """Lines of 128 bytes are counted twice here; a cache line is four sectors, and what moves is
    the sectors: 32 bytes each.""",
    ("return len(touched), len(lines)", "return len(lines), len(lines)"),
)

lines_come_first = lines(
    """The order is (sectors, lines); it is the other way round here.""",
    ("return len(touched), len(lines)", "return len(lines), len(touched)"),
)


@misconception()
def counted_from_the_first_lane(byte_addresses, width):
    """Sectors begin at multiples of 32 in memory, not at the first lane's address: 128 bytes from
    byte 4 on touch five of them."""
    known = [a for a in byte_addresses if a is not None]
    low = min(known, default=0)
    bytes_ = {b - low for a in known for b in range(a, a + width)}
    return len({b // 32 for b in bytes_}), len({b // 128 for b in bytes_})


@misconception()
def bytes_over_32(byte_addresses, width):
    """The bytes that are asked for, divided by 32, are the ideal; a sector is moved whole, even
    for 4 bytes of it."""
    bytes_ = {b for a in byte_addresses if a is not None for b in range(a, a + width)}
    return -(-len(bytes_) // 32), -(-len(bytes_) // 128)


@misconception()
def span_over_32(byte_addresses, width):
    """From the first byte to the last there may be sectors that no lane touches, and these do not
    move: count the sectors, not the distance."""
    known = [a for a in byte_addresses if a is not None]
    if not known:
        return 0, 0
    low, high = min(known), max(known) + width - 1
    return high // 32 - low // 32 + 1, high // 128 - low // 128 + 1


first_bytes_only = lines(
    """Only the first byte of each lane is looked at; 12 bytes from byte 24 on end in the next
    sector.""",
    (_TOUCHED, "touched.add(address // SECTOR_BYTES)"),
)

first_and_last_bytes_only = lines(
    """Of each lane the sectors of the first byte and of the last are counted, and those between
    them are not: 100 bytes from byte 0 on are in four.""",
    (_TOUCHED, "touched.update((address // SECTOR_BYTES, last))"),
)

every_32nd_byte_only = lines(
    """From each lane's first byte on every 32nd is looked at, and not its last one: 12 bytes from
    byte 24 on end in the next sector.""",
    (_TOUCHED, "touched.update(b // SECTOR_BYTES for b in range(address, address + width, 32))"),
)

one_byte_too_far = lines(
    """The byte behind a lane's last one is counted as well; a lane from byte a on ends at byte
    a + width - 1, so 32 bytes from byte 0 on are in one sector.""",
    ("(address + width - 1)", "(address + width)"),
)

lines_by_division = lines(
    """The lines are a quarter of the sectors here; two sectors may lie in one line, or far apart in
    two, so count the lines that hold a byte.""",
    (_LINES, "lines = range(ceil(len(touched) / 4))"),
)

lines_of_first_bytes = lines(
    """The line of a lane is taken to be that of its first byte; it may end in another one.""",
    (_LINES, "lines = {a // LINE_BYTES for a in byte_addresses if a is not None}"),
)


@misconception()
def a_sector_for_each_lane(byte_addresses, width):
    """Sectors are counted lane by lane and added up; lanes that fall into the same sector share
    it."""
    known = [a for a in byte_addresses if a is not None]
    each = sum((a + width - 1) // 32 - a // 32 + 1 for a in known)
    return each, sum((a + width - 1) // 128 - a // 128 + 1 for a in known)


@misconception()
def sectors_for_each_lane(byte_addresses, width):
    """Sectors are counted lane by lane and added up; lanes that fall into the same sector share
    it."""
    known = [a for a in byte_addresses if a is not None]
    each = [s for a in known for s in range(a // 32, (a + width - 1) // 32 + 1)]
    return len(each), len({sector // 4 for sector in each})


lines_of_first_and_last_bytes = lines(
    """Of each lane the lines of the first byte and of the last are counted, and those between them
    are not: 300 bytes from byte 0 on are in three.""",
    (
        _LINES,
        "ends = [(a, a + width - 1) for a in byte_addresses if a is not None]\n"
        "    lines = {byte // LINE_BYTES for pair in ends for byte in pair}",
    ),
)

addresses_of_32_bits = lines(
    """An address is kept in 32 bits here, so places that lie 4 GiB apart fall together; a GPU has
    more memory than that.""",
    ("if address is not None:\n", "if address is not None:\n            address &= 0xFFFFFFFF\n"),
    gate=False,
)
