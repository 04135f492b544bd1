from grader.suite import misconception


@misconception()
def lines_for_sectors(byte_addresses, width):
    """Lines of 128 bytes are counted twice here; a cache line is four sectors, and what moves is
    the sectors: 32 bytes each."""
    lines = {
        piece
        for a in byte_addresses
        if a is not None
        for piece in range(a // 128, (a + width - 1) // 128 + 1)
    }
    return len(lines), len(lines)


@misconception()
def lines_come_first(byte_addresses, width):
    """The order is (sectors, lines); it is the other way round here."""
    bytes_ = {b for a in byte_addresses if a is not None for b in range(a, a + width)}
    return len({b // 128 for b in bytes_}), len({b // 32 for b in bytes_})


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


@misconception()
def first_bytes_only(byte_addresses, width):
    """Only the first byte of each lane is looked at; 12 bytes from byte 24 on end in the next
    sector."""
    known = [a for a in byte_addresses if a is not None]
    return len({a // 32 for a in known}), len({a // 128 for a in known})


@misconception()
def a_sector_for_each_lane(byte_addresses, width):
    """Sectors are counted lane by lane and added up; lanes that fall into the same sector share
    it."""
    known = [a for a in byte_addresses if a is not None]
    each = sum((a + width - 1) // 32 - a // 32 + 1 for a in known)
    return each, sum((a + width - 1) // 128 - a // 128 + 1 for a in known)
