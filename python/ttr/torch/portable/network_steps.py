"""How a network's weights follow from the gradients of a part of a mini-batch, with S the last
update or, of plain steps, minus the sum of steps times gradients of this mini-batch:

    plain      S_t = S_{t-1} - step_t grad_t,              W_t = W_bar + row_t S_t
    carrying   S_t = momentum_t S_{t-1} - step_t grad_t,   W_t = d_t W_{t-1} + S_t
    adapted    V_t = keep V_{t-1} + take grad_t^2,   G_t = m G_{t-1} + (1 - m) grad_t  or  grad_t
               W_t = d_t W_{t-1} - step_t G_t / (sqrt V_t + eps)

All gradients of a mini-batch are those at W_bar, where it began, so that plain and carrying steps
are linear in them: W_i = a_i A + b_i B - sum_{j <= i} c_ij grad_j, with A and B what W (or W_bar)
and S were before the part. Numbers of tokens are [M, C, 1].
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .network_function import Between, Outer, Parameters
from .recipe import Choices
from .scans import linear_scan


class Memory(NamedTuple):
    """What is known between tokens.

    ``weights`` are W, of plain steps W_bar; ``last`` is S or, of adapted steps, G (None: zero);
    ``anchor`` is W_bar, ``place`` the tokens of the mini-batch so far.
    """

    weights: Parameters
    last: Parameters | None
    anchor: Parameters
    squares: Parameters | None
    place: int


class Numbers(NamedTuple):
    """Numbers of a part's tokens, each [M, C, 1]: d is 1 where ``shrink`` is None."""

    step: Tensor
    momentum: Tensor | None
    shrink: Tensor | None


class Steps(Protocol):
    """A rule for steps."""

    def now(self, memory: Memory) -> Parameters:
        """W after the latest token."""

    def write(self, memory: Memory, numbers: Numbers, gradients: list[Outer]) -> Memory:
        """The memory after the part."""

    def between(
        self, memory: Memory, numbers: Numbers, gradients: list[Outer], before: bool
    ) -> Between:
        """The weights after, or before, each token of the part."""


@dataclasses.dataclass(frozen=True)
class Plain:
    """``rows`` [M, mini_batch, 1] are the row factors; None: 1."""

    mini_batch: int
    rows: Tensor | None

    def now(self, memory: Memory) -> Parameters:
        if memory.last is None or memory.place == 0:
            return memory.anchor
        if self.rows is None:
            return [w + s for w, s in zip(memory.anchor, memory.last)]
        row = self.rows[:, memory.place - 1 : memory.place]
        return [torch.addcmul(w, row, s) for w, s in zip(memory.anchor, memory.last)]

    def write(self, memory: Memory, numbers: Numbers, gradients: list[Outer]) -> Memory:
        written = [outer.summed(numbers.step) for outer in gradients]
        last = (
            [-g for g in written]
            if memory.last is None
            else [s - g for s, g in zip(memory.last, written)]
        )
        place = memory.place + numbers.step.shape[1]
        memory = memory._replace(last=last, place=place)
        if place < self.mini_batch:
            return memory
        weights = self.now(memory)
        return Memory(weights, None, weights, None, 0)

    def between(
        self, memory: Memory, numbers: Numbers, gradients: list[Outer], before: bool
    ) -> Between:
        length = numbers.step.shape[1]
        c = numbers.step.transpose(1, 2).expand(-1, length, -1).tril(-1 if before else 0)
        row = self._row_factors(memory.place - before, numbers.step)
        return Between(None, row, row * c, memory.anchor, memory.last, gradients)

    def _row_factors(self, place: int, like: Tensor) -> Tensor:
        """At place, place + 1, ...; before the first one there is nothing that they multiply."""
        rows = torch.ones_like(like)
        if self.rows is not None:
            rows = self.rows[:, max(place, 0) : place + like.shape[1]]
        elif place < 0:
            rows = rows[:, 1:]
        return rows if place >= 0 else torch.cat([torch.zeros_like(like[:, :1]), rows], 1)


@dataclasses.dataclass(frozen=True)
class Carrying:
    """Steps with momentum, weight decay or both."""

    mini_batch: int

    def now(self, memory: Memory) -> Parameters:
        return memory.weights

    def write(self, memory: Memory, numbers: Numbers, gradients: list[Outer]) -> Memory:
        if numbers.step.shape[1] == 1:
            weights, last = _one_step(memory, numbers, gradients)
        else:
            weights, last = _several_steps(memory, numbers, gradients)
        place = memory.place + numbers.step.shape[1]
        ends = place == self.mini_batch
        return Memory(
            weights,
            None if numbers.momentum is None else last,
            weights if ends else memory.anchor,
            None,
            0 if ends else place,
        )

    def between(
        self, memory: Memory, numbers: Numbers, gradients: list[Outer], before: bool
    ) -> Between:
        """Two recurrences over the tokens, those of S and W, for all columns of c at once."""
        step, momentum, shrink = numbers
        length = step.shape[1]
        terms = torch.eye(length, dtype=step.dtype, device=step.device).expand(len(step), -1, -1)
        b = torch.zeros_like(step)
        if momentum is not None:
            terms, b = linear_scan(momentum, terms)
        terms = torch.cat([terms * step.transpose(1, 2), b], -1)
        a = None
        if shrink is None:
            terms = terms.cumsum(1)
        else:
            terms, a = linear_scan(shrink, terms)
        if before:
            terms = torch.cat([torch.zeros_like(terms[:, :1]), terms[:, :-1]], 1)
            a = None if a is None else torch.cat([torch.ones_like(a[:, :1]), a[:, :-1]], 1)
        c, b = terms[..., :length], terms[..., length:]
        return Between(a, b, c, memory.weights, memory.last, gradients)


def _one_step(
    memory: Memory, numbers: Numbers, gradients: list[Outer]
) -> tuple[Parameters, Parameters]:
    last = [-outer.summed(numbers.step) for outer in gradients]
    if numbers.momentum is not None and memory.last is not None:
        last = [torch.addcmul(s, numbers.momentum, old) for s, old in zip(last, memory.last)]
    if numbers.shrink is None:
        return [w + s for w, s in zip(memory.weights, last)], last
    return [torch.addcmul(s, numbers.shrink, w) for w, s in zip(memory.weights, last)], last


def _several_steps(
    memory: Memory, numbers: Numbers, gradients: list[Outer]
) -> tuple[Parameters, Parameters]:
    """The last row of c, found from the end: with D_j = d_{j+1} .. d_C and p_j the same product of
    momenta, what S_j gives to W_C is E_j S_j, E_j = D_j + momentum_{j+1} E_{j+1}."""
    decays = _from_end(numbers.shrink, numbers.step)
    shares, kept = decays, None
    if numbers.momentum is not None:
        momenta = torch.cat([numbers.momentum, torch.ones_like(numbers.step[:, :1])], 1)
        shares, kept = (x.flip(1) for x in linear_scan(momenta.flip(1), decays.flip(1)))
    old, carried = decays[:, :1], memory.last
    weights = list(memory.weights) if numbers.shrink is None else [old * w for w in memory.weights]
    if numbers.momentum is not None and carried is not None:
        b = numbers.momentum[:, :1] * shares[:, 1:2]
        weights = [torch.addcmul(w, b, s) for w, s in zip(weights, carried)]
    c = shares[:, 1:] * numbers.step
    weights = [w - outer.summed(c) for w, outer in zip(weights, gradients)]
    if kept is None:
        return weights, []
    last = [-outer.summed(kept[:, 1:] * numbers.step) for outer in gradients]
    if carried is not None:
        last = [torch.addcmul(s, kept[:, :1], old) for s, old in zip(last, carried)]
    return weights, last


def _from_end(factors: Tensor | None, like: Tensor) -> Tensor:
    """[M, C + 1, 1]: products of the factors behind place 0, 1, ..., C."""
    one = torch.ones_like(like[:, :1])
    if factors is None:
        return torch.cat([torch.ones_like(like), one], 1)
    shifted = torch.cat([factors, one], 1).flip(1)
    return linear_scan(shifted, torch.zeros_like(shifted))[1].flip(1)


@dataclasses.dataclass(frozen=True)
class Adapted:
    """Steps with a size of its own for every weight; a token after the other."""

    adam: bool
    keep: float
    eps: float

    def now(self, memory: Memory) -> Parameters:
        return memory.weights

    def write(self, memory: Memory, numbers: Numbers, gradients: list[Outer]) -> Memory:
        """A token of step 0 brings no gradient; where V is 0, its root has no slope."""
        step, m = numbers.step, numbers.momentum
        keep, take = (self.keep, 1 - self.keep) if self.adam else (1.0, 1.0)
        new: list[list[Tensor]] = [[], [], []]
        for n, (weight, outer) in enumerate(zip(memory.weights, gradients)):
            g = torch.where(step == 0, 0, outer.summed(torch.ones_like(step)))
            v = take * g.square()
            if memory.squares is not None:
                v = v + keep * memory.squares[n]
            if self.adam:
                assert m is not None
                g = (1 - m) * g if memory.last is None else m * memory.last[n] + (1 - m) * g
            nothing = v == 0
            root = torch.where(nothing, 0, torch.where(nothing, 1, v).sqrt())
            w = weight if numbers.shrink is None else numbers.shrink * weight
            for entries, x in zip(new, (w - step * (g / (root + self.eps)), g, v)):
                entries.append(x)
        weights, last, squares = new
        return Memory(weights, last if self.adam else None, weights, squares, 0)

    def between(
        self, memory: Memory, numbers: Numbers, gradients: list[Outer], before: bool
    ) -> Between:
        raise NotImplementedError("adapted steps are taken token by token")


def steps_of(choices: Choices, row_factors: Tensor | None) -> Steps:
    """The rule of a recipe."""
    if choices.adapt != "none":
        adam = choices.adapt == "adam"
        return Adapted(adam, float(choices.curvature_decay), float(choices.eps))
    if choices.momentum or choices.weight_decay != "none":
        return Carrying(int(choices.mini_batch))
    return Plain(int(choices.mini_batch), row_factors)
