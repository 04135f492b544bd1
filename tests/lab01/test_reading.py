"""bottleneck, audit and fits_where: reading a ledger."""

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
from types_lab01 import NOTEBOOK, Claim, Finding, Ledger, Notebook

from grader.suite import expect, task

GIB = 1024**3


@task("bottleneck", holds=("largest", "zero", "checkpointing"))
def test_training_ledgers(student, rng):
    """In training, states are sharded and activations computed again.
    Oracle: the largest of the terms that the test itself put in."""
    sizes = [int(x) for x in rng.integers(10**9, 10**10, 3)]
    for name, lever in (
        ("optimizer", "ZeRO"),
        ("activations", "checkpointing"),
        ("gradients", "ZeRO"),
        ("weights", "ZeRO"),
    ):
        terms = dict(zip(("weights", "gradients", "optimizer"), sizes, strict=True))
        terms["activations"] = int(rng.integers(10**9, 10**10))
        terms[name] = 2 * 10**10
        got = tuple(student.bottleneck(Ledger(params=7 * 10**11, **terms)))
        expect.equal(got[0], name, "this term was made the largest", "name")
        expect.equal(got[1], lever, f"{name} is the largest while training", "lever")


@task("bottleneck", holds=("largest", "quantization", "gqa_or_paging", "chunking"))
def test_inference_ledgers(student, rng):
    """In inference, weights are quantized and the cache is made smaller.
    Oracle: the largest of the terms that the test itself put in."""
    for name, levers in (
        ("weights", ("quantization",)),
        ("kv_cache", ("GQA", "paging")),
        ("other", ("chunking",)),
    ):
        terms = {key: int(rng.integers(10**8, 10**10)) for key in ("weights", "kv_cache", "other")}
        terms[name] = 3 * 10**10
        got = tuple(student.bottleneck(Ledger(params=10**12, **terms)))
        expect.equal(got[0], name, "this term was made the largest", "name")
        if got[1] not in levers:
            expect.equal(got[1], levers[0], f"{name} is the largest while serving", "lever")


_TERMS = ("weights", "gradients", "optimizer", "activations", "kv_cache", "other")
_LEVERS = {
    "gradients": ("ZeRO",),
    "optimizer": ("ZeRO",),
    "activations": ("checkpointing",),
    "kv_cache": ("GQA", "paging"),
    "other": ("chunking",),
}


def _is(student, ledger, name, because):
    """The bottleneck of this ledger is that term, with one of its levers."""
    training = bool(ledger.gradients or ledger.optimizer)
    levers = _LEVERS | {"weights": ("ZeRO",) if training else ("quantization",)}
    got = tuple(student.bottleneck(ledger))
    expect.equal(got[0], name, because, "name")
    if len(got) != 2 or got[1] not in levers[name]:
        run = "while training" if training else "while serving"
        expect.equal(got, (name, levers[name][0]), f"{name} is the largest {run}", "bottleneck")


@task("bottleneck", holds=("training", "quantization"))
@pytest.mark.parametrize("kept", [(), ("gradients",), ("optimizer",), ("gradients", "optimizer")])
def test_weights_are_in_training_beside_gradients_or_states(student, rng, kept):
    """The largest term is the weights: sharded where there are gradients, or optimizer states, or
    both, and quantized where there is neither.
    Oracle: the contract, beside any activations, cache and rest."""
    for others in itertools.product((0, 1), repeat=3):
        sizes = [int(rng.integers(1, 10**9)) * there for there in others]
        ledger = Ledger(
            weights=10**9,
            activations=sizes[0],
            kv_cache=sizes[1],
            other=sizes[2],
            **{name: int(rng.integers(1, 10**9)) for name in kept},
        )
        _is(student, ledger, "weights", "weights were made the largest")


@task("bottleneck", holds=("training", "quantization", "zero"))
@pytest.mark.parametrize("name", _TERMS)
def test_what_makes_a_ledger_a_training_run(student, rng, name):
    """Gradients or optimizer states do, each of them alone; activations, a cache and the rest do
    not.
    Oracle: the contract, for each term as the largest beside any others."""
    others = [term for term in _TERMS if term != name]
    for count in range(len(others) + 1):
        for present in itertools.combinations(others, count):
            terms = {term: int(rng.integers(1, 10**9)) for term in present}
            ledger = Ledger(params=10**11, **terms | {name: 10**9})
            _is(student, ledger, name, "this term was made the largest")


@task("bottleneck", gate=False, holds=("first_of_equals",))
def test_the_first_of_two_equal_terms(student):
    """A tie goes to the first in the ledger's order.
    Oracle: the contract."""
    got = student.bottleneck(Ledger(gradients=5, activations=5))
    expect.equal(tuple(got), ("gradients", "ZeRO"), "gradients stand before activations")
    for first, second in itertools.combinations(_TERMS, 2):
        ledger = Ledger(**{first: 7 * 10**9, second: 7 * 10**9})
        _is(student, ledger, first, f"{first} stands before {second}")
    _is(student, Ledger(**dict.fromkeys(_TERMS, 3)), "weights", "weights stand first of all")


@task("bottleneck", gate=False, holds=("in_bytes", "training"))
def test_one_byte_decides(student):
    """Terms are compared in bytes: one byte more in 100 GB is more, and one byte is not nothing.
    Oracle: the contract."""
    for first, second in itertools.permutations(_TERMS, 2):
        ledger = Ledger(**{first: 10**11, second: 10**11 + 1})
        _is(student, ledger, second, "it is larger by one byte")
    for name in _TERMS:
        _is(student, Ledger(params=10, **{name: 1}), name, "it is the only term")
    for name in ("gradients", "optimizer"):
        ledger = Ledger(weights=10**11, **{name: 1})
        _is(student, ledger, "weights", f"weights with {name} are being trained")


@task("bottleneck", gate=False, holds=("empty",))
def test_an_empty_ledger_is_refused(student):
    """Nothing to shrink is a ValueError.
    Oracle: the contract."""
    for ledger in (Ledger(params=10), Ledger()):
        with expect.raises(ValueError, because="an empty ledger has no largest term"):
            student.bottleneck(ledger)


# --- audit ----------------------------------------------------------------------------------------


def _actual(n):
    """What each quantity is, in exact fractions."""
    values = 2 * n.batch * n.seq * n.layers * n.heads * n.head_dim
    weights = Fraction(n.params) * n.precision_bytes
    cache = Fraction(values) * n.precision_bytes
    per_token = Fraction(n.activation_scale) * n.hidden * n.layers * n.precision_bytes
    return {
        "training_gib": (Fraction(n.params) * n.state_bytes + n.batch * n.seq * per_token) / GIB,
        "inference_gib": (weights + cache) / GIB,
        "context_doubling": (weights + 2 * cache) / (weights + cache),
        "int4_weight_fraction": Fraction(4, 8) / n.precision_bytes,
    }


def _same_findings(got, want, because):
    expect.equal([found.quantity for found in got], [w.quantity for w in want], because)
    for found, wanted in zip(got, want, strict=True):
        expect.close(found.actual, wanted.actual, because, n=9, what=f"actual {found.quantity}")
        expect.close(
            (found.low, found.high), (wanted.low, wanted.high), "the claim's range", what="claim"
        )


@task("audit", holds=("contradicted", "quantities", "finding"))
def test_four_contradictions_in_the_notebook(student):
    """128.4 GiB against "30-35", 20.6 against "about 25", +39 % against "doubles", to a quarter
    against by a quarter.
    Oracle: the notebook's own outputs; 28.55 / 20.55 and 4 / 16 by hand."""
    got = student.audit(NOTEBOOK)
    want = [
        Finding(claim.quantity, claim.low, claim.high, float(_actual(NOTEBOOK)[claim.quantity]))
        for claim in NOTEBOOK.claims
    ]
    because = "the notebook's own inputs give another figure"
    _same_findings(got, want, because)
    rounded = [round(found.actual, 2) for found in got]
    expect.equal(rounded, [128.43, 20.55, 1.39, 0.25], because, "rounded")


@task("audit", holds=("contradicted", "order", "quantities", "holds", "finding"))
def test_claims_that_hold_are_no_findings(student, rng):
    """Notebooks of any shape whose claims are partly true, in any order.
    Oracle: the quantities in exact fractions."""
    for size, state_bytes, scale in ((1, 8, 3.5), (2, 18, 12.0), (4, 16, 7.0), (2, 12, 3.5)):
        notebook = Notebook(
            params=float(rng.integers(10**8, 10**11)),
            layers=int(rng.integers(4, 90)),
            hidden=8 * int(rng.integers(50, 900)),
            heads=int(rng.integers(4, 70)),
            head_dim=8 * int(rng.integers(4, 30)),
            batch=int(rng.integers(1, 30)),
            seq=int(rng.integers(500, 9000)),
            precision_bytes=size,
            state_bytes=state_bytes,
            activation_scale=scale,
        )
        claims, want = [], []
        quantities = list(rng.permutation(list(_actual(notebook)))) * 2
        for index, quantity in enumerate(map(str, quantities)):
            actual = float(_actual(notebook)[quantity])
            low, high = (
                ((0.9 * actual, 1.1 * actual), (1.01 * actual, 3 * actual), (0.0, 0.99 * actual))
            )[(index + int(rng.integers(2))) % 3]
            claims.append(Claim(quantity, low, high))
            if not low <= actual <= high:
                want.append(Finding(quantity, low, high, actual))
        got = student.audit(replace(notebook, claims=tuple(claims)))
        _same_findings(got, want, "a claim inside its range is not a contradiction")


# 2**29 two-byte weights are 1 GiB, 16 bytes each 8 GiB; the cache of 2**14 tokens x 4 layers x
# 8 heads x 512 is 1 GiB, and 2 values of each of 2**14 x 4 x 4,096 hidden units are 1 GiB.
_EXACT = Notebook(
    params=2**29,
    layers=4,
    hidden=4096,
    heads=8,
    head_dim=512,
    batch=4,
    seq=4096,
    activation_scale=2.0,
)


@task("audit", gate=False, holds=("ends",))
@pytest.mark.parametrize(
    ("quantity", "actual"),
    [
        ("training_gib", 9.0),
        ("inference_gib", 2.0),
        ("context_doubling", 1.5),
        ("int4_weight_fraction", 0.25),
    ],
)
def test_the_ends_of_a_range_belong_to_it(student, quantity, actual):
    """A claim that is exactly right is right.
    Oracle: a notebook in powers of two, whose figures are exact in binary."""
    near = actual / 2**30
    for low, high, count in (
        (actual, actual, 0),
        (0.0, actual, 0),
        (actual, 2 * actual, 0),
        (actual + near, 2 * actual, 1),
        (0.0, actual - near, 1),
    ):
        notebook = replace(_EXACT, claims=(Claim(quantity, low, high),))
        expect.equal(len(student.audit(notebook)), count, "ends included", f"[{low}, {high}]")


@task("audit", gate=False, holds=("unknown",))
def test_an_unknown_quantity_is_refused(student):
    """A claim that cannot be checked is a ValueError, not silently true, wherever it stands.
    Oracle: the contract."""
    sound, false = Claim("training_gib", 100.0, 200.0), NOTEBOOK.claims[0]
    unknown = Claim("latency", 1.0, 2.0)
    for claims in ((unknown,), (sound, unknown), (false, unknown), (unknown, false)):
        with expect.raises(ValueError, because="a claim that nobody checked must not pass"):
            student.audit(replace(NOTEBOOK, claims=claims))


@task("audit", gate=False, holds=("holds",))
def test_a_notebook_without_claims_is_clean(student):
    """No claims, no findings.
    Oracle: the contract."""
    got = student.audit(replace(NOTEBOOK, claims=()))
    expect.equal(list(got), [], "nothing was claimed")


@task("audit", gate=False, holds=("order", "contradicted"))
def test_one_quantity_claimed_twice(student):
    """Each claim is judged by itself: the same quantity may be claimed rightly and wrongly.
    Oracle: the notebook's own outputs."""
    claims = (
        Claim("inference_gib", 24.0, 25.0),
        Claim("training_gib", 1.0, 2.0),
        Claim("inference_gib", 20.0, 21.0),
        Claim("inference_gib", 10.0, 11.0),
    )
    got = student.audit(replace(NOTEBOOK, claims=claims))
    found = [(row.quantity, row.low, row.high) for row in got]
    want = [(row.quantity, row.low, row.high) for row in (*claims[:2], claims[3])]
    expect.equal(found, want, "in the claims' order, one finding for each that is wrong")


# --- fits_where (stretch) -------------------------------------------------------------------------


def _brute(ledger, gpu, least, limit=4000):
    """Every N up to `limit`, tried in integers: all that is compared is N times the bytes."""
    sharded = ledger.weights + ledger.gradients + ledger.optimizer
    whole = ledger.activations + ledger.kv_cache + ledger.other
    fitting = [n for n in range(1, limit) if least * n <= sharded + whole * n <= gpu * n]
    if not fitting:
        return None
    return fitting[0], None if fitting[-1] == limit - 1 else fitting[-1]


def _fits(student, ledger, gpu, least, want, because):
    got = student.fits_where(ledger, gpu, least)
    what = f"N for [{least:,}, {gpu:,}]"
    expect.equal(tuple(got) if got else got, want, because, what)


@task("fits_where", holds=("range", "smallest_and_largest"))
def test_where_the_notebook_s_remark_is_true(student):
    """28 GiB of activations and sharded states are 30 to 35 GiB a GPU for N = 15 to 50.
    Oracle: every N tried."""
    states = 6_740_000_000
    ledger = Ledger(
        weights=2 * states, gradients=2 * states, optimizer=12 * states, activations=28 * GIB
    )
    got = student.fits_where(ledger, 35 * GIB, 30 * GIB)
    expect.equal(tuple(got or ()), (15, 50), "28 + 100.43 / N is in [30, 35]", "N")


@task("fits_where", holds=("sharded", "whole", "smallest_and_largest", "no_largest", "none"))
def test_every_n_tried(student, rng):
    """Random ledgers, ranges with and without an upper end, ranges that nothing fits.
    Oracle: every N tried in integers."""
    for trial in range(12):
        weights, other = (int(x) for x in rng.integers(10**6, 10**9, 2))
        ledger = Ledger(
            weights=weights,
            gradients=int(rng.integers(1, 2 * weights)),
            optimizer=int(rng.integers(2 * weights, 7 * weights)),
            activations=other,
            kv_cache=int(rng.integers(1, 10**8)),
            other=int(rng.integers(1, 10**6)),
        )
        whole = ledger.activations + ledger.kv_cache + ledger.other
        gpu = whole + int(rng.integers(weights // 40, 9 * weights))
        room = gpu - whole
        least = [0, whole + room // 3, whole - 1, whole + 9 * room // 10][trial % 4]
        want = _brute(ledger, gpu, least)
        got = student.fits_where(ledger, gpu, least)
        expect.equal(
            tuple(got) if got else got, want, "states shrink with N, the rest does not", "N"
        )


@task("fits_where", holds=("none", "whole"))
def test_what_sharding_cannot_help(student):
    """Activations larger than the GPU fit for no N.
    Oracle: every N tried."""
    ledger = Ledger(weights=100, gradients=100, optimizer=600, activations=1000)
    expect.equal(student.fits_where(ledger, 1000), None, "FSDP does not shard activations")
    expect.equal(student.fits_where(ledger, 500), None, "FSDP does not shard activations")


@task("fits_where", holds=("however_many",))
def test_as_many_ranks_as_it_takes(student, rng):
    """A GPU that the activations all but fill needs a hundred thousand ranks and more.
    Oracle: N is smallest if N ranks are enough and N - 1 are not, and largest in the same way; the
    ledger is made so that the two are known."""
    for _ in range(2):
        first, last = (int(n) for n in sorted(rng.integers(50_000, 300_000, 2)))
        room, whole = int(rng.integers(2, 50)) * last, int(rng.integers(10**9, 10**10))
        sharded = room * first
        ledger = Ledger(weights=sharded // 3, optimizer=sharded - sharded // 3, activations=whole)
        _fits(student, ledger, whole + room, 0, (first, None), "one rank fewer is one too few")
        least = whole + sharded // last
        want = (first, sharded // (least - whole))
        _fits(student, ledger, whole + room, least, want, "one rank more holds too little")


@task("fits_where", gate=False, holds=("nothing_to_shard", "ends"))
def test_nothing_to_shard(student):
    """A ledger without states needs the same for every N: all of them are in the range, or none.
    Oracle: every N tried in integers."""
    ledger = Ledger(params=10, activations=600, kv_cache=300, other=100)
    for gpu, least, want in (
        (2000, 0, (1, None)),
        (2000, 500, (1, None)),
        (1000, 0, (1, None)),
        (2000, 1000, (1, None)),
        (1000, 1000, (1, None)),
        (999, 0, None),
        (2000, 1001, None),
    ):
        expect.true(_brute(ledger, gpu, least) == want, "the table says what every N gives")
        _fits(student, ledger, gpu, least, want, "every rank holds 1,000 bytes, whatever N is")


@task("fits_where", gate=False, holds=("ends", "no_largest", "none"))
def test_the_lower_end_beside_what_stays_whole(student):
    """A lower end at or below what stays whole excludes no large N; one above it does; one above
    everything leaves no N.
    Oracle: every N tried in integers."""
    ledger = Ledger(weights=200, gradients=300, optimizer=1100, activations=60, kv_cache=40)
    for gpu, least in (
        (500, 99),
        (500, 100),
        (500, 101),
        (500, 0),
        (5000, 1700),
        (5000, 1701),
        (1699, 1600),
        (1700, 1600),
        (101, 0),
        (100, 0),
        (300, 400),
    ):
        want = _brute(ledger, gpu, least)
        _fits(student, ledger, gpu, least, want, "a rank holds 100 + 1,600 / N bytes")


@task("fits_where", gate=False, holds=("ends",))
def test_exact_ends(student):
    """A rank that is exactly full fits, and one exactly at the lower end counts.
    Oracle: every N tried in integers."""
    ledger = Ledger(weights=200, gradients=200, optimizer=1200, activations=100)
    for gpu, least in ((500, 200), (300, 300), (1700, 1700), (499, 201)):
        _fits(student, ledger, gpu, least, _brute(ledger, gpu, least), "ends included")
