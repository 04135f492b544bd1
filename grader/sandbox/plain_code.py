"""Whether a file reaches other code only by names that it spells out.

Such a file cannot get at a function that has no plain name, nor make code at run time. Any other
one may be as right; it is only watched more closely (`library_use`), which takes longer. So what is
not known to be plain is not plain.
"""

from __future__ import annotations

import ast
import string
from collections.abc import Container, Iterator


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALL = frozenset[str]()
# Of the standard library, and of private modules of torch: what a file may use, by the module.
# What is left out takes a name as a value, evaluates text, or hands out modules.
_PARTS = {
    "__future__": _ALL,
    "abc": _words("ABC abstractmethod"),
    "argparse": _words("ArgumentParser Namespace"),
    "array": _words("array"),
    "bisect": _ALL,
    "collections": _words("deque defaultdict Counter OrderedDict namedtuple abc"),
    "collections.abc": _ALL,
    "contextlib": _words("contextmanager nullcontext suppress ExitStack closing"),
    "copy": _words("copy deepcopy"),
    "dataclasses": _words("dataclass field fields replace asdict"),
    "datetime": _ALL,
    "decimal": _words("Decimal"),
    "enum": _words("Enum IntEnum auto"),
    "fractions": _words("Fraction"),
    "functools": _words("partial lru_cache cache cached_property reduce total_ordering cmp_to_key"),
    "hashlib": _ALL,
    "heapq": _ALL,
    "io": _words("BytesIO StringIO"),
    "itertools": _ALL,
    "json": _words("dumps loads dump load"),
    "math": _ALL,
    "multiprocessing": _words("get_context cpu_count"),
    "numbers": _ALL,
    "os": _words("path environ getenv getpid cpu_count sep linesep"),
    "os.path": _words("join exists isfile isdir basename dirname abspath splitext getsize"),
    "pathlib": _words("Path PurePath"),
    "queue": _words("Queue SimpleQueue Empty Full"),
    "random": _words(
        "Random random randint randrange shuffle choice choices sample seed uniform gauss "
        "getstate setstate"
    ),
    "re": _words("compile match search sub split findall finditer fullmatch escape"),
    "statistics": _ALL,
    "struct": _ALL,
    "sys": _words("argv exit stdout stderr stdin maxsize float_info byteorder"),
    "tempfile": _words("TemporaryDirectory NamedTemporaryFile mkdtemp gettempdir"),
    "textwrap": _words("dedent fill indent"),
    "threading": _words("Thread Lock RLock Event Condition Semaphore local"),
    "time": _ALL,
    "typing": _words(
        "Any Callable Iterable Iterator Generator Sequence Mapping MutableMapping Optional Union "
        "List Dict Tuple Set Type NamedTuple TypeVar Generic Literal Final ClassVar Self cast "
        "overload TYPE_CHECKING Hashable Deque DefaultDict Protocol"
    ),
    "warnings": _words("warn filterwarnings"),
    "weakref": _words("ref WeakKeyDictionary WeakValueDictionary WeakSet proxy finalize"),
    "zlib": _ALL,
    "torch.utils._pytree": _words(
        "tree_map tree_map_only tree_flatten tree_unflatten tree_leaves tree_iter tree_all tree_any"
    ),
    "torch.utils._python_dispatch": _words("TorchDispatchMode"),
    "torch._utils": _words("_flatten_dense_tensors _unflatten_dense_tensors"),
    "torch.distributed._functional_collectives": _ALL,
}
_LIBRARIES = frozenset({"numpy", "torch", "triton"})
# Builtins that take a name as a value, or make code.
_REFLECTING_NAMES = _words(
    "getattr setattr delattr vars globals locals dir eval exec compile breakpoint"
)
# Attributes that lead to modules, code, frames or functions in C, or that take names or bytes of
# which objects are made: of torch, of NumPy, of the standard library.
_REFLECTING_ATTRIBUTES = _words(
    "sys builtins bltns importlib inspect gc types operator ctypes ctypeslib marshal pickle shelve "
    "copyreg runpy codeop dis pkgutil unittest pdb bdb doctest timeit cProfile pydoc "
    "multiprocessing subprocess concurrent asyncio signal reduction reducer send_bytes recv_bytes "
    "Pipe Connection "
    "f_globals f_locals f_builtins f_back f_code gi_frame gi_code gi_yieldfrom cr_frame cr_code "
    "ag_frame ag_code tb_frame tb_next settrace setprofile "
    "_C _VF _VariableFunctions _dynamo _inductor _load_from_bytes _unpickler _tensor_to_object "
    "_eval_type _evaluate _create_fn _convert_ _stream _old_targets "
    "testing overrides benchmark package hub f2py cpp_extension load_inline fx export library "
    "TorchFunctionMode BaseTorchFunctionMode get_overridable_functions get_testing_overrides "
    "get_ignored_functions CompilationUnit annotations frontend parse_type_line runstring "
    "GetAttrKey format_map update_wrapper singledispatch"
)
# Of private attributes a file may use those that it defines, and these.
_PRIVATE = _words(
    "_parameters _buffers _modules _grad _version _cdata _base _replace _fields _asdict "
    "_execution_engine _amp_foreach_non_finite_check_and_unscale_ _foreach_add_ _foreach_mul_ "
    "_foreach_norm _foreach_sqrt _foreach_div_ _foreach_addcdiv_ _foreach_addcmul_ "
    "_foreach_lerp_ _foreach_zero_ _foreach_copy_ _foreach_mul _foreach_add _foreach_div"
)
_PLAIN_DUNDERS = _words(
    "__name__ __doc__ __file__ __all__ __version__ __author__ __init__ __post_init__ __call__ "
    "__enter__ __exit__ __len__ __iter__ __next__ __getitem__ __setitem__ __contains__ __repr__ "
    "__str__ __eq__ __hash__ __lt__ __torch_dispatch__ __future__ __slots__ __debug__ __add__ "
    "__sub__ __mul__ __del__ __bool__ __int__ __float__"
)
# Whoever gives one of these has a file make objects by name, or an object looked into by name.
_KEYWORDS = {"weights_only": True, "allow_pickle": False}
_NAMESPACE = "namespace"
_UNPICKLING_VARIABLE = "TORCH_FORCE"


def is_plain(source: bytes, own: Container[str], roots: Container[str]) -> bool:
    """Whether a Python file is plain. `own`: modules that lie beside it; `roots`: packages of which
    it may import anything. A file that cannot be read is not plain."""
    try:
        tree = ast.parse(source)
        return _Reader(tree, own, roots).is_plain()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def names_of(source: bytes) -> Iterator[str]:
    """Every name and attribute of a plain file, some more than once."""
    for node in ast.walk(ast.parse(source)):
        yield from _attributes(node)
        if isinstance(node, ast.Name):
            yield node.id


class _Reader:
    """Reads one file. `modules`: what its names for modules of `_PARTS` stand for."""

    def __init__(self, tree: ast.Module, own: Container[str], roots: Container[str]) -> None:
        self.nodes = list(ast.walk(tree))
        self.own = own
        self.roots = roots
        self.modules: dict[str, str] = {}
        self.defined = {name for node in self.nodes for name in _defined(node)}

    def is_plain(self) -> bool:
        imports = [node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        if not all(map(self._is_plain_import, imports)):
            return False
        parts = {id(node.value): node for node in self.nodes if isinstance(node, ast.Attribute)}
        for node in self.nodes:
            if isinstance(node, ast.Name) and (module := self.modules.get(node.id)):
                part = parts.get(id(node))
                if part is None or not _is_part(module, part.attr):
                    return False
        return not any(map(self._is_more, self.nodes))

    def _is_plain_import(self, node: ast.Import | ast.ImportFrom) -> bool:
        if isinstance(node, ast.ImportFrom):
            if node.level or not self._may_import(node.module or ""):
                return False
            names = [alias.name for alias in node.names]
            if node.module in _PARTS:
                return all(_is_part(node.module, name) for name in names)
            return not any(map(self._is_hidden, names))
        for alias in node.names:
            if not self._may_import(alias.name):
                return False
            module = alias.name if alias.asname else alias.name.partition(".")[0]
            if module in _PARTS:
                self.modules[alias.asname or module] = module
        return True

    def _may_import(self, module: str) -> bool:
        if module in _PARTS or module in self.own:
            return True
        root, *rest = module.split(".")
        return (root in _LIBRARIES or root in self.roots) and not any(map(self._is_hidden, rest))

    def _is_more(self, node: ast.AST) -> bool:
        """Whether a piece of source, imports apart, is none of a plain file."""
        match node:
            case ast.Call():
                return _is_reflecting_call(node)
            case ast.Name():
                return node.id in _REFLECTING_NAMES or _is_special(node.id)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return _is_special(node.name)
            case ast.ClassDef():
                return bool(node.keywords)
            case ast.keyword() if node.arg in _KEYWORDS:
                safe = _KEYWORDS[node.arg]
                return not (isinstance(node.value, ast.Constant) and node.value.value is safe)
            case ast.keyword():
                return node.arg == _NAMESPACE
            case ast.Constant(value=str()):
                text = str(node.value)
                return text in _KEYWORDS or text.startswith(_UNPICKLING_VARIABLE)
            case ast.MatchClass():
                return any(map(self._is_hidden, node.kwd_attrs))
            case ast.Attribute(value=ast.Name(id="torch"), attr="jit"):
                return True
            case ast.Attribute(attr="format"):
                return not _is_plain_template(node.value)
            case ast.Attribute():
                return self._is_hidden(node.attr)
        return False

    def _is_hidden(self, name: str) -> bool:
        if name == "*" or _is_special(name) or name in _REFLECTING_ATTRIBUTES:
            return True
        if name.startswith("_") and name.lstrip("_") in _REFLECTING_ATTRIBUTES:
            return True  # `random._os`
        private = name.startswith("_") and not name.endswith("__")
        return private and name not in _PRIVATE and name not in self.defined


def _is_part(module: str, name: str) -> bool:
    parts = _PARTS[module]
    return name in parts if parts else not name.startswith("_") and name != "*"


def _is_reflecting_call(node: ast.Call) -> bool:
    match node.func:
        case ast.Name(id="type"):
            return len(node.args) != 1 or bool(node.keywords)
        case ast.Attribute(attr="load"):
            return len(node.args) > 1 or any(keyword.arg is None for keyword in node.keywords)
        case ast.Attribute(attr="parse_args" | "parse_known_args"):
            return len(node.args) > 1 or any(keyword.arg is None for keyword in node.keywords)
    return False


def _is_plain_template(node: ast.expr) -> bool:
    """A text whose fields look into nothing."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    fields = [row[1] for row in string.Formatter().parse(node.value) if row[1] is not None]
    specs = [row[2] or "" for row in string.Formatter().parse(node.value)]
    return not any(set(".[") & set(field) for field in fields) and "{" not in "".join(specs)


def _defined(node: ast.AST) -> list[str]:
    """Names that a piece of source defines, and attributes that it sets."""
    match node:
        case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Attribute(ctx=ast.Store()):
            return [node.attr]
        case ast.Name(ctx=ast.Store()):
            return [node.id]
    return []


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


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in _PLAIN_DUNDERS
