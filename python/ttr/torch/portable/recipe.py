"""A recipe's values, as the portable forms read them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import ttr

#: The words of every option that a portable form has a formula for; it is asked for no other. Words whose
#: formulas stand in one table are added there (`known`).
WORDS: dict[str, set[str]] = {
    "decay": {"none", "constant", "retention", "scalar", "channel", "matrix"},
    "importance": {"none", "input", "log", "complement", "root_complement"},
    "pair_bias": {"none", "input", "distance", "power", "block", "prefix"},
    "function": {"constant", "linear", "affine", "polynomial", "kernel", "network"},
    "optimizer": {"gradient", "sgd", "exact", "conjugate_gradient", "chebyshev"},
    "weight_decay": {"none", "coupled", "decoupled"},
    "preconditioner": {"none", "diagonal", "block_diagonal", "low_rank", "chunk_factor"},
    "eta_kind": {"constant", "relative", "input"},
    "ridge_kind": {"fading", "constant", "relative"},
    "factor": {"cholesky"},
    "activation": {"silu", "gelu", "relu", "tanh"},
    "loss": {"squared", "dot_product"},
    "adapt": {"none", "adagrad", "adam"},
    "row_factor": {"one", "inverse"},
    "read": {"after", "before", "batch_start", "batch_end"},
    "normalise_sum": {"none", "sum", "stabilised"},
    "output_norm": {"none", "l2", "rms"},
}  # fmt: skip
#: Options that are numbers, flags, or a number or a word each of which is read.
NUMBERS = {
    "phase", "nu", "max_length", "steps", "eta", "eps", "momentum", "block", "curvature_decay",
    "curvature_centre", "ridge", "tolerance", "bonus", "normalise_qk", "scale", "correction",
    "causal", "depth", "expansion", "gated", "norm", "residual", "bias", "mini_batch",
    "window", "bandwidth", "degree", "budget", "rank", "extent", "exponent",
}  # fmt: skip
#: Options of directions that this road does not draw: it asks for features_w.
_DRAWN = {"feature_dim", "seed"}
#: Inputs that a portable form reads.
INPUTS = {
    "q", "k", "v", "v_im", "log_decay", "phase", "importance", "log_importance", "step", "momentum",
    "weight_decay", "erase_key", "erase_gate", "dt", "a", "bonus", "ridge", "features.w",
    "features.b", "ln_weight", "ln_bias", "row_bias", "bandwidth", "pair_bias",
    "cu_seqlens",
}  # fmt: skip


def known(option: str, words: Iterable[str]) -> None:
    """The words of an option whose formulas stand where this is called."""
    WORDS.setdefault(option, set()).update(words)


class Input(NamedTuple):
    """One input of a recipe.

    ``argument`` is its name as a Python caller writes it: ``features_w`` for ``features.w``.
    ``shapes`` are those it may have, as names of axes. ``sign`` is +1 where no entry may be
    negative, -1 where none may be positive, else 0. Rows of the inputs that it ``weighs`` count for
    nothing where it is exactly ``weightless``.
    """

    name: str
    argument: str
    shapes: tuple[tuple[str, ...], ...]
    required: bool
    sign: int
    weighs: tuple[str, ...]
    weightless: float


class Entry(NamedTuple):
    """One tensor of a state: its name, and its shape as names of axes."""

    name: str
    shape: tuple[str, ...]


#: The sign that the library's ranges ask for.
_SIGNS = {"<= 0": -1, ">= 0": 1, "any": 0}


class Choices:
    """The three choices of a recipe and how it is read, by the names of its options.

    ``decay`` is a word; ``decay_factor`` is the number of a constant decay. ``scale`` is a number,
    or None where it is Dk ** -0.5.
    """

    def __init__(self, recipe: Any) -> None:
        recipe = recipe if isinstance(recipe, ttr.Recipe) else ttr.Recipe(recipe)
        self.text = str(recipe)
        values = _every_option(recipe)
        self.decay_factor = 1.0
        if not isinstance(values["decay"], str):
            self.decay_factor = float(values["decay"])
            values["decay"] = "constant"
        if values["scale"] == "rsqrt_dk":
            values["scale"] = None
        self.__dict__.update(values)
        self.family = recipe.family
        # phi(k) of d channels has c0 + c1 d + c2 d (d - 1) / 2 numbers, and c3 more for every row of
        # given features. Found from four sizes, for the tracer cannot look into the library.
        none, one, two, row = (recipe.phi_dim(*at) for at in ((0, 1), (1, 1), (2, 1), (0, 2)))
        per_row = row - none
        self.phi_terms = (none - per_row, one - none, two - 2 * one + none, per_row)
        self.unknown = _unknown(values)
        #: Rows of k, v and step that a token takes.
        self.rows_per_token = int(values["steps"]) if values["optimizer"] == "sgd" else 1
        self.inputs = tuple(_input(spec) for spec in ttr.input_specs(recipe))
        self.state = tuple(Entry(s["name"], tuple(s["shape"])) for s in ttr.state_specs(recipe))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def phi_dim(choices: Choices, key_dim: int, features: int) -> int:
    """Numbers in phi(k), with the 1 of an affine memory. (A method would hide it from the tracer.)"""
    constant, linear, quadratic, per_row = choices.phi_terms
    pairs = key_dim * (key_dim - 1) // 2
    return int(constant + linear * key_dim + quadratic * pairs + per_row * features)


def query_scale(choices: Choices, key_dim: int) -> float:
    """What multiplies a query. (A method would hide it from the tracer.)"""
    return key_dim**-0.5 if choices.scale is None else float(choices.scale)


def _every_option(recipe: ttr.Recipe) -> dict[str, Any]:
    """Every option of a recipe by its name, also those at their defaults."""
    values: dict[str, Any] = {}
    for part in recipe.to_dict(every_option=True).values():
        values.update(part)
    return values


@functools.lru_cache(maxsize=1)
def _defaults() -> dict[str, Any]:
    return _every_option(ttr.Recipe("uniform | linear | gradient"))


def _unknown(values: dict[str, Any]) -> str | None:
    """The first option or word that no portable form has; None where there is none."""
    for name, value in values.items():
        known = name in NUMBERS or name in _DRAWN or value in WORDS.get(name, ())
        if not known and value != _defaults().get(name, object()):
            return f"{name}: {str(value).lower() if isinstance(value, bool) else value}"
    return None


def _input(spec: dict[str, Any]) -> Input:
    shapes = tuple(tuple(shape) for shape in spec["shapes"])
    return Input(
        spec["name"], spec["keyword"], shapes, bool(spec["required"]), _SIGNS[spec["range"]],
        tuple(spec["weighs"]), spec["weightless"],
    )  # fmt: skip


@functools.lru_cache(maxsize=256)
def _cached(text: str) -> Choices:
    return Choices(text)


@torch.compiler.assume_constant_result  # the tracer cannot look into the extension module
def _parsed(text: str) -> Choices:
    return _cached(text)


def choices(recipe: Any) -> Choices:
    """The values of a recipe: text, a dict, or a ttr.Recipe. Text is parsed once."""
    if isinstance(recipe, Choices):
        return recipe
    return _parsed(recipe if isinstance(recipe, str) else str(ttr.Recipe(recipe)))
