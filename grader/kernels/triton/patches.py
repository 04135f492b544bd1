"""All uses of Triton's private parts by the guard; only `memo` uses them too.

Written against Triton 3.7. Importing this imports Triton, which then reads `TRITON_INTERPRET`.
"""

from __future__ import annotations

import inspect
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import autotuner, interpreter, jit

from grader.kernels.cuda.launch import MAX_GRID  # Triton hands its grid on to CUDA
from grader.kernels.findings import AccessKind, Size
from grader.kernels.report import Report
from grader.kernels.sentences import FindingKind
from grader.kernels.triton import memo
from grader.kernels.triton.arguments import Memory, TensorArgument
from grader.kernels.triton.guard import KernelFault, Launch
from grader.kernels.triton.ledger import Ledger, Region
from grader.meters.evidence import IdentitySnapshot, SignedLog

VERSION = str(triton.__version__)
BUILDER = interpreter.interpreter_builder
# The smallest K of a tl.dot that NVIDIA's backend compiles, by bits of an operand.
SMALLEST_K = {8: 32, 16: 16, 32: 16, 64: 16}
_HERE = Path(__file__).parent
_FOREIGN = (
    str(Path(triton.__file__).parent),
    *(str(_HERE / f"{name}.py") for name in ("patches", "memo", "watch", "guard")),
)
_ABSENT = object()
# Types that the interpreter holds as bit patterns, by name: comparing types is slow.
_EIGHT = frozenset(
    kind.name
    for kind in (tl.float8e5, tl.float8e5b16, tl.float8e4nv, tl.float8e4b8, tl.float8e4b15)
)
_BITS = _EIGHT | {tl.bfloat16.name}
_ACQUIRES = (ir.MEM_SEMANTIC.ACQUIRE, ir.MEM_SEMANTIC.ACQUIRE_RELEASE)
_RELEASES = (ir.MEM_SEMANTIC.RELEASE, ir.MEM_SEMANTIC.ACQUIRE_RELEASE)

# What the guard relies on: it must stay what it was when this was imported.
WATCH = IdentitySnapshot(
    [
        interpreter,
        interpreter.InterpreterBuilder,
        interpreter.GridExecutor,
        interpreter.InterpretedFunction,
        interpreter.TensorHandle,
        interpreter.BlockPointerHandle,
        interpreter.TensorDescHandle,
        interpreter.ReduceScanOpInterface,
        autotuner.Autotuner,
        jit.JITFunction,
        jit.KernelInterface,
    ],
    [(interpreter, "interpreter_builder"), (interpreter, "_interpreter")],
)


def interprets() -> bool:
    """Whether kernels defined now would be interpreted."""
    return bool(triton.knobs.runtime.interpret)


class Hooks:
    """The hooks that one `watched` puts into Triton and removes again."""

    def __init__(self, seed: int, trace: bool) -> None:
        self.seed = seed
        self.trace = trace
        self.thread = threading.get_ident()
        self.launches: list[Launch] = []
        self.journal = SignedLog()  # the kernels of the launches
        self.ledger = Ledger()
        self.compiled: list[Report] = []
        self.now: Launch | None = None
        self.scopes: list[Any] = []
        self.patched: set[Any] = set()  # functions, and the modules that they know the language by
        # By the identity of a code object, whose hash is slow.
        self.lines: dict[tuple[int, int], int] = {}
        self.foreign: dict[int, bool] = {}
        self.codes: list[CodeType] = []
        self.caller: FrameType | None = None
        self.changed: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        self.changed.append((owner, name, vars(owner).get(name, _ABSENT), value))
        setattr(owner, name, value)

    @contextmanager
    def installed(self) -> Iterator[None]:
        try:
            self._install()
            yield
        finally:
            while self.changed:
                owner, name, before, _ = self.changed.pop()
                if before is not _ABSENT:
                    setattr(owner, name, before)
                elif name in vars(owner):
                    delattr(owner, name)

    def problems(self) -> list[str]:
        """One clause for each hook that was replaced."""
        return [
            f"the interpreter's {name} was replaced"
            for owner, name, _, value in self.changed
            if vars(owner).get(name) is not value
        ]

    def _install(self) -> None:
        for name, made in {**_carriers(), **self._accesses(), **self._refusals()}.items():
            self.set(BUILDER, name, made)
        for handle in (interpreter.BlockPointerHandle, interpreter.TensorDescHandle):
            self.set(handle, "materialize_pointers", _materialized(handle.materialize_pointers))
        quicker = memo.REPLACEMENTS if interprets() else ()
        for owner, name, made in (*self._entries(), *quicker):
            self.set(owner, name, made)
        if not BUILDER.options.debug:
            # Its checks for overflow end in an assertion that does nothing without `debug`.
            name = "binary_op_sanitize_overflow_impl"
            getattr(interpreter.interpreter_semantic, name)
            self.set(interpreter.interpreter_semantic, name, lambda *operands: None)

    # -- the ways into a kernel

    def _entries(self) -> list[tuple[Any, str, Any]]:
        hooks = self
        check = interpreter.ReduceScanOpInterface.check_tensor
        compiled = jit.JITFunction.run

        def launch(executor: Any, *args: Any, **kwargs: Any) -> None:
            hooks.launch(executor, args, kwargs)

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            if hooks.now is None:
                raise hooks.refuse(function.__name__, FindingKind.NO_GRID)
            hooks.patch(function.fn)
            return function.rewrite()(*args, **kwargs)

        def check_tensor(operation: Any, inputs: Any) -> None:
            check(operation, inputs)
            for one in inputs:
                hooks.refuse_bits(one.handle, "reduces")

        def bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
            return [1.0, 1.0, 1.0]  # nothing to time here: the first configuration wins

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            sizes: list[Any] = [grid]

            def counted(meta: Any) -> Any:
                sizes.append(grid(meta))
                return sizes[-1]

            given = counted if callable(grid) else grid
            try:
                result = compiled(kernel, *args, grid=given, warmup=warmup, **kwargs)
            except RuntimeError as error:
                if "active drivers" not in str(error):
                    raise
                raise RuntimeError(
                    f"{kernel.__name__} was defined to be compiled, and there is no GPU here: set "
                    "TRITON_INTERPRET=1 before Triton is imported"
                ) from error
            if not warmup:
                size = _three(sizes[-1])
                hooks.compiled.append(Report(kernel.__name__, size, (1, 1, 1), kind="triton"))
            return result

        return [
            (interpreter.GridExecutor, "__call__", launch),
            (interpreter.InterpretedFunction, "__call__", call),
            (interpreter.ReduceScanOpInterface, "check_tensor", check_tensor),
            (autotuner.Autotuner, "_bench", bench),
            (jit.JITFunction, "run", run),
        ]

    def refuse(self, kernel: str, kind: FindingKind, **details: str) -> KernelFault:
        """The exception for a launch that must not begin."""
        return self._noted(Launch(kernel, (0, 0, 0))).stop(kind, kernel=kernel, **details)

    def _noted(self, launch: Launch) -> Launch:
        self.launches.append(launch)
        self.journal.append(launch.kernel)
        return launch

    def patch(self, function: Any) -> None:
        """Make Triton's language work on NumPy arrays in that function's module, once a launch."""
        if function in self.patched:
            return
        self.patched.add(function)
        known_by = {one for one in function.__globals__.values() if one is tl or one is tl.core}
        if not known_by or not known_by <= self.patched:
            self.patched |= known_by
            scope = interpreter._patch_lang(function)
            self.scopes.append(scope)
            scope.set_attr(tl.tensor, "__bool__", lambda tensor: self._truth(tensor))
            scope.set_attr(tl.tensor, "T", property(_transposed))
        if "libdevice" in function.__code__.co_names:
            self._refuse_libraries(self.scopes[-1])

    def _refuse_libraries(self, scope: Any) -> None:
        """Make the functions of GPU libraries refuse, by name."""
        for name in ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice"):
            module = sys.modules.get(name)
            for key, value in list(vars(module).items()) if module else ():
                if inspect.isfunction(value) and not key.startswith("_"):
                    scope.set_attr(module, key, self._refusing(*_LIBRARY))

    @contextmanager
    def _language(self, function: Any) -> Iterator[None]:
        try:
            self.patch(function)
            yield
        finally:
            while self.scopes:
                self.scopes.pop().restore()
            self.patched.clear()

    def launch(self, executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() != self.thread:
            raise RuntimeError("another thread launches a kernel while launches are watched")
        kernel = executor.fn.__name__
        if self.now is not None:
            raise RuntimeError(f"{kernel} is launched from inside of a kernel")
        names = inspect.getfullargspec(executor.fn).args
        options = {name: value for name, value in kwargs.items() if name not in names}
        kwargs = {name: value for name, value in kwargs.items() if name in names}
        here = all(_is_here(value) for value in (*args, *kwargs.values()))
        there, more = (args, kwargs) if here else executor._init_args_hst(args, kwargs)
        for hook in executor.pre_run_hooks:
            hook(*there, **more)
        given = inspect.getcallargs(executor.fn, *there, **more)
        for name, value in given.items():
            if isinstance(value, np.ndarray):
                raise self.refuse(kernel, FindingKind.NUMPY_ARGUMENT, argument=name)
        with self._language(executor.fn):
            areas: list[tuple[TensorArgument, Region | None]] = []
            memories: dict[int, Memory] = {}
            inside = {}
            for name, value in given.items():
                self.ledger.given(kernel, name, value)
                if name in executor.constexprs:
                    inside[name] = value
                else:
                    inside[name] = interpreter._implicit_cvt(value)
                    self._mark(name, value, inside[name], areas, memories)
            grid = executor.grid(given) if callable(executor.grid) else executor.grid
            if grid is None:
                raise self.refuse(kernel, FindingKind.NO_GRID)
            size = _three(grid)
            for axis, most in enumerate(MAX_GRID):
                if size[axis] > most:
                    # as CUDA refuses it ("invalid argument"), but with a reason
                    sizes = f"{size[axis]:,} programs along axis {axis}"
                    raise self.refuse(kernel, FindingKind.GRID_SIZE, sizes=sizes, most=f"{most:,}")
            self.ledger.given(kernel, "grid", size)
            every = [area for area, _ in areas]
            launch = self._noted(Launch(kernel, size, every, self.trace, options))
            try:
                self._run(executor.fn, inside, launch)
            finally:
                self.ledger.leave(kernel, areas)
        if not here:
            executor._restore_args_dev(args, there, kwargs, more)

    def _mark(
        self,
        name: str,
        value: Any,
        converted: Any,
        areas: list[tuple[TensorArgument, Region | None]],
        memories: dict[int, Memory],
    ) -> None:
        """Make an argument's pointer remember the argument, and point to the guard's copy of it."""
        if isinstance(value, tuple):
            for index, (one, made) in enumerate(zip(value, converted, strict=True)):
                self._mark(f"{name}[{index}]", one, made, areas, memories)
            return
        if isinstance(value, interpreter.TensorDescriptor):
            value, handle = value.base, converted.handle.base
        elif hasattr(value, "data_ptr"):
            handle = converted.handle
        else:
            return
        tensor = interpreter._unwrap_tensor(value)
        storage = tensor.untyped_storage()
        region, moved = self.ledger.enter(tensor)
        first, at = storage.data_ptr() + moved, tensor.data_ptr() + moved
        memory = memories.setdefault(first, Memory(first, max(1, storage.nbytes())))
        size, shape, strides = tensor.element_size(), tuple(tensor.shape), tuple(tensor.stride())
        handle.data = np.array([at], np.uint64)
        handle.origin = TensorArgument(name, at, size, shape, strides, memory)
        areas.append((handle.origin, region))

    def _run(self, function: Any, inside: dict[str, Any], launch: Launch) -> None:
        x, y, z = launch.grid
        order = list(range(x * y * z))
        if self.seed:
            random.Random(self.seed).shuffle(order)
        BUILDER.set_grid_dim(x, y, z)
        self.now = launch
        try:
            with np.errstate(all="ignore"):  # a GPU does not warn about infinities
                for number in order:
                    BUILDER.set_grid_idx(number % x, number // x % y, number // (x * y))
                    launch.begin(number)
                    function(**inside)
        finally:
            self.now = self.caller = None
            BUILDER.grid_idx = None

    # -- accesses and products

    def line(self) -> int:
        """The line of the learner's code that is executed."""
        frame = sys._getframe(2)
        known = self.foreign
        while frame is not None:
            code = frame.f_code
            foreign = known.get(id(code))
            if not (self._is_foreign(code) if foreign is None else foreign):
                key = (id(code), frame.f_lasti)
                line = self.lines.get(key)
                if line is None:
                    line = self.lines[key] = frame.f_lineno
                return line
            frame = frame.f_back  # type: ignore[assignment]
        return 0

    def _is_foreign(self, code: CodeType) -> bool:
        found = self.foreign.get(id(code))
        if found is None:
            self.codes.append(code)  # keeps the identity
            found = self.foreign[id(code)] = code.co_filename.startswith(_FOREIGN)
        return found

    def _accesses(self) -> dict[str, Callable[..., Any]]:
        load, store = BUILDER.create_masked_load, BUILDER.create_masked_store
        rmw, cas, dot = BUILDER.create_atomic_rmw, BUILDER.create_atomic_cas, BUILDER.create_dot

        def see(
            kind: AccessKind, pointers: Any, mask: Any, values: Any = None, again: bool = False
        ) -> None:
            launch = self.now
            if launch is None:
                return
            bits = mask if mask is None or isinstance(mask, np.ndarray) else mask.data
            size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
            origin = getattr(pointers, "origin", None)
            launch.access(kind, pointers.data, bits, size, self.line(), origin, values, again)

        def ordered(pointers: Any, mask: Any, how: Any, scope: Any) -> None:
            """Note that an atomic on one element, such as a lock or a counter, orders programs."""
            on = mask is None or bool(mask.data.all())
            wide = scope != ir.MEM_SYNC_SCOPE.CTA
            if self.now is not None and pointers.data.size == 1 and on and wide:
                address = int(pointers.data.item())
                self.now.synchronize(address, how in _ACQUIRES, how in _RELEASES)

        def create_masked_load(
            pointers: Any, mask: Any, other: Any, *rest: Any, **more: Any
        ) -> Any:
            see("read", pointers, mask)
            bits = mask if isinstance(mask, np.ndarray) else mask.data
            if other is None and not bits.all():
                # Of one element, Triton asks `if other`: a 0 that was given does not arrive here.
                given = sys._getframe(1).f_locals.get("other")
                other = _undefined(pointers) if given is None else given.handle
            return load(pointers, mask, other, *rest, **more)

        def create_masked_store(pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
            see("write", pointers, mask, value.data)
            return store(pointers, value, mask, *rest)

        def create_atomic_rmw(
            operation: Any, pointers: Any, value: Any, mask: Any, how: Any, scope: Any
        ) -> Any:
            if operation not in (ir.ATOMIC_OP.XCHG,):
                self.refuse_bits(value, "does an atomic")
            # Triton does an atomic max of floats in two steps: positive lanes, then negative.
            caller = sys._getframe(1)
            see("atomic", pointers, mask, again=caller is self.caller)
            self.caller = caller
            result = rmw(operation, pointers, value, mask, how, scope)
            ordered(pointers, mask, how, scope)
            return result

        def create_atomic_cas(pointers: Any, old: Any, new: Any, how: Any, scope: Any) -> Any:
            see("atomic", pointers, None)
            result = cas(pointers, old, new, how, scope)
            ordered(pointers, None, how, scope)
            return result

        def create_dot(a: Any, b: Any, *rest: Any) -> Any:
            if self.now is not None:
                if a.dtype.scalar == tl.bfloat16 or b.dtype.scalar == tl.bfloat16:
                    raise self.now.stop(FindingKind.BF16_DOT, self.line())
                (m, k), n = a.data.shape[-2:], b.data.shape[-1]
                least = SMALLEST_K.get(a.dtype.scalar.primitive_bitwidth, 16)
                if k < least:
                    sizes = {"m": m, "k": k, "n": n, "least": least}
                    raise self.now.stop(FindingKind.SMALL_DOT, self.line(), **sizes)
                self.now.multiply(2 * a.data.size * n)
            return dot(a, b, *rest)

        names = ("masked_load", "masked_store", "atomic_rmw", "atomic_cas", "dot")
        made = locals()
        return {f"create_{name}": made[f"create_{name}"] for name in names}

    # -- what the interpreter computes wrongly or not at all

    def refuse_bits(self, handle: Any, does: str) -> None:
        """Refuse to compute with numbers that the interpreter holds as bit patterns."""
        if handle.data.dtype.kind != "u" or self.now is None:
            return
        kind = handle.dtype.scalar
        if kind.name in _BITS:
            found = FindingKind.BF16 if kind == tl.bfloat16 else FindingKind.FP8
            raise self.now.stop(found, self.line(), computes=does, type=str(kind))

    def _truth(self, tensor: Any) -> bool:
        data = tensor.handle.data
        if data.size == 1:
            return bool(data)
        if self.now is None or self._is_foreign(sys._getframe(2).f_code):
            return True  # so Triton asks whether there is a tensor at all
        raise self.now.stop(FindingKind.CONDITION, self.line(), shape=data.shape)

    def _refusals(self) -> dict[str, Callable[..., Any]]:
        cast, binary, unary = BUILDER.cast_impl, BUILDER.binary_op, BUILDER.unary_op
        made: dict[str, Callable[..., Any]] = {}

        def binary_op(left: Any, right: Any, operation: Any) -> Any:
            if left.data.dtype.kind == "u":
                self.refuse_bits(left, "computes")
            if right.data.dtype.kind == "u":
                self.refuse_bits(right, "computes")
            return binary(left, right, operation)

        def unary_op(value: Any, operation: Any) -> Any:
            self.refuse_bits(value, "computes")
            return unary(value, operation)

        def cast_impl(value: Any, kind: Any) -> Any:
            source, target = value.dtype.scalar, kind.scalar
            if not (source.name in _BITS or target.name in _BITS) or source == target:
                return cast(value, kind)
            if source.name in _EIGHT:
                value = BUILDER.create_fp_to_fp(value, tl.float32, None)
            elif source != tl.float32:
                value = cast(value, tl.float32)
            if target == tl.bfloat16:
                return interpreter.TensorHandle(_bfloat16(value.data), target)
            if target.name in _EIGHT:
                return BUILDER.create_fp_to_fp(value, kind, ir.ROUNDING_MODE.RTNE)
            return cast(value, kind)

        def get_bf16(value: float) -> Any:
            data = _bfloat16(np.array([value], np.float32))
            return interpreter.TensorHandle(data, tl.bfloat16)

        def all_of(name: str) -> Callable[..., Any]:
            original = getattr(BUILDER, name)

            def checked(*handles: Any) -> Any:
                for handle in handles:
                    if isinstance(handle, interpreter.TensorHandle):
                        self.refuse_bits(handle, "computes")
                return original(*handles)

            return checked

        for name in ("fma", "erf", "rsqrt", "clampf"):
            made[f"create_{name}"] = all_of(f"create_{name}")
        for name, what, instead in _ONLY_ON_A_GPU:
            made[f"create_{name}"] = self._refusing(what, instead)
        for name in ("create_tensor_pointer_load", "create_descriptor_load"):
            made[name] = self._padding(getattr(BUILDER, name))
        return {
            **made,
            "binary_op": binary_op,
            "unary_op": unary_op,
            "cast_impl": cast_impl,
            "get_bf16": get_bf16,
        }

    def _refusing(self, what: str, instead: str) -> Callable[..., Any]:
        def refused(*args: Any, **kwargs: Any) -> Any:
            assert self.now is not None
            kind = FindingKind.NOT_INTERPRETED
            raise self.now.stop(kind, self.line(), what=what, instead=instead)

        return refused

    def _padding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Refuse NaN for types for which the interpreter does not find its bit pattern."""
        refused = self._refusing("NaN as the padding of such a block", "pad with zero")

        def load(block: Any, *rest: Any) -> Any:
            padding = block.padding if hasattr(block, "padding") else rest[1]
            kind = block.base.get_element_ty()
            if padding == ir.PADDING_OPTION.PAD_NAN and kind.name in _BITS:
                refused()
            return original(block, *rest)

        return load


_LIBRARY = ("a function of a GPU library", "use tl.exp, tl.erf, tl.sigmoid and their like")
_ONLY_ON_A_GPU = (
    ("inline_asm", "inline assembly", "write it in Triton's own operations"),
    ("extern_elementwise", *_LIBRARY),
    ("dot_scaled", "tl.dot_scaled", "scale the blocks and use tl.dot"),
)


def _three(grid: Sequence[Any]) -> Size:
    x, y, z = (*(int(n) for n in grid), 1, 1, 1)[:3] if len(grid) <= 3 else (None, None, None)
    if x is None or y is None or z is None:
        raise ValueError(f"a grid has at most three sizes, not {len(grid)}")
    return x, y, z


def _is_here(value: Any) -> bool:
    """Whether an argument needs no copy from another device."""
    if isinstance(value, tuple):
        return all(map(_is_here, value))
    if isinstance(value, interpreter.TensorDescriptor):
        return _is_here(value.base)
    if not hasattr(value, "data_ptr"):
        return True
    return bool(interpreter._unwrap_tensor(value).device.type == "cpu")


def _bfloat16(data: Any) -> Any:
    """The bit patterns of float32 numbers as bfloat16, rounded to the nearest as a GPU does."""
    bits = np.ascontiguousarray(data, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(data), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _undefined(pointers: Any) -> Any:
    """What lanes hold that a mask has switched off and that no `other` fills. A GPU has anything
    there; the interpreter's zeros would hide it. NaN, for integers the largest number."""
    kind = pointers.get_element_ty()
    dtype = interpreter._get_np_dtype(kind)
    value: Any = 0
    if kind.name in _EIGHT:
        value = 0x7F
    elif kind == tl.bfloat16:
        value = 0x7FC0
    elif np.issubdtype(dtype, np.floating):
        value = np.nan
    elif dtype == np.bool_:
        value = True
    elif not kind.is_ptr():
        value = np.iinfo(dtype).max
    return interpreter.TensorHandle(np.full_like(pointers.data, value, dtype=dtype), kind)


# -- the argument that a pointer points into ------------------------------------------------------


_OF_FIRST = (
    *("addptr", "broadcast", "expand_dims", "reshape", "trans", "unsplat", "gather"),
    *("bitcast", "int_to_ptr", "ptr_to_int"),
)


def _carriers() -> dict[str, Callable[..., Any]]:
    """The operations whose resulting pointers have the origin of their operands."""
    made = {f"create_{name}": _carrying(f"create_{name}", 0) for name in _OF_FIRST}
    made["create_splat"] = _carrying("create_splat", 1)
    made["create_cat"] = _carrying("create_cat", 0, 1)
    made["create_join"] = _carrying("create_join", 0, 1)
    made["create_select"] = _carrying("create_select", 1, 2)
    split = BUILDER.create_split

    def create_split(value: Any) -> Any:
        halves = split(value)
        if (origin := getattr(value, "origin", None)) is not None:
            for half in halves:
                half.origin = origin
        return halves

    made["create_split"] = create_split
    return made


def _carrying(name: str, at: int, other: int = -1) -> Callable[..., Any]:
    original = getattr(BUILDER, name)

    def carrying(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        origin = getattr(args[at], "origin", None)
        if origin is not None and (other < 0 or origin is getattr(args[other], "origin", None)):
            made.origin = origin
        return made

    return carrying


def _transposed(tensor: Any) -> Any:
    handle = interpreter.TensorHandle(np.transpose(tensor.handle.data), tensor.handle.dtype)
    handle.origin = getattr(tensor.handle, "origin", None)
    shape = list(tensor.type.shape)
    shape[-1], shape[-2] = shape[-2], shape[-1]
    return tl.core.tensor(handle, tl.core.block_type(tensor.dtype, shape))


def _materialized(original: Callable[..., Any]) -> Callable[..., Any]:
    def materialize_pointers(handle: Any, *args: Any) -> Any:
        pointers, masks = original(handle, *args)
        pointers.origin = getattr(handle.base, "origin", None)
        return pointers, masks

    return materialize_pointers
