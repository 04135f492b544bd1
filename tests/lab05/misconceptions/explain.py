from grader.suite import misconception


@misconception()
def absolute_wavefronts(report):
    """More than one wavefront a request is taken for a conflict; 32 lanes of 16 bytes need four.
    Compare with ideal_wavefronts."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.requests for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception()
def four_sectors_for_everybody(report):
    """Four sectors a request are taken as the ideal whatever the lanes ask for; 32 lanes of 16
    bytes need 16, and eight lanes of 4 bytes one. Compare with ideal_sectors."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(max(r.sectors - 4 * r.requests, 0) for r in read) / moved,
        "uncoalesced_store": sum(max(r.sectors - 4 * r.requests, 0) for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception()
def every_warp_has_32_lanes(report):
    """A block of 8 threads has one warp with 8 lanes, all of which may be active; measured
    against 32 it would be divergent from birth."""
    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / (32 * report.flow_requests or 1),
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception()
def divergence_by_accesses(report):
    """Divergence is taken from the lanes of loads and stores; a branch that only computes has
    none of these. flow_requests and flow_lanes count every basic block."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = sum(r.requests for r in report.accesses) * report.threads / ceil(report.threads / 32)
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - sum(r.lanes for r in report.accesses) / (lanes or 1),
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception()
def worst_row_decides(report):
    """The row with the worst ratio decides here, however few requests it has; sum over all rows
    first: one stray request among a thousand limits nothing."""
    from math import ceil

    shares = dict.fromkeys(
        ("uncoalesced_load", "uncoalesced_store", "bank_conflict", "divergence"), 0.0
    )
    names = {"read": "uncoalesced_load", "write": "uncoalesced_store"}
    for r in report.accesses:
        if r.space == "shared":
            share = 1 - r.ideal_wavefronts / (r.wavefronts or 1)
            shares["bank_conflict"] = max(shares["bank_conflict"], share)
        elif r.kind in names:
            share = 1 - r.ideal_sectors / (r.sectors or 1)
            shares[names[r.kind]] = max(shares[names[r.kind]], share)
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    shares["divergence"] = 1 - report.flow_lanes / lanes
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception()
def first_fault_found(report):
    """The first cause that reaches a quarter is named, though a later one is larger: compare all
    four."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    if sum(r.sectors - r.ideal_sectors for r in read) >= 0.25 * moved:
        return "uncoalesced_load"
    if sum(r.sectors - r.ideal_sectors for r in written) >= 0.25 * moved:
        return "uncoalesced_store"
    if passes and passes - sum(r.ideal_wavefronts for r in shared) >= 0.25 * passes:
        return "bank_conflict"
    return "divergence" if 1 - report.flow_lanes / lanes >= 0.25 else "none"


@misconception()
def always_names_a_cause(report):
    """A cause is named for every kernel; where no share of waste reaches a quarter the answer is
    "none"."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    return max(shares, key=lambda cause: shares[cause])


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


@misconception()
def loads_and_stores_exchanged(report):
    """Loads are reads and stores are writes; the two names are exchanged here."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception()
def atomics_are_stores(report):
    """Global atomics are counted among the stores; the contract leaves them out."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if r.space == "global" and r.kind != "read"]
    shared = [r for r in report.accesses if r.space == "shared"]
    moved = sum(r.sectors for r in read + written) or 1
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read) / moved,
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written) / moved,
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception()
def each_kind_over_its_own(report):
    """The waste of loads is taken over the loads alone, and that of stores over the stores; then
    a few bad stores beat many bad loads. Both go over all sectors that moved."""
    from math import ceil

    read = [r for r in report.accesses if (r.space, r.kind) == ("global", "read")]
    written = [r for r in report.accesses if (r.space, r.kind) == ("global", "write")]
    shared = [r for r in report.accesses if r.space == "shared"]
    lanes = report.flow_requests * report.threads / ceil(report.threads / 32) or 1
    passes = sum(r.wavefronts for r in shared)
    shares = {
        "uncoalesced_load": sum(r.sectors - r.ideal_sectors for r in read)
        / (sum(r.sectors for r in read) or 1),
        "uncoalesced_store": sum(r.sectors - r.ideal_sectors for r in written)
        / (sum(r.sectors for r in written) or 1),
        "bank_conflict": (passes - sum(r.ideal_wavefronts for r in shared)) / (passes or 1),
        "divergence": 1 - report.flow_lanes / lanes,
    }
    worst = max(shares, key=lambda cause: shares[cause])
    return worst if shares[worst] >= 0.25 else "none"


@misconception()
def counts_instead_of_shares(report):
    """Wasted sectors, wasted wavefronts and idle lanes are compared as they stand; they are
    different things, so each must be divided by its own whole first."""
    from math import ceil

    def waste(kind, space, field):
        return sum(
            getattr(r, field) - getattr(r, f"ideal_{field}")
            for r in report.accesses
            if r.space == space and kind in ("", r.kind)
        )

    lanes = report.flow_requests * report.threads / ceil(report.threads / 32)
    idle = lanes - report.flow_lanes
    found = {
        "uncoalesced_load": waste("read", "global", "sectors"),
        "uncoalesced_store": waste("write", "global", "sectors"),
        "bank_conflict": waste("", "shared", "wavefronts"),
        "divergence": idle,
    }
    worst = max(found, key=lambda cause: found[cause])
    return worst if found[worst] > 64 else "none"
