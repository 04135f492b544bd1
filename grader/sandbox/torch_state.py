"""Hooks and modes of torch that a call entered and did not leave, by mistake or because a deadline
interrupted it. The next test must not see them."""

from __future__ import annotations

import sys
from typing import Any

ENOUGH = 1000
"""Attempts of each kind, so that a hook that reinstalls itself cannot make this endless."""


def clear() -> None:
    """Remove them. Does nothing if torch was never imported."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "overrides"):  # not imported, or not completely
        return
    from torch.overrides import _pop_mode as pop_function_mode
    from torch.utils._python_dispatch import _pop_mode as pop_dispatch_mode

    hooks = torch._C._autograd
    kinds = (  # is one there, and what removes it; modes first: they see the others' calls
        (lambda: torch._C._len_torch_function_stack() > 0, pop_function_mode),
        (lambda: torch._C._len_torch_dispatch_stack() > 0, pop_dispatch_mode),
        (
            lambda: hooks._top_saved_tensors_default_hooks(True) is not None,
            hooks._pop_saved_tensors_default_hooks,
        ),
        (lambda: not torch.is_grad_enabled(), lambda: torch._C._set_grad_enabled(True)),
        (torch.is_anomaly_enabled, lambda: torch.set_anomaly_enabled(False)),
    )
    for is_there, take_off in kinds:
        for _ in range(ENOUGH):
            if not is_there():
                break
            take_off()
