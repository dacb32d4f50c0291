"""The network: an embedding, one of Zoology's blocks without its MLP, and the embedding again.

    x_t = dropout(e(token_t))
    h_t = x_t + layer(norm(x))_t
    logits = E norm(h_t + norm(h_t))

All norms are LayerNorm. The second summand of the last line is what is left of the block's second
half where the identity takes the place of its MLP. The layer is that of `..model`: keys of two
taps, RMS norm on what is read.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from ttr.torch.nn import Design, TestTimeRegression

from ..model import lags_of

DROPOUT = 0.1
#: Standard deviation of weights at the start.
START = 0.02


class Recall(nn.Module):
    """The network of any recipe. Weights start as Zoology's; gates and lags as the layer has
    them."""

    def __init__(self, recipe: str, design: Design, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.before, self.behind, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.layer = TestTimeRegression(recipe, width, 1, design=design)
        nn.init.normal_(self.embedding.weight, std=START)
        for linear in self.layer.project.values():
            assert isinstance(linear, nn.Linear)
            nn.init.normal_(linear.weight, std=START)
        nn.init.normal_(self.layer.output.weight, std=START / math.sqrt(2))

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Logits [B, n, V] at places [B, n] of tokens [B, T]."""
        x = F.dropout(self.embedding(tokens), DROPOUT, self.training)
        x = x + self.layer(self.before(x))
        x = x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))
        x = x + self.behind(x)
        return F.linear(self.last(x), self.embedding.weight)

    def lags(self) -> list[float]:
        """w_0 and w_1, learned."""
        return lags_of(self.layer)
