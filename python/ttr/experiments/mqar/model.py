"""The network of the experiment: an embedding of unit norm, one layer, and the embedding again.

    x_t = e(token_t) / |e(token_t)|
    k_t = W_K (w_0 x_t + w_1 x_{t-1}), w = (0, 1) at the start;  q_t = W_Q x_t, v_t = W_V x_t
    y_t = the recipe's memory of (k_i, v_i), i <= t, asked for q_t
    logits = E (W_O rms(y_t))

W_Q, W_K, W_V and W_O start as the identity, so that the network starts as the paper's construction.
No further norm, residual or MLP. The architecture `strict` is that; `gate` weighs each association
by a write gate sigmoid(u . k_t + b), u = 0 and b = 0 at the start: the importance of memories that
have none, the step size of delta rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttr.torch.nn import Design, TestTimeRegression, gates


@dataclass(frozen=True)
class Method:
    """A layer of the comparison: its recipe, that with a write gate, and which input the gate
    is."""

    strict: str
    gated: str
    gate: str = "importance"
    unit_keys: bool = False

    def recipe(self, architecture: str) -> str:
        return self.gated if architecture == "gate" else self.strict


METHODS = {
    "linear attention": Method("linear_attention", "importance(input) | linear | gradient"),
    "RLS": Method("rls{ridge: 0.01}", "importance(input) | linear | exact(ridge: 0.01)"),
    "DeltaNet": Method("deltanet", "deltanet", "step", unit_keys=True),
    "Gated DeltaNet": Method("gated_deltanet", "gated_deltanet", "step", unit_keys=True),
    "Mamba-2": Method("mamba2", "decay(scalar) x importance(input) | linear | gradient"),
    "softmax": Method(
        "softmax{scale: 8}",
        "similarity(exponential) x importance(input) | constant | exact | reading(scale: 8)",
        unit_keys=True,
    ),
}
ARCHITECTURES = ("strict", "gate")


def network(
    method: str,
    architecture: str,
    vocabulary: int,
    width: int,
    lags: tuple[float, ...] = (0.0, 1.0),
    learn_lags: bool = True,
) -> Recall:
    """The network of one of `METHODS`."""
    design = design_of(method, architecture, lags, learn_lags)
    return Recall(METHODS[method].recipe(architecture), design, vocabulary, width)


def design_of(
    method: str, architecture: str, lags: tuple[float, ...], learn_lags: bool
) -> Design:
    """What is around the memory of a method."""
    known = METHODS[method]
    made: dict[str, gates.Factory] = {}
    if method == "Mamba-2":
        made["log_decay"] = partial(gates.Decay, discretise=True)
    if architecture == "gate":
        made[known.gate] = gates.KeySigmoid
    return Design(
        gates=made,
        key_lags=lags,
        learn_lags=learn_lags,
        qk_norm="l2" if known.unit_keys else None,
        output_norm="rms",
    )


def start_as_identity(layer: TestTimeRegression) -> None:
    """All projections; each of the rows of a token where a recipe takes several."""
    for linear in (*layer.project.values(), layer.output):
        assert isinstance(linear, nn.Linear)
        rows, width = linear.weight.shape
        eye = torch.eye(min(rows, width), width)
        with torch.no_grad():
            linear.weight.copy_(eye.repeat(-(-rows // len(eye)), 1)[:rows])


class Recall(nn.Module):
    """The network of any recipe."""

    def __init__(self, recipe: str, design: Design, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(F.normalize(torch.randn(vocabulary, width), dim=-1))
        self.layer = TestTimeRegression(recipe, width, 1, design=design)
        start_as_identity(self.layer)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Logits [B, n, V] at places [B, n] of tokens [B, T]."""
        embedding = F.normalize(self.embedding, dim=-1)
        y = self.layer(F.embedding(tokens, embedding))
        read = y.gather(1, places[..., None].expand(-1, -1, y.shape[-1]))
        return F.linear(read, embedding)

    def lags(self) -> list[float]:
        """w_0 and w_1, learned."""
        return lags_of(self.layer)


def lags_of(layer: TestTimeRegression) -> list[float]:
    """The keys' convolution."""
    weight = layer.convolve["k"].weight
    assert isinstance(weight, Tensor)
    return [round(w, 4) for w in weight.tolist()]


def write_gate(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of write gates."""
    found = [m for m in model.modules() if isinstance(m, gates.KeySigmoid)]
    return [p for m in found for p in m.parameters()]
