"""Runs one function on N ranks: forked processes, gloo over a file store, deadlines everywhere.

    results = ranks.run(train, world_size=2, args=(seed,), timeout_s=20)
    results[1], results.peak_rss_bytes[1], results.sent_bytes[1], results.sent_to[1][0]

A rank keeps to one thread: a forked child that uses OpenMP threads after its parent did hangs. It
joins a gloo group through a file, never a port, and waits until the parent starts it. Ranks are
forked, unless this process is in a process group: then they are spawned, which takes seconds and
needs a function at the top of a module. With a CUDA context, or on macOS (not tried), a function
that can be sent is spawned, any other is forked. A rank's result crosses as plain data
(`grader.sandbox.codec`), its prints line by line. Then it waits until every rank is done, so that
its peers keep their connections, and ends with `os._exit`.

A rank ends with its parent and ends the children in its process group. A process that a rank forks
into a session of its own outlives it; in the sandbox the pid namespace ends it.

All forked ranks inherit the parent's random state, its modules and its arguments as they are at the
call; their changes stay their own. Spawned ones get the random state and the arguments. Each rank
notes its calls, so that a failure can say who waits for whom (`deadlock`). Where the notes of a run
differ, or a rank fails or waits, the ranks run again, and torch checks their collectives against
each other (`TORCH_DISTRIBUTED_DEBUG=DETAIL`). Where the environment sets that variable, it holds.

Importing this package imports no torch.
"""

from grader.ranks.launcher import outcome, run
from grader.ranks.member import own_folder
from grader.ranks.supervisor import RanksError, Results

__all__ = ["RanksError", "Results", "outcome", "own_folder", "run"]
