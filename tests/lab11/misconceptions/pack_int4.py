from grader.suite import lines

sign_extension_is_lost = lines(
    """A nibble comes back as 0 to 15, so -1 has become 15. Its bit 3 is the sign: 8 to 15
    stand for themselves less 16.""",
    (
        "return torch.where(nibbles >= 8, nibbles - 16, nibbles).to(torch.int8)",
        "return nibbles.to(torch.int8)",
    ),
)

packs_in_the_other_order = lines(
    """The nibbles are the wrong way round: every pair of neighbours changes places in a kernel
    that reads the other order, and no shape or range tells. "low" puts the first value into
    the low nibble.""",
    (
        'low, high = (first, second) if order == "low" else (second, first)',
        'low, high = (second, first) if order == "low" else (first, second)',
    ),
)

one_order_only = lines(
    """`order` is not looked at when packing, so what bitsandbytes reads is the neighbour.
    Exchange the two for "high".""",
    (
        'low, high = (first, second) if order == "low" else (second, first)',
        "low, high = first, second",
    ),
)

unpacks_one_order_only = lines(
    """`order` is not looked at when unpacking, so what was packed high nibble first comes back
    with every pair of neighbours exchanged.""",
    ('pair = (low, high) if order == "low" else (high, low)', "pair = (low, high)"),
)

a_negative_value_overwrites_its_neighbour = lines(
    """A negative value has ones in all of its upper bits, and they overwrite the other nibble.
    Keep four bits of each (& 0xF) before you put them together.""",
    ("nibbles = q.to(torch.int32) & 0xF\n", "nibbles = q.to(torch.int32)\n"),
)

offset_instead_of_twos_complement = lines(
    """8 is added to make the codes positive; that is the layout of an unsigned int4 with zero
    point 8, and whoever reads two's complement sees -8 where there was 0. Keep the low four
    bits.""",
    ("nibbles = q.to(torch.int32) & 0xF\n", "nibbles = q.to(torch.int32) + 8\n"),
)

the_two_halves_of_a_row = lines(
    """The first half of a row is packed with the second half; here neighbours share a byte, so
    that a group of codes is a run of bytes. Take values 2 i and 2 i + 1.""",
    (
        "first, second = nibbles[..., ::2], nibbles[..., 1::2]",
        "first, second = nibbles.chunk(2, dim=-1)",
    ),
)

refuses_the_lowest = lines(
    """-8 is refused, and an int4 has it: two's complement goes from -8 to 7.""",
    ("not -8 <= int(q.min())", "not -7 <= int(q.min())"),
)

unsigned_values_get_in = lines(
    """8 to 15 are let in, since they fit into four bits. As int4 these bits are -8 to -1: another
    value comes back. Refuse what is above 7.""",
    ("<= int(q.max()) <= 7:", "<= int(q.max()) <= 15:"),
    gate=False,
)

all_values_are_even_in_number = lines(
    """The number of all values was asked to be even. Two rows of three are six values, and no row
    can be packed: K itself must be even.""",
    ("if q.shape[-1] % 2:", "if q.numel() % 2:"),
    gate=False,
)
