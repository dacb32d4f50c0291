"""Any recipe as a layer that learns: `TestTimeRegression`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttr

from .._regress import regress, regress_at
from .._retrieve import retrieve
from . import designs as table
from ._around import norm
from ._cache import Cache, check_cache, refuse_gradients
from ._convolution import Lags, ShortConvolution
from ._padding import bounds_of, padding_of
from ._rotary import positions_of, rotate
from ._sizes import refuse, sizes_of
from ._start import add_late_parts, start_open
from ._words import describe
from ._written import design_of
from .designs import Design
from .gates import Need

_ROWS = ("q", "k", "v")
_FACTORS = {"key_scale": "Dk", "value_scale": "Dv"}


class TestTimeRegression(nn.Module):
    """A sequence layer of any recipe, between what a network puts around it:

        q, k, v = rows of W x, convolved, normalised              (design)
        y_t     = m_t(q_t), m_t = the recipe's regression of v_1..t on k_1..t
        out     = W_o (norm(y) (.) gate(x))

    ==============  ================================================================================
    recipe          a name of the zoo, one with changes in braces, a recipe line, or a `ttr.Recipe`
    hidden_size     of x
    num_heads       memories H: the heads of v and of every gate
    head_dim        Dk of q and k (hidden_size / num_heads)
    value_dim       Dv of v (head_dim)
    num_key_heads   heads of q and k; divides num_heads (num_heads; of a matrix decay 1)
    design          what is around the memory (`published(recipe)`): a `Design`, the name of a published
                    one, or the words that a configuration has for one
    ==============  ================================================================================

    Every input that the recipe asks for beside q, k and v is made by a gate (`ttr.torch.nn.gates`):
    as the layer's paper makes it, or the way that `DEFAULTS` has for the input. `print(layer)` says
    all of it.

    forward(x [B, T, hidden_size]) gives [B, T, hidden_size]: float32, float64, bfloat16 or float16 as its
    parameters; differentiable in x and all parameters, once. `cu_seqlens` [N + 1] packs sequences
    (B = 1). `attention_mask` [B, T] (bool, or 0 and 1) or `lengths` [B] say which tokens are real, wherever
    the others stand: those are not memorized and outputs there are zeros, and each row's real tokens
    have the outputs that they have alone. A mask of ones costs nothing but to look at it.

    With `cache` (`new_cache`) it goes on from the tokens before, a row of the batch or a packed sequence
    each: whole = split anywhere = token by token, without gradients: a RuntimeError where x or a parameter
    wants one, that is, outside of torch.no_grad().

    Cost: the projections', and the engine's (`ttr.plan`). Recipes without an engine with gradients are
    trained by PyTorch's operators (`ttr.torch.portable`).

    Errors: ValueError that names the argument.
    """

    __test__ = False  # pytest: not a class of tests

    def __init__(
        self,
        recipe: Any,
        hidden_size: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        value_dim: int | None = None,
        num_key_heads: int | None = None,
        design: Design | str | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.design = table.published(recipe) if design is None else design_of(design)
        self.recipe = ttr.Recipe(recipe)
        self._text = str(self.recipe)
        self._specs = {spec["keyword"]: spec for spec in ttr.input_specs(self.recipe)}
        self.sizes = sizes_of(
            self.recipe, self._specs, hidden_size, num_heads, head_dim, value_dim, num_key_heads
        )
        self.hidden_size = self.sizes.hidden
        self._check_design()
        self._make_rows()
        self._make_gates()
        self._make_output()

    # ---- Building --------------------------------------------------------------------------------

    def _check_design(self) -> None:
        design = self.design
        for name in (*design.gates, *design.learn):
            if name not in (*self._specs, *_FACTORS, "state") or name in (*_ROWS, "cu_seqlens"):
                inputs = [n for n in self._specs if n not in (*_ROWS, "cu_seqlens")]
                has = ", ".join([*inputs, *_FACTORS])
                refuse("design", f"about inputs of {self._text} ({has})", f"about '{name}'")
        if design.skip and self.sizes.steps > 1:
            refuse("design.skip", f"False, as {self._text} takes several pairs a token,", True)
        if design.conv_size and not 1 <= design.conv_size <= 8:
            refuse("design.conv_size", "in 0 .. 8", design.conv_size)
        if not 0 <= design.rotary < math.inf:
            refuse("design.rotary", "a finite base above 0, or 0: none,", design.rotary)
        turned = not {"q", "k"} - set(self._specs) and self.sizes.key_dim % 2 == 0
        if design.rotary and not (turned and self.sizes.steps == 1):
            what = f"0, as {self._text} has no q and k of an even head_dim, one a token,"
            refuse("design.rotary", what, design.rotary)
        if len(design.key_lags) > 8 or (design.key_lags and "k" not in self._specs):
            refuse("design.key_lags", "of at most 8 lags, for a recipe with keys,", design.key_lags)

    def _make_rows(self) -> None:
        """Projections and convolutions of q, k and v, of those that the recipe reads."""
        design = self.design
        self.project, self.convolve = nn.ModuleDict(), nn.ModuleDict()
        for name in _ROWS:
            if name not in self._specs:
                continue
            width = math.prod(self.sizes.rows[name]) * self.sizes.rows_of_token(name)
            silu = name in design.silu
            self.project[name] = nn.Linear(self.hidden_size, width, bias=design.bias)
            if name == "k" and design.key_lags:
                self.convolve[name] = Lags(width, design.key_lags, design.learn_lags, silu)
            elif design.conv_size and name in design.convolved:
                self.convolve[name] = ShortConvolution(width, design.conv_size, silu)
        if design.conv_size and "x" in design.convolved:
            self.convolve["x"] = ShortConvolution(self.hidden_size, design.conv_size, False)

    def _make_gates(self) -> None:
        """What makes each further input that is required, learned, or in the design."""
        design = self.design
        features = table.FEATURES.get(self.recipe.option("features"), {})
        learned = {*design.learn, *features}
        factories = {**table.DEFAULTS, **features, **design.gates}
        self.gates = nn.ModuleDict()
        self._flattened: dict[str, int] = {}  # inputs [B, T n, ...]: dimensions of [B, T, n, ...]
        for name, spec in self._specs.items():
            if name in (*_ROWS, "cu_seqlens") or self._is_made(name):
                continue
            if not (spec["required"] or name in learned or name in design.gates):
                continue
            factory = factories.get(name)
            if factory is None:
                refuse(
                    "recipe", f"one whose inputs have gates (design.gates['{name}'])", self._text
                )
            axes = spec["shapes"][-1]
            if "T n" in axes:
                self._flattened[name] = len(axes) + 1
            self._add_gate(name, factory(self._need(name, axes)))
        for name, axis in _FACTORS.items():
            if name in design.gates:
                self._add_gate(name, design.gates[name](self._need(name, ["H", axis])))
        if "x" in self.convolve and not self.gates:
            what = f"of q, k and v, as {self._text} has no gates,"
            refuse("design.convolved", what, design.convolved)
        self.start: Any = nn.ParameterDict(self._start()) if "state" in learned else {}

    def _add_gate(self, name: str, gate: nn.Module) -> None:
        if getattr(gate, "reads_keys", False) and "k" not in self._specs:
            refuse(f"design.gates['{name}']", f"made without keys, as {self._text} has none,", gate)
        self.gates[name] = gate

    def _is_made(self, name: str) -> bool:
        """Whether the gate of another input gives this one, too."""
        return any(name in getattr(gate, "also", ()) for gate in self.gates.values())

    def _need(self, name: str, axes: list[str]) -> Need:
        lengths = self._lengths()
        shape = tuple(lengths[axis] for axis in axes if axis not in ("B", "T"))
        return Need(name, shape, self.hidden_size, lengths["H"], lengths["Dk"], self.recipe)

    def _lengths(self) -> dict[str, int]:
        """The length of every axis that a parameter may have."""
        sizes, option = self.sizes, self.recipe.option
        hidden = int(option("expansion")) * sizes.key_dim
        drawn = option("features") in ("rfa", "favor", "dijiang")
        return {
            "H": sizes.heads,
            "Dk": sizes.key_dim,
            "Dv": sizes.value_dim,
            "F": int(option("feature_dim")) if drawn else sizes.key_dim,
            "T n": sizes.steps,
            "n": int(option("steps")),
            "mini_batch": int(option("mini_batch")),
            "hidden": hidden,
            "2 hidden": 2 * hidden,
            "1": 1,
        }

    def _start(self) -> dict[str, nn.Parameter]:
        """The learned start of every entry that is no count and no update: weights of a network are
        normal with the design's deviation, all else is zero."""
        lengths, start = self._lengths(), {}
        for spec in ttr.state_specs(self.recipe):
            name, axes = spec["name"].removeprefix("state."), spec["shape"][1:]
            if name[0] not in "wb" or "Dphi" in axes:
                continue
            value = torch.zeros([lengths[axis] for axis in axes])
            if name[0] == "w":
                value.normal_(std=self.design.start_size or value.shape[-2] ** -0.5)
            start[name] = nn.Parameter(value)
        if not start:
            refuse(
                "design.learn", "without 'state', as no network starts from one", self.design.learn
            )
        return start

    def _make_output(self) -> None:
        design, width = self.design, self.sizes.heads * self.sizes.value_dim
        if design.skip:
            self.skip = nn.Parameter(torch.ones(self.sizes.heads, self.sizes.value_dim))
        if design.output_norm:
            self.norm_weight = nn.Parameter(torch.ones(self.sizes.value_dim))
        if design.output_gate:
            biased = design.bias or design.gate_bias
            self.gate = nn.Linear(self.hidden_size, width, bias=biased)
            start_open(self.gate, design.output_gate)
        self.output = nn.Linear(width, self.hidden_size, bias=design.bias)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        add_late_parts(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *others)

    # ---- Running ---------------------------------------------------------------------------------

    def forward(
        self,
        x: Tensor,
        *,
        cache: Cache | None = None,
        cu_seqlens: Tensor | Sequence[int] | None = None,
        attention_mask: Tensor | Sequence[Any] | None = None,
        lengths: Tensor | Sequence[Any] | None = None,
    ) -> Tensor:
        """The layer's output for x, as the class says."""
        if x.dim() != 3 or x.shape[-1] != self.hidden_size:
            refuse("x", f"[B,T,hidden_size] = [B,T,{self.hidden_size}]", list(x.shape))
        if cu_seqlens is not None and x.shape[0] != 1:
            refuse("x", "[1,T,hidden_size] where cu_seqlens is given", list(x.shape))
        cu_seqlens = bounds_of("TestTimeRegression", cu_seqlens, x)
        padding = padding_of("TestTimeRegression", x, cu_seqlens, attention_mask, lengths)
        if padding is not None:
            y = self._run(padding.pack(x), cache, padding.cu_seqlens)
            return padding.unpack(y)
        return self._run(x, cache, cu_seqlens)

    def _run(self, x: Tensor, cache: Cache | None, cu_seqlens: Tensor | None) -> Tensor:
        if cache is None:
            inputs, plain, _ = self._inputs(x, None, cu_seqlens)
            y = regress(self._text, state=self._state(), cu_seqlens=cu_seqlens, **inputs)
            return self._finish(x, y, plain)
        check_cache(cache, self, self._kind(), x, cu_seqlens)
        refuse_gradients(self, x)
        with torch.no_grad():
            inputs, plain, rows = self._inputs(x, cache, cu_seqlens)
            y = cache.go_on(inputs, x.shape[1], self._state(), cu_seqlens)
            cache.has_read(x, rows, cu_seqlens, bool(self.design.rotary))
            return self._finish(x, y, plain)

    def inputs(self, x: Tensor, cu_seqlens: Tensor | None = None) -> dict[str, Tensor]:
        """What `ttr.torch.regress` is given for x, by keyword."""
        return self._inputs(x, None, cu_seqlens)[0]

    @torch.no_grad()
    def states(self, x: Tensor, at: Sequence[int]) -> list[dict[str, Tensor]]:
        """What the memory holds once it has read the first at[i] tokens of x, by `ttr.state_specs`; at rises
        from 1 to T. Without gradients. ValueError: other places; a recipe without a state."""
        if not ttr.state_specs(self.recipe):
            refuse("recipe", "causal, with a state to be looked at,", self._text)
        return regress_at(self._text, at, state=self._state(), **self._inputs(x, None, None)[0])[2]

    @torch.no_grad()
    def retrieve(self, state: dict[str, Tensor], q: Tensor | None = None) -> Tensor:
        """What the memory of `states`, or of a cache's `state()`, answers to queries [B, T, Hq, Dk], as they
        are in `inputs`: `ttr.torch.retrieve` with the layer's constants."""
        none = self.output.weight.new_zeros(1, 0, self.hidden_size)
        constants: dict[str, Any] = {}
        for name, gate in self.gates.items():
            if name in self._specs and not {"T", "T n"} & set(self._specs[name]["shapes"][0]):
                constants[name] = gate(none, None)
        answers: Tensor = retrieve(self._text, state, q, **constants)
        return answers

    def new_cache(self, draft: int = 0) -> Cache:
        """A cache of no tokens, of which the last `draft` (0 to 64) can be taken back. ValueError: a
        recipe that reads the whole sequence."""
        if not ttr.state_specs(self.recipe):
            refuse("recipe", "causal where a cache is asked for", self._text)
        return Cache(self, self._kind(), self._text, draft)

    def _inputs(
        self, x: Tensor, cache: Cache | None, cu_seqlens: Tensor | None
    ) -> tuple[dict[str, Any], Tensor, dict[str, Tensor]]:
        """The inputs of `regress`, v before its factor, and what convolutions look back at next."""
        rows, after = {}, {}
        for name, project in self.project.items():
            z = project(x)
            if name in self.convolve:
                z, after[name] = self._convolved(name, z, cache, cu_seqlens)
            elif name in self.design.silu:
                z = F.silu(z)
            rows[name] = self._split(name, z)
        if self.design.qk_norm:
            for name in ("q", "k"):
                if name in rows:
                    rows[name] = norm(rows[name], None, None, self.design.qk_norm, "silu", False)
        if self.design.rotary:
            positions = positions_of(x, cache, cu_seqlens)
            for name in ("q", "k"):
                rows[name] = rotate(rows[name], positions, self.design.rotary)
        read = x
        if "x" in self.convolve:
            read, after["x"] = self._convolved("x", x, cache, cu_seqlens)
        made = self._gates(read, rows.get("k"))
        plain = rows["v"]
        for name, factor in (("v", "value_scale"), ("k", "key_scale")):
            if factor in made:
                scale = made.pop(factor)
                if scale.shape[1] != rows[name].shape[1]:  # one for all pairs of a token
                    scale = scale.repeat_interleave(self.sizes.steps, 1)
                rows[name] = (_with_heads(rows[name], self.sizes.heads) * scale).to(plain.dtype)
        return {**rows, **made}, plain, after

    def _convolved(
        self, name: str, z: Tensor, cache: Cache | None, cu_seqlens: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """z behind its convolution, and what that looks back at next."""
        convolve: Any = self.convolve[name]
        before = None if cache is None else cache.before(name, z, convolve.size, cu_seqlens)
        made: tuple[Tensor, Tensor] = convolve(z, before, cu_seqlens)
        return made

    def _split(self, name: str, z: Tensor) -> Tensor:
        """[B, T, n H D] as rows [B, T n, H, D]."""
        batch, tokens = z.shape[:2]
        rows = tokens * self.sizes.rows_of_token(name)
        return z.reshape(batch, rows, *self.sizes.rows[name])

    def _gates(self, x: Tensor, k: Tensor | None) -> dict[str, Tensor]:
        made: dict[str, Tensor] = {}
        for name, gate in self.gates.items():
            given = gate(x, k)
            if isinstance(given, dict):
                made.update(given)
            else:
                made[name] = (
                    given.flatten(1, 2) if given.dim() == self._flattened.get(name) else given
                )
        return made

    def _state(self) -> dict[str, Tensor]:
        """The learned start; states are float32 or float64."""
        narrow = (torch.bfloat16, torch.float16)
        return {
            f"state.{name}": value.float() if value.dtype in narrow else value
            for name, value in self.start.items()
        }

    def _finish(self, x: Tensor, y: Tensor, plain: Tensor) -> Tensor:
        design = self.design
        if design.skip:
            y = y + self.skip * plain
        z = self.gate(x).reshape(y.shape) if design.output_gate else None
        if design.output_norm:
            kind, gate_kind = design.output_norm, design.output_gate or "silu"
            y = norm(y, self.norm_weight, z, kind, gate_kind, design.gate_first)
        elif z is not None:
            y = y * (F.silu(z) if design.output_gate == "silu" else z.sigmoid())
        out: Tensor = self.output(y.flatten(2))
        return out

    # ---- Words -----------------------------------------------------------------------------------

    def _kind(self) -> str:
        return f"{self._text}, {self.sizes}"

    def extra_repr(self) -> str:
        count = sum(p.numel() for p in self.parameters())
        return describe(self.recipe, self.sizes, self.design, self.start, count)


def _with_heads(rows: Tensor, heads: int) -> Tensor:
    """Rows that several memories share, one for each."""
    return rows if rows.shape[2] == heads else rows.repeat_interleave(heads // rows.shape[2], 2)
