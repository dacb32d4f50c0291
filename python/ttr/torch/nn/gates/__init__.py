"""How a network makes the inputs of a recipe that are no queries, keys or values.

A gate is a module that is built from a `Need`, what one input of one layer asks for, and called
with the tokens x [B, T, hidden] and the keys k [B, T n, Hk, Dk] (None where a recipe reads none).
It gives the input, [B, T, *need.shape], or a dictionary of several: of inputs, and of the factors
`value_scale` and `key_scale`, by which the layer multiplies v and k. Constants of a layer give a
parameter.

Any callable that takes a `Need` and gives such a module may take the place of one of these:

    Design(gates={"step": functools.partial(gates.Sigmoid, scale=2.0)})
"""

from ._constants import Constant, Directions, LastPair, Positive, Rates
from ._decays import (
    BoundedDecay,
    Decay,
    ExponentialDecay,
    ForgetGate,
    LogSigmoid,
    RecurrenceGate,
    Ring,
    TimeStep,
)
from ._gate import Factory, Gate, KeySigmoid, Linear, Need, Sigmoid
from ._keys import InContextRate, ScaledKey, UnitKey

__all__ = [
    "BoundedDecay",
    "Constant",
    "Decay",
    "Directions",
    "ExponentialDecay",
    "Factory",
    "ForgetGate",
    "Gate",
    "InContextRate",
    "KeySigmoid",
    "LastPair",
    "Linear",
    "LogSigmoid",
    "Need",
    "Positive",
    "Rates",
    "RecurrenceGate",
    "Ring",
    "ScaledKey",
    "Sigmoid",
    "TimeStep",
    "UnitKey",
]
