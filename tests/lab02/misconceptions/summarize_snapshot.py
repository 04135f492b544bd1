from grader.suite import lines

only_the_documented_name = lines(
    """Blocks that wait for another stream are taken for free ones: the documentation calls their
    state active_awaiting_free, and snapshots write active_pending_free.""",
    (
        'block["state"].replace("awaiting", "pending")',
        'block["state"].replace("active_pending_free", "inactive").replace("awaiting", "pending")',
    ),
)

requested_of_everything = lines(
    """requested counts blocks that no tensor uses as well, free and pending ones: what was once
    asked for there is history.""",
    (
        """            if state == "active_allocated":
                requested += block["requested_size"]
            elif""",
        """            requested += block["requested_size"]
            if""",
    ),
)

requested_of_pending_blocks = lines(
    """requested counts blocks that wait for another stream as well: they are freed, and what was
    once asked for there is history.""",
    (
        """            if state == "active_allocated":
                requested +=""",
        """            if state != "inactive":
                requested +=""",
    ),
)

pending_is_free = lines(
    """free and largest_free count whatever no tensor uses, pending blocks too; another stream still
    works on these, so they cannot be given away yet. Only inactive blocks are free.""",
    ('            elif state == "inactive":\n', "            else:\n"),
    ('free=sizes["inactive"],', 'free=sum(sizes.values()) - sizes["active_allocated"],'),
)

reserved_is_what_is_used = lines(
    """reserved leaves out what is free; it is all that was taken from the GPU, cached or not.""",
    ("reserved=sum(sizes.values()),", 'reserved=sum(sizes.values()) - sizes["inactive"],'),
)
