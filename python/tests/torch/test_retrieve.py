"""`ttr.torch.retrieve`: what a state answers."""

from __future__ import annotations

import pytest
import torch
import ttr
import ttr.torch
from nn_cases import CAUSAL, layer, tolerance, tokens


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_a_state_answers_what_the_layer_answered(name: str) -> None:
    """At every position; other queries there are answered as well, and nothing is memorized."""
    module, x = layer(name), tokens(2, 6)
    inputs = module.inputs(x)
    y = ttr.torch.regress(module.recipe, state=module._state(), **inputs)
    states = module.states(x, [3, 6])
    for state, t in zip(states, (2, 5), strict=True):
        copies = {n: s.clone() for n, s in state.items()}
        q = inputs["q"][:, t : t + 1] if "q" in inputs else None
        asked = q - 0.02 * inputs["erase_key"][:, t : t + 1] if name == "comba" else q
        found = module.retrieve(state, asked)
        if name == "rwkv6":  # reads before it writes
            found = module.retrieve(module.states(x, [t])[0], q)
            bonus = module.gates["bonus"].value * inputs["k"][:, t : t + 1]
            found = found + (bonus * q).sum(-1, keepdim=True) * inputs["v"][:, t : t + 1]
        bound = tolerance(name)
        torch.testing.assert_close(found, y[:, t : t + 1], rtol=bound, atol=bound)
        assert all(torch.equal(state[n], copies[n]) for n in state)
    if "q" in inputs:
        each = module.retrieve(states[0], inputs["q"][:, 2:4])
        again = torch.cat([module.retrieve(states[0], inputs["q"][:, t : t + 1]) for t in (2, 3)], 1)
        torch.testing.assert_close(each, again, rtol=1e-12, atol=1e-14)
        assert (each[:, 0] - each[:, 1]).abs().max() > 1e-6


@torch.no_grad()
def test_a_memory_is_probed_by_values_of_its_own() -> None:
    """What has been memorized comes back, by `retrieve` and from a cache, in the queries' type."""
    k = torch.eye(4)[None, :, None, :]
    v = torch.arange(12.0).reshape(1, 4, 1, 3)
    _, state = ttr.torch.regress("deltanet", k, k, v, step=torch.ones(1, 4, 1), return_state=True)
    assert torch.equal(ttr.torch.retrieve("deltanet", state, k), v)
    narrow = ttr.torch.retrieve("deltanet", state, k.bfloat16())
    assert narrow.dtype == torch.bfloat16 and torch.equal(narrow.float(), v)
    module, x = layer("rls"), tokens()
    cache = module.new_cache()
    module(x, cache=cache)
    q = module.inputs(x)["q"]
    found, want = (module.retrieve(s, q) for s in (cache.state(), module.states(x, [7])[0]))
    torch.testing.assert_close(found, want, rtol=1e-8, atol=1e-8)


def test_refusals() -> None:
    q, k = tokens(1, 3)[..., None, :], tokens(1, 3, seed=2)[..., None, :]
    _, state = ttr.torch.regress("rls", q, k, k, return_state=True)
    with pytest.raises(ValueError, match=r"\[retrieve\] recipe must be causal, with a state to be asked"):
        ttr.torch.retrieve("intention", state, q)
    with pytest.raises(ValueError, match="recipe must be causal, with a state to be looked at"):
        layer("intention").states(tokens(), [1])
    with pytest.raises(ValueError, match="state must have entries"):
        ttr.torch.retrieve("rls", {}, q)
    with pytest.raises(ValueError, match="v must be absent where nothing is written"):
        ttr.torch.retrieve("rls", state, q, v=k)
    with pytest.raises(ValueError, match="log_decay must be absent where nothing is written"):
        ttr.torch.retrieve("gated_deltanet", state, q, log_decay=k[..., 0])
    with pytest.raises(ValueError, match=r"\[Retrieve\] state must be .*1,1,3,8.* but is"):
        ttr.torch.retrieve("rls", state, q[..., :3])
    with pytest.raises(ValueError, match="at must rise from 1 to 7"):
        layer("rls").states(tokens(), [8])
    wanted = q.clone().requires_grad_()
    with pytest.raises(RuntimeError, match=r"\[retrieve\] q must not require gradients"):
        ttr.torch.retrieve("rls", state, wanted)
    with torch.no_grad():
        ttr.torch.retrieve("rls", state, wanted)
