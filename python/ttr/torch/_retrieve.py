"""What a state answers: `retrieve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor

import ttr

from ._arguments import State
from ._recipes import info_of, text_of
from ._reports import array, on, refuse_gradients, rooms_of_state


@overload
def retrieve(
    recipe: Any, state: State, q: Tensor | None = None, *, reports: None = None, **inputs: Tensor
) -> Tensor: ...


@overload
def retrieve(
    recipe: Any, state: State, q: Tensor | None = None, *, reports: Sequence[str], **inputs: Tensor
) -> tuple[Tensor, dict[str, Tensor]]: ...


def retrieve(
    recipe: Any,
    state: State,
    q: Tensor | None = None,
    *,
    reports: Sequence[str] | None = None,
    **inputs: Tensor,
) -> Any:
    """What the memory of a state answers to any queries: y_j = m(q_j). Nothing is memorized.

        y, state = ttr.torch.regress("rls", q, k, v, return_state=True)
        answers = ttr.torch.retrieve("rls", state, probes)

    =============  ==========================  ======================================================
    state          by `ttr.state_specs`        of `regress`, `regress_at`, a `Decoder` or a `Cache`
    q              [B, T, Hq, Dk]              T queries of each row's memory, in any number; absent
                                               for recipes without queries (`lru`): T is 1
    inputs         `ttr.input_specs`           the recipe's constants (ln_weight, ridge, ...), and what
                                               belongs to queries ("of_query")
    =============  ==========================  ======================================================

    y is [B, T, max(H, Hq), Dv], float32, float64 or bfloat16 as q is; as the state where there is none.
    It is what `regress` answers to a token's query once it has written the token. Two recipes add what
    is of the token and in no state: `rwkv6` reads before it writes, its y_t is retrieve(m_{t-1}, q_t)
    + v_t (k_t . (u * q_t)); `comba` asks for q_t - 0.02 erase_key_t.

    With `reports`, names as in `regress`, the pair (y, reports by name): of a `Decoder`'s token they are
    those of `decoder.state()` behind it.

    Cost: that of a token's reading for each query, on the CPU, wherever the tensors are. No gradients:
    a RuntimeError where one is asked for. ValueError that names the argument: a recipe without a
    state, as it reads the whole sequence; inputs that are of tokens; sizes.
    """
    info = info_of(text_of(recipe))
    if not info.states:
        raise ValueError(f"[retrieve] recipe must be causal, with a state to be asked, but is {info.text}")
    if not isinstance(state, Mapping):
        raise ValueError(f"[retrieve] state must be tensors by their names but is {type(state).__name__}")
    held = {name: tensor for name, tensor in state.items() if tensor is not None}
    if not held:
        raise ValueError("[retrieve] state must have entries, of a memory that has read, but is empty")
    refuse_gradients("retrieve", {"q": q, **held, **inputs}, "reading has none here")
    first = next(iter(held.values()))
    like = first if q is None else q
    arrays = {name: array(t) for name, t in held.items()}
    given = {name: array(t) for name, t in inputs.items()}
    made = rooms_of_state(info.text, reports or (), held, q)
    out = dict(made)
    if q is None:
        batch, heads, size = first.shape[:3]
        out["y"] = array(first.new_empty(batch, 1, heads, size))
    y = ttr.Layer(info.text).retrieve(None if q is None else array(q), state=arrays, out=out, **given)
    answers = torch.from_numpy(y).to(like.device, like.dtype)
    return answers if reports is None else (answers, on(like.device, made))
