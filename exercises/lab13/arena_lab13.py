"""Given: a slow memory beside the fast one, on a machine that has only one. Nothing here is a task.

Fast memory is what PyTorch has allocated. Slow memory is plain bytes of NumPy's that no operation
of PyTorch's can reach; a tensor whose values are there has a storage of size zero, so code that
uses it without bringing it back stops with an error about shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy
import torch


@dataclass
class HostArena:
    """Slow memory, and the movers between it and the fast one.

    moves: what crossed the link, in order, as ("fast" or "slow", bytes). Each call is one copy over
    the link and takes its time, also of a tensor that is there already.
    """

    moves: list[tuple[str, int]] = field(default_factory=list)
    _held: dict[int, tuple[torch.Tensor, torch.Size, numpy.ndarray]] = field(default_factory=dict)

    def to_slow(self, tensor: torch.Tensor) -> None:
        """Copy a tensor's values to slow memory, and give its fast memory back."""
        if id(tensor) not in self._held:
            host = numpy.empty(tensor.nbytes, numpy.uint8)
            _as(host, tensor).copy_(tensor.detach())
            self._held[id(tensor)] = (tensor, tensor.shape, host)
            tensor.data = tensor.data.new_empty(0)
        self.moves.append(("slow", len(self._held[id(tensor)][2])))

    def to_fast(self, tensor: torch.Tensor) -> None:
        """Copy a tensor's values into fast memory."""
        if id(tensor) in self._held:
            _, shape, host = self._held.pop(id(tensor))
            fast = torch.empty(shape, dtype=tensor.dtype)
            fast.copy_(_as(host, fast))
            tensor.data = fast
        self.moves.append(("fast", tensor.nbytes))


def _as(host: numpy.ndarray, like: torch.Tensor) -> torch.Tensor:
    """Bytes of NumPy's as a tensor of this dtype and shape, without a copy."""
    return torch.from_numpy(host).view(like.dtype).view(like.shape)


def fast_bytes(tensors: list[torch.Tensor]) -> int:
    """Bytes of fast memory under these tensors; what two of them share counts once."""
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
