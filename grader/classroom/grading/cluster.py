"""Grading on a cluster: what a call asks for, and the messages that cross between the coordinator
and the grading hosts. Imports nothing of Dask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec

import msgspec

from grader.errors import CallError

EXECUTORS = ("local", "dask")
NUMBER_BYTES = 8  # before each unit and answer on a grading host's socket
INSTALL = "pip install 'infralens-labs[cluster]'"


@dataclass(frozen=True)
class ClusterCall:
    """A Dask cluster to grade on. `scheduler`: its address; None starts a cluster of `workers` on
    this machine. `resources`: what a Dask worker must offer, and each unit takes of it."""

    scheduler: str | None = None
    workers: int | None = None
    resources: dict[str, float] = field(default_factory=dict)


class HostConfig(msgspec.Struct, frozen=True):
    """What a grading host is started with. `root`: the coordinator's kit; `digests`: by lab, as the
    coordinator has them; `hidden`: what no submission may see."""

    root: str
    digests: dict[str, str]
    tier: str
    hidden: tuple[str, ...] = ()
    patience: float = 1.0

    def packed(self) -> bytes:
        return msgspec.msgpack.encode(self, order="deterministic")


class HostState(msgspec.Struct, frozen=True):
    """What a grading host says before its first unit. `fault`: why it can grade nothing."""

    tier: str = ""
    digests: dict[str, str] = {}
    versions: dict[str, str] = {}
    fault: str = ""


def chosen(
    executor: str, scheduler: str | None, workers: int | None, resources: str | None, jobs: int
) -> ClusterCall | None:
    """The cluster that the options of a call ask for; None: this machine's own processes."""
    if executor not in EXECUTORS:
        known = ", ".join(EXECUTORS)
        raise CallError(f"There is no executor {executor!r}; the executors are: {known}.")
    if executor == "local":
        given = {"--scheduler": scheduler, "--workers": workers, "--resources": resources}
        for option, value in given.items():
            if value is not None:
                raise CallError(f"{option} needs --executor dask.")
        return None
    if find_spec("distributed") is None:
        raise CallError(f"--executor dask needs Dask's distributed: {INSTALL}")
    if jobs != 1:
        raise CallError(
            "--jobs is for this machine's own processes. With --executor dask the workers decide: "
            "--workers for a cluster of this machine, or the threads of each Dask worker."
        )
    if scheduler is not None and workers is not None:
        raise CallError(
            f"--workers starts a cluster on this machine; the one at {scheduler} has its workers."
        )
    if workers is not None and workers < 1:
        raise CallError(f"--workers is {workers}: give 1 or more.")
    return ClusterCall(scheduler, workers, _resources(resources))


def _resources(text: str | None) -> dict[str, float]:
    found = {}
    for part in (text or "").split(","):
        name, _, amount = part.partition("=")
        if not part.strip():
            continue
        try:
            found[name.strip()] = float(amount)
        except ValueError:
            found[name.strip()] = 0.0
        if not name.strip() or not 0 < found[name.strip()] < float("inf"):
            raise CallError(f"--resources is {text!r}: write it as in GPU=1 or GPU=1,MEMORY=8e9.")
    return found
