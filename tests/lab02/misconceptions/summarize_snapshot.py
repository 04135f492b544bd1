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
    """requested counts free blocks as well: what was once asked for there is history.""",
    (
        """            if state == "active_allocated":
                requested +=""",
        """            if state != "inactive":
                requested +=""",
    ),
)

reserved_is_what_is_used = lines(
    """reserved leaves out what is free; it is all that was taken from the GPU, cached or not.""",
    ("reserved=sum(sizes.values()),", 'reserved=sum(sizes.values()) - sizes["inactive"],'),
)
