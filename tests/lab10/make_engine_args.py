"""The fields of vLLM's EngineArgs, with types and defaults, as `engine_args.json`.

    python tests/lab10/make_engine_args.py

Needs an environment with vLLM (beside an installed torch: `pip install --no-deps vllm==0.33.0` and
the pure-Python packages that it imports); no GPU. `vllm serve --config file.yaml` takes these
names, with underscores or hyphens, and those of the server, which are not listed here.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("engine_args.json")


def plain_types(hint: Any) -> list[str]:
    """Which of bool, int, float, str, list, dict, null a field takes; "other" for the rest."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return plain_types(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return sorted({name for part in typing.get_args(hint) for name in plain_types(part)})
    if origin is typing.Literal:
        return sorted({type(value).__name__ for value in typing.get_args(hint)})
    if hasattr(hint, "__value__"):  # a type alias
        return plain_types(hint.__value__)
    named = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null"}
    if hint in named:
        return [named[hint]]
    if origin in (list, tuple, set) or hint in (list, tuple, set):
        return ["list"]
    return ["dict"] if origin is dict or hint is dict else ["other"]


def resolved(hint: Any, names: dict[str, Any]) -> Any:
    """A field's type; `object` where its name is known to type checkers only."""
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, names)
    except NameError:
        return object


def choices(hint: Any) -> list[Any]:
    """The values of a Literal, wherever in the type it stands."""
    if hasattr(hint, "__value__"):
        return choices(hint.__value__)
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [value for part in typing.get_args(hint) for value in choices(part)]


def main() -> None:
    import vllm
    from vllm.engine import arg_utils

    EngineArgs = arg_utils.EngineArgs
    rows: dict[str, Any] = {}
    for field in dataclasses.fields(EngineArgs):
        hint = resolved(field.type, vars(arg_utils))
        default = field.default
        plain = default is None or isinstance(default, bool | int | float | str)
        rows[field.name] = {"types": plain_types(hint), "default": default if plain else "other"}
        values = {value for value in choices(hint) if isinstance(value, str)}
        if values and rows[field.name]["types"] in (["str"], ["null", "str"]):
            rows[field.name]["choices"] = sorted(values)
    text = json.dumps({"vllm": vllm.__version__, "fields": rows}, indent=1, sort_keys=True)
    TARGET.write_text(text + "\n", encoding="utf-8")
    print(f"{len(rows)} fields of vLLM {vllm.__version__}")


if __name__ == "__main__":
    main()
