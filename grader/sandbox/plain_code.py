"""Whether a file reaches other code only by names that it spells out.

Such a file cannot get at a function that has no plain name, nor make code at run time. Any other
one may be as right; it is only watched more closely (`library_use`), which takes longer.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LIBRARIES = frozenset({"numpy", "torch", "triton"})
_STANDARD = _words(
    "__future__ abc argparse array bisect collections contextlib copy dataclasses datetime decimal "
    "enum fractions functools hashlib heapq io itertools json math numbers os pathlib queue random "
    "re statistics string struct tempfile textwrap threading time typing warnings weakref "
    "zlib"
)
# Modules of which a file may use these parts alone, by the module's own name.
_PARTS = {
    "sys": _words("argv exit stdout stderr stdin maxsize float_info byteorder"),
    "multiprocessing": _words("get_context cpu_count"),
}
# Builtins that take a name as a value, or make code.
_REFLECTING_NAMES = _words("getattr vars globals locals dir eval exec compile breakpoint")
# Modules that do so, which other modules have among their names (`random._os`, `os.sys`); parts of
# frames and functions; and what of torch, NumPy and the standard library takes names or makes code.
_REFLECTING_ATTRIBUTES = _words(
    "sys builtins importlib imp inspect gc types operator ctypes ctypeslib marshal pickle shelve "
    "copyreg runpy codeop dis pkgutil zipimport unittest pdb bdb doctest timeit cProfile pydoc "
    "multiprocessing subprocess concurrent asyncio site atexit signal mock cffi "
    "f_globals f_locals f_builtins f_back f_code gi_frame gi_code cr_frame cr_code ag_frame "
    "ag_code tb_frame tb_next FunctionType CodeType LambdaType MethodType ModuleType attrgetter "
    "methodcaller Formatter ForwardRef get_type_hints _evaluate _C _VF _VariableFunctions "
    "package hub f2py cpp_extension load_inline fx _dynamo _inductor export reduction "
    "send_bytes _tensor_to_object"
)
_PLAIN_DUNDERS = _words(
    "__name__ __doc__ __file__ __all__ __version__ __author__ __init__ __post_init__ __call__ "
    "__enter__ __exit__ __len__ __iter__ __next__ __getitem__ __setitem__ __contains__ __repr__ "
    "__str__ __eq__ __hash__ __lt__ __torch_dispatch__ __torch_function__ __future__ __new__ "
    "__class__ __slots__ __annotations__ __debug__"
)
# Whoever turns these on has a file make objects by name.
_UNPICKLING = {"weights_only": True, "allow_pickle": False}
_UNPICKLING_VARIABLE = "TORCH_FORCE"


def is_plain(source: bytes, own: Container[str], roots: Container[str]) -> bool:
    """Whether a Python file is plain. `own`: modules that lie beside it; `roots`: packages of which
    it may import anything. A file that cannot be read is not plain."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    parts = [node for node in ast.walk(tree) if _is_known_part(node)]
    allowed = {id(node.value) for node in parts if isinstance(node, ast.Attribute)}
    rest = (node for node in ast.walk(tree) if id(node) not in allowed)
    return not any(_is_more(node, own, roots) for node in rest)


def _is_known_part(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=module), attr=part):
            return part in _PARTS.get(module, ())
    return False


def names_of(source: bytes) -> Iterator[str]:
    """Every name and attribute of a plain file, some more than once."""
    for node in ast.walk(ast.parse(source)):
        yield from _attributes(node)
        if isinstance(node, ast.Name):
            yield node.id


def _is_more(node: ast.AST, own: Container[str], roots: Container[str]) -> bool:
    """Whether a piece of source is none of a plain file."""
    match node:
        case ast.Import():
            return not all(
                _may_import(alias.name, own, roots) or (alias.name in _PARTS and not alias.asname)
                for alias in node.names
            )
        case ast.ImportFrom() if node.level or not _may_import(node.module or "", own, roots):
            return True
        case ast.Call(func=ast.Name(id="type")):
            return len(node.args) != 1 or bool(node.keywords)
        case ast.Name():
            return node.id in _REFLECTING_NAMES or node.id in _PARTS or _is_special(node.id)
        case ast.keyword() if node.arg in _UNPICKLING:
            safe = _UNPICKLING[node.arg]
            return not (isinstance(node.value, ast.Constant) and node.value.value is safe)
        case ast.Constant(value=str()):
            text = str(node.value)
            return text in _UNPICKLING or text.startswith(_UNPICKLING_VARIABLE)
    return any(_is_hidden(name) for name in _attributes(node))


def _attributes(node: ast.AST) -> list[str]:
    """The names that a piece of source takes from an object."""
    match node:
        case ast.Attribute():
            return [node.attr]
        case ast.ImportFrom():
            return [alias.name for alias in node.names]
        case ast.MatchClass():
            return list(node.kwd_attrs)
    return []


def _may_import(module: str, own: Container[str], roots: Container[str]) -> bool:
    root, *rest = module.split(".")
    known = root in _STANDARD or root in _LIBRARIES or root in roots or root in own
    return known and not any(map(_is_hidden, rest))


def _is_hidden(name: str) -> bool:
    bare = {name, name.lstrip("_")}
    return name == "*" or _is_special(name) or not _REFLECTING_ATTRIBUTES.isdisjoint(bare)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in _PLAIN_DUNDERS
