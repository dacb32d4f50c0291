"""Examples of multi-query associative recall after Zoology's law (Arora et al. 2023, 2312.04927).

Token 0 is the filler, cues are 1 .. V/2 - 1, responses V/2 .. V - 1. P cues and P responses are
drawn without replacement; the context is k_0 v_0 k_1 v_1 ..., C = 2 P tokens. Of the (T - C)/2
slots behind it P are drawn without replacement, slot s with a probability proportional to
(s + 1)^(a - 1), a = 0.01: cue j stands again at C + 2 slot_j, and its label is its response. All
else is filler, without labels. The command `ttr experiment mqar` has the law with draws of its own
(experiments/data/mqar.h); tests hold both generators to one table, tests/experiments/mqar_law.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]
EXPONENT = 0.01


@dataclass(frozen=True)
class Examples:
    """A batch: tokens [B, T]; places [B, P] of the labels, in order of the cues, and their
    answers."""

    tokens: Tokens
    places: Tokens
    answers: Tokens


def make(batch: int, tokens: int, pairs: int, vocabulary: int, seed: int, number: int) -> Examples:
    """Batch `number` of the endless data set `seed`: the same on every machine, and whichever
    batches were made before. ValueError: sizes that no example has."""
    if pairs < 1 or vocabulary % 2 or vocabulary // 2 - 1 < pairs:
        raise ValueError(
            f"[mqar] vocabulary must be even and at least 2 pairs + 2 = {2 * pairs + 2} but is "
            f"{vocabulary}"
        )
    if tokens % 2 or tokens < 4 * pairs:
        raise ValueError(
            f"[mqar] tokens must be even and at least 4 pairs = {4 * pairs} but is {tokens}"
        )
    random = np.random.Generator(np.random.Philox(key=[seed, number]))
    half = vocabulary // 2
    cues = 1 + _choose(random, batch, half - 1, pairs)
    responses = half + _choose(random, batch, half, pairs)
    context = 2 * pairs
    places = context + 2 * _slots(random, batch, (tokens - context) // 2, pairs)
    text = np.zeros((batch, tokens), np.int64)
    text[:, 0:context:2] = cues
    text[:, 1:context:2] = responses
    np.put_along_axis(text, places, cues, axis=1)
    return Examples(text, places, responses)


def _choose(random: np.random.Generator, batch: int, among: int, count: int) -> Tokens:
    """`count` of 0 .. among - 1 without replacement, in random order, a row each."""
    return _first(random.random((batch, among)), count)


def _slots(random: np.random.Generator, batch: int, slots: int, count: int) -> Tokens:
    """Drawing one after the other with weights w_s is a race: slot s arrives at E_s / w_s, E_s
    exponential, and the first win."""
    weights = np.arange(1, slots + 1) ** (EXPONENT - 1)
    return _first(random.standard_exponential((batch, slots)) / weights, count)


def _first(times: NDArray[np.float64], count: int) -> Tokens:
    """The places of the `count` smallest of each row, smallest first."""
    if count < times.shape[1]:
        places: Any = np.argpartition(times, count, axis=1)[:, :count]
    else:
        places = np.broadcast_to(np.arange(times.shape[1]), times.shape)
    order = np.argsort(np.take_along_axis(times, places, axis=1), axis=1)
    return np.take_along_axis(places, order, axis=1).astype(np.int64)
