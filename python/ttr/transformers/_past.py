"""The way back of recurrent states in the caches of transformers, for assisted generation.

A cache that records (`activate_past_recording`) keeps what convolutions and attention need to go back by
some tokens, and nothing of its recurrent states. Here each of its layers also keeps the calls of its
mixer since it was last cropped: the state before a call, and how the function that was called leaves the
state of the first tokens alone. To go back between two calls is to take the state between them; to go
back into a call is to repeat the call with fewer tokens.

A mixer fetches the state of its layer, then calls a function. The two are brought together by thread.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling


@dataclasses.dataclass(eq=False)
class Call:
    """A call of a mixer on a layer that records."""

    before: Tensor | None  #: the state before it; None: zeros
    given: Tensor | None  #: the copy of it that the mixer may write
    tokens: int = 0  #: 0: no function of ours was called
    again: Callable[[Tensor | None, int], Tensor] | None = None  #: the state after the first tokens


@dataclasses.dataclass(frozen=True)
class _Form:
    """How a function over a sequence is called with fewer tokens."""

    tokens: tuple[str, ...]  #: parameters with an axis 1 of tokens
    state: str  #: the parameter with the first state
    wants: str  #: the parameter that asks for the last one, which comes second


_DELTA = _Form(("query", "key", "value", "g", "beta"), "initial_state", "output_final_state")
_FORMS = {
    "torch_chunk_gated_delta_rule": _DELTA,
    "chunk_kimi_delta_attention": _DELTA,
    "mamba2_chunk_scan": _Form(
        ("hidden_states", "dt", "B", "C"), "initial_states", "return_final_states"
    ),
}
#: Functions over one token.
_UPDATES = frozenset(
    {
        "torch_recurrent_gated_delta_rule",
        "recurrent_kimi_delta_attention",
        "mamba2_selective_state_update",
    }
)
#: Scans that begin at zeros whatever the cache holds: behind them no draft can be checked.
_FORGETFUL = "mamba_selective_scan"


class _Journal:
    """What a layer that records has read."""

    def __init__(self) -> None:
        self.calls: dict[int, list[Call]] = {}  #: since it was last cropped, by number of state
        self.settled: int | None = None  #: tokens before those; None: not known

    def begin(self, index: int, call: Call) -> None:
        if not self.calls and self.settled is None and call.before is None:
            self.settled = 0
        self.calls.setdefault(index, []).append(call)

    def known(self) -> int:
        """Tokens that its recurrent states can go back by."""
        return min(map(_tokens, self.calls.values()), default=0)

    def read(self) -> int | None:
        """Tokens that the layer has read; None where some went another way."""
        calls = next(iter(self.calls.values()), [])
        if self.settled is None or not all(call.tokens for call in calls):
            return None
        return self.settled + _tokens(calls)

    def close(self, back: int) -> None:
        """Behind a crop."""
        read = self.read()
        self.settled, self.calls = None if read is None else read - back, {}


def _tokens(calls: list[Call]) -> int:
    """Tokens of the last calls, back to one that went another way."""
    return sum(call.tokens for call in itertools.takewhile(lambda c: c.tokens, reversed(calls)))


_now = threading.local()
_journals: weakref.WeakKeyDictionary[Any, _Journal] = weakref.WeakKeyDictionary()


def goes_back(names: Any) -> bool:
    """Whether models whose module has these functions can take tokens back."""
    return _FORGETFUL not in names and any(name in _FORMS for name in names)


def note(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """`function` is about to be called: if a layer that records waits for it, this is its call."""
    call: Call | None = getattr(_now, "call", None)
    if call is None or not (name in _FORMS or name in _UPDATES):
        return
    _now.call = None
    if name in _UPDATES:
        call.tokens = 1
        return
    form, bound = _FORMS[name], inspect.signature(function).bind(*args, **kwargs)
    call.tokens = bound.arguments[form.tokens[0]].shape[1]
    call.again = functools.partial(_repeat, function, form, bound)


def _repeat(
    function: Callable[..., Any],
    form: _Form,
    bound: inspect.BoundArguments,
    state: Tensor | None,
    tokens: int,
) -> Tensor:
    fewer = {name: bound.arguments[name][:, :tokens] for name in form.tokens}
    words = {**bound.kwargs, form.state: state, form.wants: True}
    named = {name: value for name, value in bound.arguments.items() if name not in ("args", "kwargs")}
    _, last = function(**{**named, **words, **fewer})
    state_after: Tensor = last
    return state_after


def _is_recurrent(layer: Any) -> bool:
    return any(layer.is_recurrent_states_initialized.values())


def _state_before(calls: list[Call], tokens: int) -> Tensor | None:
    """The state as before the last tokens."""
    while calls[-1].tokens < tokens:
        tokens -= calls.pop().tokens
    last = calls.pop()
    if last.tokens == tokens:
        return last.before
    assert last.again is not None
    with torch.no_grad():
        return last.again(last.before, last.tokens - tokens)


# ---- What is bound to the classes of transformers' caches ----------------------------------------


def _get_conv_state(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def get_conv_state(self: Any, layer_idx: int, state_idx: int = 0) -> Any:
        """A layer that records grows by a token where a mixer writes its one token in place."""
        state = theirs(self, layer_idx, state_idx)
        layer = self.layers[layer_idx]
        if is_compiling() or state is None or not layer.record_past or not _is_recurrent(layer):
            return state
        layer.conv_states[state_idx] = F.pad(state, (1, 0))
        return layer.conv_states[state_idx]

    return get_conv_state


def _get_recurrent_state(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def get_recurrent_state(self: Any, layer_idx: int, state_idx: int = 0) -> Any:
        """A mixer gets a copy to write, and a call begins."""
        state = theirs(self, layer_idx, state_idx)
        if is_compiling():
            return state
        layer, _now.call = self.layers[layer_idx], None
        if not layer.record_past:
            return state
        given = None if state is None else state.clone()
        if given is not None:
            layer.recurrent_states[state_idx] = given
        _now.call = Call(state, given)
        _journals.setdefault(layer, _Journal()).begin(state_idx, _now.call)
        return given

    return get_recurrent_state


def _get_seq_length(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def get_seq_length(self: Any, layer_idx: int = 0) -> int:
        """Tokens that were read, also where no layer has attention: generation asks an assistant."""
        if layer_idx == 0 and not is_compiling() and self.layers and all(self.is_linear):
            journal = _journals.get(self.layers[0])
            read = journal.read() if journal else None
            if read is not None:
                return read
        length: int = theirs(self, layer_idx)
        return length

    return get_seq_length


def _crop(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def crop(self: Any, tokens_to_remove: int) -> None:
        journal, back = _journals.get(self), -tokens_to_remove
        known = journal.known() if journal else 0
        if 0 < known < back:
            raise RuntimeError(
                f"[crop] tokens_to_remove must be from -{known} to 0, the tokens since the last crop, "
                f"but is {tokens_to_remove}"
            )
        theirs(self, tokens_to_remove)
        if journal and known:
            calls = journal.calls
            journal.close(back)
            for index in calls if back else ():
                state, lies = _state_before(calls[index], back), self.recurrent_states[index]
                self.recurrent_states[index] = torch.zeros_like(lies) if state is None else state

    return crop


def _forgetting(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def change(self: Any, *args: Any) -> None:
        """Behind it the states are not those of the calls."""
        _journals.pop(self, None)
        theirs(self, *args)

    return change


def _is_croppable(theirs: property) -> property:
    def is_croppable(self: Any) -> bool:
        if _is_recurrent(self):
            return self.record_past and self in _journals and _journals[self].known() > 0
        croppable: bool = theirs.fget(self)  # type: ignore[misc]
        return croppable

    return property(is_croppable, doc=theirs.__doc__)


def _is_new(version: str) -> bool:
    numbers = version.split(".")[:2]
    return all(n.isdigit() for n in numbers) and [int(n) for n in numbers] >= [5, 24]


def of_caches() -> dict[Any, dict[str, tuple[Any, Any]]]:
    """By class of transformers' caches: what its attributes are, and ours. Empty before 5.24, whose
    caches and generation these are."""
    module = sys.modules.get("transformers.cache_utils")
    if not _is_new(getattr(sys.modules.get("transformers"), "__version__", "")):
        return {}
    wanted: dict[str, dict[str, Callable[[Any], Any]]] = {
        "Cache": {
            "get_conv_state": _get_conv_state,
            "get_recurrent_state": _get_recurrent_state,
            "get_seq_length": _get_seq_length,
        },
        "LinearAttentionCacheLayerMixin": {
            "crop": _crop,
            "is_croppable": _is_croppable,
            "reset": _forgetting,
            "reorder_cache": _forgetting,
        },
    }
    found: dict[Any, dict[str, tuple[Any, Any]]] = {}
    for name, makers in wanted.items():
        owner = getattr(module, name, None)
        if owner is None or not all(attribute in vars(owner) for attribute in makers):
            return {}
        held = {attribute: vars(owner)[attribute] for attribute in makers}
        found[owner] = {at: (held[at], make(held[at])) for at, make in makers.items()}
    return found
