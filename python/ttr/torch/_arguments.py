"""What a caller writes, as the operators take it."""

from __future__ import annotations

from typing import Any, Mapping

from torch import Tensor
from torch.compiler import is_compiling

from ttr._names import likely

from ._library import BITS, INPUTS
from ._recipes import RecipeInfo, info_of

State = Mapping[str, "Tensor | None"]

# Names as they were written -> their bits, and their order: a program calls in a few ways.
_orders: dict[tuple[Any, ...], tuple[int, tuple[str, ...]]] = {}


def arrange(
    text: str, q: Tensor | None, k: Tensor | None, v: Tensor | None, inputs: dict[str, Any]
) -> tuple[list[Tensor], int]:
    """The tensors that are given, in the order of `INPUTS`, and their bits.

    ValueError: a name that is no input's.
    """
    for tensor in inputs.values():
        if tensor is None:
            inputs = {name: tensor for name, tensor in inputs.items() if tensor is not None}
            break
    key = (q is None, k is None, v is None, *inputs)
    found = None if is_compiling() else _orders.get(key)
    if found is None:
        found = _order(text, key)
        if not is_compiling() and len(_orders) < 1024:
            _orders[key] = found
    given, names = found
    if given & 7 == 7:
        return [q, k, v, *[inputs[name] for name in names]], given
    lead = [tensor for tensor in (q, k, v) if tensor is not None]
    return [*lead, *[inputs[name] for name in names]], given


def _order(text: str, key: tuple[Any, ...]) -> tuple[int, tuple[str, ...]]:
    names = key[3:]
    given = sum(1 << i for i in range(3) if not key[i])
    for name in names:
        if name not in BITS:
            raise ValueError(_unknown(text, name))
        given |= BITS[name]
    return given, tuple(sorted(names, key=INPUTS.index))


def _unknown(text: str, name: str) -> str:
    """What the recipe takes instead, and which of it is likely meant."""
    if name == "reports":
        return (
            "[forward] reports must be absent here: regress(..., reports=...) and "
            "Decoder.step(..., reports=...) have them"
        )
    taken = [keyword for keyword, _, _ in info_of(text).inputs]
    meant = f": did you mean {likely(name, taken)}?" if likely(name, taken) else ""
    return (
        f"[forward] '{name}' must be an input of {text} ({', '.join(taken)}) but is none{meant}"
    )


def entries_of(info: RecipeInfo, state: State) -> tuple[list[Tensor], int]:
    """The state's tensors in the order of the recipe, and their bits.

    ValueError: an entry that this recipe's state does not have.
    """
    tensors, entries = [], 0
    for i, name in enumerate(info.states):
        tensor = state.get(name)
        if tensor is not None:
            tensors.append(tensor)
            entries |= 1 << i
    for name, tensor in state.items():
        if tensor is not None and name not in info.states:
            has = ", ".join(info.states) or "nothing, as it carries nothing"
            raise ValueError(
                f"[forward] state must be of the entries {has} but has '{name}', for {info.text}"
            )
    return tensors, entries


def all_entries(op: str, info: RecipeInfo, state: State) -> list[Tensor]:
    """A state of which nothing is absent. ValueError otherwise."""
    tensors, entries = entries_of(info, state)
    for i, name in enumerate(info.states):
        if not entries >> i & 1:
            raise ValueError(f"[{op}] {name} must be given but is absent")
    return tensors


def count_tokens(info: RecipeInfo, inputs: Mapping[str, Tensor | None]) -> int:
    """T of a call."""
    return min((t.shape[1] for t in _timed(info, inputs).values()), default=0)


def slice_tokens(
    info: RecipeInfo, inputs: Mapping[str, Tensor | None], begin: int, end: int
) -> dict[str, Tensor | None]:
    """The inputs of tokens begin .. end; of some a token has several rows."""
    timed, count = _timed(info, inputs), count_tokens(info, inputs)
    part = dict(inputs)
    for name, tensor in timed.items():
        rows = tensor.shape[1] // max(count, 1)
        part[name] = tensor[:, begin * rows : end * rows]
    return part


def _timed(info: RecipeInfo, inputs: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """The inputs that have a row for each token, or some rows."""
    timed = {keyword for keyword, axes, _ in info.inputs if axes[0][1:2] in _TIMED}
    return {
        name: tensor
        for name, tensor in inputs.items()
        if tensor is not None and tensor.dim() > 1 and name in timed
    }


_TIMED = (("T",), ("T n",))
