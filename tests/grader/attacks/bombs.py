"""Attacks on time, memory, disk and the number of everything. Each stops by itself before it could
harm a machine without limits; reaching its own end is what it calls DONE."""

from __future__ import annotations

from .catalogue import EVERYTHING, WALLED, Attack

NO_ANSWER = r"no answer after"
OVER_FILES = r"the code had [\d,]+ files of [\d,]+ MiB, and was ended"
OVER_MEMORY = r"took [\d,]+ MiB with all its processes"

ATTACKS = [
    Attack(
        "endless-loop",
        ("2.14",),
        "never answers",
        """
def add(a, b):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
        mark=NO_ANSWER,
    ),
    Attack(
        "sleeps-deaf",
        ("2.14",),
        "sleeps, deaf to every signal that can be ignored, and its children with it",
        """
for _number in range(1, 65):
    try: signal.signal(_number, signal.SIG_IGN)
    except (OSError, ValueError): pass
def add(a, b):
    if os.fork() == 0: os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while True: time.sleep(1000)
""",
        mark=NO_ANSWER,
    ),
    Attack(
        "busy-in-c",
        ("2.14",),
        "computes for hours inside one call of C",
        "def add(a, b): return re.match('(a+)+$', 'a' * 60 + 'b') or 0",
        mark=NO_ANSWER,
    ),
    Attack(
        "never-imports",
        ("2.14",),
        "never ends its import, deaf to the alarm",
        """
signal.signal(signal.SIGALRM, signal.SIG_IGN)
signal.setitimer(signal.ITIMER_REAL, 0)
signal.setitimer = signal.alarm = lambda *args: None
while True:
    try: time.sleep(1000)
    except BaseException: pass
""",
        mark=NO_ANSWER,
        loses=EVERYTHING,
    ),
    Attack(
        "fork-bomb",
        ("2.13",),
        "forks until something stops it",
        """
def _bomb():
    if not boxed(): return None
    count = 0
    try:
        while count < 4000:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            count += 1
    except OSError as error:
        tell(f"forks: {count}, then {error}")
        return None
    return count
def add(a, b):
    if not any("forks" in line for line in TOLD): attempt("4000 forks", _bomb)
    return 0
""",
        mark=r"forks: \d+|ended|processes",
        tiers=WALLED,
        may_lose=True,
    ),
    Attack(
        "thread-bomb",
        ("2.13",),
        "starts threads until something stops it",
        """
def _bomb():
    if not boxed(): return None
    threading.stack_size(65536)
    stop, count = threading.Event(), 0
    try:
        while count < 8000:
            threading.Thread(target=stop.wait, args=(60,), daemon=True).start()
            count += 1
    except (RuntimeError, MemoryError) as error:
        tell(f"threads: {count}, then {error}")
        stop.set()
        return None
    stop.set()
    return count
def add(a, b):
    if not any("threads" in line for line in TOLD): attempt("8000 threads", _bomb)
    return 0
""",
        mark=r"threads: \d+|ended|processes",
        tiers=WALLED,
        may_lose=True,
    ),
    Attack(
        "memory-one-process",
        ("2.15",),
        "takes 6 GiB in one process",
        """
def Stack():
    kept = []
    if boxed():
        for _ in range(96): kept.append(b"x" * 2**26)
    attempt("6 GiB", lambda: len(kept) == 96 or None)
    raise Report(TOLD)
""",
        mark=OVER_MEMORY,
        tiers=WALLED,
        patient=True,
    ),
    Attack(
        "memory-four-children",
        ("2.15",),
        "takes 800 MiB in each of four children, which no limit on one process would notice",
        """
def Stack():
    if not boxed(): raise Report("not in a box")
    reader, writer = os.pipe()
    for _ in range(4):
        if os.fork() == 0:
            kept = [b"x" * 2**20 for _ in range(800)]
            os.write(writer, b"!")
            time.sleep(60)
            os._exit(len(kept))
    os.close(writer)
    count = 0
    while count < 4 and os.read(reader, 1): count += 1
    attempt("800 MiB in each of four children", lambda: count == 4 or None)
    raise Report(TOLD)
""",
        mark=OVER_MEMORY,
        tiers=WALLED,
        patient=True,
    ),
    Attack(
        "memory-shared",
        ("2.15",),
        "takes 3 GiB in shared mappings, filled by children that end at once",
        """
import mmap
def Stack():
    kept, block = [], b"x" * 2**20
    for _ in range(24 if boxed() else 0):
        kept.append(mmap.mmap(-1, 2**27))
        child = os.fork()
        if child == 0:
            for _ in range(128): kept[-1].write(block)
            os._exit(0)
        os.waitpid(child, 0)
    attempt("3 GiB shared", lambda: len(kept) == 24 or None)
    raise Report(TOLD)
""",
        mark=OVER_MEMORY + r"|raised (OSError|PermissionError)",
        tiers=WALLED,
        patient=True,
    ),
    Attack(
        "memory-behind-a-page",
        ("2.15",),
        "keeps 3 GiB of shared memory alive by one mapped page of each piece",
        """
_map, _unmap = _libc.mmap, _libc.munmap
_map.restype = ctypes.c_void_p
_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def _keep(fd, flags):
    where = _map(None, 2**27, 3, flags, fd, 0)
    if where == 2**64 - 1: raise OSError(ctypes.get_errno(), "mmap")
    ctypes.memset(where, 120, 2**27)
    _unmap(where + 4096, 2**27 - 4096)
def _fill(fd, flags):
    for _ in range(24): _keep(fd, flags)
    return True
def Stack():
    if boxed():
        attempt("3 GiB shared and anonymous", lambda: _fill(-1, 0x21))
        attempt("3 GiB of /dev/zero", lambda: _fill(os.open("/dev/zero", os.O_RDWR), 1))
    raise Report(TOLD)
""",
        mark=OVER_MEMORY + r"|3 GiB shared and anonymous: no(.|\n)*3 GiB of /dev/zero: no",
        tiers=WALLED,
        patient=True,
    ),
    Attack(
        "memory-unmapped",
        ("2.15", "2.16"),
        "keeps 4 GiB where no process shows it: memfd, files in memory, pipes",
        """
def _memfd():
    fd = os.memfd_create("hidden")
    for _ in range(256): os.write(fd, b"x" * 2**24)
    return True
def _files(place):
    for number in range(64):
        with open(os.path.join(place, f"hidden-{number}"), "wb", 0) as file:
            for _ in range(16):
                if file.write(b"x" * 2**22) != 2**22: raise OSError("a short write")
    return True
def _pipes():
    import fcntl
    size = 0
    for _ in range(400):
        _, writer = os.pipe()
        os.set_blocking(writer, False)
        try: fcntl.fcntl(writer, 1031, 2**20)
        except OSError: pass
        try:
            while True: size += os.write(writer, b"x" * 2**16)
        except BlockingIOError: pass
    return size
def Stack():
    if boxed() and not TOLD:
        attempt("memfd", _memfd)
        for place in ("/tmp", "/dev/shm", ".", os.path.expanduser("~")):
            attempt("4 GiB in " + place, lambda: _files(place))
        try: tell("bytes in pipes:", _pipes())
        except OSError as error: tell("pipes:", error)
    raise Report(" ".join(TOLD))
""",
        mark=r"(?s)memfd: no.*4 GiB in /tmp: no.*4 GiB in /dev/shm: no.*pipes:|"
        + OVER_FILES
        + "|"
        + OVER_MEMORY,
        tiers=WALLED,
        patient=True,
    ),
    Attack(
        "many-files",
        ("2.16",),
        "makes files without end, and one without end",
        """
def add(a, b):
    if not boxed() or TOLD: return 0
    count, until = 0, time.monotonic() + 1.0
    try:
        os.makedirs("many", exist_ok=True)
        while time.monotonic() < until and count < 500_000:
            os.close(os.open(f"many/{count}", os.O_CREAT | os.O_WRONLY))
            count += 1
        tell("files:", count)
    except OSError as error: tell(f"files: {count}, then {error}")
    size = 0
    try:
        with open("large", "wb", 0) as file:
            for _ in range(128): size += file.write(bytes(2**24))
        attempt("a file of 2 GiB", lambda: size == 2**31 or None)
    except OSError as error: tell(f"bytes: {size}, then {error}")
    for folder in ("a",) * 2000:
        try: os.mkdir(folder); os.chdir(folder)
        except OSError: break
    os.chdir("/")
    return 0
""",
        mark=r"files: \d+|" + OVER_FILES,
        tiers=WALLED,
    ),
    Attack(
        "many-descriptors",
        ("2.16",),
        "opens descriptors until there are no more",
        """
def add(a, b):
    kept = []
    try:
        while len(kept) < 50_000: kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error: tell("descriptors:", len(kept), error)
    tell("descriptors:", len(kept))
    for fd in kept: os.close(fd)
    return 0
""",
        mark=r"descriptors: \d+",
    ),
    Attack(
        "output-bomb",
        ("2.16",),
        "prints 200 MB on both streams, some of it from a child",
        """
def add(a, b):
    if not TOLD:
        line = "x" * (2**20 - 1) + "\\n"
        for _ in range(80): sys.stdout.write(line); sys.stderr.write(line)
        subprocess.run([sys.executable, "-I", "-c", "for _ in range(40): print('y' * 2**20)"])
        tell("printed 200 MB")
    return 0
""",
        mark="printed 200 MB",
    ),
    Attack(
        "huge-answers",
        ("2.16",),
        "answers with values without end: deep, long, wide, many-bitted",
        """
import numpy as np
def add(a, b): return 1 << 10_000_000
def softmax_rows(x): return np.broadcast_to(np.float64(0), (2**20, 2**20))
class Stack:
    size = "x" * 2**27
    def push(self, item): pass
    def pop(self):
        deep = []
        for _ in range(100_000): deep = [deep]
        return deep
def passphrase(): return [0.0] * 3_000_000
""",
        mark="bits",
    ),
    Attack(
        "recursive-answers",
        ("2.16", "2.2"),
        "answers with values that contain themselves",
        """
def add(a, b):
    me = []
    me.append(me)
    return me
def softmax_rows(x):
    me = {}
    me["me"] = me
    return me
class Stack(list):
    size = 0
    def push(self, item): self.append(self)
    def pop(self): return tuple([self])
""",
        mark="nested more than|deep",
    ),
]
