"""One token of a call in one launch; its state is changed in place."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from ..portable.inputs import Call
from ..portable.passes import least_pivot
from ..portable.recipe import Choices, query_scale
from . import launches, token
from .passes import power

#: What neither kernel takes anything else of.
_PLAIN = {
    "features": "none", "function": "linear", "normalise_sum": "none", "output_norm": "none", "phase": False,
    "momentum": False, "preconditioner": "none", "causal": True,
}  # fmt: skip

#: The words that the kernels have a formula for; a branch of theirs would take any other for one of these.
_WORDS = {
    "decay": {"none", "constant", "retention", "scalar", "channel"},
    "importance": {"none", "input", "complement", "root_complement"},
    "step": {"input", "one", "nlms", "longhorn", "efla"},
    "erase": {"key", "erase_key", "gated_key", "undecayed"},
    "weight_decay": {"none", "coupled", "decoupled"},
}


def takes(call: Call) -> bool:
    """Whether there is a kernel for a token of this recipe, with a state of float32 as it lies."""
    choices = call.choices
    if any(getattr(choices, name) != value for name, value in _PLAIN.items()):
        return False
    if any(getattr(choices, option) not in words for option, words in _WORDS.items()):
        return False
    if any(t.dtype != torch.float32 or not t.is_contiguous() for t in call.state.values()):
        return False
    if choices.family == "least_squares":
        solved = choices.optimizer == "exact" and choices.ridge_kind in ("fading", "constant")
        return solved and choices.ridge > 0 and choices.correction == 0
    return choices.family in ("hebbian", "sgd")


def run(call: Call) -> Tensor:
    """y [B, 1, max(H, Hq), Dv]."""
    sizes = call.sizes
    y = torch.empty(sizes["B"], 1, max(sizes["H"], sizes["Hq"]), sizes["Dv"], dtype=call.tensors["v"].dtype,
                    device=call.device)  # fmt: skip
    (_solve if call.choices.family == "least_squares" else _step)(call, y)
    return y


def _given(call: Call, *names: str) -> list[Tensor | None]:
    found = (call.tensors.get(name) for name in names)
    return [None if x is None else x.contiguous() for x in found]


def _common(call: Call) -> dict[str, Any]:
    choices, sizes = call.choices, call.sizes
    heads = sizes["H"]
    return {
        "H": heads, "Q_HEADS": sizes["Hq"], "K_HEADS": sizes["Hk"], "V_HEADS": sizes["Hv"],
        "GROUPS": max(1, sizes["Hq"] // heads), "K": sizes["Dk"], "V": sizes["Dv"], "SIZE": power(sizes["Dk"]),
        "UNIT": choices.normalise_qk, "SCALE": query_scale(choices, sizes["Dk"]),
        "BEFORE": choices.read == "before", "DECAY": choices.decay,
        "FACTOR": choices.decay_factor,
    }  # fmt: skip


def _rule(choices: Choices) -> str:
    if choices.family == "sgd":
        return str(choices.step)
    return {"none": "unread", "input": "weighted"}.get(choices.importance, str(choices.importance))


def _step(call: Call, y: Tensor) -> None:
    choices, sizes = call.choices, call.sizes
    steps, hebbian = choices.family == "sgd", choices.family == "hebbian"
    names = ("q", "k", "v", "log_decay", "step" if steps else "importance", "erase_key", "erase_gate")
    tile = min(32, power(sizes["Dv"]))
    launches.launch(
        token.step, (sizes["N"] * sizes["H"], triton.cdiv(sizes["Dv"], tile)),
        *_given(call, *names, "weight_decay", "bonus"), call.state["state"], y,
        TILE=tile, ETA=choices.eta if hebbian else 1.0, CORRECTION=choices.correction, BONUS=choices.bonus,
        ROWS=choices.rows_per_token, RULE=_rule(choices), ERASE=choices.erase, SHRINK=choices.weight_decay,
        RATE=choices.eta, EPS=choices.eps, **_common(call),
    )  # fmt: skip


def _solve(call: Call, y: Tensor) -> None:
    choices, sizes = call.choices, call.sizes
    common = _common(call)
    ridge = call.tensors.get("ridge") if choices.ridge_kind == "constant" else None
    stays = choices.ridge if choices.ridge_kind == "constant" else 0.0
    launches.launch(
        token.solve, (sizes["N"] * sizes["H"],),
        *_given(call, "q", "k", "v", "log_decay", "importance"), None if ridge is None else ridge.contiguous(),
        call.state["state.a"], call.state["state"], y, least_pivot(sizes["Dk"], torch.float32),
        QUERIES=triton.next_power_of_2(common["GROUPS"]), TILE=min(32, power(sizes["Dv"])),
        WEIGHTED=choices.importance == "input", RIDGE=stays, RIDGES=0 if ridge is None else ridge.dim(),
        num_warps=4 if common["SIZE"] <= 64 else 8, **common,
    )  # fmt: skip
