"""Runs student code where it cannot change a verdict. Knows nothing of pytest, suites or marks.

Glossary
    backend     where student code runs, behind one interface (`backends`): `LocalBackend` in this
                process, `ProcessBackend` in one of its own, `SandboxBackend` in a container,
                `ContainedBackend` as a user of its own.
    tier        what a backend promises: `local`, `process`, `contained` or `sandbox`. A result
                records it. The last two are the forked tiers: a zygote forks their workers.
    client      the trusted side: `Student`, through which a test calls student code (`client`).
    session     one test's use of a backend: its last call, the answer, the files' texts.
    server      the other side: loads a submission's files and answers calls into them (`server`).
    code spec   what a server is opened with: folders, file names, the source of the probes.
    probe       a suite's function that runs beside student code, sent to the server as source.
    handle      represents on the client an object that stays on the server.
    record      a dataclass as plain data. One that a given file defines is known on both sides.
    channel     frames over the data socket, one MessagePack header each (`channel`).
    arena       shared memory in which large buffers cross (`channel`).
    codec       what may cross, and its form; nothing is ever unpickled (`codec`).
    contract    what tasks say of arguments: which may change, whose result is new (`purity`).
    worker      the process of one unit's student code: a server around a channel (`worker`).
    zygote      the process that has PyTorch loaded and forks workers (`zygote`).
    fork server the trusted side's owner of the zygote: starts it, restarts it, asks it for workers
                (`fork_server`).
    container   namespaces, limits, Landlock and seccomp around one worker (`container`).
    init        process 1 of a container: watches its memory and processes, outlives the worker.
    keeper      at the tier `contained`, the root process that has init's part (`contained`).
    control     the socket between init and the trusted side; student code never gets it.
    rootfs      the file system that a container sees (`rootfs`).
    host check  tries which of these mechanisms this machine has (`host_check`, `infralens probe`).
    deadline    time limit of one call, by the parent's clock (`deadlines`, `backends.Limits`).
    the wall    all of it together, as documents call it.
"""
