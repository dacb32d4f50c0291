"""What `python -m ttr.bench` times beside the operators: the gated delta rule in PyTorch's own
operators, as code on a CPU has it today, and PyTorch's dispatch with nothing behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Chunked = Callable[..., tuple[Tensor, Tensor]]


def chunk_by_chunk(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, chunk: int = 64
) -> tuple[Tensor, Tensor]:
    """y [B, T, H, Dv] and the final state [B, H, Dk, Dv] (float32) of

        S_t = exp(g_t) (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T,   y_t = S_t^T q_t / sqrt(Dk)

    in float32. What the tokens of a chunk are to each other is one triangular system; the state is
    read and written once a chunk. T is a multiple of `chunk`.
    """
    dtype, (batch, tokens, heads, dk) = v.dtype, q.shape
    rows = tokens // chunk

    def split(x: Tensor) -> Tensor:  # [B, H, chunks, chunk, ...]
        x = x.transpose(1, 2).float()
        return x.reshape(*x.shape[:2], rows, chunk, *x.shape[3:])

    q, k, v, g, beta = split(q) * dk**-0.5, split(k), split(v), split(g).cumsum(-1), split(beta)
    decay = (g[..., :, None] - g[..., None, :]).tril().exp().tril()
    own = (k * beta[..., None]) @ k.mT * decay
    system = own.tril(-1) + torch.eye(chunk)
    right = torch.cat([v, k * g.exp()[..., None]], -1) * beta[..., None]
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    values, erased = solved.split([v.shape[-1], dk], -1)
    scores = (q @ k.mT) * decay
    state = torch.zeros(batch, heads, dk, v.shape[-1])
    answers = []
    for i in range(rows):
        new = values[:, :, i] - erased[:, :, i] @ state
        before = (q[:, :, i] * g[:, :, i, :, None].exp()) @ state
        answers.append(before + scores[:, :, i] @ new)
        left = (g[:, :, i, -1:] - g[:, :, i]).exp()[..., None]
        state = state * g[:, :, i, -1, None, None].exp() + (k[:, :, i] * left).mT @ new
    y = torch.stack(answers, 2).flatten(2, 3).transpose(1, 2)
    return y.to(dtype), state


def of_transformers() -> Chunked | None:
    """The rule by transformers' fallback for a CPU; None where that is not installed."""
    try:
        from transformers.models.qwen3_next import modeling_qwen3_next as modelling
    except ImportError:
        return None
    function = modelling.torch_chunk_gated_delta_rule
    function = getattr(function, "__wrapped__", function)

    def call(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        y, state = function(q, k, v, g=g, beta=beta, output_final_state=True)
        return y, state

    return call


class Nothing(torch.autograd.Function):
    """A function that saves its arguments, and whose gradients are copies: what a call costs."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return tensors[0].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return tuple(tensor.clone() for tensor in ctx.saved_tensors)
