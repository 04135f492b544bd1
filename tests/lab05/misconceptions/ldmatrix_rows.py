from grader.suite import lines, misconception

fragment_without_swizzle = lines(
    """These are the addresses in a plain tile; it is stored under a swizzle, and without one
    eight rows of 128 bytes would meet in four banks.""",
    ("(chunk ^ r % 8)", "chunk"),
)


@misconception()
def swizzled_by_the_lane(row, chunk):
    """The chunk is XORed with the lane, 0 to 7; it is the row of the tile that counts, which
    differs as soon as the fragment does not begin at a multiple of 8."""
    return [(row + i) * 128 + (chunk ^ i) * 16 for i in range(8)]


swizzled_by_groups_of_rows = lines(
    """The chunk is XORed with row // 8, which is one number for the whole fragment: its rows stay
    above each other. row mod 8 tells them apart.""",
    ("chunk ^ r %", "chunk ^ r // 8 %"),
)

addresses_in_elements = lines(
    """These count elements of 2 bytes; the addresses are in bytes, 128 a row and 16 a chunk.""",
    ("128 + (chunk ^ r % 8) * 16", "64 + (chunk ^ r % 8) * 8"),
)

xor_of_bytes = lines(
    """The row is XORed into the byte offset, which moves by single bytes; it is the number of the
    chunk that is XORed, and a chunk has 16 bytes.""",
    ("(chunk ^ r % 8) * 16", "(chunk * 16 ^ r % 8)"),
)
