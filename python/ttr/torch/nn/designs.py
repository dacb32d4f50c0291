"""What stands around a memory in a model, as data: a `Design`, and those of published layers.

This table is the only place that knows layers by their names. It says how their networks make gates
(`gates`), which constants they learn, and what their rows pass: layers.md's "how published networks
produce the gates", and the papers named. Everything else follows from the inputs of a recipe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import Any, Literal

import ttr

from . import gates
from ._sizes import refuse
from .gates import Factory


@dataclass(frozen=True)
class Design:
    """What surrounds a memory. The default is the memory alone between its projections.

    ==============  ================================================================================
    gates           keyword of an input -> what makes it (`ttr.torch.nn.gates`); absent: DEFAULTS.
                    `value_scale` and `key_scale`: factors of v and k
    learn           optional inputs that are parameters, too: "ridge", "bandwidth", ...; without
                    them the recipe's constants hold. "state": a start that is learned
    start_size      deviation of that start's weights; 0: 1 / sqrt(of what a row of them reads)
    conv_size       taps of a depthwise causal convolution of q, k and v; 0: none
    convolved       which of them it passes; "x": what gates read, too
    silu            which of q, k, v pass a SiLU behind that
    key_lags        w_0, w_1, ...: keys are sum_i w_i W_K x_{t-i}, one w for all channels, in
                    place of their depthwise convolution
    learn_lags      whether w is learned
    qk_norm         "l2", "rms" or "layer" of q and k, a head each
    rotary          base of rotary positions of q and k behind that, 10000 say; 0: none
    output_norm     "rms", "layer" or "l2" of what is read, a head each, with a scale
    output_gate     "silu" or "sigmoid" of a projection of x, times what is read
    gate_first      the gate before the norm
    gate_bias       whether the output gate has a bias, which starts where silu is 1
    skip            adds d (.) v, v as it was before `value_scale`
    bias            of the projections
    source          of all this
    ==============  ================================================================================
    """

    gates: Mapping[str, Factory] = field(default_factory=dict)
    learn: tuple[str, ...] = ()
    start_size: float = 0.02
    conv_size: int = 0
    convolved: str = "qkv"
    silu: str = ""
    key_lags: tuple[float, ...] = ()
    learn_lags: bool = True
    qk_norm: Literal["l2", "rms", "layer"] | None = None
    rotary: float = 0.0
    output_norm: Literal["rms", "layer", "l2"] | None = None
    output_gate: Literal["silu", "sigmoid"] | None = None
    gate_first: bool = False
    gate_bias: bool = False
    skip: bool = False
    bias: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("learn", "key_lags"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        for name, (what, takes) in _FIELDS.items():
            if not takes(given := getattr(self, name)):
                refuse(name, what, repr(given), "Design")


def _is_number(given: Any) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool) and math.isfinite(given)


def _letters(taken: str) -> tuple[str, Callable[[Any], bool]]:
    return f"letters of '{taken}'", lambda given: isinstance(given, str) and set(given) <= set(taken)


def _one_of(*words: str) -> tuple[str, Callable[[Any], bool]]:
    return f"{', '.join(words)} or None", lambda given: given is None or given in words


def _tuple_of(what: str, kind: Callable[[Any], bool]) -> tuple[str, Callable[[Any], bool]]:
    return f"a list of {what}", lambda given: isinstance(given, tuple) and all(map(kind, given))


_SWITCH = "True or False", lambda given: isinstance(given, bool)
_SIZE = "a finite number", _is_number

#: What each field of a design must be, and whether something is that. Ranges are the layer's to check.
_FIELDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "gates": ("inputs with what makes them", lambda given: isinstance(given, Mapping)),
    "learn": _tuple_of("names of inputs", lambda given: isinstance(given, str)),
    "start_size": ("finite and >= 0", lambda given: _is_number(given) and given >= 0),
    "conv_size": ("a whole number", lambda given: isinstance(given, int) and not isinstance(given, bool)),
    "convolved": _letters("qkvx"),
    "silu": _letters("qkv"),
    "key_lags": _tuple_of("finite numbers", _is_number),
    "learn_lags": _SWITCH,
    "qk_norm": _one_of("l2", "rms", "layer"),
    "rotary": _SIZE,
    "output_norm": _one_of("rms", "layer", "l2"),
    "output_gate": _one_of("silu", "sigmoid"),
    "gate_first": _SWITCH,
    "gate_bias": _SWITCH,
    "skip": _SWITCH,
    "bias": _SWITCH,
}


#: What makes an input where a design says nothing else.
DEFAULTS: Mapping[str, Factory] = {
    "log_decay": gates.Decay,
    "phase": gates.Linear,
    "dt": gates.TimeStep,
    "a": gates.Rates,
    "step": gates.Sigmoid,
    "importance": gates.Sigmoid,
    "log_importance": gates.Linear,
    "erase_key": gates.UnitKey,
    "erase_gate": gates.Sigmoid,
    "momentum": gates.Sigmoid,
    "weight_decay": partial(gates.Sigmoid, start=-4.0),
    "v_im": gates.Linear,
    "bonus": partial(gates.Constant, deviation=0.5),
    "ridge": gates.Positive,
    "bandwidth": gates.Positive,
    "features_w": gates.Directions,
    "features_b": gates.Constant,
    "ln_weight": partial(gates.Constant, start=1.0),
    "ln_bias": gates.Constant,
    "row_bias": gates.Constant,
}

#: Optional inputs that a feature map's paper learns.
FEATURES: Mapping[str, Mapping[str, Factory]] = {
    "t2r": {"features_b": gates.Constant},
    "rebased": {
        "features_w": partial(gates.Constant, start=1.0),
        "features_b": gates.Constant,
    },
    "dijiang": {"features_b": gates.Constant},
}

_DELTA = Design(conv_size=4, silu="qkv", qk_norm="l2", output_norm="rms")
#: Published as A uniform in 0 .. 16, by which a head forgets in some 12 tokens. Among many heads some are
#: slow; of two or four often none is, and what is forgotten before it is asked for is not learned. Where
#: each channel has a decay (`_low_rank_decay`) enough of them are slow for 8 pairs of tokens, too few for 16.
_SLOW_DECAY = partial(gates.Decay, a=(0.0, 1.0))
#: Keys of a new network mean nothing yet. Solved with the recipe's 0.001 they are fitted one by one, what is
#: read has no trace of what other pairs agree on, and recall stays where it began; a ridge that begins at
#: 0.1 or above averages them, and is learned, as MesaNet's is.
_RIDGE = partial(gates.Positive, least=0.1)
_RING = Design(gates={"log_decay": gates.Ring, "v_im": gates.Linear}, learn=("v_im",), skip=True)
_TTT = Design(
    learn=("ln_weight", "ln_bias", "row_bias", "state"),
    conv_size=4,
    output_norm="layer",
    source="arXiv 2407.04620; with the convolution of its Mamba backbone, without rotary",
)


#: An adapted step moves every entry by its size, whatever the size of the gradient.
_SMALL_STEP = partial(gates.Sigmoid, scale=0.1)
_ADAPTED = "Test-time regression 2025, Vignette 3; around it as DeltaNet, with small steps"


def _ttt_step(need: gates.Need, *, base: float = 1.0) -> gates.Sigmoid:
    """base sigmoid(w . x + b) / Dk."""
    return gates.Sigmoid(need, scale=base / need.key_dim)


def _low_rank_decay(need: gates.Need) -> gates.Decay:
    """A decay gate of rank Dk, slow for the same reason."""
    return gates.Decay(need, rank=need.key_dim, a=(0.0, 1.0))


#: Gates of this table that are no classes, by the names that a configuration has for them.
NAMED_GATES: Mapping[str, Factory] = {"low_rank_decay": _low_rank_decay, "ttt_step": _ttt_step}

#: What a recipe has that no row is about: unit keys for memories with a state, a ridge that is learned for
#: those that solve; nothing for those that weigh pairs by a kernel, where the size of keys is the
#: sharpness of the kernel.
GENERIC = Design(conv_size=4, silu="qkv", qk_norm="l2", output_norm="rms")
OF_LEAST_SQUARES = replace(
    GENERIC, gates={"ridge": _RIDGE}, learn=("ridge",),
    source="Test-time regression 2025, Vignette 2; a learned ridge",
)  # fmt: skip
OF_KERNELS = Design(
    conv_size=4, source="arXiv 1706.03762; a convolution for its positions, without which no token "
    "tells the one before it from others"
)  # fmt: skip

PUBLISHED: Mapping[str, Design] = {
    "linear_attention": Design(
        conv_size=4, output_norm="rms",
        source="arXiv 2210.10340: a norm for the denominator; a convolution for positions",
    ),
    "retnet": Design(
        conv_size=4, output_norm="rms", output_gate="silu", gate_bias=True,
        source="arXiv 2307.08621; a convolution for its rotary positions",
    ),
    "gla": Design(
        gates={"log_decay": partial(gates.LogSigmoid, rank=16, divisor=16.0)},
        conv_size=4, output_norm="rms", output_gate="silu", gate_bias=True,
        source="arXiv 2312.06635; a convolution, which its published module has as an option",
    ),
    # Phases of random W x add up to a random angle within some tokens, and what is read to noise.
    "gateloop": Design(
        gates={
            "log_decay": partial(gates.LogSigmoid, start=4.0),
            "phase": partial(gates.Linear, flat=True),
        },
        conv_size=4, output_gate="silu", gate_bias=True,
        source="arXiv 2311.01927; a convolution for positions, decays that begin slow, phases at 0",
    ),
    "hgrn2": Design(
        gates={"log_decay": partial(gates.ForgetGate, start=3.0)},
        conv_size=4, convolved="vx", silu="q", output_norm="rms",
        source="arXiv 2404.07904; a convolution, which its published module has as an option; decays that "
        "begin slow in place of the lower bounds of layers: ForgetGate(low=...)",
    ),
    "rwkv6": Design(
        gates={"log_decay": partial(gates.ExponentialDecay, rank=64, tanh=True)},
        conv_size=2, output_norm="layer", output_gate="silu", gate_bias=True,
        source="arXiv 2404.05892; a convolution of two taps for its token shift",
    ),
    # W of both gates begins at 0, as published: exp(W x) of a random W weighs pairs at random.
    "mlstm": Design(
        gates={
            "log_decay": partial(gates.LogSigmoid, start=4.0, flat=True),
            "log_importance": partial(gates.Linear, flat=True),
        },
        conv_size=4, convolved="qk", silu="qk", output_norm="layer", output_gate="sigmoid",
        source="arXiv 2405.04517",
    ),
    # dt begins near 1: of 0.01, as published, what the memory answers begins as a hundredth of the skip beside it. With
    # such steps -A from 1 to Dk would forget within a token, so that A dt begins below 0.1. Without SiLU on keys
    # and queries a model knows within 100 steps which values a text has, and after 400 not yet the key of each;
    # without the norm that Mamba-2 has, induction begins to be learned after 200 of them.
    "mamba": Design(
        gates={
            "dt": partial(gates.TimeStep, dt=(0.3, 1.0)),
            "a": partial(gates.Rates, scale=0.003),
        },
        conv_size=4, silu="qkv", skip=True, output_norm="rms", output_gate="silu", gate_bias=True,
        gate_first=True,
        source="arXiv 2312.00752; B and C have convolutions of their own, in place of that of x; the norm of Mamba-2",
    ),
    # dt and A dt begin so for the same reasons: from the published A dt of 0.001 .. 1.6 two heads keep 16 tokens
    # only by luck (`_SLOW_DECAY`).
    "mamba2": Design(
        gates={
            "log_decay": partial(gates.Decay, a=(0.0, 0.1), dt=(0.3, 1.0), discretise=True)
        },
        conv_size=4, silu="qkv", skip=True, output_norm="rms", output_gate="silu", gate_bias=True,
        gate_first=True, source="arXiv 2405.21060",
    ),
    "lru": replace(_RING, source="arXiv 2303.06349; real C"),
    # A vector keeps a value in the channels that its key opens: the gates of a token have to read the one before
    # it, and what is read has to be chosen by another gate.
    "hgrn": Design(
        gates={"log_decay": partial(gates.ForgetGate, start=3.0)},
        conv_size=4, convolved="vx", silu="v", output_norm="rms", output_gate="sigmoid",
        source="arXiv 2311.04823; a convolution, which its published module has as an option; decays that "
        "begin slow in place of the lower bounds of layers: ForgetGate(low=...)",
    ),
    "rg_lru": Design(
        gates={"log_decay": gates.RecurrenceGate, "value_scale": gates.Sigmoid},
        conv_size=4, convolved="vx", output_gate="silu", gate_bias=True,
        source="arXiv 2402.19427; gates of full rank, SiLU for GeLU",
    ),
    "deltanet": replace(_DELTA, source="arXiv 2406.06484"),
    "longhorn": replace(_DELTA, qk_norm=None, source="arXiv 2407.14207"),
    "efla": replace(_DELTA, qk_norm=None, source="arXiv 2512.12602; step size as DeltaNet's"),
    # Its step is 1 / |k|^2: what that is for are keys of every size.
    "nlms": replace(
        _DELTA, qk_norm=None, source="Test-time regression 2025, Vignette 3; around it as DeltaNet"
    ),
    "gated_deltanet": replace(
        _DELTA, gates={"log_decay": _SLOW_DECAY}, output_gate="silu", gate_bias=True,
        source="arXiv 2412.06464",
    ),
    "kda": replace(
        _DELTA, gates={"log_decay": _low_rank_decay}, output_gate="sigmoid",
        source="arXiv 2510.26692",
    ),
    "comba": replace(
        _DELTA,
        gates={"log_decay": _SLOW_DECAY, "erase_key": gates.ScaledKey},
        output_gate="silu", gate_bias=True,
        source="arXiv 2506.02475: p = b k; decay and step as Gated DeltaNet's",
    ),
    "gated_deltanet2": replace(
        _DELTA,
        gates={"log_decay": _low_rank_decay, "value_scale": gates.Sigmoid},
        output_gate="silu", gate_bias=True,
        source="arXiv 2605.22791; decay as KDA's, both gates by sigmoids",
    ),
    "delta_product": replace(
        _DELTA,
        gates={
            "log_decay": _SLOW_DECAY,
            "step": partial(gates.Sigmoid, scale=2.0),
        },
        output_gate="silu", gate_bias=True, source="arXiv 2502.10297; negative eigenvalues",
    ),
    "erase_then_delta": replace(
        _DELTA,
        gates={"log_decay": _low_rank_decay, "value_scale": gates.LastPair},
        output_gate="sigmoid",
        source="arXiv 2606.26560: the first pair of a token has the value 0; gates as KDA's",
    ),
    "rwkv7": Design(
        gates={
            "log_decay": partial(gates.BoundedDecay, rank=64, tanh=True),
            "erase_key": gates.UnitKey,
            "erase_gate": partial(gates.InContextRate, rank=64),
        },
        conv_size=2, output_norm="layer", output_gate="sigmoid",
        source="arXiv 2503.14456; a convolution of two taps for its token shift, no bonus",
    ),
    "preconditioned_deltanet": replace(_DELTA, source="arXiv 2604.21100; gates as DeltaNet's"),
    "preconditioned_gated_deltanet": replace(
        _DELTA, gates={"log_decay": _SLOW_DECAY}, learn=("importance",), output_gate="silu",
        gate_bias=True, source="arXiv 2604.21100; gates as Gated DeltaNet's",
    ),
    "preconditioned_kda": replace(
        _DELTA, gates={"log_decay": _low_rank_decay}, learn=("importance",), output_gate="sigmoid",
        source="arXiv 2604.21100; gates as KDA's",
    ),
    "low_rank_rls": replace(
        _DELTA, source="Test-time regression 2025, Vignette 3; around it as DeltaNet"
    ),
    "adagrad_lms": replace(_DELTA, gates={"step": _SMALL_STEP}, source=_ADAPTED),
    # AdaGrad's steps shrink with the tokens, Adam's do not: from 1/20 each pair writes over those before it.
    "adam_lms": replace(_DELTA, gates={"step": partial(_SMALL_STEP, start=-5.0)}, source=_ADAPTED),
    # Published as decays of 1/2: of what stood 16 tokens before, nothing is left to learn from.
    "mesa": Design(
        gates={
            "log_decay": partial(gates.LogSigmoid, start=4.0),
            "importance": gates.Sigmoid,
            "ridge": partial(gates.Positive, start=1.0, low=0.25),
        },
        learn=("importance", "ridge"), conv_size=4, silu="qkv", qk_norm="l2", output_norm="rms",
        source="arXiv 2506.05233",
    ),
    "weighted_rls": Design(
        gates={"log_decay": _SLOW_DECAY, "ridge": _RIDGE},
        learn=("importance", "ridge"), conv_size=4, silu="qkv", qk_norm="l2", output_norm="rms",
        source="Test-time regression 2025, Vignette 2; decay as Gated DeltaNet's",
    ),
    "kalmanet": replace(
        _DELTA, gates={"log_decay": _SLOW_DECAY}, output_gate="silu", gate_bias=True,
        source="arXiv 2511.21016; decay as Gated DeltaNet's",
    ),
    "ttt_linear": replace(_TTT, gates={"step": partial(_ttt_step, base=1.0)}),
    "ttt_mlp": replace(_TTT, gates={"step": partial(_ttt_step, base=0.1)}),
    # Weights of two layers begin as large as those of other networks do: from 0.02 the gradient of either has
    # the other as a factor, so that nothing is memorized first, and then all at once, with steps up to 1
    # beyond all numbers.
    "titans": Design(
        gates={"step": partial(gates.Sigmoid, scale=0.1)},
        learn=("state",), start_size=0.0, conv_size=4, silu="qkv", qk_norm="l2", output_norm="rms",
        output_gate="silu", gate_bias=True, source="arXiv 2501.00663",
    ),
    # Steps of both below are those of plain gradients; LaCT's 0.01 goes with updates that are made orthogonal.
    # What a mini-batch memorizes is read behind it: of 2048 and 1024 tokens, by default.
    "lact": Design(
        learn=("state",), start_size=0.0, conv_size=4, silu="qkv", qk_norm="l2", output_norm="rms",
        source="arXiv 2505.23884; one step size for all matrices, a convolution for the window of attention "
        "beside it",
    ),
    "in_place_ttt": Design(
        learn=("state",), conv_size=4,
        source="arXiv 2604.06169; a projection of its own in place of a feed-forward layer's, a convolution "
        "for the attention beside it",
    ),
    "rls": OF_LEAST_SQUARES,
    "softmax": OF_KERNELS,
}  # fmt: skip


def published(recipe: Any) -> Design:
    """The design of the layer that a recipe's text names, also with changes in braces; of a recipe
    line, that of the named layer which it equals; else `OF_KERNELS`, `OF_LEAST_SQUARES`, or `GENERIC`."""
    if isinstance(recipe, str):
        name = recipe.split("{")[0].strip()
        if name in PUBLISHED:
            return PUBLISHED[name]
    wanted = ttr.Recipe(recipe)
    for name in PUBLISHED:
        if ttr.Recipe(name) == wanted:
            return PUBLISHED[name]
    if wanted.option("kernel") != "none":
        return OF_KERNELS
    inputs = {spec["keyword"] for spec in ttr.input_specs(wanted)}
    return OF_LEAST_SQUARES if "ridge" in inputs else GENERIC
