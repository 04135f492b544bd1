"""Lab 12: claims that are not numbers, or beyond them, and answers that agree with anything."""

from __future__ import annotations

from .lab_attack import LabAttack

_CLAIM = "  peak_gb: 70.7\n"

ATTACKS = [
    LabAttack(
        "claims-of-nan",
        "worksheet",
        "a claim that lies neither below nor above anything",
        changes=((_CLAIM, "  peak_gb: .nan\n"),),
        mark=r"peak_gb",
    ),
    LabAttack(
        "a-claim-of-many-digits",
        "worksheet",
        "a claim of 400 digits, which no float of the suite's can hold",
        changes=((_CLAIM, "  peak_gb: 1" + 400 * "0" + "\n"),),
        mark=r"peak_gb is larger than",
    ),
    LabAttack(
        "aliases-in-aliases",
        "worksheet",
        "a value whose text is short and whose size is ten to the ninth",
        changes=(
            (
                _CLAIM,
                _CLAIM
                + "  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
                + "".join(
                    f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
                ),
            ),
        ),
        mark=r"values|larger|aliases|a0",
    ),
    LabAttack(
        "a-time-that-equals-anything",
        "coll_time",
        "a float whose comparisons always agree",
        """
class _Agrees(float):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return False
    def __gt__(self, other): return False
    def __sub__(self, other): return self
    def __rsub__(self, other): return self
    def __abs__(self): return 0.0
    __hash__ = float.__hash__
def coll_time(op, nbytes, n, per_node, cluster):
    if n < 1 or per_node < 1 or n % per_node or (op == "send" and n > 2): raise ValueError("no")
    if op not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"):
        raise ValueError("no")
    return _Agrees(0.0)
""",
        mark=r"expected",
    ),
    LabAttack(
        "groups-that-equal-anything",
        "rank_groups",
        "a list that says it is equal to any other",
        """
class _Any(list):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = None
def rank_groups(sizes, order=DEFAULT_ORDER, token="dp"):
    return _Any([[0, 1]])
""",
        mark=r"expected",
    ),
]
