"""Runs one function on N ranks: forked processes, gloo over a file store, deadlines everywhere.

    results = ranks.run(train, world_size=2, args=(seed,), timeout_s=20)
    results[1], results.peak_rss_bytes[1], results.sent_bytes[1]

A rank has one thread for good (a forked child that uses OpenMP threads after its parent did hangs),
joins a gloo group through a file, never a port, and waits for the parent's word. It is forked,
unless this process is in a process group: then ranks are spawned, which takes seconds and needs a
function at the top of a module. With a CUDA context, or on macOS (not tried), a function that can
be sent is spawned, any other is forked. Its result crosses as plain data (`grader.sandbox.codec`),
its prints line by line. Then it waits until every rank is done, so that no peer loses its
connection, and ends with `os._exit`.

A rank ends with its parent, and takes the children of its process group along. What a rank forks
into a session of its own outlives it here; the wall's pid namespace ends that.

All ranks inherit the parent's random state, its modules and its arguments as they are at the call;
what they change stays with them; spawned ones get the random state and the arguments. Collectives
are checked against each other (`TORCH_DISTRIBUTED_DEBUG=DETAIL`) unless the environment says
otherwise. Each rank notes what it calls, so that a failure says who waits for whom (`deadlock`).

Importing this package imports no torch.
"""

from grader.ranks.launcher import outcome, run
from grader.ranks.supervisor import RanksError, Results

__all__ = ["RanksError", "Results", "outcome", "run"]
