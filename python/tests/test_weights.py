"""A bias for every query and pair, and what a regression knows beside y."""

from typing import Any

import numpy as np
import pytest
import ttr

B, T, H, D = 2, 9, 3, 4


def drawn(seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal((B, T, H, D)) for name in "qkv"}


def softmax(q: Any, k: Any, v: Any, bias: Any) -> Any:
    logits = np.einsum("bthd,bshd->bths", q, k) / np.sqrt(D) + bias
    logits = np.where(np.tri(T, dtype=bool)[None, :, None], logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.einsum("bths,bshd->bthd", weights / weights.sum(-1, keepdims=True), v)


def test_a_bias_is_added_to_the_logits() -> None:
    inputs = drawn()
    bias = np.random.default_rng(1).standard_normal((B, T, H, T))
    y, _ = ttr.Layer("softmax{pair_bias: input}").forward(**inputs, pair_bias=bias)
    assert np.allclose(y, softmax(**inputs, bias=bias), atol=1e-13)


def test_a_mask_is_broadcast_without_a_copy() -> None:
    inputs = drawn()
    mask = np.where(np.random.default_rng(2).random((T, T)) < 0.5, 0, -np.inf)
    np.fill_diagonal(mask, 0)
    bias = np.broadcast_to(mask[None, :, None], (B, T, H, T))
    layer = ttr.Layer("softmax{pair_bias: input}")
    y, _ = layer.forward(**inputs, pair_bias=bias)
    assert np.allclose(y, softmax(**inputs, bias=bias), atol=1e-13)
    # Token by token: a row each, with columns that are not needed yet.
    state: dict[str, Any] = {}
    for t in range(T):
        part = {name: array[:, t : t + 1] for name, array in inputs.items()}
        one = layer.step(**part, pair_bias=bias[:, t : t + 1], state=state)
        assert np.allclose(one, y[:, t : t + 1], atol=1e-13)


def test_a_bias_has_a_gradient() -> None:
    inputs = drawn()
    random = np.random.default_rng(3)
    bias, dy = random.standard_normal((B, T, H, T)), random.standard_normal((B, T, H, D))
    layer = ttr.Layer("softmax{pair_bias: input}")
    gradients, _ = layer.backward(dy, **inputs, pair_bias=bias)
    direction = random.standard_normal(bias.shape)
    step = 1e-6
    ends = [softmax(**inputs, bias=bias + sign * step * direction) for sign in (1, -1)]
    slope = np.sum(dy * (ends[0] - ends[1])) / (2 * step)
    assert np.isclose(np.sum(gradients["pair_bias"] * direction), slope, rtol=1e-7)


def test_a_bias_with_too_few_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="a column for each of S = 9 pairs"):
        ttr.Layer("softmax{pair_bias: input}").forward(**drawn(), pair_bias=np.zeros((B, T, H, T - 1)))


def test_leverage_is_q_over_the_gram_matrix() -> None:
    inputs = drawn()
    leverage = np.zeros((B, T, H))
    ttr.Layer("rls{ridge: 0.5}").forward(**inputs, out={"leverage": leverage})
    k, q = inputs["k"][1, :6, 2], inputs["q"][1, 5, 2]
    expected = q @ np.linalg.solve(k.T @ k + 0.5 * np.eye(D), q)
    assert np.isclose(leverage[1, 5, 2], expected, rtol=1e-12)


def test_effective_pairs_and_slopes_are_written() -> None:
    inputs = drawn()
    pairs, slope = np.zeros((B, T, H)), np.zeros((B, T, H, D * D))
    out = {"effective_pairs": pairs, "slope": slope}
    ttr.Layer("local_linear{ridge: 0.1}").forward(**inputs, out=out)
    assert np.allclose(pairs[:, 0], 1)
    assert np.all((pairs > 0.99) & (pairs <= np.arange(1, T + 1)[None, :, None] + 1e-9))
    assert np.all(slope[:, 0] == 0) and np.any(slope[:, 1:] != 0)


def test_what_a_recipe_has_not_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="slope must be absent"):
        ttr.Layer("rls").forward(**drawn(), out={"slope": np.zeros((B, T, H, D * D))})
    with pytest.raises(ValueError, match="effective_pairs"):
        ttr.Layer("softmax").forward(**drawn(), out={"effects": np.zeros((B, T, H))})
