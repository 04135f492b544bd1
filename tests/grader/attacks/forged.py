"""Attacks on the data socket: replies written by hand onto the descriptor that the worker owns."""

from __future__ import annotations

from .catalogue import EVERYTHING, Attack

_HAND = """
import array, msgspec
_pack = msgspec.msgpack.encode
def _sockets():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"): found.append(int(name))
        except OSError: pass
    return found
def _frame(message, table=(), inline=b"", length=None, count=None):
    body = message if isinstance(message, bytes) else _pack(message)
    head = struct.pack("<II", len(body) if length is None else length,
                       len(table) if count is None else count)
    return head + b"".join(struct.pack("<QQ", *row) for row in table) + body + inline
def _write(data):
    for fd in _sockets():
        view = memoryview(data)
        while view:
            try: view = view[os.write(fd, view):]
            except BlockingIOError: time.sleep(0.001)
            except OSError: break
"""
INLINE = 2**64 - 1
_REFUSED = r"larger than|malformed|came across|outside the memory|ended|no answer|stopped answering"


def _once(id: str, tries: str, deed: str, mark: str = _REFUSED) -> Attack:
    """An attack that puts something on the wire in the middle of a call to `add`, whatever the
    worker itself sends afterwards."""
    code = f"{_HAND}\ndef add(a, b):\n" + "".join(f"    {line}\n" for line in deed.split("\n"))
    return Attack(id, ("2.9",), tries, code + "    return 0\n", mark=mark, may_lose=True)


ATTACKS = [
    _once(
        "frame-without-end",
        "announces a header of 4 GiB",
        "_write(_frame(b'x', length=2**32 - 1))",
    ),
    _once(
        "many-buffers",
        "announces buffers without end, and huge ones",
        "_write(_frame(['ok', 1], count=2**32 - 1) + bytes(2**20))",
    ),
    _once(
        "huge-buffers",
        "announces buffers that add up to more than there is",
        f"_write(_frame(['ok', ['b', 0]], table=[(2**63, {INLINE})] * 4))",
    ),
    _once(
        "outside-the-arena",
        "points at memory outside what is shared",
        "_write(_frame(['ok', ['b', 0]], table=[(4096, 2**62), (16, 2**63)]))",
        mark="outside the memory|larger than",
    ),
    _once(
        "the-same-memory-twice",
        "points at the same shared memory 60,000 times, so that it is copied each time",
        "_write(_frame(['ok', ['b', 0]], table=[(2**20, 0)] * 60_000))",
        mark="same place|larger than",
    ),
    _once(
        "no-messagepack",
        "sends what is no MessagePack, an extension type, a date, a map",
        "_write(_frame(b'\\xc1' * 100))\n"
        "_write(_frame(b'\\xc7\\x0c\\xff' + bytes(12)))\n"
        "_write(_frame({'status': 'passed', 'score': 12.0}))",
    ),
    _once(
        "verdicts",
        "sends verdicts where values are expected",
        "for message in (['passed', None], ['ok'], ['ok', 1, 'passed'], 'passed', 12.0, None):\n"
        "    _write(_frame(message))",
    ),
    _once(
        "unknown-tags",
        "sends values with tags that nobody knows",
        "_write(_frame(['ok', ['pickle', 'cos\\nsystem\\n']]))",
    ),
    _once(
        "false-handles",
        "sends handles of objects that were never held, and uses the kit's own names",
        "for number in (0, -1, 2**63 - 1, 1):\n    _write(_frame(['ok', ['h', number, 'int']]))",
        mark="int|came across",
    ),
    _once(
        "impossible-arrays",
        "sends arrays whose shape, strides, dtype and bytes do not agree",
        "rows = [['a', 0, '<f8', [2**40], []], ['a', 0, '<f8', [2, 2], [0, 0]],\n"
        "        ['a', 0, '|O8', [1], []], ['a', 0, '<f8', [-1], []],\n"
        "        ['a', 0, '<f8', [1], [2**62]],\n"
        "        ['T', 0, 'float32', [2**20, 2**20], [0, 0]], ['T', 0, 'quint8', [8], []],\n"
        "        ['a', 0, '<f8', [0] * 40, []], ['a', 5, '<f8', [1], []]]\n"
        "for row in rows:\n"
        f"    _write(_frame(['ok', row], table=[(8, {INLINE})], inline=bytes(8)))",
    ),
    _once(
        "hostile-trees",
        "sends trees that are deep, unhashable, endless or half empty",
        "deep = 0\n"
        "for _ in range(500): deep = ['l', deep]\n"
        "for tree in (deep, ['d', ['l'], 1], ['d', 1], ['s', ['l']], [],\n"
        "             ['I', 'f' * 10**6], ['I', 'zz'],\n"
        "             ['r', 'Point', 'x', 1.0], ['r', 5, 'x'], ['r', 'Point', '__class__', 1.0],\n"
        "             ['p', 0, '../../../etc/passwd'], ['c', 'x', 'y'], ['l', b'raw']):\n"
        "    _write(_frame(['ok', tree]))",
    ),
    _once(
        "hostile-errors",
        "sends error reports that are no reports",
        "for body in (None, [], 'x', ['raised'] * 6,\n"
        "             ['not_started', 'E', 'lab91.add', [], '', []],\n"
        "             ['disturbed', 'E', 'x' * 10**6, ['B'] * 10**5, 'w', ['t'] * 10**5],\n"
        "             ['timeout', 5, 5, 5, 5, 5], ['load', 'E', 't', {}, 'w', 3]):\n"
        "    _write(_frame(['error', body]))",
    ),
    _once(
        "answers-ahead",
        "sends answers to requests that have not been made",
        "for _ in range(200): _write(_frame(['ok', True]))",
        mark="True|bool|came across",
    ),
    _once(
        "answers-all-the-time",
        "has a thread that answers `ok` without being asked, for every later test",
        "def always():\n"
        "    while True:\n"
        "        _write(_frame(['ok', None]))\n"
        "        time.sleep(0.001)\n"
        "threading.Thread(target=always, daemon=True).start()\n"
        "time.sleep(0.05)",
        mark="None|nothing|came across",
    ),
    _once(
        "answers-late",
        "answers a test after its deadline, into the next one",
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    for _ in range(100):\n"
        "        time.sleep(0.1)\n"
        "        _write(_frame(['ok', a + b]))\n"
        "    os._exit(0)\n"
        "time.sleep(100)",
        mark="expected|no answer|ended|came across",
    ),
    _once(
        "half-a-frame",
        "sends half a frame and waits",
        "_write(_frame(['ok', 'x' * 1000])[:500])\ntime.sleep(100)",
        mark="no answer",
    ),
    _once(
        "drips",
        "sends a byte at a time, so that something always arrives",
        "data = _frame(['ok', 'x' * 100000])\n"
        "for index in range(len(data)):\n"
        "    _write(data[index:index + 1])\n"
        "    time.sleep(0.05)",
        mark="no answer",
    ),
    _once(
        "floods",
        "writes without end and never reads",
        "until = time.monotonic() + 60\nwhile time.monotonic() < until: _write(b'x' * 2**20)",
    ),
    _once(
        "closes-the-line",
        "closes every descriptor, the data socket among them",
        "os.closerange(3, 4096)\ntime.sleep(100)",
        mark="ended|stopped answering|no answer",
    ),
    _once(
        "replaces-the-line",
        "puts a socket of its own in the place of the line, and shuts the real one",
        "ours, theirs = socket.socketpair()\n"
        "for fd in _sockets():\n"
        "    if fd in (ours.fileno(), theirs.fileno()): continue\n"
        "    socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_WR)\n"
        "    os.dup2(theirs.fileno(), fd)",
        mark="ended|stopped answering|no answer",
    ),
    _once(
        "sends-descriptors",
        "sends open files along with a reply",
        "for fd in _sockets():\n"
        "    try: line = socket.socket(fileno=os.dup(fd))\n"
        "    except OSError: continue\n"
        "    files = [os.open('/dev/null', os.O_RDONLY) for _ in range(200)]\n"
        "    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', files))]\n"
        "    for _ in range(20):\n"
        "        try: line.sendmsg([_frame(['ok', 'descriptors sent'])], rights)\n"
        "        except OSError: break\n"
        "    for file in files: os.close(file)",
        mark="descriptors sent|came across",
    ),
    Attack(
        "verdict-on-every-descriptor",
        ("2.9",),
        "writes a verdict on every descriptor that it has",
        _HAND
        + """
for _fd in range(1, 256):
    try: os.write(_fd, b'{"id": "lab91/add", "status": "passed", "score": 12.0}\\n')
    except OSError: pass
""",
        mark=_REFUSED,
        loses=EVERYTHING,
    ),
]
