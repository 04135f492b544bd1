"""What a call may leave behind in torch's thread: hooks and modes that were entered and never left,
by student code or because a deadline fell between the two. The next test must not see them."""

from __future__ import annotations

import sys
from typing import Any

ENOUGH = 1000
"""Of each kind, so that what puts itself back does not keep this from ending."""


def clear() -> list[str]:
    """Take them off, and say what there was. Does nothing where torch was never imported."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "overrides"):  # not, or not whole
        return []
    from torch.overrides import _pop_mode as pop_function_mode
    from torch.utils._python_dispatch import _pop_mode as pop_dispatch_mode

    hooks = torch._C._autograd
    kinds = {  # modes first: they see what the others call
        "a function mode": (lambda: torch._C._len_torch_function_stack() > 0, pop_function_mode),
        "a dispatch mode": (lambda: torch._C._len_torch_dispatch_stack() > 0, pop_dispatch_mode),
        "saved-tensor hooks": (
            lambda: hooks._top_saved_tensors_default_hooks(True) is not None,
            hooks._pop_saved_tensors_default_hooks,
        ),
        "gradients switched off": (
            lambda: not torch.is_grad_enabled(),
            lambda: torch._C._set_grad_enabled(True),
        ),
        "anomaly detection": (
            torch.is_anomaly_enabled,
            lambda: torch.set_anomaly_enabled(False),
        ),
    }
    found = []
    for name, (is_there, take_off) in kinds.items():
        for _ in range(ENOUGH):
            if not is_there():
                break
            found.append(name)
            take_off()
    return found
