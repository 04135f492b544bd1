from grader.suite import lines, misconception

_LOADS = "sum(row.sectors - row.ideal_sectors for row in read)"
_STORES = "sum(row.sectors - row.ideal_sectors for row in written)"
_PASSES = "sum(row.wavefronts - row.ideal_wavefronts for row in shared)"
_READ = 'if (row.space, row.kind) == ("global", "read")]'
_WRITTEN = 'if (row.space, row.kind) == ("global", "write")]'
_MOVED = "moved = sum(row.sectors for row in read + written)"
_SHARED = 'if row.space == "shared"]'
_WORST = "worst = max(shares, key=lambda cause: shares[cause])"
_ANSWER = "return worst if shares[worst] >= 0.25 else NONE"

absolute_wavefronts = lines(
    """More than one wavefront a request is taken for a conflict; 32 lanes of 16 bytes need four.
    Compare with ideal_wavefronts.""",
    (_PASSES, "sum(row.wavefronts - row.requests for row in shared)"),
)

four_sectors_for_everybody = lines(
    """Four sectors a request are taken as the ideal whatever the lanes ask for; 32 lanes of 16
    bytes need 16, and eight lanes of 4 bytes one. Compare with ideal_sectors.""",
    (_LOADS, "sum(max(row.sectors - 4 * row.requests, 0) for row in read)"),
    (_STORES, "sum(max(row.sectors - 4 * row.requests, 0) for row in written)"),
)

every_warp_has_32_lanes = lines(
    """A block of 8 threads has one warp with 8 lanes, all of which may be active; measured
    against 32 it would be divergent from birth.""",
    ("lanes_a_warp = report.threads / ceil(report.threads / WARP)", "lanes_a_warp = WARP"),
)

small_blocks_are_one_short_warp = lines(
    """A warp is taken to have min(T, 32) lanes; of 48 threads the second warp has 16, so the two
    have 24 on average.""",
    (
        "lanes_a_warp = report.threads / ceil(report.threads / WARP)",
        "lanes_a_warp = min(report.threads, WARP)",
    ),
)

divergence_by_accesses = lines(
    """Divergence is taken from the lanes of loads and stores; a branch that only computes has
    none of these. flow_requests and flow_lanes count every basic block.""",
    (
        "report.flow_requests * lanes_a_warp",
        "sum(row.requests for row in report.accesses) * lanes_a_warp",
    ),
    ("lanes - report.flow_lanes,", "lanes - sum(row.lanes for row in report.accesses),"),
)

worst_row_decides = lines(
    """The row with the worst ratio decides here, however few requests it has; sum over all rows
    first: one stray request among a thousand limits nothing.""",
    (
        f"share({_LOADS}, moved)",
        "max([share(row.sectors - row.ideal_sectors, row.sectors) for row in read], default=0)",
    ),
    (
        f"share({_STORES}, moved)",
        "max([share(row.sectors - row.ideal_sectors, row.sectors) for row in written], default=0)",
    ),
    (
        f"share({_PASSES}, passes)",
        "max([share(r.wavefronts - r.ideal_wavefronts, r.wavefronts) for r in shared], default=0)",
    ),
)

first_fault_found = lines(
    """The first cause that reaches a quarter is named, though a later one is larger: compare all
    four.""",
    (_WORST, "worst = next((cause for cause in shares if shares[cause] >= 0.25), NONE)"),
    (_ANSWER, "return worst"),
)

always_names_a_cause = lines(
    """A cause is named for every kernel; where no share of waste reaches a quarter the answer is
    "none".""",
    (_ANSWER, "return worst"),
)

names_any_waste = lines(
    """A cause is named for every kernel; where no share of waste reaches a quarter the answer is
    "none".""",
    (_ANSWER, "return worst if shares[worst] > 0 else NONE"),
)


@misconception()
def most_requests_win(report):
    """The unit with the most traffic is named, not the one with the most waste: a kernel that
    reads a lot is not limited by its loads if each of them is ideal."""
    counts = {
        "uncoalesced_load": sum(r.sectors for r in report.accesses if r.kind == "read"),
        "uncoalesced_store": sum(r.sectors for r in report.accesses if r.kind == "write"),
        "bank_conflict": sum(r.wavefronts for r in report.accesses),
    }
    return max(counts, key=lambda cause: counts[cause])


loads_and_stores_exchanged = lines(
    """Loads are reads and stores are writes; the two names are exchanged here.""",
    ("UNCOALESCED_LOAD: share", "LOAD: share"),
    ("UNCOALESCED_STORE: share", "UNCOALESCED_LOAD: share"),
    (
        "LOAD: share(sum(row.sectors - row.ideal_sectors for row in read)",
        "UNCOALESCED_STORE: share(sum(row.sectors - row.ideal_sectors for row in read)",
    ),
)

atomics_are_stores = lines(
    """Global atomics are counted among the stores; the contract leaves them out.""",
    (_WRITTEN, 'if row.space == "global" and row.kind != "read"]'),
)

atomics_are_in_the_whole = lines(
    """Global atomics are counted in the whole, so that every share of it is smaller; they are left
    out of the waste and of the whole: the whole is the sectors of reads and writes.""",
    (_MOVED, "moved = sum(row.sectors for row in report.accesses)"),
)

shared_atomics_left_out = lines(
    """Atomics of shared memory are left out as well; it is those of global memory that do not
    count. In shared memory they wait for banks like any other access.""",
    (_SHARED, 'if row.space == "shared" and row.kind != "atomic"]'),
)

each_kind_over_its_own = lines(
    """The waste of loads is taken over the loads alone, and that of stores over the stores; then
    a few bad stores beat many bad loads. Both go over all sectors that moved.""",
    (f"{_LOADS}, moved", f"{_LOADS}, sum(row.sectors for row in read)"),
    (f"{_STORES}, moved", f"{_STORES}, sum(row.sectors for row in written)"),
)

conflicts_over_the_ideal = lines(
    """Waste is divided by what was needed, which says how many times too much there was; a share of
    waste is divided by all that there was.""",
    (f"{_PASSES}, passes", f"{_PASSES}, sum(row.ideal_wavefronts for row in shared)"),
)

everything_over_the_ideal = lines(
    """Waste is divided by what was needed, which says how many times too much there was; a share of
    waste is divided by all that there was.""",
    (f"{_PASSES}, passes", f"{_PASSES}, sum(row.ideal_wavefronts for row in shared)"),
    (_MOVED, "moved = sum(row.ideal_sectors for row in read + written)"),
    ("report.flow_lanes, lanes)", "report.flow_lanes, report.flow_lanes)"),
)

sectors_over_the_ideal = lines(
    """Waste is divided by what was needed, which says how many times too much there was; a share of
    waste is divided by all that there was.""",
    (_MOVED, "moved = sum(row.ideal_sectors for row in read + written)"),
)

counts_instead_of_shares = lines(
    """Wasted sectors, wasted wavefronts and idle lanes are compared as they stand; they are
    different things, so each must be divided by its own whole first.""",
    ("return waste / whole if whole else 0.0", "return waste"),
)
