from grader.suite import lines, misconception


@misconception()
def stacks_every_knob(components, budget_bytes, link_Bps, copy_s=2e-5):
    """Every knob was turned, whatever the budget: you paid copies of all weights in every step for
    a budget that you already met. Turn the fewest seconds' worth that fits."""
    knobs, seconds, peak = [], 0.0, 0
    for comp in components:
        cuts = [("", comp.act_bytes, 0.0), *((c.name, c.act_bytes, c.seconds) for c in comp.cuts)]
        cut, act, extra = min(cuts, key=lambda c: c[1])
        knobs += [f"{comp.name}.{name}" for name in ("group", cut) if name]
        copies = comp.weight_bytes / link_Bps + comp.groups * copy_s
        seconds += comp.calls * (comp.seconds + extra + copies)
        peak = max(peak, comp.group_bytes + act)
    if peak > budget_bytes:
        raise ValueError(f"the smallest peak is {peak}")
    return Plan(tuple(knobs), peak, seconds)


model_offload_pays_every_call = lines(
    """Model offload was charged a copy for every call. The component stays through all its calls:
    one copy a run, and that is why it beats the others when the component fits.""",
    (
        '"model": (per_call + copy_s, comp.weight_bytes),',
        '"model": (comp.calls * (per_call + copy_s), comp.weight_bytes),',
    ),
)

group_offload_pays_once = lines(
    """Group and sequential offload were charged one copy of the weights a run. Every call brings
    all of them again, since each group has left before the next call begins.""",
    (
        '"group": (comp.calls * (per_call + comp.groups * copy_s), comp.group_bytes),',
        '"group": (per_call + comp.groups * copy_s, comp.group_bytes),',
    ),
    (
        '"sequential": (comp.calls * (per_call + comp.leaves * copy_s), comp.leaf_bytes),',
        '"sequential": (per_call + comp.leaves * copy_s, comp.leaf_bytes),',
    ),
)

copies_cost_only_bytes = lines(
    """The time that every copy takes beside its bytes was left out. Without it sequential offload
    costs what group offload costs, and holds less: with it there is a reason for groups.""",
    (
        "    per_call = comp.weight_bytes / link_Bps\n",
        "    per_call = comp.weight_bytes / link_Bps\n    copy_s = 0.0\n",
    ),
)

activations_are_forgotten = lines(
    """The budget was held against weights alone. While a component runs its activations are there
    as well, and in a decoder they are most of it.""",
    ("            held + act,\n", "            held,\n"),
)

residents_are_forgotten = lines(
    """Each component was looked at alone. While one runs, the weights of every other one that is
    resident are in fast memory beside it.""",
    (
        "beside = sum(c.weight_bytes for c, here in zip(components, stay, strict=True) if here)",
        "beside = 0",
    ),
    (
        "room = budget_bytes - beside + (comp.weight_bytes if here else 0)",
        "room = budget_bytes",
    ),
    ("others = beside - (comp.weight_bytes if here else 0)", "others = 0"),
)

smallest_peak_instead_of_shortest_time = lines(
    """The plan with the smallest peak was taken. The budget is a limit and no goal: below it memory
    is worth nothing and seconds are everything.""",
    (
        "    if abs(new[0] - old[0]) > 1e-9 * old[0]:\n        return new[0] < old[0]\n"
        "    return new[1:] < old[1:]\n",
        "    return (new[1], new[0]) < (old[1], old[0])\n",
    ),
    (
        "            fastest = min(o[0] for o in options)\n",
        "            least = min(o[1] for o in options)\n"
        "            options = [o for o in options if o[1] == least]\n"
        "            fastest = min(o[0] for o in options)\n",
    ),
)

a_full_budget_does_not_fit = lines(
    """A plan whose peak is exactly the budget was refused. What fits to the last byte fits.""",
    ("if o[1] <= room]", "if o[1] < room]"),
)

idle_knobs_are_turned = lines(
    """Of plans that are equal in seconds and peak one with idle knobs was taken: VAE slicing at
    batch 1, tiling of an image that is one tile. A knob that gains nothing stays off.""",
    ("key=lambda o: len(o[2]))", "key=lambda o: -len(o[2]))"),
)

names_the_budget_only = lines(
    """The error names the peak that was refused, or none, and not the smallest one that can be had:
    whoever asked does not know what would be enough.""",
    (
        "            min(o[1] for o in _options(comp, False, link_Bps, "
        "copy_s)) for comp in components\n",
        "            min(o[1] for o in _options(comp, True, link_Bps, copy_s)) "
        "for comp in components\n",
    ),
)

weights_travel_both_ways = lines(
    """The way back was charged, too. Slow memory still has the weights, which do not change:
    leaving is giving the room back, without a copy.""",
    (
        "    per_call = comp.weight_bytes / link_Bps\n",
        "    per_call = 2 * comp.weight_bytes / link_Bps\n",
    ),
)

all_or_none_stay = lines(
    """Either all components stayed or none of them. Small ones that are called once are cheap
    to move, and make room for the one that is called in every step: look at every set of
    residents.""",
    (
        "for stay in itertools.product((True, False), repeat=len(components)):",
        "for stay in ([True] * len(components), [False] * len(components)):",
    ),
)

a_cut_is_paid_once_a_run = lines(
    """A cut's seconds were added once a run. Every call is cut, so every call takes them.""",
    (
        "comp.calls * (comp.seconds + extra) + copying,",
        "comp.calls * comp.seconds + extra + copying,",
    ),
)

a_start_is_paid_once_a_call = lines(
    """The start of a copy was charged once a call. Every group and every leaf is a copy of its own,
    and each of them has a start.""",
    ("(per_call + comp.groups * copy_s)", "(per_call + copy_s)"),
    ("(per_call + comp.leaves * copy_s)", "(per_call + copy_s)"),
)

what_components_hold_is_added_up = lines(
    """What the components hold while they run was added up. They run one after the other, so only
    the largest counts; what they have in common is the weights that stay.""",
    (
        "            peak = max(min(o[1] for o in near) for near in per_component)\n",
        "            each = [min(o[1] for o in near) for near in per_component]\n"
        "            peak = sum(each) - (len(each) - 1) * beside\n"
        "            if peak > budget_bytes:\n"
        "                continue\n",
    ),
)

the_largest_group_is_copied_every_time = lines(
    """Every copy was charged as if it were the largest group or leaf. Together the copies of a call
    are all of the weights, however uneven the parts are.""",
    (
        '"group": (comp.calls * (per_call + comp.groups * copy_s), comp.group_bytes),',
        '"group": (\n'
        "            comp.calls * comp.groups * (comp.group_bytes / link_Bps + copy_s),\n"
        "            comp.group_bytes,\n"
        "        ),",
    ),
    (
        '"sequential": (comp.calls * (per_call + comp.leaves * copy_s), comp.leaf_bytes),',
        '"sequential": (\n'
        "            comp.calls * comp.leaves * (comp.leaf_bytes / link_Bps + copy_s),\n"
        "            comp.leaf_bytes,\n"
        "        ),",
    ),
)

rounding_decides = lines(
    """Seconds were compared to their last bit. 0.1 + 0.2 is not 0.3 there, though both plans are
    equally long: sums that differ by rounding are equal, and the smaller peak decides.""",
    ("    if abs(new[0] - old[0]) > 1e-9 * old[0]:\n", "    if new[0] != old[0]:\n"),
    ("o[0] <= fastest * (1 + 1e-9)]", "o[0] <= fastest]"),
)

gives_up_residents_by_size = lines(
    """Components left in the order of their weights, the largest first. Often a small one that is
    called once is enough: every set of residents is a candidate, not only those of one order.""",
    (
        "    for stay in itertools.product((True, False), repeat=len(components)):\n",
        "    order = sorted(components, key=lambda c: -c.weight_bytes)\n"
        "    for gone in range(len(order) + 1):\n"
        "        stay = [c not in order[:gone] for c in components]\n",
    ),
)

a_call_is_one_copy = lines(
    """The start of a copy was charged once a call. Every group and every leaf is a copy of its own,
    and each of them has a start.""",
    ("comp.calls * (per_call + comp.groups * copy_s)", "comp.calls * (per_call + copy_s)"),
)
