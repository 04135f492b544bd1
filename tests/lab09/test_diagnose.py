"""diagnose on traces that nobody has seen: one planted cause, several, none."""

from __future__ import annotations

import pytest
from types_lab09 import Trace

from grader.lab import datasets
from grader.suite import expect, task

from . import oracles_tools as oracles
from . import traces
from .oracles import in_order, work

ALEXNET = "hta_alexnet.json.gz"
RANK0, RANK1 = "hta_sampled_rank-0.json.gz", "hta_sampled_rank-1.json.gz"
# Strengths are drawn away from the threshold of 5 %, on both sides, and evidence may be 15 % off.
FAR_BELOW, FAR_ABOVE, MARGIN = 0.035, 0.075, 0.15
WORDS = oracles.by_its_words()
ALONE = [cause for cause in traces.CAUSES if cause != "straggler"]


def _seed(rng, cause, ranks=None):
    """A seed whose trace is not near the threshold in anything, whoever measures it."""
    while True:
        seed = int(rng.integers(2**31))
        _, truths, _ = oracles.simulated(cause, seed, ranks)
        shares = [_shares(truth, len(truths) > 1) for truth in truths]
        if all(s < FAR_BELOW or s > FAR_ABOVE for row in shares for s in row.values()):
            return seed


def _shares(truth, pair):
    costs = dict(truth.costs)
    if pair:  # what a rank waits for another is not its communication's fault
        costs["exposed_comm"] -= costs["straggler"]
    return {cause: us / oracles.whole_of(cause, truth) for cause, us in costs.items()}


def _findings(student, trace, peers=()):
    """The list that comes back."""
    return _listed(student.diagnose(trace, peers))


def _listed(got):
    return expect.sequence(got, "diagnose returns a list of findings", "Finding", "findings")


def _agree(findings, want, because, what="causes"):
    """The causes in their order; the message shows the evidence that was given for them."""
    try:
        expect.equal([finding.cause for finding in findings], want, because, what=what)
    except expect.Failure as failure:
        shown = [f"{f.cause} {f.evidence_us:,.0f} us ({f.share:.1%})" for f in findings]
        failure.lines.append(f"your findings: {', '.join(shown) or 'none'}")
        failure.observed = [what, *(finding.cause for finding in findings)]
        raise


def _evidence(finding, us, share, because):
    what = f"{finding.cause}: evidence_us"
    low, high = (1 - MARGIN) * us, (1 + MARGIN) * us
    expect.within(finding.evidence_us, low, high, because, what, "us")
    what = f"{finding.cause}: share"
    expect.within(finding.share, (1 - MARGIN) * share, (1 + MARGIN) * share, because, what)


@task(
    "diagnose",
    holds=(
        "idle",
        "span",
        "input",
        "host_sync",
        "tiny",
        "launch_bound",
        "pageable",
        "exposed_comm",
    ),
)
@pytest.mark.parametrize("cause", ALONE)
def test_the_planted_cause_is_named_and_measured(student, rng, cause):
    """A simulated training run that loses time for one reason.
    Oracle: what the simulation itself took away, counted tick by tick."""
    ranks, truths, _ = oracles.simulated(cause, _seed(rng, cause))
    got = _findings(student, ranks[0])
    because = "each cause has its own evidence, and only what has some is a finding"
    _agree(got, [cause], because)
    us = truths[0].costs[cause]
    share = us / oracles.whole_of(cause, truths[0])
    _evidence(got[0], us, share, "evidence is the time that nothing else could have used")


@task("diagnose", holds=("straggler", "peers"))
def test_a_straggler_is_seen_across_ranks(student, rng):
    """Two ranks, one of them slow: the other waits for it in every collective.
    Oracle: the simulation's exposed communication of both ranks."""
    ranks, truths, slow = oracles.simulated("straggler", _seed(rng, "straggler"))
    fast = 1 - slow
    got = _findings(student, ranks[slow], [ranks[fast]])
    because = "the slow rank comes last to every collective and waits for nobody"
    _agree(got, [], because, "causes of the slow rank")
    got = _findings(student, ranks[fast], [ranks[slow]])
    because = "communication that one rank shows and the other hides is waiting, not traffic"
    _agree(got, ["straggler"], because, "causes of the rank that waits")
    us = truths[fast].costs["straggler"]
    _evidence(got[0], us, us / truths[fast].busy_us, because)


@task("diagnose", holds=("threshold", "nothing"))
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_clean_trace_has_no_finding(student, rng, ranks):
    """A run with a little of everything, and nothing worth a word.
    Oracle: the simulation without a planted cause, each share below 3.5 %."""
    made, _, _ = oracles.simulated(None, _seed(rng, None, ranks), ranks)
    got = _findings(student, made[0], made[1:])
    because = "a copy, a sync or an idle stretch is no finding until it takes a share of the time"
    _agree(got, [], because)


@task("diagnose", holds=("by_share", "wholes"))
def test_all_causes_come_by_share(student, rng):
    """Three causes at once: all three, the largest share first.
    Oracle: stretches of drawn lengths, added up."""
    for _ in range(4):
        names = [str(name) for name in rng.choice(ALONE, 3, replace=False)]
        strengths = dict(zip(names, (0.26, 0.17, 0.11), strict=True))
        scene = oracles.scene(rng, strengths)
        want = sorted(names, key=lambda name: -scene.share(name))
        got = _findings(student, scene.trace)
        because = "the first cause that fits is not the only one, nor the largest"
        _agree(got, want, because)
        for finding in got:
            us = scene.evidence[finding.cause]
            _evidence(finding, us, scene.share(finding.cause), "each cause has its own time")


@task("diagnose", holds=("threshold",))
@pytest.mark.parametrize("cause", ALONE)
def test_strengths_on_both_sides_of_the_threshold(student, rng, cause):
    """The same cause at 2 % and at 9 to 40 %.   Oracle: stretches of drawn lengths, added up."""
    for strength in (0.02, float(rng.uniform(0.09, 0.15)), float(rng.uniform(0.15, 0.4))):
        scene = oracles.scene(rng, {cause: strength})
        got = _findings(student, scene.trace)
        want = [cause] if scene.share(cause) > FAR_ABOVE else []
        because = "a share from 5 % on is a finding, the same thing in small is not"
        _agree(got, want, because, f"causes at {strength:.0%}")
        for finding in got:
            because = "time that is hidden behind computation costs nothing"
            _evidence(finding, scene.evidence[cause], scene.share(cause), because)


@task("diagnose", holds=("idle", "pageable", "exposed_comm"))
def test_what_is_hidden_costs_nothing(student, rng):
    """Communication and copies beside computation, a loader that waits while the GPU works, names
    that sound bad: no finding.   Oracle: a GPU that computes without a pause."""
    scene = oracles.Scene()
    for _ in range(10):
        scene.compute(float(rng.integers(100, 300)))
        scene.hidden(oracles.NCCL, float(rng.integers(200, 500)))
        scene.hidden(oracles.PAGEABLE, float(rng.integers(200, 500)))
        loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        scene.annotation(loader, float(rng.integers(50, 200)))
        scene.annotation("cudaDeviceSynchronize all straggler nccl wait", 40.0)
    got = _findings(student, scene.trace)
    because = "a name is a hint; without microseconds that were lost there is nothing to find"
    _agree(got, [], because)


def _exactly(findings, want, because):
    """The causes in their order, each with its microseconds and its share."""
    try:
        _agree(findings, [cause for cause, _, _ in want], because)
        for finding, (cause, us, share) in zip(findings, want, strict=True):
            what = f"{cause}: evidence_us"
            expect.close(finding.evidence_us, us, because, floor=1e-3, what=what, unit="us")
            expect.close(finding.share, share, because, floor=1e-6, what=f"{cause}: share")
    except expect.Failure as failure:  # the seed decides which of these comes first: one place
        failure.site = expect.suite_site()
        raise


@task(
    "diagnose",
    holds=(
        "input",
        "other_annotations",
        "host_sync",
        "no_launch",
        "tiny",
        "beyond_tiny",
        "launch_bound",
        "pageable",
        "straggler",
        "exposed_comm",
        "both",
        "in_order",
        "no_time",
        "threshold",
    ),
)
@pytest.mark.parametrize("case", WORDS)
def test_each_cause_as_it_is_defined(student, case):
    """A gap, a copy or a collective whose cause one clause decides.
    Oracle: a few times by hand; each stretch is a round number of us."""
    trace, peers, want, because = WORDS[case]
    _exactly(_findings(student, trace, peers), [(c, us, us / of) for c, us, of in want], because)


@task("diagnose", holds=("in_order", "wholes", "peers", "only_with_peers", "by_share"))
@pytest.mark.parametrize("peers", [0, 2, 3])
def test_causes_on_a_raster(student, rng, peers):
    """Stretches drawn at random: several causes at once, with threads that wait, load and launch,
    and other ranks of unequal communication.   Oracle: a row of boxes, one a us, painted."""
    rows = [oracles.rastered(rng, peers) for _ in range(12)]
    because = "each idle microsecond has one cause, the first in the list that fits"
    answers = student.map("diagnose", [(trace, others) for trace, others, _ in rows])
    for findings, (_, _, want) in zip(answers, rows, strict=True):
        _exactly(_listed(findings), want, because)


@task("diagnose", gate=False, holds=("fine",))
def test_evidence_is_not_rounded(student):
    """A gap of 3 before a kernel, a collective of 7 alone, a pageable copy of 2 and computation of
    20, all of them 2^-22 us.   Oracle: counted on the fingers; floats hold these exactly."""
    fine = 2.0**-22
    rows = [("gemm", 0, 10, 7), ("gemm", 13, 10, 7), ("ncclDevKernel_AllReduce", 23, 7, 24)]
    rows.append((oracles.PAGEABLE, 30, 2, 20))
    trace = in_order([work(name, at * fine, n * fine, stream) for name, at, n, stream in rows])
    want = [("exposed_comm", 7, 29), ("tiny_kernels", 3, 32), ("pageable_copy", 2, 29)]
    got = _findings(student, trace)
    because = "times may be finer than a nanosecond: no answer is rounded"
    _agree(got, [cause for cause, _, _ in want], because)
    for finding, (cause, parts, whole) in zip(got, want, strict=True):
        what = f"{cause}: evidence_us"
        us = parts * fine
        expect.close(finding.evidence_us, us, because, floor=1e-9 * fine, what=what, unit="us")
        expect.close(finding.share, parts / whole, because, floor=1e-12, what=f"{cause}: share")


@task("diagnose", gate=False, holds=("nothing",))
def test_a_trace_without_gpu_work_has_no_finding(student):
    """An empty trace, and one of the host alone.   Oracle: the contract."""
    scene = oracles.Scene()
    scene.annotation("forward", 50.0)
    for trace in (Trace([]), scene.trace):
        _agree(_findings(student, trace), [], "no GPU work, nothing lost")


@task("diagnose", gate=False, holds=("fix",))
def test_every_finding_says_what_to_do(student, rng):
    """A fix of three words or more, another one for each cause.   Oracle: counted words."""
    fixes = {}
    for cause in ALONE:
        scene = oracles.scene(rng, {cause: 0.3})
        for finding in _findings(student, scene.trace):
            fixes[finding.cause] = finding.fix
            words = len(finding.fix.split())
            because = "a finding ends in something to do"
            expect.at_least(words, 3, because, what=f"words of the fix for {cause}", unit="words")
    expect.equal(len(set(fixes.values())), len(ALONE), "each cause has a cure of its own", "fixes")


@task("diagnose", extra=(f"data:{ALEXNET}",))
def test_the_copies_of_a_real_run(student):
    """AlexNet on an A100: 55,503 us of pageable copies are 83.9 % of the busy time.
    Oracle: the trace's own copies; Holistic Trace Analysis 0.5.0 names the same."""
    got = _findings(student, oracles.real(datasets.need(ALEXNET)))
    copies = [finding for finding in got if finding.cause == "pageable_copy"]
    expect.equal(len(copies), 1, "16 copies from pageable memory", what="findings of the copies")
    _evidence(copies[0], 55_503.0, 0.839, "55.5 of 66.1 ms")


@task("diagnose", extra=(f"data:{RANK0}", f"data:{RANK1}"))
def test_the_waiting_of_a_real_rank(student):
    """Two ranks of 128 of a recommender: rank 0 shows 33,460 us more of its all-to-all than rank 1.
    Oracle: the two overlaps that Holistic Trace Analysis 0.5.0 gives, 14.95 % and 19.93 %."""
    ranks = [oracles.real(datasets.need(name)) for name in (RANK0, RANK1)]
    got = {finding.cause: finding for finding in _findings(student, ranks[0], ranks[1:])}
    expect.true("straggler" in got, "rank 0 communicates longer with nothing beside it", got)
    _evidence(got["straggler"], 33_460.0, 0.0611, "396,199 (1 - 0.1495) - 379,053 (1 - 0.1993)")
    expect.true("exposed_comm" in got, "both ranks show more than 300 ms of it", got)
