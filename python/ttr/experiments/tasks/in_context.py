"""The network of regressions in context: pairs (x_t, y_t), and y_t is asked before it is seen.

    u_t   = [f(x_t), y_{t-1}]                        f the identity, or x and a small network of it
    k_t   = W_K (w_0 u_t + w_1 u_{t-1}),  w = (0, 1) at the start
    q_t   = W_Q u_t,  v_t = W_V u_t                  the pair of t is thus (x_{t-1}, y_{t-1})
    y_t'  = r . W_O m_t(q_t)

All projections start as the identity, r as the channel of y: keys begin as the inputs before, with
what else is in u_t; training takes that out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ttr.torch.nn import Design, TestTimeRegression

from ..mqar.model import start_as_identity


class InContext(nn.Module):
    """Answers [B, T] for inputs [B, T, n] and labels [B, T], that of t unseen at t."""

    def __init__(
        self,
        recipe: str,
        design: Design,
        inputs: int,
        width: int,
        head_dim: int,
        hidden: int = 0,
    ) -> None:
        super().__init__()
        features = width - 1 - inputs
        self.map = (
            nn.Sequential(nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, features))
            if hidden
            else None
        )
        self.width = width
        self.layer = TestTimeRegression(
            recipe, width, 1, head_dim=head_dim, value_dim=width, design=design
        )
        start_as_identity(self.layer)
        self.read = nn.Parameter(torch.eye(width)[width - 1])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        before = torch.cat([torch.zeros_like(y[:, :1]), y[:, :-1]], 1)[..., None]
        if self.map is not None:
            x = torch.cat([x, self.map(x)], -1)
        rest = x.new_zeros(*x.shape[:2], self.width - 1 - x.shape[-1])
        answers: Tensor = self.layer(torch.cat([x, rest, before], -1)) @ self.read
        return answers
