"""What a layer remembers of the tokens before: `Cache`."""

from __future__ import annotations

import copy
import weakref
from typing import Any

from torch import Tensor, nn

from .._decoder import Decoder


class Cache:
    """A layer's memory of the tokens it has read, with its `ttr.torch.Decoder` and the rows that
    its convolutions look back at.

        cache = layer.new_cache()
        with torch.no_grad():
            y = layer(prompt, cache=cache)    # [B, T, hidden]
            y = layer(token, cache=cache)     # [B, 1, hidden], any number of times

    Copy, deepcopy and pickle keep all of it. It serves the layer that made it: another one is
    refused, but a copy serves whichever layer of the same recipe and sizes takes it first (that is
    how a copied or a loaded model goes on). No gradients.
    """

    def __init__(self, layer: nn.Module, kind: str, recipe: str) -> None:
        self.kind = kind  #: recipe and sizes of the layer that it serves
        self.tokens = 0
        self.rows: dict[str, Tensor] = {}  #: what the convolutions of q, k and v look back at
        self.memory = Decoder(recipe)
        self._layer: weakref.ref[nn.Module] | None = weakref.ref(layer)

    def serves(self, layer: nn.Module, kind: str) -> bool:
        """Whether `layer` may read it. A copy becomes that layer's."""
        if self.kind != kind:
            return False
        if self._layer is None:
            self._layer = weakref.ref(layer)
        return self._layer() is layer

    def state(self) -> dict[str, Tensor]:
        """A copy of the memory's state by the names of `ttr.state_specs`; empty before any
        token."""
        return self.memory.state()

    def __copy__(self) -> Cache:
        return copy.deepcopy(self)  # a step writes in place: nothing may be shared

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "rows": {n: t.clone() for n, t in self.rows.items()}, "_layer": None}

    def __repr__(self) -> str:
        return f"Cache({self.tokens} tokens, {self.kind})"
