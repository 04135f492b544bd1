"""choose: the fastest plan that fits, its price, and what it refuses.

Sizes are whole MiB and times whole fractions of a second that binary numbers hold exactly, so
plans that take equally long do so to the last bit, whoever adds them up.
"""

from __future__ import annotations

import dataclasses
import itertools

from types_lab13 import Comp, Cut

from grader.suite import expect, task

from . import oracles_offload as oracles
from . import oracles_tiles as tiles

MIB = 2**20
LINK, COPY = float(2**33), 2.0**-14
TICK = 2.0**-10


def _whole(rng, low, high):
    return int(rng.integers(low, high + 1))


def _component(rng, name, cuts):
    weight = 12 * _whole(rng, 2, 60)
    groups, leaves = _whole(rng, 2, 6), _whole(rng, 12, 40)
    act = _whole(rng, 5, 300)
    return Comp(
        name=name,
        weight_bytes=weight * MIB,
        act_bytes=act * MIB,
        calls=_whole(rng, 1, 12),
        seconds=TICK * _whole(rng, 1, 200),
        groups=groups,
        group_bytes=-(-weight // groups) * MIB,
        leaves=leaves,
        leaf_bytes=-(-weight // leaves) * MIB,
        cuts=tuple(
            Cut(
                f"cut{place}",
                max(1, act * _whole(rng, 1, 9) // 10) * MIB,
                TICK * _whole(rng, 0, 60),
            )
            for place in range(cuts)
        ),
    )


def _judge(plan, components, want, budget, link=LINK, copy_s=COPY):
    """The plan's knobs mean something, cost what it says, fit, and are the best there are."""
    picks = oracles.picks_of(components, plan.knobs)
    expect.true(not isinstance(picks, str), because=str(picks), observed=list(plan.knobs))
    names = [comp.name for comp in components]
    order = [names.index(knob.partition(".")[0]) for knob in plan.knobs]
    because = "knobs stand in the order of the components"
    expect.equal(order, sorted(order), because=because, what=f"components of {plan.knobs}")
    kinds = f"{type(plan.knobs).__name__}, {type(plan.peak_bytes).__name__}"
    because = "a Plan has its knobs in a tuple, and whole bytes"
    expect.true(kinds == "tuple, int", because=because, observed=kinds)
    seconds, peak = oracles.priced(components, picks, link, copy_s)
    because = "a plan's peak and seconds are those of its knobs"
    expect.bytes(plan.peak_bytes, peak, because=because, what="peak of these knobs")
    expect.close(plan.seconds, seconds, because=because, n=64, what="seconds of these knobs")
    expect.at_most(
        peak, budget, because="a plan must fit into the budget", what="peak", unit="bytes"
    )
    because = "the fastest plan that fits: a knob that the budget does not need is only paid for"
    expect.close(plan.seconds, want[0], because=because, n=64, what="seconds")
    because = "of plans that take equally long, the one with the smallest peak"
    expect.bytes(plan.peak_bytes, want[1], because=because, what="peak")
    because = "of plans that are equal in both, the one with the fewest knobs"
    expect.equal(len(plan.knobs), want[2], because=because, what="number of knobs")


@task(
    "choose",
    holds=(
        *("fewest_seconds", "last_byte", "model", "group", "sequential", "held", "beside", "run"),
        *("cuts", "largest", "knobs_of_a_plan", "nothing_overlaps"),
    ),
)
def test_nothing_that_fits_is_faster(student, rng):
    """Three components under eight budgets each, some exactly a plan's peak.
    Oracle: every plan there is, priced."""
    for _ in range(3):
        components = [_component(rng, f"part{place}", place) for place in range(3)]
        plans = [score for score, _picks in oracles.every_plan(components, LINK, COPY)]
        peaks = sorted({score[1] for score in plans})
        places = [0, 1, 2, *rng.integers(3, len(peaks), size=4), len(peaks) - 1]
        budgets = [
            peaks[place] + extra for place, extra in zip(places, [0] * 4 + [1] * 4, strict=True)
        ]
        rows = [(components, budget, LINK, COPY) for budget in budgets]
        for budget, plan in zip(budgets, student.map("choose", rows), strict=True):
            want = min(score for score in plans if score[1] <= budget)
            _judge(plan, components, want, budget)


def _sd15(**more):
    """CLIP, UNet, VAE and safety checker of Stable Diffusion 1.5 in fp16, 50 steps of 63.6 ms."""
    rows = {
        "clip": (123_060_480, 1, 12, 196),
        "unet": (859_520_964, 50, 25, 686),
        "vae": (83_653_863, 1, 8, 248),
        "safety": (303_981_588, 1, 24, 390),
    }
    made = []
    for name, (count, calls, groups, leaves) in rows.items():
        act = int(3e9) if name == "unet" else int(2e8)
        row = Comp(
            name=name,
            weight_bytes=2 * count,
            act_bytes=act,
            calls=calls,
            seconds=3.18 / 50 if name == "unet" else 0.0,
            groups=groups,
            group_bytes=2 * count // groups,
            leaves=leaves,
            leaf_bytes=2 * count // leaves,
        )
        made.append(dataclasses.replace(row, **more.get(name, {})))
    return made


@task("choose", holds=("resident", "fewest_seconds", "fewest_knobs"))
def test_a_budget_that_is_met_needs_no_knob(student):
    """With room for everything nothing is turned, also where a knob would cost no time: VAE slicing
    at batch 1 and tiling of an image no larger than a tile gain no byte.
    Oracle: all weights and the largest activations, added up."""
    idle = (Cut("vae_slicing", int(2e8), 0.0), Cut("vae_tiling", int(2e8), 0.0))
    small = (Cut("attention_slicing", int(2.9e9), 0.001),)
    components = _sd15(vae={"cuts": idle}, unet={"cuts": small})
    whole = sum(comp.weight_bytes for comp in components)
    want = (3.18, whole + int(3e9), 0)
    for budget in (whole + int(3e9), int(80e9)):
        _judge(student.choose(components, budget, 12e9, 0.0), components, want, budget, 12e9, 0.0)


@task("choose", holds=("fewest_knobs", "smallest_peak", "equal"))
def test_a_knob_that_gains_nothing_is_never_turned(student, rng):
    """A cut that saves no byte and takes no time, in the component that the budget squeezes, and
    one that would relieve a component that is not the peak.
    Oracle: every plan there is, priced."""
    for _ in range(2):
        parts = [_component(rng, f"part{place}", 1) for place in range(3)]
        idle = [Cut("idle", comp.act_bytes, 0.0) for comp in parts]
        free = [Cut("free", comp.act_bytes // 2, 0.0) for comp in parts]
        parts = [
            dataclasses.replace(comp, cuts=(idle[place], *comp.cuts, free[place])[: 2 + place % 2])
            for place, comp in enumerate(parts)
        ]
        plans = [score for score, _picks in oracles.every_plan(parts, LINK, COPY)]
        peaks = sorted({score[1] for score in plans})
        budgets = [peaks[len(peaks) * part // 5] for part in range(5)]
        rows = [(parts, budget, LINK, COPY) for budget in budgets]
        for budget, plan in zip(budgets, student.map("choose", rows), strict=True):
            want = min(score for score in plans if score[1] <= budget)
            _judge(plan, parts, want, budget)


@task("choose", holds=("named", "last_byte"))
def test_a_budget_that_nothing_meets_is_refused_with_the_smallest_peak(student, rng):
    """One byte below the smallest peak the error names that peak; with it there is a plan.
    Oracle: the smallest peak of every plan there is."""
    components = [_component(rng, f"part{place}", 2 - place) for place in range(3)]
    plans = [score for score, _picks in oracles.every_plan(components, LINK, COPY)]
    least = min(score[1] for score in plans)
    because = "whoever asked in vain wants to know what would be enough"
    for copy_s in (COPY, 0.0):
        text, numbers = student.probe.refusal(components, least - 1, LINK, copy_s)
        expect.true(text != "", because="a budget that no plan meets is refused", observed=text)
        expect.true(least in numbers, because=because, observed=text)
    plan = student.choose(components, least, LINK, COPY)
    _judge(plan, components, min(score for score in plans if score[1] <= least), least)


@task("choose", holds=("copy", "weight_together", "no_way_back", "default_start"))
def test_a_copy_costs_its_bytes_and_its_start(student, rng):
    """One component with groups and leaves of which one is nearly all of it, or all are alike, over
    slow and fast links, with the default start of a copy and with others.
    Oracle: by hand: calls * (seconds + weight / link + copies * start)."""
    because = (
        "all of the weights cross in every call, in as many copies as there are groups or leaves"
    )
    for _ in range(4):
        weight, calls = 1000 * _whole(rng, 100, 900) + 7, _whole(rng, 2, 9)
        groups, leaves = _whole(rng, 3, 9), _whole(rng, 20, 90)
        link = float(rng.uniform(1e5, 1e7))
        for held in (weight * 3 // 4, weight // groups + 5):
            comp = Comp("unet", weight, 50, calls, 0.25, groups, held, leaves, held // 2)
            for more in ((), (0.0,), (3e-4,)):
                start = more[0] if more else 2e-5
                for budget, knob, copies in (
                    (held + 50, "group" if start else "sequential", groups if start else leaves),
                    (held + 49, "sequential", leaves),
                ):
                    plan = student.choose([comp], budget, link, *more)
                    what = f"seconds of {knob} offload of {weight} bytes, {calls} calls"
                    knobs = (f"unet.{knob}",)
                    expect.equal(plan.knobs, knobs, because=because, what="knobs")
                    want = calls * (0.25 + weight / link + copies * start)
                    expect.close(plan.seconds, want, because=because, n=64, what=what)


@task("choose", holds=("equal", "smallest_peak"))
def test_rounding_does_not_decide(student):
    """A cut and a group offload that take equally long, 0.3 and 0.1 + 0.2 seconds or 0.8 and 0.1 +
    0.7, of which one is the smaller float and the other one has the smaller peak.
    Oracle: by hand, in tenths of seconds."""
    because = "they are equally long, whatever the last bit of a sum says: the smaller peak decides"
    for start, cut, act, held, knob, peak in (
        (0.2, 0.3, 85, 2, "a.group", 92),
        (0.2, 0.3, 80, 8, "a.wide", 90),
        (0.7, 0.8, 80, 8, "a.wide", 90),
        (0.7, 0.8, 85, 2, "a.group", 92),
    ):
        comp = Comp("a", 10, 90, 1, 0.0, 1, held, 5, 1, (Cut("wide", act, cut),))
        plan = student.choose([comp], 99, 100.0, start)
        expect.equal(plan.knobs, (knob,), because=because, what=f"{cut} and 0.1 + {start} s")
        expect.bytes(plan.peak_bytes, peak, because=because, what="peak")
        expect.close(plan.seconds, cut, because=because, n=64, what="seconds")
    slower = "a plan that is slower by more than 1e-9 of the seconds is slower: its peak is nothing"
    equal = "slower by less than 1e-9 of the seconds is equally fast"
    for more, because in ((1e-6, slower), (1.4e-9, slower), (1e-11, equal)):
        for seconds in (1e-3, 1e3):
            cuts = (Cut("wide", 50, seconds), Cut("deep", 30, seconds * (1 + more)))
            comp = Comp("a", 10, 90, 1, 0.0, 1, 10, 1, 10, cuts)
            plan = student.choose([comp], 70, 1e3, 1e6)
            what = f"{seconds} s, and more by {more} of it"
            knobs = ("a.wide",) if because is slower else ("a.deep",)
            expect.equal(plan.knobs, knobs, because=because, what=what)
            # One stays resident with a cut, the other one comes in a copy of so many seconds.
            for cut, copy, deep in ((1.0, 1 + more, "a.group"), (1 + more, 1.0, "a.wide")):
                act, held = (30, 10) if deep == "a.group" else (5, 40)
                cuts = (Cut("wide", act, seconds * cut),)
                comp = Comp("a", 100, 90, 1, 0.0, 1, held, 5, 1, cuts)
                plan = student.choose([comp], 140, 1e20, seconds * copy)
                fast = "a.wide" if deep == "a.group" else "a.group"
                knobs = (fast,) if because is slower else (deep,)
                what = f"a cut of {seconds * cut!r} s and a copy of {seconds * copy!r} s"
                expect.equal(plan.knobs, knobs, because=because, what=what)


@task("choose", holds=("fewest_knobs", "equal"))
def test_of_equal_plans_the_fewest_knobs(student):
    """Plans of the same seconds and peak, of which the one with fewer knobs is met first or last:
    a copy that is too short to notice, and one of two components that may stay.
    Oracle: by hand, in small whole numbers."""
    because = "of plans that are equal in seconds and peak, the one with the fewest knobs"
    comp = Comp("a", 100, 20, 1, 1e6, 1, 100, 1, 100)
    plan = student.choose([comp], 130, 1e9)
    expect.equal(plan.knobs, (), because=because, what="knobs where a copy takes 2e-5 of 1e6 s")
    # Either one stays and the other one comes in groups: 110 + 20 and 100 + 30, or 110 + 30 cut.
    one = Comp("one", 100, 20, 1, 1.0, 1, 10, 2, 10)
    two = Comp("two", 100, 30, 1, 1.0, 1, 10, 2, 10, (Cut("slim", 20, 0.0),))
    for pair in ((one, two), (two, one)):
        plan = student.choose(list(pair), 135, 1e3, 0.25)
        what = "knobs of " + ", ".join(comp.name for comp in pair)
        expect.equal(plan.knobs, ("one.group",), because=because, what=what)
        expect.bytes(plan.peak_bytes, 130, because=because, what="peak")
    # The second component is the peak, so the first one needs no more than to come in groups.
    wide = Comp("wide", 100, 50, 1, 1.0, 1, 10, 2, 10, (Cut("slim", 20, 0.0),))
    peak = Comp("peak", 5, 120, 1, 1.0, 1, 5, 2, 5)
    plan = student.choose([wide, peak], 130, 1e3, 0.25)
    expect.equal(plan.knobs, ("wide.group",), because=because, what="knobs")
    expect.bytes(plan.peak_bytes, 125, because=because, what="peak")


@task("choose", gate=False, holds=("sequence", "smallest_peak", "fewest_seconds", "fewest_knobs"))
def test_small_pipelines_of_any_kind(student, rng):
    """Sixty pipelines of one to three components in small whole numbers, where many plans are
    equal in time or peak, under a budget that is some plan's peak; in tuples.
    Oracle: every plan there is, priced."""
    rows, wants = [], []
    for _ in range(60):
        parts = tuple(_tiny(rng, f"part{place}") for place in range(_whole(rng, 1, 3)))
        plans = [score for score, _picks in oracles.every_plan(parts, 4.0, 0.5)]
        peaks = sorted({score[1] for score in plans})
        budget = peaks[_whole(rng, 0, len(peaks) - 1)]
        rows.append((parts, budget, 4.0, 0.5))
        wants.append(min(score for score in plans if score[1] <= budget))
    for row, want, plan in zip(rows, wants, student.map("choose", rows), strict=True):
        _judge(plan, row[0], want, row[1], 4.0, 0.5)


def _tiny(rng, name):
    weight = 4 * _whole(rng, 1, 3)
    cuts = tuple(
        Cut(f"cut{place}", _whole(rng, 0, 6), 0.5 * _whole(rng, 0, 2))
        for place in range(_whole(rng, 0, 2))
    )
    groups, leaves = _whole(rng, 1, 3), _whole(rng, 1, 4)
    held, leaf = _whole(rng, 1, weight), _whole(rng, 1, weight)
    return Comp(
        name, weight, _whole(rng, 0, 6), _whole(rng, 1, 3), 0.5, groups, held, leaves, leaf, cuts
    )


def _by_residents(components, budget):
    """The least seconds, over every set of residents with each component on its own."""
    best = float("inf")
    plans = [
        [(score, place == "") for score, [(place, _cut)] in oracles.every_plan([comp], LINK, COPY)]
        for comp in components
    ]
    for stay in itertools.product((0, 1), repeat=len(components)):
        beside = sum(comp.weight_bytes for comp, here in zip(components, stay, strict=True) if here)
        total = 0.0
        for comp, here, alone in zip(components, stay, plans, strict=True):
            room = budget - beside + here * comp.weight_bytes
            fitting = [
                score[0] for score, stays in alone if stays == bool(here) and score[1] <= room
            ]
            total += min(fitting, default=float("inf"))
        best = min(best, total)
    return best


@task("choose", gate=False, holds=("ten", "fewest_seconds"))
def test_ten_components_are_no_more_work_than_sets_of_residents(student, rng):
    """Ten components have a thousand million plans, and 1,024 sets of those that stay.
    Oracle: each set, with every component on its own."""
    components = [_component(rng, f"part{place}", 1) for place in range(10)]
    budget = sum(comp.weight_bytes for comp in components) // 2
    budget = max(budget, 400 * MIB)
    plan = student.choose(components, budget, LINK, COPY)
    picks = oracles.picks_of(components, plan.knobs)
    expect.true(not isinstance(picks, str), because=str(picks), observed=list(plan.knobs))
    seconds, peak = oracles.priced(components, picks, LINK, COPY)
    expect.at_most(
        peak, budget, because="a plan must fit into the budget", what="peak", unit="bytes"
    )
    want = _by_residents(components, budget)
    expect.close(plan.seconds, want, because="the fastest plan that fits", n=64, what="seconds")
    expect.close(seconds, want, because="its knobs cost what it says", n=64, what="seconds")


@task("choose", gate=False, holds=("group", "sequential", "beside", "largest"))
def test_published_weights_savings_and_bandwidth(student):
    """2.74 GB of weights in Stable Diffusion 1.5; 1.0 GB less with only the UNet resident, and
    21.4 s with sequential offload at 4.7 GB/s; 33.8 GB for FLUX.1-dev.
    Oracle: published.json, from a pull request and documentation of diffusers."""
    parts = _sd15()
    whole = student.choose(parts, int(80e9), 12e9, 0.0)
    acts = int(3e9)
    row = oracles.PUBLISHED["sd15_weights_fp16"]
    expect.published((whole.peak_bytes - acts) / 1e9, row)
    less = student.choose(parts, whole.peak_bytes - int(1e9), 12e9, 0.0)
    row = oracles.PUBLISHED["sd15_model_offload_saving"]
    expect.published((whole.peak_bytes - less.peak_bytes) / 1e9, row)
    # What the published 18.24 s more for 50 steps say of the link, from the plan's at 1 GB/s.
    [unet] = [comp for comp in parts if comp.name == "unet"]
    slow = student.choose([unet], acts + unet.leaf_bytes, 1e9, 0.0)
    row = oracles.PUBLISHED["sd15_seq_offload_bw"]
    expect.published((slow.seconds - 3.18) / (21.42 - 3.18), row)
    counts = oracles.flux_parts()
    flux = [Comp(name, 2 * count, 0, 1, 0.0, 1, 1, 1, 1) for name, count in counts.items()]
    plan = student.choose(flux, int(80e9), 12e9, 0.0)
    expect.published(plan.peak_bytes / 1e9, oracles.PUBLISHED["flux_bf16_weights"])


@task("choose", gate=False, holds=("resident", "held"))
def test_the_counts_behind_the_weights(student):
    """Parameters of text encoders, transformers and an autoencoder from their shapes, and their
    bf16 bytes by the plan of a pipeline that has room for them.
    Oracle: published.json, modules built from published configurations."""
    autoencoder = sum(tiles.sd_vae_parameters().values())
    for name, count in (oracles.parameter_counts() | {"p_sd_vae": autoencoder}).items():
        comp = Comp(name, 2 * count, 0, 1, 0.0, 1, 1, 1, 1)
        plan = student.choose([comp], 4 * count, 12e9)
        expect.published(plan.peak_bytes / 2, oracles.PUBLISHED[name])
