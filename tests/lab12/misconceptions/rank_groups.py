from grader.suite import lines, misconception

the_rightmost_axis_is_the_fastest = lines(
    """The strides are reversed: with pp as the fastest digit a tensor group has one rank on each of
    many nodes, and TP's all-reduces of every layer run over the network. The leftmost axis of
    Megatron's order changes fastest.""",
    (
        'names, along = order.split("-"), token.split("-")',
        'names, along = order.split("-")[::-1], token.split("-")',
    ),
)


@misconception()
def every_group_is_a_run_of_neighbours(sizes, order="tp-cp-ep-dp-pp", token="dp"):
    """Groups are cut from 0, 1, 2, ... as if each axis were the fastest; only one is. The ranks of
    a data-parallel group stand tp * cp apart."""
    along = token.split("-")
    if any(size < 1 for size in sizes.values()) or len(set(along)) < len(along):
        raise ValueError("no grid")
    names = order.split("-")
    wanted = [*along, *(axis for axis, size in sizes.items() if size > 1)]
    if len(set(names)) < len(names) or any(name not in names for name in wanted):
        raise ValueError("no grid")
    world = math.prod(sizes.values())
    length = math.prod(sizes.get(name, 1) for name in along)
    return [list(range(first, first + length)) for first in range(0, world, length)]


a_joint_token_is_its_first_axis = lines(
    """Of "dp-cp" only dp is followed. Context ranks hold the same weights and see other tokens, so
    their gradients belong into the same sum: a joint group varies all its axes.""",
    ("if name not in along:", "if name != along[0]:"),
)

groups_come_in_another_sequence = lines(
    """The groups are right and their sequence is not: all ranks create all groups in the same
    sequence, and Megatron's ascends by the first rank, so the leftmost of the fixed digits changes
    fastest there, too.""",
    ("return list(groups.values())", "return [groups[key] for key in sorted(groups)]"),
)

the_token_s_digits_are_kept = lines(
    """A group is the ranks that differ in the token's digits and agree in all others; these groups
    keep the token's digit and vary the rest.""",
    ("if name not in along:", "if name in along:"),
)

a_part_of_a_name_is_an_axis_of_the_token = lines(
    """An axis is looked for in a text, and "tp" is a part of "etp", too: cut order and token at
    their "-" and compare whole names.""",
    ("if name not in along:", "if name not in token:"),
    gate=False,
)

a_part_of_a_name_has_its_place_in_the_order = lines(
    """An axis is looked for in a text, and "tp" is a part of "etp", too: cut order and token at
    their "-" and compare whole names.""",
    ("        if name not in names:", "        if name not in order:"),
    gate=False,
)
