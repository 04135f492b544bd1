"""rank_groups: a rank is a number in mixed radix, and a group is what is left of it."""

import math

import pytest

from grader.suite import expect, property_settings, task

from . import oracles

MESHES = range(len(oracles.MESH))
RADIX = "the leftmost axis of the order is the digit that changes fastest"


@task(
    "rank_groups",
    holds=(
        "radix",
        "group",
        "missing",
    ),
)
def test_megatron_s_own_example(student):
    """16 GPUs with TP 2 and PP 4, and 8 with the order tp-pp-dp.
    Oracle: published.json, rank_groups_16; Megatron-LM's docstring of RankGenerator."""
    sizes = {"tp": 2, "pp": 4, "dp": 2}
    pp = student.rank_groups(sizes, token="pp")
    expect.equal(pp[:2], [[0, 4, 8, 12], [1, 5, 9, 13]], RADIX, "pp of tp 2, dp 2, pp 4")
    dp = student.rank_groups(sizes, token="dp")
    expect.equal(dp[:2], [[0, 2], [1, 3]], RADIX, "dp of tp 2, dp 2, pp 4")
    tp = student.rank_groups(sizes, token="tp")
    expect.published(
        [*tp[0], *tp[1], *pp[0], *dp[0], *dp[1], *dp[2]], oracles.PUBLISHED["rank_groups_16"]
    )
    eight = student.rank_groups({"tp": 2, "pp": 2, "dp": 2}, "tp-pp-dp", "dp")
    expect.equal(eight, [[0, 4], [1, 5], [2, 6], [3, 7]], RADIX, "dp of 8 ranks, tp-pp-dp")


@task(
    "rank_groups",
    holds=(
        "radix",
        "group",
        "joint",
    ),
)
@pytest.mark.parametrize("case", MESHES)
def test_sixty_four_ranks_are_grouped_as_by_a_device_mesh(student, case):
    """Every axis, pair and triple of axes of five meshes of 64 ranks.
    Oracle: torch's init_device_mesh over 64 ranks of the fake process group (device_mesh.json)."""
    mesh = oracles.MESH[case]
    order, sizes, wanted = mesh["order"], mesh["sizes"], mesh["groups"]
    rows = [(sizes, order, token) for token in wanted]
    got = student.map("rank_groups", rows)
    for token, groups in zip(wanted, got, strict=True):
        expect.equal(groups, wanted[token], RADIX, f"{token} of {sizes} in order {order}")


@task(
    "rank_groups",
    holds=(
        "leftmost",
        "default_order",
    ),
)
def test_another_order_is_another_placement(student):
    """TP 8, PP 4, DP 2: replicas are 8 ranks apart, or 32 if dp is the slowest axis.
    Oracle: published.json, rank_groups_64 (Megatron's RankGenerator, run)."""
    sizes = {"tp": 8, "pp": 4, "dp": 2}
    rows = [
        (sizes, order, token)
        for order in ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
        for token in ("dp", "pp")
    ]
    dp, pp, dp_slow, pp_slow = (groups[0] for groups in student.map("rank_groups", rows))
    expect.equal(dp_slow, [0, 32], RADIX, "dp in order tp-cp-ep-pp-dp")
    expect.equal(pp_slow, [0, 8, 16, 24], RADIX, "pp in order tp-cp-ep-pp-dp")
    expect.published([*dp, *pp], oracles.PUBLISHED["rank_groups_64"])


@task(
    "rank_groups",
    gate=False,
    holds=(
        "ascend",
        "group",
        "joint",
        "any_order",
    ),
)
def test_groups_of_any_order_partition_the_ranks(student):
    """Drawn orders, sizes and tokens: every rank in one group, and in Megatron's sequence.
    Oracle: an array with an axis for each digit, transposed and read off."""
    from hypothesis import given
    from hypothesis import strategies as st

    axes = ["tp", "cp", "ep", "dp", "pp"]
    some = st.lists(st.sampled_from(axes), min_size=1, max_size=4, unique=True)

    @property_settings(30)
    @given(st.permutations(axes), st.lists(st.integers(1, 4), min_size=5, max_size=5), some)
    def law(order, lengths, along):
        sizes = dict(zip(axes, lengths, strict=True))
        name, token = "-".join(order), "-".join(along)
        got = student.rank_groups(sizes, name, token)
        everybody = sorted(rank for group in got for rank in group)
        expect.equal(
            everybody,
            list(range(math.prod(lengths))),
            "each rank is in exactly one group of a token",
            f"ranks in the groups of {token}, {sizes}",
        )
        want = oracles.groups_from_an_array(sizes, name, token)
        expect.equal(got, want, RADIX, f"{token} of {sizes} in order {name}")

    law()


@task(
    "rank_groups",
    gate=False,
    holds=(
        "group",
        "joint",
    ),
)
def test_two_axes_meet_in_one_rank(student):
    """A tensor group and a data group have no or one rank in common; together they are tp-dp.
    Oracle: coordinates along different axes are independent of each other."""
    sizes = {"tp": 2, "cp": 2, "dp": 4, "pp": 2}
    tp, dp, both = student.map(
        "rank_groups", [(sizes, "cp-tp-pp-dp", token) for token in ("tp", "dp", "tp-dp")]
    )
    meets = {len(set(one) & set(other)) for one in tp for other in dp}
    expect.equal(sorted(meets), [0, 1], "two axes share nothing but a rank", "ranks in common")
    for group in both:
        inside = [one for one in tp if set(one) <= set(group)]
        expect.equal(len(inside), 4, "tp-dp holds whole tensor groups", f"tp groups in {group}")


@task(
    "rank_groups",
    gate=False,
    holds=(
        "any_name",
        "part_of_a_name",
        "unplaced",
        "joint",
    ),
)
def test_names_may_be_parts_of_each_other(student):
    """Axes tp and etp, dp and edp, x, xy and y: each is itself, in the order and in the token.
    Oracle: an array with an axis for each digit; and the contract."""
    named = "an axis is its whole name; what only begins or ends alike is another axis"
    for sizes, order, tokens in (
        ({"etp": 2, "tp": 2, "pp": 2}, "etp-tp-pp", ("etp", "tp", "etp-pp", "pp-tp")),
        ({"tp": 2, "etp": 3, "dp": 2, "edp": 2}, "tp-etp-dp-edp", ("edp", "dp", "edp-etp")),
        ({"x": 2, "xy": 3, "y": 2}, "xy-x-y", ("x", "y", "xy", "y-xy")),
        ({"dp_cp": 2, "dp": 3, "cp": 2}, "cp-dp_cp-dp", ("dp_cp", "dp", "cp-dp")),
    ):
        got = student.map("rank_groups", [(sizes, order, token) for token in tokens])
        for token, groups in zip(tokens, got, strict=True):
            want = oracles.groups_from_an_array(sizes, order, token)
            expect.equal(groups, want, named, f"{token} of {sizes} in order {order}")
    for sizes, order, token in (
        ({"tp": 2}, "etp-dp", "etp"),
        ({"etp": 2}, "etp-dp", "tp"),
        ({"etp": 2, "dp": 2}, "tp-dp", "dp"),
        ({"dp": 2}, "tp-dp", "edp"),
    ):
        with expect.raises(ValueError, f"sizes {sizes}, order {order}, token {token} name no grid"):
            student.rank_groups(sizes, order, token)


@task(
    "rank_groups",
    gate=False,
    holds=(
        "twice",
        "unplaced",
        "size_one",
        "below_one",
        "missing",
    ),
)
def test_an_axis_without_a_place_is_refused(student):
    """An axis of size 2 that the order leaves out, an unknown token, an axis twice, a size of 0.
    Oracle: the contract."""
    expect.equal(
        student.rank_groups({"tp": 2, "pp": 2, "ep": 1}, "tp-pp", "pp"),
        [[0, 2], [1, 3]],
        "an axis of size 1 needs no place in the order",
    )
    for sizes, order, token in (
        ({"tp": 2, "cp": 2}, "tp-dp", "tp"),
        ({"tp": 2}, "tp-dp", "pp"),
        ({"tp": 2}, "tp-dp-tp", "tp"),
        ({"tp": 2, "dp": 2}, "tp-dp", "tp-tp"),
        ({"tp": 0, "dp": 2}, "tp-dp", "tp"),
        ({"tp": 2, "dp": 0}, "tp-dp", "tp"),
        ({"tp": 2, "dp": -2}, "tp-dp", "dp"),
        ({"tp": -1, "dp": -2}, "tp-dp", "dp"),
        ({"tp": 2, "zp": 0}, "tp-dp", "dp"),
    ):
        with expect.raises(ValueError, f"sizes {sizes}, order {order}, token {token} name no grid"):
            student.rank_groups(sizes, order, token)


# -- expert_groups --------------------------------------------------------------------------------

SECOND = "experts read the same ranks with a second radix: etp, ep, edp, pp"


@task(
    "expert_groups",
    holds=(
        "grid",
        "etp_none",
        "order",
        "token",
    ),
)
def test_mixtral_on_64(student):
    """TP 1, PP 4, DP 16, EP 8: an EP group is half a stage, and each expert has two replicas.
    Oracle: Megatron's RankGenerator for its published row, TP 1 PP 4 EP 8."""
    sizes = {"tp": 1, "cp": 1, "dp": 16, "pp": 4}
    rows = [(sizes, 8, None, token) for token in ("ep", "edp", "pp")]
    ep, edp, pp = student.map("expert_groups", rows)
    expect.equal(ep[:2], [list(range(8)), list(range(8, 16))], SECOND, "ep")
    expect.equal(edp[:2], [[0, 8], [1, 9]], SECOND, "edp")
    expect.equal(pp[0], [0, 16, 32, 48], "both grids have one pipeline", "pp")


@task(
    "expert_groups",
    holds=(
        "grid",
        "left",
        "joint",
        "etp_none",
        "missing",
    ),
)
@pytest.mark.parametrize(
    ("sizes", "ep", "etp"),
    [
        ({"tp": 2, "cp": 2, "dp": 4, "pp": 4}, 4, None),
        ({"tp": 2, "cp": 2, "dp": 4, "pp": 4}, 8, 1),
        ({"tp": 2, "dp": 8, "pp": 4}, 2, 4),
        ({"tp": 4, "cp": 2, "dp": 8}, 16, 1),
        ({"cp": 2, "dp": 8, "pp": 4}, 4, None),
        ({"tp": 1, "dp": 3, "pp": 2}, 3, 1),
        ({"tp": 2, "dp": 9, "pp": 2}, 6, 1),
    ],
)
def test_experts_over_tensor_and_context_ranks(student, sizes, ep, etp):
    """64 ranks, 6 and 36; EP groups reach over tensor, context and data ranks.
    Oracle: an array with axes pp, edp, ep, etp, transposed and read off."""
    cut = sizes.get("tp", 1) if etp is None else etp
    stage = math.prod(sizes.get(name, 1) for name in ("tp", "cp", "dp"))
    grid = {"etp": cut, "ep": ep, "edp": stage // (cut * ep), "pp": sizes.get("pp", 1)}
    tokens = ["etp", "ep", "edp", "pp", "etp-ep", "edp-ep", "pp-etp", "etp-ep-edp-pp"]
    got = student.map("expert_groups", [(sizes, ep, etp, token) for token in tokens])
    for token, groups in zip(tokens, got, strict=True):
        want = oracles.groups_from_an_array(grid, "etp-ep-edp-pp", token)
        expect.equal(groups, want, SECOND, f"{token} of {sizes}, EP {ep}, ETP {etp}")


@task(
    "expert_groups",
    gate=False,
    holds=(
        "order",
        "no_cp",
        "keeps_pp",
    ),
)
def test_other_orders_keep_the_pipeline(student):
    """Orders with pp last, and one with dp last where both data axes have one size.
    Oracle: an array with axes in the order's sequence."""
    sizes = {"tp": 2, "cp": 1, "dp": 4, "pp": 2}
    for order in ("ep-tp-dp-cp-pp", "dp-tp-ep-cp-pp", "tp-cp-ep-dp-pp"):
        mine = order.replace("-cp", "").replace("tp", "etp").replace("dp", "edp")
        grid = {"etp": 2, "ep": 2, "edp": 2, "pp": 2}
        got = student.expert_groups(sizes, 2, None, "ep", order)
        expect.equal(got, oracles.groups_from_an_array(grid, mine, "ep"), SECOND, order)
    same = student.expert_groups(sizes, 1, None, "edp", "tp-cp-ep-pp-dp")
    want = oracles.groups_from_an_array(sizes, "tp-cp-pp-dp", "dp")
    expect.equal(same, want, "with EP 1 and ETP = TP both grids are one", "dp last")


@task(
    "expert_groups",
    gate=False,
    holds=(
        "below_one",
        "not_divided",
        "other_token",
        "twice",
        "other_pipeline",
    ),
)
@pytest.mark.parametrize(
    ("ep", "etp", "token", "order"),
    [
        (8, None, "ep", "tp-cp-ep-dp-pp"),
        (3, 1, "ep", "tp-cp-ep-dp-pp"),
        (2, None, "ep", "tp-cp-ep-pp-dp"),
        (4, 1, "ep", "tp-cp-pp-ep-dp"),
        (2, None, "dp", "tp-cp-ep-dp-pp"),
        (2, None, "tp", "tp-cp-ep-dp-pp"),
        (2, None, "ep-cp", "tp-cp-ep-dp-pp"),
        (2, None, "ep-ep", "tp-cp-ep-dp-pp"),
        (0, None, "ep", "tp-cp-ep-dp-pp"),
        (2, 0, "ep", "tp-cp-ep-dp-pp"),
        (-2, None, "ep", "tp-cp-ep-dp-pp"),
        (-2, -2, "edp", "tp-cp-ep-dp-pp"),
    ],
)
def test_grids_that_do_not_fit_are_refused(student, ep, etp, token, order):
    """Eight experts' ranks on a stage of 4, an order that tears the pipelines apart, dense tokens.
    Oracle: the contract; Megatron asserts the same pipeline groups."""
    good = {"tp": 2, "dp": 4, "pp": 2}
    with expect.raises(ValueError, f"EP {ep}, ETP {etp}, token {token}, order {order}"):
        student.expert_groups(good, ep, etp, token, order)
