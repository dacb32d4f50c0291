"""The next token of a model: drawn, or the likeliest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from ._padding import whole_tokens
from ._sizes import check_number, refuse, whole
from ._written import check_words


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. ValueError, of `LanguageModel.generate`: what no odds can be made of."""

    temperature: float = 1.0  #: 0: the likeliest
    top_k: int | None = None  #: among the k likeliest
    top_p: float = 1.0  #: among the likeliest, as few as have this share together
    stop: Sequence[int] = ()  #: tokens behind which a row ends

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, "LanguageModel")
        if self.top_k is not None:
            whole("top_k", self.top_k, op="LanguageModel")
        if not isinstance(self.top_p, Real) or not 0 < self.top_p <= 1:
            refuse("top_p", "above 0 and at most 1", self.top_p, "LanguageModel")
        stop = self.stop
        if not isinstance(stop, (list, tuple)) or not all(isinstance(one, Integral) for one in stop):
            refuse("stop", "a list of tokens, whole numbers,", stop, "LanguageModel")

    def draw(self, logits: Tensor, generator: torch.Generator | None) -> Tensor:
        """Tokens [B, 1] of logits [B, V]."""
        if self.temperature == 0:
            return logits.argmax(-1, keepdim=True)
        odds = self.odds(logits)
        return torch.multinomial(odds, 1, generator=generator)

    def odds(self, logits: Tensor) -> Tensor:
        """[B, V], at a temperature above 0; first the k likeliest, then the share p of what is left. In
        float64: sums of many small odds lose digits, and a small temperature makes large numbers."""
        dtype = torch.promote_types(logits.dtype, torch.float32)
        logits = logits.double()
        logits = (logits - logits.amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            chosen = logits.topk(self.top_k).indices
            left_out = torch.ones_like(logits, dtype=torch.bool).scatter(-1, chosen, False)
            logits = logits.masked_fill(left_out, -math.inf)
        odds = logits.softmax(-1)
        if self.top_p < 1:
            sorted_odds, order = odds.sort(dim=-1, descending=True, stable=True)
            above = sorted_odds.cumsum(-1) - sorted_odds  # the share of all that are likelier
            odds = odds.scatter(-1, order, sorted_odds.masked_fill(above >= self.top_p, 0.0))
        return odds.to(dtype)  # multinomial takes weights

    def ends(self, tokens: Tensor) -> Tensor:
        """Whether tokens [B] are of those that a row ends with."""
        return torch.isin(tokens, torch.tensor(list(self.stop), device=tokens.device))

    def cut(self, prompts: Tensor, lengths: Tensor, more: Tensor) -> list[Tensor]:
        """Prompts [B, T] of some lengths with what was said behind each, [B, n], up to the token that it ended with."""
        texts = []
        for prompt, length, said in zip(prompts, lengths.tolist(), more):
            end = self.ends(said).nonzero()[:1, 0] if self.stop else said[:0]
            texts.append(torch.cat([prompt[:length], said[: int(end[0]) + 1] if len(end) else said]))
        return texts


def sampling_of(words: Mapping[str, Any]) -> Sampling:
    """ValueError: an unknown word, with the one that is likely meant."""
    check_words("LanguageModel", words, [field.name for field in fields(Sampling)])
    return Sampling(**words)


def pad(prompts: Sequence[Tensor | Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Prompts of several lengths as one batch [B, T], padded behind, and their lengths [B]."""
    texts = [torch.as_tensor(prompt, device=device) for prompt in prompts]
    shapes = [list(text.shape) for text in texts]
    if not shapes or any(len(shape) != 1 or shape[0] < 1 for shape in shapes):
        refuse("tokens", "prompts [T] of a token at least, one or more of them,", shapes, "LanguageModel")
    texts = [whole_tokens(text[None], "tokens", "LanguageModel")[0] for text in texts]
    lengths = torch.tensor([len(text) for text in texts], device=device)
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True), lengths
