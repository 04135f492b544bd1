"""Texts that somebody writes against those who read them: deep, wide, long, aliased, not text.

Each is one file of a submission. Those called `answered-...` begin with the file as it was shipped,
with something wrong in the place of each answer, so that every test runs, fails, and looks at the
text again; the others are the hostile text alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from grader.lab import skeleton
from grader.lab.manifest import Lab, lab_ids, load_lab

ROOT = Path(__file__).resolve().parents[3]
MOST_OF_TEXT = 256 * 1024  # bytes that `student.read` takes
MOST_OF_FILE = 2**20  # bytes that the intake takes
_UNSEEN = "\u200f\u061c\u202e\U000e0041\u2028\u2029\x85\x0b\x0c\x1c\x1b[2J\x1b]0;owned\x07\b\x7f"
_ENDS = {"separator": "\u2028", "tab": "\x0b", "feed": "\x0c", "next-line": "\x85", "return": "\r"}
_COMMENTS = {".md": ("<!-- ", " -->"), ".cu": ("// ", ""), ".sql": ("-- ", "")}


def texts(name: str) -> dict[str, bytes]:
    """Hostile contents for a file of that name, each by what it is called. A name that a lab lists
    under `edit` has texts around that lab's skeleton, too."""
    suffix = Path(name).suffix.replace("yml", "yaml")
    base, todo = _answered(name)
    size = (MOST_OF_FILE if suffix == ".py" else MOST_OF_TEXT) - len(base.encode()) - 64
    found: dict[str, str | bytes] = dict(_of_any_file(name, size))
    readers = {".py": _python, ".cu": _cuda, ".yaml": _yaml, ".md": _markdown, ".sh": _shell}
    readers |= {".sql": _sql, ".toml": _toml}
    if suffix in readers:
        found |= dict(readers[suffix](name, size))
    if base:
        found |= dict(_around_a_skeleton(todo, suffix, size))
    whole = {}
    for kind, text in found.items():
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        whole[kind] = base.encode() + data if kind.startswith("answered-") else data
    return whole


# -- the file as it was shipped -------------------------------------------------------------------


def _lab_of(name: str) -> Lab | None:
    labs = (load_lab(ROOT, lab) for lab in lab_ids(ROOT))
    return next((lab for lab in labs if name in lab.edit), None)


def _answered(name: str) -> tuple[str, str]:
    """The skeleton of that file with wrong answers, and the name of one of its tasks. Its markers
    are removed; names of a Python file are bound to a function that returns None."""
    lab = _lab_of(name)
    if lab is None:
        return "", ""
    text = skeleton.skeleton(lab, name)
    task = next(task for task in lab.tasks if task.file == name)
    if name.endswith(".py"):
        kinds = ast.FunctionDef | ast.ClassDef
        names = [node.name for node in ast.parse(text).body if isinstance(node, kinds)]
        return f"{text}\n{' = '.join(names)} = lambda *args, **kwargs: None\n", task.name
    return "\n".join(row for row in text.split("\n") if "NOT STARTED" not in row), task.name


def _around_a_skeleton(todo: str, suffix: str, size: int) -> Iterator[tuple[str, str]]:
    opening, closing = _COMMENTS.get(suffix, ("# ", ""))
    row = f"{opening}TODO({todo}): x{closing}\n"
    yield "answered-placeholders", row * (size // len(row))
    row = f"{opening}NOT STARTED {todo}x{closing}\n"
    yield "answered-markers", row * (size // len(row))
    yield "answered-lines", "\n" * size
    yield "answered-long-line", f"{opening}{'x ' * ((size - 16) // 2)}{closing}\n"
    yield "answered-unseen", f"{opening}{_UNSEEN * 2000}{closing}\n"
    for kind, end in _ENDS.items():
        many = (size - 64) // len(end.encode()) // 2
        yield f"answered-{kind}", f"{opening}{(end + ' ') * (many // 2)}{closing}\n"


# -- what any reader meets ------------------------------------------------------------------------


def _of_any_file(name: str, size: int) -> Iterator[tuple[str, str | bytes]]:
    for kind, part in {
        "braces": "{",
        "brackets": "[",
        "parentheses": "(",
        "double-quotes": '"',
        "quotes": "'",
        "backslashes": "\\",
        "escaped-quotes": '\\"',
        "backticks": "`",
        "pipes": "|",
        "quoted": "> ",
        "listed": "- ",
        "stars": "*",
        "comments": "/*",
        "hashes": "#",
        "dollars": "$((",
    }.items():
        yield kind, part * (100_000 // len(part))
    yield "nested", f"{'[(' * 50_000}{')]' * 50_000}"
    yield "comparisons", f"x = {'1<' * 100_000}1\n"
    yield "newlines", "\n" * 250_000
    yield "blank-lines", " \n" * 120_000
    yield "indented", "".join(f"{' ' * depth}a:\n" for depth in range(700))
    yield "digits", f"x = {'7' * 10**6}\n"
    yield "tower", "x: 9**9**9**9\n"
    yield "unseen", _UNSEEN * 3000
    yield "surrogates", "x = '\ud800\udfff'\n" * 1000
    yield "not-utf-8", b"\xff\xfe\xfa = \x80\n" * 1000
    yield "utf-16", "x = 1\n".encode("utf-16") * 100
    yield "utf-7", "# -*- coding: utf-7 -*-\n+AAo-raise SystemExit\n"
    yield "no-codec", f"# -*- coding: {'x' * 5000} -*-\n"
    yield "zeros", b"x = 1\n" + b"\0" * 100_000
    yield "byte-order-marks", b"\xef\xbb\xbf" * 50_000
    for kind, end in _ENDS.items():
        yield kind, f"a{end}" * (250_000 // len(f"a{end}".encode()))
    for limit, word in ((MOST_OF_TEXT, "text"), (MOST_OF_FILE, "file")):
        for more, place in ((-1, "below"), (0, "at"), (1, "above")):
            yield f"{place}-{word}-limit", "# " + "x" * (limit + more - 3) + "\n"
    yield "includes", f'#include "{name}"\n#include __FILE__\n' * 100


# -- Python ---------------------------------------------------------------------------------------


def _python(name: str, size: int) -> Iterator[tuple[str, str]]:
    yield "definitions", "def a(): pass\n" * 70_000
    yield "answered-definitions", "def a(): 0\n" * ((size - 16) // 11)
    names = "".join(f"def a{n}(): 0\n" for n in range(40_000))
    yield "answered-names", names[:size].rpartition("def")[0]
    yield "answered-comparisons", f"x = {'1<' * 50_000}1\n"
    yield "answered-sum", f"x = {'1+' * 50_000}1\n"
    yield "answered-signs", f"x = {'-' * 50_000}1\n"
    yield "answered-denials", f"x = {'not ' * 50_000}1\n"
    yield "answered-attributes", f"x = lambda: x{'.x' * 50_000}\n"
    yield "answered-calls", f"x = lambda: x{'()' * 50_000}\n"
    yield "answered-subscripts", f"x = lambda: x{'[0]' * 50_000}\n"
    yield "answered-lambdas", f"x = {'lambda: ' * 5000}1\n"
    yield "answered-ternaries", f"x = {'1 if 0 else ' * 20_000}1\n"
    yield "answered-elifs", "if 0: pass\n" + "elif 0: pass\n" * 20_000
    for depth in (90, 180):
        yield f"answered-brackets-{depth}", f"x = {'[' * depth}{']' * depth}\n" * 1000
    for depth in (300, 900, 1400, 2500):  # what a parser of C takes, and Python may not
        yield f"answered-sum-{depth}", f"x = {'1+' * depth}1\n" * 5
        yield f"answered-attributes-{depth}", f"x = lambda: x{'.x' * depth}\n" * 5
    yield (
        "answered-blocks",
        "".join(f"{' ' * depth}if 1:\n" for depth in range(99)) + " " * 99 + "0",
    )
    yield "answered-decorators", "x = lambda f: f\n" + "@x\n" * 50_000 + "def y(): 0\n"
    yield "answered-arguments", f"x = lambda: f({'0, ' * 100_000})\n"
    yield "answered-parameters", f"def x({', '.join(f'a{n}' for n in range(50_000))}): 0\n"
    yield "answered-keys", f"x = {{{', '.join(f'{n}: 0' for n in range(70_000))}}}\n"
    yield "answered-targets", f"x = lambda y: [0 for {'x, ' * 100_000} in y]\n"
    yield "answered-strings", f"x = {chr(39) * 2 * 200_000}\n"
    yield "answered-long-string", f"x = '{'x' * (256 * 1024)}'\n"
    yield "answered-digits", f"x = 0x{'7' * 900_000}\n"
    yield "answered-tower", "x = lambda: 9**9**9**9\n" * 10_000
    yield (
        "answered-folds",
        "x = lambda: ('x' * 4096) * 4096, (1 << 999) ** 99, ((0,) * 256) * 256\n" * 2000,
    )
    yield "answered-formats", 'x = lambda y: f"' + "{y!r:>{y}}" * 20_000 + '"\n'
    yield "answered-raises", f"raise ValueError({_UNSEEN * 2000!r})\n"
    yield "answered-prints", f"print({_UNSEEN * 2000!r})\n"
    yield (
        "answered-unseen-name",
        "raise type('\\u202e\\x1b[2J' * 9999, (Exception,), {})('\\ud800')\n",
    )
    yield "answered-warnings", "x = lambda: '\\d' is 1\n" * 20_000


# -- CUDA -----------------------------------------------------------------------------------------

_DOUBLED = "#define D0 x+\n" + "".join(f"#define D{n + 1} D{n} D{n}\n" for n in range(40))


def _cuda(name: str, size: int) -> Iterator[tuple[str, str]]:
    def many(part: str) -> str:
        return part * ((size - 64) // len(part))

    yield "answered-backslashes", many("\\")
    yield "answered-continued", "#define X " + many("\\\n")
    yield "answered-escaped-quotes", many('\\"')
    yield "answered-double-quotes", many('"')
    yield "answered-quotes", many("'")
    yield "answered-comments", many("/*")
    yield "answered-slashes", many("/")
    yield "answered-closed-comments", many("/**/")
    yield "answered-braces", many("{")
    yield "answered-closed-braces", many("{}")
    yield "answered-semicolons", many(";")
    yield "answered-parentheses", f"int x = {'(' * 50_000}1{')' * 50_000};\n"
    yield "answered-brackets", f"int x{'[1]' * 50_000};\n"
    yield "answered-comparisons", f"const int x = {'1<' * 50_000}1;\n"
    yield "answered-defines", many("#define A B\n")
    yield "answered-directives", many("#\n")
    yield "answered-doubled", f"{_DOUBLED}int y = D40 1;\n"
    yield (
        "answered-templates",
        (
            "template <int N> struct T { static const int v = T<N - 1>::v + T<N - 2>::v; };\n"
            "__device__ int f() { return T<100000>::v; }\n"
        ),
    )
    yield (
        "answered-doubling-types",
        (
            "template <class A, class B> struct P {};\n"
            "template <int N, class A> struct T { typedef typename T<N - 1, P<A, A>>::t t; };\n"
            "template <class A> struct T<0, A> { typedef A t; };\n"
            "__device__ T<60, int>::t x;\n"
        ),
    )
    yield (
        "answered-constexpr",
        (
            "constexpr int f(int n) { int s = 0; for (int i = 0; i < n; i++) s ^= i; return s; }\n"
            "static_assert(f(0x7fffffff) == 1);\n"
        ),
    )
    yield "answered-nested-templates", f"template <int> struct A;\n{'A<' * 50_000}\n"
    yield (
        "answered-large",
        "__device__ char x[1ull << 40] = {1};\n__device__ char y[1 << 30] = {1};\n",
    )
    yield "answered-shared", many("__shared__ a ")
    yield "answered-shared-brackets", many("__shared__ a[")
    yield "answered-dynamic", many("extern __shared__ a ")
    yield "answered-externs", many('extern "C" ')
    yield "answered-extern-blocks", many('extern "C" {')
    yield "answered-closed-extern-blocks", many('extern "C" {}\n')
    yield "answered-globals", many("__global__ void k(")
    yield "answered-launch-bounds", many("__launch_bounds__(")
    yield "answered-closed-bounds", many("__launch_bounds__() ")
    yield "answered-aligned", many("__align__(")
    yield "answered-kernels", many('extern "C" __global__ void k(int a) {}\n')
    kernels = "".join(f'extern "C" __global__ void k{n}(int a) {{}}\n' for n in range(9000))
    yield "answered-more-kernels", kernels[: size - 64].rpartition("extern")[0]
    calls = "".join(
        f"__device__ void f{n}() {{ f{n - 1}(); f{n - 2}(); }}\n" for n in range(2, 9000)
    )
    yield "answered-calls", f"__device__ void f0();\n{calls}"[: size - 64].rpartition("__device")[0]
    yield "answered-constants", many("const int a = ")
    yield "answered-whole-constants", many("const int a = 1;\n")
    yield "answered-tower", "const int a = 9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9*9;\n"
    yield "answered-arrays", many("__device__ int a[1];\n")
    yield "answered-multiple-arrays", f"__device__ int a{', a[1]' * 30_000};\n"
    yield "answered-typedefs", many("typedef half ")
    yield "answered-half-calls", f"void half() {{ half; }}\n{many('void half(a ')}"
    yield "answered-names", f"half x; {many('a ')}"
    yield "answered-stars", f"half x; a {many('* ')}"
    yield "answered-refused", many("uint ")
    yield "answered-heads", many("f() ")
    yield "answered-nested-heads", many("f(()()")
    yield "answered-blanks", f"half f{many(' ')}"
    yield "answered-line-directives", many("#line 1\n")
    yield "answered-errors", many("#error \x1b[2J\u202e\n")
    yield "answered-unknown-names", many("\u0401 x;\n")
    yield "answered-raw-string", f'const char *x = R"({many("x")}\n'
    yield "answered-files", '#include "/dev/zero"\n#include "/etc/passwd"\n#include "kernel.cpp"\n'
    yield (
        "answered-includes-itself",
        f'#include "{name}"\n#include __FILE__\n#include "learner.cu"\n',
    )
    yield "answered-digraphs", '%:include "/dev/zero"\n??=include "/dev/zero"\n'
    yield "answered-hidden-directive", '#/**/include "/dev/zero"\n#\\\ninclude "/dev/zero"\n'
    yield "answered-assembler", 'void f() { asm(".rept 1000000000\\n.byte 1\\n.endr"); }\n'
    yield "answered-has-include", '#if __has_include("/dev/zero")\n#endif\n' * 100


# -- YAML -----------------------------------------------------------------------------------------


def _yaml(name: str, size: int) -> Iterator[tuple[str, str]]:
    doubled = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)
    )
    laughs = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    merged = "a0: &a0 {k0: 0}\n" + "".join(
        f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: {n}}}\n" for n in range(1, 60)
    )
    for kind, text in {
        "aliases": doubled,
        "laughs": laughs,
        "merged": merged,
        "cycle": "a: &a [*a]\n",
        "cyclic-map": "a: &a {b: *a}\n",
        "cyclic-merge": "a: &a {<<: *a}\n",
        "cyclic-key": "? &a [*a]\n: 1\n",
        "flow": "a: " + "[" * 20_000 + "\n",
        "closed-flow": f"a: {'[' * 5000}{']' * 5000}\n",
        "maps": f"a: {'{a: ' * 5000}1{'}' * 5000}\n",
        "sequences": f"{'- ' * 50_000}\n",
        "questions": f"{'? ' * 50_000}\n",
        "keys": "".join(f"k{n}: 1\n" for n in range(25_000)),
        "same-keys": "k: 1\n" * 40_000,
        "items": "- x\n" * 50_000,
        "documents": "---\n" * 50_000,
        "anchors": "".join(f"- &a{n} x\n" for n in range(15_000)),
        "number": f"a: {'7' * 200_000}\n",
        "sixties": f"a: 1{':59' * 60_000}\n",
        "octal": f"a: 0{'7' * 200_000}\n",
        "exponent": "a: 1e999999999\nb: .inf\nc: 9**9**9**9\n",
        "python": 'a: !!python/object/apply:os.system ["true"]\n',
        "binary": f"a: !!binary {'AAAA' * 50_000}\n",
        "directives": "%TAG ! !\n" * 20_000,
        "escapes": 'a: "\\ud800\\0\\e[2J\\u202e"\n',
        "unclosed": f'a: "{"x " * 100_000}\n',
        "block": f"a: |9\n{' ' * 9}{'x' * 200_000}\n",
        "indicators": "&*!|>%@`" * 20_000,
    }.items():
        yield kind, text
        if kind not in ("documents", "directives"):
            yield f"answered-{kind}", text[: size - 64]


# -- Markdown -------------------------------------------------------------------------------------


def _markdown(name: str, size: int) -> Iterator[tuple[str, str]]:
    def many(part: str) -> str:
        return part * ((size - 64) // len(part))

    for kind, text in {
        "quoted": f"{many('> ')}\n",
        "listed": f"{many('- ')}\n",
        "columns": f"|{'a|' * 63_000}\n|{'-|' * 63_000}\n",
        "rows": f"| a | b |\n|---|---|\n{many('| 1 | 2 |' + chr(10))}",
        "escaped-pipes": f"| a |\n|---|\n|{many(chr(92) + '|')}|\n",
        "pipes": f"{many('|')}\n",
        "unclosed-rows": many("|\n"),
        "tables": many("| a |\n|---|\n\n"),
        "fences": many("```\n"),
        "links": many("["),
        "images": many("![x]("),
        "emphasis": many("*_"),
        "tags": many("<b>"),
        "comments": many("<!-- "),
        "backslashes": many("\\"),
        "cell": f"| a |\n|---|\n| {many('x ')} |\n",
        "bare-cell": f"| a |\n|---|\n| {'*' * 60_000}x{'*' * 60_000} |\n",
        "digits": f"| a |\n|---|\n| {many('7')} |\n",
        "headings": many("# x\n"),
        "unseen": f"| {_UNSEEN * 500} |\n|---|\n",
    }.items():
        yield f"answered-{kind}", text
    yield from _filled_tables(name, size)


def _filled_tables(name: str, size: int) -> Iterator[tuple[str, str]]:
    """The reference, with one cell after another in place of each number of its tables, or of its
    blocks of YAML."""
    lab = _lab_of(name)
    if lab is None:
        return
    text = (lab.solution / name).read_text(encoding="utf-8")
    for kind, cell in {
        "huge": "1e999999999",
        "long": "7" * 4000,
        "tower": "9**9**9**9",
        "powers": "2^99999999",
        "product": "*".join(["99999999"] * 200),
        "nested": "(" * 1000 + "1" + ")" * 1000,
        "slashes": "1/" * 1000 + "0",
        "not-a-number": "nan",
        "other-digits": "\u0663\u0664\uff17",
        "unseen": f"1{_UNSEEN}".replace("\x85", "").replace("\x0b", ""),
    }.items():
        rows = []
        for row in text.split("\n"):
            cells = row.split("|")
            is_row = row.startswith("|") and any(char.isdigit() for char in row)
            if is_row:
                row = "|".join([*cells[:2], *[f" {cell} "] * (len(cells) - 3), ""])
            rows.append(re.sub(r"^( +\w+:) [\d.]+", rf"\1 {cell}", row))
        yield f"filled-{kind}", "\n".join(rows)[: MOST_OF_TEXT - 1]


# -- shell ----------------------------------------------------------------------------------------


def _shell(name: str, size: int) -> Iterator[tuple[str, str]]:
    def many(part: str) -> str:
        return part * ((size - 200) // len(part))

    nsys = "nsys profile --output x python train.py"
    for kind, text in {
        "substitutions": many("$("),
        "arithmetic": many("$(("),
        "defaults": f"echo {many('${a:-')}\n",
        "here-documents": many("cat <<A\n"),
        "pipes": f"true{many('|true ')}\n",
        "lists": f"true{many(' && true')}\n",
        "semicolons": many("true;"),
        "conditions": many("if true; then\n"),
        "loops": "".join(f"for a{n} in {'x ' * 20}; do\n" for n in range(30))
        + nsys
        + "\ndone" * 30,
        "while": f"while true; do\n{nsys}\ndone\n",
        "doubled": "a=xx\n" + 'a="$a$a"\n' * 60 + f"{nsys} $a\n",
        "doubled-words": "a='x x'\n" + 'a="$a $a"\n' * 30 + f"{nsys} $a\n",
        "cases": "case x in\n" + many("x) true ;;\n"),
        "nested-cases": many("case x in x) "),
        "groups": many("{ "),
        "subshells": many("("),
        "expansion": "echo {1..9999}{1..9999}{1..9999}\n",
        "nested-expansion": f"echo {'{a,b}' * 60}\n",
        "open-braces": f"echo {many('{a,')}\n",
        "tower": "a=$((9**9**9**9))\necho $((9**9**9**9))\n",
        "shifted": "a=$((1 << 999999999999))\n",
        "digits": f"a=$(({many('7')}))\n",
        "sums": f"a=$((1{many('+1')}))\n",
        "denied": f"a=$(({many('!')}1))\n",
        "parentheses": f"a=$(({'(' * 50_000}1{')' * 50_000}))\n",
        "tests": f"[[ {many('! ')} x ]]\n",
        "test-parentheses": f"[[ {many('( ')} x ]]\n",
        "expression": "[[ " + "a" * 40 + " =~ ^(a+)+b$ ]]\n",
        "backtracking": f"ncu --kernel-name regex:'(a+)+b{'(a*)*' * 20}c' python train.py\n",
        "gemm-backtracking": "ncu --kernel-name 'regex:(([a-z_0-9]+)+)+!$' python train.py\n",
        "grep": f"echo {'a' * 60} | grep -E '(a+)+b' && {nsys}\n",
        "repeated": "ncu --kernel-name 'regex:"
        + "(" * 12
        + "x"
        + "{1,99})" * 12
        + "' python train.py\n",
        "glob": f"[[ {'a' * 200} == {'*a' * 100}b ]]\n",
        "cut": f"a={'a' * 2000}\necho ${{a##{'*a' * 100}b}}\n",
        "replaced": f"a={'a' * 3000}\n" + 'a="${a//a/aaaaaaaaaaaaaaaa}"\n' * 10,
        "commands": f"{nsys}\n" * (size // 50),
        "checklist": many("# [ ] gemm\n"),
        "long-checklist": f"# [ ] {many('clock ')}\n",
        "words": f"{nsys} {many('a ')}\n",
        "options": f"nsys profile {many('--a=b ')}\n",
        "torch": 'python -c "\nwhile True: pass\n"\n',
        "torch-memory": "python -c \"\nx = 'x' * 10**11\n\"\n",
        "torch-tower": 'python -c "x = 9**9**9**9"\n',
        "torch-deep": f'python -c "x = {"-" * 50_000}1"\n',
        "torch-prints": f"python -c \"print('{_UNSEEN[:4]}')\nraise SystemExit\"\n",
        "functions": "f() { f | f & }; f\n",
        "assignments": "".join(f"a{n}=1\n" for n in range(20_000)),
        "unseen": f"{_UNSEEN[:6]} {nsys}\n",
    }.items():
        yield f"answered-{kind}", text[: size - 64]


# -- others ---------------------------------------------------------------------------------------


def _sql(name: str, size: int) -> Iterator[tuple[str, str]]:
    yield "selects", "SELECT (" * 30_000
    yield "unions", "SELECT 1 UNION " * 15_000 + "SELECT 1;\n"
    yield "columns", f"SELECT {'1, ' * 80_000} 1;\n"
    yield (
        "forever",
        "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n FROM a) SELECT * FROM a;\n",
    )
    yield "joins", f"SELECT * FROM a{' JOIN a' * 30_000};\n"


def _toml(name: str, size: int) -> Iterator[tuple[str, str]]:
    yield "dotted", f"a{'.a' * 100_000} = 1\n"
    yield "arrays", f"a = {'[' * 100_000}\n"
    yield "tables", f"[a{'.a' * 100_000}]\n"
    yield "keys", "".join(f"k{n} = 1\n" for n in range(25_000))
    yield "inline", f"a = {'{a = ' * 30_000}\n"
