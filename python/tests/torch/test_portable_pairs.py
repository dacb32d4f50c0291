"""The portable forms of kept pairs: states, blocks, weights of 0, hits, types, what is singular."""

from __future__ import annotations

import pytest
import torch
import torch_cases as cases
import torch_oracle as oracle
from torch_cases import Sizes
from ttr.torch.portable import kept_pairs, kernel_regression, regress

Tensors = dict[str, torch.Tensor]
SIZES = Sizes(batch=1, tokens=40, key_dim=4, value_dim=3)
CONSTANTS = ("ridge", "bandwidth")
RECIPES = [
    "softmax",
    "softmax{window: 6, importance: input, decay: scalar}",
    "nadaraya_watson{importance: log}",
    "kernel_smoother{kernel: laplace, bandwidth: 1, window: 3}",
    "local_linear{window: 7, decay: scalar}",
    "local_quadratic",
    "kernel_ridge{importance: input}",
    "kernel_ridge{window: 5}",
    "kernel_rls{budget: 4, importance: input}",
    "softmax{pair_bias: input, decay: scalar}",
    "softmax{pair_bias: block, extent: 6}",
    "local_linear{pair_bias: power, extent: 2, exponent: 1}",
]
#: The engines have gradients of these.
WEIGHTED = [
    "softmax{importance: input, decay: scalar, window: 9}",
    "softmax{importance: log, decay: scalar}",
    "softmax{kernel: inverse_distance, importance: input}",
    "kernel_smoother{importance: input, decay: scalar}",
    "local_linear{importance: input, decay: scalar}",
    "kernel_ridge{importance: input}",
    "softmax{pair_bias: input, importance: input, decay: scalar}",
    "local_linear{pair_bias: input, decay: scalar}",
    "nadaraya_watson{pair_bias: distance, extent: 3, causal: false}",
]


def close(got: torch.Tensor, want: torch.Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def compare(recipe: str, inputs: Tensors, state: Tensors | None = None, tolerance: float = 1e-10) -> None:
    want, last = oracle.definition(recipe, inputs, state or {})
    y, final = regress(recipe, **inputs, state=state, return_state=True)
    close(y, want, tolerance)
    last = cases.without_padding(last)
    for name, x in cases.without_padding(final).items():
        close(x, last[name], tolerance)


def agree_on_gradients(recipe: str, inputs: Tensors, tolerance: float = 1e-9) -> None:
    """Gradients of y and of the final state are those of the engine."""
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    y, final = regress(recipe, **leaves, return_state=True)
    final = {name: x for name, x in final.items() if x.is_floating_point()}
    generator = torch.Generator().manual_seed(3)
    made = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in (y, *final.values())]
    want = oracle.gradients(recipe, inputs, {}, made[0], dict(zip(final, made[1:])))
    got = torch.autograd.grad([y, *final.values()], list(leaves.values()), made, allow_unused=True)
    for (name, x), gradient in zip(leaves.items(), got):
        close(torch.zeros_like(x) if gradient is None else gradient, want[name], tolerance)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_pairs, "_BLOCK_NUMBERS", 500)
    monkeypatch.setattr(kernel_regression, "_SYSTEM_NUMBERS", 5000)


@pytest.mark.parametrize("recipe", RECIPES)
def test_whole_is_split_anywhere(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    whole, final = regress(recipe, **inputs, return_state=True)
    pieces, state = [], None
    for begin, end in ((0, 1), (1, 17), (17, 17), (17, 18), (18, 40)):
        part = {n: x if n in CONSTANTS else x[:, begin:end] for n, x in inputs.items()}
        y, state = regress(recipe, **part, state=state, return_state=True)
        pieces.append(y)
    close(torch.cat(pieces, 1), whole)
    assert state is not None
    state, final = (
        {n: x[:, : int(s["state.length"].max())] if x.dim() > 2 else x for n, x in s.items()}
        if "state.length" in s
        else s
        for s in (state, final)
    )
    for name, x in final.items():
        close(state[name], x)


@pytest.mark.parametrize("recipe", [name for name in RECIPES if "kernel_rls" not in name])
def test_memories_may_hold_different_numbers_of_pairs(recipe: str) -> None:
    """What lies behind the pairs of a memory is not read."""
    inputs = cases.inputs(recipe, SIZES)
    state = cases.state(recipe, SIZES)
    state["state.length"][:, 1] = 3
    state["state.k"][:, 3:, 1] = torch.nan
    state["state.v"][:, 3:, 1] = torch.inf
    compare(recipe, inputs, state)
    empty = {name: torch.zeros_like(x) for name, x in state.items()}
    compare(recipe, inputs, empty)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("recipe", WEIGHTED)
def test_blocks_of_few_queries(recipe: str) -> None:
    inputs = cases.inputs(recipe, Sizes(tokens=30, query_heads=4, key_heads=1, key_dim=3))
    compare(recipe, inputs, cases.state(recipe, Sizes(tokens=30, query_heads=4, key_heads=1, key_dim=3)))
    agree_on_gradients(recipe, inputs)


@pytest.mark.parametrize("recipe", WEIGHTED)
def test_weights_of_zero_and_decays_of_any_strength(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    if "importance" in inputs:
        inputs["importance"][:, ::2] = 0
    if "log_importance" in inputs:
        inputs["log_importance"][:, ::4] = -torch.inf
    if "log_decay" in inputs:
        inputs["log_decay"][:, ::5] = -torch.inf
        inputs["log_decay"][:, 1::7] = -70
    compare(recipe, inputs)
    agree_on_gradients(recipe, inputs)


def test_importances_of_zero_under_a_window_have_their_slope() -> None:
    """On the side where they have some."""
    recipe = "kernel_ridge{importance: input, decay: scalar, window: 6, ridge: 0.5}"
    inputs = cases.inputs(recipe, Sizes(batch=1, tokens=8, key_dim=3, value_dim=2))
    inputs["importance"][:, ::3] = 0
    leaf = inputs["importance"].clone().requires_grad_()
    y = regress(recipe, **{**inputs, "importance": leaf})
    (got,) = torch.autograd.grad(y.sum(), leaf)
    moved = inputs["importance"].clone()
    moved[0, 3, 1] += 1e-6
    more = oracle.definition(recipe, {**inputs, "importance": moved}, {})[0].sum()
    assert got[0, 3, 1].item() == pytest.approx((more - y.sum()).item() / 1e-6, rel=1e-4)


@pytest.mark.parametrize(
    "recipe",
    [
        "softmax{kernel: inverse_distance, importance: input}",
        "softmax{kernel: laplace, bandwidth: 1}",
        "local_linear{kernel: inverse_distance}",
        "local_quadratic{ridge: 0, kernel: gaussian, bandwidth: 1}",
        "kernel_ridge{ridge: 0, kernel: gaussian, bandwidth: 1}",
    ],
)
def test_queries_that_hit_keys_which_repeat(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    inputs["k"][:, ::3] = inputs["k"][:, :1].clone()
    inputs["q"][:, 1::2] = inputs["k"][:, 1::2]
    compare(recipe, inputs)
    agree_on_gradients(recipe, inputs, tolerance=1e-8)


def test_without_neighbours_there_is_nothing() -> None:
    inputs = cases.inputs("softmax{kernel: biweight, bandwidth: 1}", SIZES)
    inputs["bandwidth"] = torch.tensor([1e-9, 0.0], dtype=torch.float64)
    leaves = {name: x.requires_grad_() for name, x in inputs.items()}
    for recipe in ("softmax{kernel: biweight, bandwidth: 1}", "local_linear{kernel: biweight, bandwidth: 1}"):
        ridge = {} if recipe.startswith("softmax") else {"ridge": torch.ones(2, dtype=torch.float64)}
        y = regress(recipe, **leaves, **ridge)
        assert (y == 0).all()
        gradients = torch.autograd.grad(y.sum(), list(leaves.values()))
        assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("recipe", ["softmax", "softmax{window: 4}", "local_linear", "kernel_ridge"])
def test_a_narrow_state_rounds_what_it_keeps(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES, dtype=torch.float32)
    state = cases.state(recipe, SIZES, dtype=torch.float32)
    narrow = {n: x.bfloat16() if x.is_floating_point() else x for n, x in state.items()}
    wide = {n: x.float() if x.is_floating_point() else x for n, x in narrow.items()}
    y, final = regress(recipe, **inputs, state=narrow, return_state=True)
    assert final["state.k"].dtype == final["state.v"].dtype == torch.bfloat16
    rounded = {n: x.bfloat16().float() if n in ("k", "v") else x for n, x in inputs.items()}
    close(y, regress(recipe, **rounded, state=wide), 1e-5)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_types(recipe: str, dtype: torch.dtype) -> None:
    """Sums are float32 at least, and rounded once; what is solved is float64."""
    rounded = {name: x.to(dtype).double() for name, x in cases.inputs(recipe, SIZES).items()}
    want = regress(recipe, **rounded)
    narrow = {name: x.to(dtype) for name, x in rounded.items()}
    y, final = regress(recipe, **narrow, return_state=True)
    assert y.dtype == dtype
    assert all(x.dtype == torch.float32 for x in final.values() if x.is_floating_point())
    close(y.double(), want, {torch.float32: 3e-5, torch.bfloat16: 8e-3}[dtype])


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_tokens(recipe: str) -> None:
    sizes = Sizes(tokens=0)
    state = cases.state(recipe, sizes)
    y, final = regress(recipe, **cases.inputs(recipe, sizes), state=state, return_state=True)
    assert y.shape == (2, 0, 2, 4)
    for name, x in final.items():
        close(x, state[name])
    y, final = regress(recipe, **cases.inputs(recipe, sizes), return_state=True)
    assert y.shape == (2, 0, 2, 4)


BIASED = ["softmax{pair_bias: input, decay: scalar}", "kernel_smoother{pair_bias: input}",
          "local_linear{pair_bias: input}"]  # fmt: skip


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("recipe", BIASED)
def test_a_bias_hides_what_is_no_number(recipe: str) -> None:
    """What is hidden from all reaches nobody, not as NaN either; NaN in a row reaches its query."""
    inputs = cases.inputs(recipe, SIZES)
    inputs["pair_bias"][:, :, :, 7] = -torch.inf
    inputs["pair_bias"][0, 20, 1] = -torch.inf
    clean = regress(recipe, **inputs)
    assert (clean[0, 20, 1] == 0).all()
    inputs["k"][0, 7, 0, 1], inputs["v"][0, 7, 1, 2] = torch.nan, torch.inf
    leaves = {name: x.requires_grad_() for name, x in inputs.items()}
    hidden = regress(recipe, **leaves)
    assert torch.equal(hidden, clean)
    gradients = torch.autograd.grad(hidden.sum(), list(leaves.values()))
    assert all(g.isfinite().all() for g in gradients)
    with torch.no_grad():
        inputs["pair_bias"][0, 30, 0, 3] = torch.nan
        inputs["pair_bias"][0, 30, 0, 35] = torch.nan  # nobody reads it
    lost = regress(recipe, **inputs).isnan()
    assert lost[0, 30, 0].all() and lost.sum() == 3
    if "log_decay" in inputs:  # what is between a pair and its query
        with torch.no_grad():
            inputs["log_decay"][0, 10, 0] = torch.nan
            inputs["pair_bias"][0, 15, 0, :11] = -torch.inf
        want = oracle.definition(recipe, inputs, {})[0].isnan()
        assert torch.equal(regress(recipe, **inputs).isnan(), want) and not want[0, 15].any()


def test_a_bias_that_is_broadcast_gets_the_sum_of_its_gradients() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 7, 3, 4, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(7, 7, dtype=torch.float64, requires_grad=True)
    y = regress("softmax{pair_bias: input}", q, k, v, pair_bias=bias[None, :, None].expand(2, 7, 3, 7))
    mask = torch.where(torch.ones(7, 7, dtype=torch.bool).tril(), bias, -torch.inf)
    heads = (x.transpose(1, 2) for x in (q, k, v))
    want = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask).transpose(1, 2)
    close(y, want)
    dy = torch.randn_like(y)
    close(*(torch.autograd.grad(x, bias, dy, retain_graph=True)[0] for x in (y, want)))


def test_a_bias_needs_a_column_for_every_pair() -> None:
    recipe = "softmax{pair_bias: input}"
    inputs, state = cases.inputs(recipe, SIZES), cases.state(recipe, SIZES)
    text = r"a column for each of S = 47 pairs that the call sees but is of S = 46"
    with pytest.raises(ValueError, match=text):
        regress(recipe, **{**inputs, "pair_bias": inputs["pair_bias"][..., 1:]}, state=state)
    with pytest.raises(ValueError, match=r"pair_bias must be \[B,T,Hq,S\] = \[1,40,2,5\]"):
        regress(recipe, **{**inputs, "pair_bias": inputs["pair_bias"][:, 1:, :, :5]})
    packed = {**inputs, "pair_bias": inputs["pair_bias"][..., :22], "cu_seqlens": torch.tensor([0, 22, 40])}
    compare(recipe, packed)


def test_keys_of_great_length_are_stored_in_their_own_units() -> None:
    recipe = "kernel_rls{budget: 4, scale: 1}"
    inputs = cases.inputs(recipe, SIZES)
    inputs["k"] = inputs["k"] * 5
    _, final = regress(recipe, **inputs, return_state=True)
    assert (final["state.l"].diagonal(dim1=-2, dim2=-1) < 0).any()
    compare(recipe, inputs, tolerance=1e-7)
    want, last = oracle.definition(recipe, inputs, final)
    y, again = regress(recipe, **inputs, state=final, return_state=True)
    close(y, want, 1e-7)
    for name, x in again.items():
        close(x, last[name], 1e-7)


WRONG = {
    "state['state.v'] must be given with state.k": lambda s: s.pop("state.v"),
    "state['state.v'] must be of S = 7 rows but is 6": lambda s: s.update({"state.v": s["state.v"][:, 1:]}),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_state_names_its_entry(text: str) -> None:
    state = cases.state("softmax", SIZES)
    WRONG[text](state)
    with pytest.raises(ValueError) as caught:
        regress("softmax", **cases.inputs("softmax", SIZES), state=state)
    assert text in str(caught.value)
