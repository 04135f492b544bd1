"""bottleneck, audit and fits_where: reading a ledger."""

from dataclasses import replace
from fractions import Fraction

from types_lab01 import NOTEBOOK, Claim, Finding, Ledger, Notebook

from grader.suite import expect, task

GIB = 1024**3


@task("bottleneck")
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


@task("bottleneck")
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


@task("bottleneck", gate=False)
def test_the_first_of_two_equal_terms(student):
    """A tie goes to the first in the ledger's order.
    Oracle: the contract."""
    got = student.bottleneck(Ledger(gradients=5, activations=5))
    expect.equal(tuple(got), ("gradients", "ZeRO"), "gradients stand before activations")


@task("bottleneck", gate=False)
def test_an_empty_ledger_is_refused(student):
    """Nothing to shrink is a ValueError.
    Oracle: the contract."""
    with expect.raises(ValueError, because="an empty ledger has no largest term"):
        student.bottleneck(Ledger(params=10))


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


@task("audit")
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


@task("audit")
def test_claims_that_hold_are_no_findings(student, rng):
    """Notebooks of any shape whose claims are partly true, in any order.
    Oracle: the quantities in exact fractions."""
    for _ in range(4):
        notebook = Notebook(
            params=float(rng.integers(10**8, 10**11)),
            layers=int(rng.integers(4, 90)),
            hidden=8 * int(rng.integers(50, 900)),
            heads=int(rng.integers(4, 70)),
            head_dim=8 * int(rng.integers(4, 30)),
            batch=int(rng.integers(2, 30)),
            seq=int(rng.integers(500, 9000)),
            precision_bytes=int(rng.choice([1, 2, 4])),
            state_bytes=int(rng.choice([8, 12, 16, 18])),
            activation_scale=float(rng.choice([3.5, 7.0, 12.0])),
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
        _same_findings(got, want, "a claim inside its range is no contradiction")


@task("audit", gate=False)
def test_the_ends_of_a_range_belong_to_it(student):
    """A claim that is exactly right is right.
    Oracle: a quarter is exact in binary."""
    for low, high, count in ((0.25, 0.25, 0), (0.0, 0.25, 0), (0.25, 1.0, 0), (0.5, 1.0, 1)):
        notebook = replace(NOTEBOOK, claims=(Claim("int4_weight_fraction", low, high),))
        expect.equal(len(student.audit(notebook)), count, "ends included", f"[{low}, {high}]")


@task("audit", gate=False)
def test_an_unknown_quantity_is_refused(student):
    """A claim that cannot be checked is a ValueError, not silently true.
    Oracle: the contract."""
    with expect.raises(ValueError, because="a claim that nobody checked must not pass"):
        student.audit(replace(NOTEBOOK, claims=(Claim("latency", 1.0, 2.0),)))


@task("audit", gate=False)
def test_a_notebook_without_claims_is_clean(student):
    """No claims, no findings.
    Oracle: the contract."""
    got = student.audit(replace(NOTEBOOK, claims=()))
    expect.equal(list(got), [], "nothing was claimed")


# --- fits_where (stretch) -------------------------------------------------------------------------


def _brute(ledger, gpu, least, limit=4000):
    """Every N up to `limit`, tried in integers: all that is compared is N times the bytes."""
    sharded = ledger.weights + ledger.gradients + ledger.optimizer
    whole = ledger.activations + ledger.kv_cache + ledger.other
    fitting = [n for n in range(1, limit) if least * n <= sharded + whole * n <= gpu * n]
    if not fitting:
        return None
    return fitting[0], None if fitting[-1] == limit - 1 else fitting[-1]


@task("fits_where")
def test_where_the_notebook_s_remark_is_true(student):
    """28 GiB of activations and sharded states are 30 to 35 GiB a GPU for N = 15 to 50.
    Oracle: every N tried."""
    states = 6_740_000_000
    ledger = Ledger(
        weights=2 * states, gradients=2 * states, optimizer=12 * states, activations=28 * GIB
    )
    got = student.fits_where(ledger, 35 * GIB, 30 * GIB)
    expect.equal(tuple(got or ()), (15, 50), "28 + 100.43 / N is in [30, 35]", "N")


@task("fits_where")
def test_every_n_tried(student, rng):
    """Random ledgers, ranges with and without an upper end, ranges that nothing fits.
    Oracle: every N tried in integers."""
    for trial in range(12):
        weights, other = (int(x) for x in rng.integers(10**6, 10**9, 2))
        ledger = Ledger(
            weights=weights,
            gradients=weights,
            optimizer=int(rng.integers(2, 7)) * weights,
            activations=other,
            other=int(rng.integers(1, 10**6)),
        )
        whole = ledger.activations + ledger.other
        gpu = whole + int(rng.integers(weights // 40, 9 * weights))
        room = gpu - whole
        least = [0, whole + room // 3, whole - 1, whole + 9 * room // 10][trial % 4]
        want = _brute(ledger, gpu, least)
        got = student.fits_where(ledger, gpu, least)
        expect.equal(
            tuple(got) if got else got, want, "states shrink with N, the rest does not", "N"
        )


@task("fits_where")
def test_what_sharding_cannot_help(student):
    """Activations larger than the GPU fit for no N.
    Oracle: every N tried."""
    ledger = Ledger(weights=100, gradients=100, optimizer=600, activations=1000)
    expect.equal(student.fits_where(ledger, 1000), None, "FSDP does not shard activations")
    expect.equal(student.fits_where(ledger, 500), None, "FSDP does not shard activations")


@task("fits_where", gate=False)
def test_exact_ends(student):
    """A rank that is exactly full fits, and one exactly at the lower end counts.
    Oracle: every N tried in integers."""
    ledger = Ledger(weights=200, gradients=200, optimizer=1200, activations=100)
    for gpu, least in ((500, 200), (300, 300), (1700, 1700), (499, 201)):
        got = student.fits_where(ledger, gpu, least)
        want = _brute(ledger, gpu, least)
        expect.equal(tuple(got) if got else got, want, "ends included", f"[{least}, {gpu}]")
