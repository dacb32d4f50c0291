"""`ttr.torch.nn.TestTimeRegression`: what it computes, for every row of the zoo."""

from __future__ import annotations

import copy
import functools
import io
import math
import pickle

import pytest
import torch
import ttr
import ttr.torch
from nn_cases import CAUSAL, HEADS, HIDDEN, WITH_GRADIENTS, layer, tokens, tolerance
from torch import Tensor
from torch.func import functional_call
from ttr.torch.nn import Cache, Design, TestTimeRegression, gates, published

NAMES = list(ttr.zoo())


def close(a: Tensor, b: Tensor, recipe: str) -> None:
    bound = tolerance(recipe)
    torch.testing.assert_close(a, b, rtol=bound, atol=bound)


@pytest.mark.parametrize("name", NAMES)
def test_the_module_is_its_recipe_between_projections(name: str) -> None:
    """module = functional = ttr.Layer, by the inputs that it says it makes."""
    plain = Design(gates=published(name).gates, learn=published(name).learn)
    module, x = layer(name, design=plain), tokens()
    with torch.no_grad():
        module.output.weight.copy_(torch.eye(HIDDEN))
        y = module(x)
        inputs = module.inputs(x)
        start = {f"state.{n}": p for n, p in module.start.items()}
        functional = ttr.torch.regress(name, **inputs, state=start)
    arrays = {n: t.detach().contiguous().numpy() for n, t in inputs.items()}
    states = {n: t.detach().numpy() for n, t in start.items()}
    by_layer, _ = ttr.Layer(name).forward(**arrays, state=states)
    by_definition, _ = ttr.Layer(name, engine="definition").forward(**arrays, state=states)
    close(y, functional.flatten(2), name)
    close(functional, torch.from_numpy(by_layer), name)
    close(functional, torch.from_numpy(by_definition), name)


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_decoding_is_the_whole(name: str) -> None:
    """Token by token, and split anywhere, from the recipe's start or a learned one."""
    module, x = layer(name), tokens()
    whole = module(x)
    cache = module.new_cache()
    steps = [module(x[:, t : t + 1], cache=cache) for t in range(x.shape[1])]
    close(torch.cat(steps, 1), whole, name)
    assert cache.tokens == x.shape[1]
    cache = module.new_cache()
    parts = [module(part, cache=cache) for part in x.split([3, 1, 2, 1], 1)]
    close(torch.cat(parts, 1), whole, name)
    assert set(cache.state()) == {spec["name"] for spec in ttr.state_specs(name)}


@pytest.mark.parametrize("name", NAMES)
def test_a_step_of_training_lowers_the_loss(name: str) -> None:
    """By an engine's gradients, or by central differences of a few tokens."""
    few = {} if name in WITH_GRADIENTS else {"batch": 1, "count": 3}
    module, x, wanted = layer(name), tokens(**few), tokens(**few, seed=2)
    loss = (module(x) - wanted).square().mean()
    loss.backward()
    squares = torch.zeros((), dtype=torch.float64)
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), key
        squares += parameter.grad.square().sum()
    assert squares > 0
    with torch.no_grad():
        step = 1e-3 * loss / squares  # first order: the loss falls by a thousandth
        for parameter in module.parameters():
            parameter -= step * parameter.grad
        after = (module(x) - wanted).square().mean()
    fall = float((loss.detach() - after) / (1e-3 * loss.detach()))
    assert fall == pytest.approx(1, abs=0.2), fall


@pytest.mark.parametrize(
    "name", ["gated_deltanet", "rls", "mesa", "mamba2", "lru", "softmax", "delta_product"]
)
def test_gradients_of_the_whole_module(name: str) -> None:
    module, x = layer(name, hidden_size=4), tokens(1, 4, hidden=4).requires_grad_()
    names, values = zip(*module.named_parameters())
    values = tuple(v.detach().clone().requires_grad_() for v in values)

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        return functional_call(module, dict(zip(names, parameters)), (x,))

    assert torch.autograd.gradcheck(run, (x, *values), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ["gated_deltanet", "rls", "kda", "lru", "mamba", "softmax"])
def test_packed_sequences(name: str) -> None:
    module, x = layer(name), tokens(1, 9)
    cuts = torch.tensor([0, 4, 4, 9])
    with torch.no_grad():
        packed = module(x, cu_seqlens=cuts)
        apart = torch.cat([module(x[:, :4]), module(x[:, 4:])], 1)
    close(packed, apart, name)


@pytest.mark.parametrize("name", ["gated_deltanet", "rls", "ttt_linear", "delta_product", "mamba"])
def test_state_dicts_copies_and_pickle(name: str) -> None:
    module, x = layer(name), tokens()
    other = layer(name, seed=5)
    assert not torch.equal(other(x), module(x))
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for same in (other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(same(x), module(x))
        assert str(same) == str(module)


@torch.no_grad()
def test_a_cache_goes_on_after_copies() -> None:
    module, x = layer("gated_deltanet"), tokens()
    cache = module.new_cache()
    module(x[:, :5], cache=cache)
    for kept in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache)), copy.copy(cache)):
        other = copy.deepcopy(module)
        again = other(x[:, 5:6], cache=kept)
        assert torch.equal(again, module(x[:, 5:6], cache=copy.deepcopy(cache)))
    assert cache.tokens == 5
    model, held = pickle.loads(pickle.dumps((module, cache)))
    assert torch.equal(model(x[:, 5:], cache=held), module(x[:, 5:], cache=cache))


@pytest.mark.parametrize("name", ["gated_deltanet", "rls", "mamba2", "rwkv7", "softmax", "lru"])
def test_one_graph_under_compile(name: str) -> None:
    module, x = layer(name), tokens()
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    y = compiled(x)
    y.square().sum().backward()
    found = {key: p.grad.clone() for key, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    expected = module(x)
    expected.square().sum().backward()
    close(y.detach(), expected.detach(), name)
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(found[key], parameter.grad, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["gated_deltanet", "rls", "mamba", "mamba2", "rwkv7", "ttt_linear", "softmax"])
def test_narrow_types(name: str, dtype: torch.dtype) -> None:
    module, x = layer(name), tokens()
    with torch.no_grad():
        wide = module(x)
        narrow, cache = module.to(dtype)(x.to(dtype)), module.new_cache()
        pieces = [module(piece.to(dtype), cache=cache) for piece in (x[:, :5], x[:, 5:6], x[:, 6:])]
    bound = {torch.float32: 2e-3, torch.bfloat16: 0.2, torch.float16: 0.03}[dtype]
    for found in (narrow, torch.cat(pieces, 1)):
        assert found.dtype == dtype
        assert float((found.double() - wide).abs().max() / wide.abs().max()) < bound
    module(x.to(dtype)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


def test_key_construction() -> None:
    """Lags (0, 1): the key of a token is the projection of the token before it."""
    module = layer("linear_attention", design=Design(key_lags=(0.0, 1.0)))
    x = tokens()
    k, rows = module.inputs(x)["k"].flatten(2), module.project["k"](x)
    assert torch.equal(k[:, 0], torch.zeros_like(k[:, 0])) and torch.equal(k[:, 1:], rows[:, :-1])
    assert "0 x_t + 1 x_t-1, learned" in str(module)
    fixed = layer("linear_attention", design=Design(key_lags=(0.5, 0.5), learn_lags=False))
    assert [p for n, p in fixed.named_parameters() if "convolve" in n and p.requires_grad] == []
    fixed(x).sum().backward()
    module(x).sum().backward()
    weight = module.convolve["k"].weight
    assert weight.shape == (2,) and weight.grad is not None and weight.grad.abs().min() > 0


@torch.no_grad()
def test_shared_keys_and_sizes() -> None:
    module = layer("gated_deltanet", num_heads=4, head_dim=3, value_dim=5, num_key_heads=2)
    x = tokens()
    inputs = module.inputs(x)
    assert inputs["q"].shape == inputs["k"].shape == (2, 7, 2, 3)
    assert inputs["v"].shape == (2, 7, 4, 5) and inputs["step"].shape == (2, 7, 4)
    cache = module.new_cache()
    steps = [module(x[:, t : t + 1], cache=cache) for t in range(7)]
    close(torch.cat(steps, 1), module(x), "gated_deltanet")


def test_learned_constants() -> None:
    module = layer("rls{ridge: 0.3}", design=Design(learn=("ridge",)))
    ridge = module.inputs(tokens())["ridge"]
    assert ridge.shape == (HEADS, HIDDEN // HEADS)
    torch.testing.assert_close(ridge, torch.full_like(ridge, 0.3), rtol=1e-6, atol=0)
    module(tokens()).sum().backward()
    assert module.gates["ridge"].raw.grad.abs().sum() > 0
    smoother = layer("nadaraya_watson{bandwidth: 2}", design=Design(learn=("bandwidth",)))
    assert smoother.inputs(tokens())["bandwidth"].tolist() == pytest.approx([2, 2], rel=1e-6)
    mesa = layer("mesa").inputs(tokens())
    assert bool((mesa["ridge"] > 0.25).all()) and mesa["importance"].shape == (2, 7, HEADS)


@pytest.mark.parametrize("features", ["t2r", "hedgehog_exp", "rebased", "rfa", "dijiang", "dpfp"])
def test_feature_maps(features: str) -> None:
    module, x = layer(f"linear_attention{{features: {features}}}"), tokens()
    module(x).square().mean().backward()
    weights = [p for n, p in module.named_parameters() if n.startswith("gates.features")]
    assert len(weights) == {"t2r": 2, "rebased": 2, "hedgehog_exp": 1, "dijiang": 1}.get(
        features, 0
    )
    assert all(p.grad is not None for p in weights)
    if features == "rebased":
        assert module.inputs(x)["features_w"].unique().tolist() == [1]


def test_a_person_reads_it() -> None:
    said = str(layer("gated_deltanet{step: longhorn}"))
    for words in (
        "decay(scalar) | linear | sgd(step: longhorn), 2 heads of 4 x 4",
        "engine fast_weights",
        "q, k: l2 norm",
        "y: rms norm, silu gate",
        "2412.06464",
        "(log_decay): Decay(",
        "-exp(A_log) softplus(W x + dt_bias), [2]",
        "4 taps of 8 channels, SiLU",
    ):
        assert words in said, said
    assert "gated_deltanet: M~ = g M'; M = M~ + b (v - M~ k) k^T" in str(layer("gated_deltanet"))


class Fixed(gates.Gate):
    """A gate that a user writes."""

    formula = "a half"

    def forward(self, x: Tensor, k: Tensor | None) -> Tensor:
        return x.new_full((*x.shape[:2], *self.shape), 0.5)


def at_rest(recipe: str, design: Design | None = None) -> dict[str, Tensor]:
    """The inputs of a layer for tokens of zeros: what its biases and constants say."""
    module = layer(recipe, design=design, hidden_size=64, num_heads=16)
    with torch.no_grad():
        return module.inputs(torch.zeros(1, 3, 64, dtype=torch.float64))


def test_layers_start_as_published() -> None:
    gated = layer("gated_deltanet", hidden_size=64, num_heads=16).gates["log_decay"]
    steps = torch.nn.functional.softplus(gated.dt_bias)
    assert 1e-3 <= steps.min() and steps.max() <= 0.1 and gated.A_log.exp().max() <= 16
    decay = at_rest("gated_deltanet")["log_decay"]
    torch.testing.assert_close(decay[0, 0], -gated.A_log.exp() * steps, rtol=1e-6, atol=0)

    mamba = at_rest("mamba")
    assert 0.3 <= mamba["dt"].min() and mamba["dt"].max() <= 1  # published: dt 0.001 to 0.1, a from -1
    torch.testing.assert_close(mamba["a"][3, 1], -0.003 * torch.arange(1.0, 5, dtype=torch.float64))
    default = at_rest("mamba", Design())
    assert 1e-3 <= default["dt"].min() and default["dt"].max() <= 0.1 and default["a"].max() == -1
    griffin = at_rest("rg_lru")["log_decay"].mul(2).exp()  # its gate is 1/2 at rest
    assert 0.9 <= griffin.min() and griffin.max() <= 0.999
    ring = at_rest("lru")
    assert 0.9 <= ring["log_decay"].exp().min() and ring["log_decay"].exp().max() <= 0.999
    assert 0 < ring["phase"].min() and ring["phase"].max() <= torch.pi / 10
    rwkv = at_rest("rwkv7")["log_decay"]
    assert -math.exp(-0.5) <= rwkv.min() and rwkv.max() < 0
    assert at_rest("gla")["log_decay"].unique().item() == pytest.approx(-math.log(2) / 16)
    assert at_rest("mlstm")["log_decay"].unique().item() == pytest.approx(-math.log1p(math.e**-4))
    assert at_rest("mesa")["ridge"].unique().item() == pytest.approx(1, rel=1e-6)
    assert at_rest("delta_product")["step"].unique().item() == 1  # 2 sigmoid(0)
    assert at_rest("ttt_linear")["step"].unique().item() == 0.5 / 4
    low = Design(gates={"log_decay": functools.partial(gates.ForgetGate, low=0.6)})
    assert at_rest("hgrn", low)["log_decay"].unique().item() == pytest.approx(math.log(0.8))


def test_several_pairs_a_token() -> None:
    """Gates of each pair, of its key, and factors of a token."""
    made = {"step": gates.KeySigmoid, "value_scale": gates.Sigmoid, "log_decay": gates.Decay}
    module = layer("delta_product{steps: 3}", design=Design(gates=made))
    inputs = module.inputs(tokens())
    assert inputs["q"].shape[1] == 7 and inputs["log_decay"].shape == (2, 7, 2)
    assert inputs["k"].shape == inputs["v"].shape == (2, 21, 2, 4)
    assert inputs["step"].shape == (2, 21, 2) and bool((inputs["step"] == 0.5).all())
    plain = Design(gates={n: made[n] for n in ("step", "log_decay")})
    halved = inputs["v"] / layer("delta_product{steps: 3}", design=plain).inputs(tokens())["v"]
    assert halved[:, 0].allclose(halved[:, 2]) and not halved[:, 2].allclose(halved[:, 3])


def test_no_tokens_and_autocast() -> None:
    module = layer("gated_deltanet")
    cache = module.new_cache()
    with torch.no_grad():
        assert module(tokens(count=0)).shape == module(tokens(count=0), cache=cache).shape == (2, 0, 8)
        close(module(tokens(), cache=cache), module(tokens()), "gated_deltanet")
    module, x = module.float(), tokens().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(x)
    y.float().sum().backward()
    assert (y - module(x)).detach().abs().max() < 0.1
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in module.parameters())


def test_gates_of_a_user() -> None:
    module = layer("deltanet", design=Design(gates={"step": Fixed}))
    assert module.inputs(tokens())["step"].unique().tolist() == [0.5]
    assert "a half, [2]" in str(module)


BAD = [
    (dict(hidden_size=10, num_heads=4), "num_heads must be a divisor of hidden_size = 10"),
    (dict(num_heads=0), "num_heads must be at least 1 but is 0"),
    (dict(num_key_heads=3), "num_key_heads must be a divisor of num_heads = 2"),
    (dict(head_dim=0), "head_dim must be at least 1"),
    (dict(design=Design(gates={"steps": gates.Sigmoid})), "design must be about inputs of"),
    (dict(design=Design(learn=("ridge",))), "design must be about inputs of"),
    (dict(design=Design(learn=("state",))), "design.learn must be without 'state'"),
    (dict(design=Design(conv_size=9)), "design.conv_size must be in 0 .. 8 but is 9"),
    (dict(recipe="softmax", design=Design(conv_size=4, convolved="vx")), "of q, k and v, as similarity"),
    (dict(recipe="delta_product", design=Design(skip=True)), "design.skip must be False"),
    (
        dict(recipe="lru", design=Design(key_lags=(0.0, 1.0))),
        "design.key_lags must be of at most 8",
    ),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_sizes_and_designs(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match="TestTimeRegression") as error:
        layer(**{"recipe": "gated_deltanet", **options})  # type: ignore[arg-type]
    assert words in str(error.value)


def test_a_recipe_whose_gates_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from ttr.torch.nn import designs as table

    defaults = {n: f for n, f in table.DEFAULTS.items() if n != "erase_gate"}
    monkeypatch.setattr(table, "DEFAULTS", defaults)
    with pytest.raises(
        ValueError, match=r"recipe must be one whose inputs have gates .*erase_gate"
    ):
        TestTimeRegression("gated_deltanet2", 8, 2)
    with pytest.raises(ValueError, match="value_dim must be head_dim = 4"):
        layer("lru", value_dim=3)
    with pytest.raises(ValueError, match=r"design.gates\['log_decay'\] must be made without keys"):
        layer("lru", design=Design(gates={"log_decay": gates.KeySigmoid}))
    with pytest.raises(ValueError, match="nonsense"):
        layer("nonsense")


def test_bad_calls() -> None:
    one, two = layer("gated_deltanet"), layer("gated_deltanet")
    other = layer("deltanet")
    x = tokens()
    with pytest.raises(
        ValueError, match=r"x must be \[B,T,hidden_size\] = \[B,T,8\] but is \[2, 7, 5\]"
    ):
        one(x[..., :5])
    for stranger in (two.new_cache(), other.new_cache()):
        with pytest.raises(ValueError, match="cache must be one that new_cache"):
            one(x, cache=stranger)
        assert stranger.tokens == 0
    with pytest.raises(ValueError, match="cache must be a Cache"):
        one(x, cache={})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"x must be \[1,T,hidden_size\] where cu_seqlens is given"):
        one(x, cache=one.new_cache(), cu_seqlens=torch.tensor([0, 7]))
    with pytest.raises(ValueError, match="recipe must be causal"):
        layer("intention").new_cache()
    assert isinstance(one.new_cache(), Cache)
