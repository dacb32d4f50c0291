"""`LanguageModel.generate`: odds, ends of rows, prompts of several lengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ttr.torch.nn import LanguageModel
from ttr.torch.nn._sampling import Sampling


def model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel("gated_deltanet", 11, hidden_size=8, num_heads=2, num_layers=1).double()


def text(batch: int = 3, count: int = 5) -> torch.Tensor:
    return torch.randint(0, 11, (batch, count), generator=torch.Generator().manual_seed(3))


ODDS = torch.tensor([[0.05, 0.4, 0.1, 0.3, 0.15], [0.2, 0.2, 0.2, 0.2, 0.2]], dtype=torch.float64)


def odds(**words: Any) -> torch.Tensor:
    found = Sampling(**words).odds(ODDS.log())
    return found / found.sum(-1, keepdim=True)


def test_odds() -> None:
    torch.testing.assert_close(odds(), ODDS)
    torch.testing.assert_close(odds(temperature=0.5), ODDS**2 / (ODDS**2).sum(-1, keepdim=True))
    two = torch.tensor([0, 4, 0, 3, 0], dtype=torch.float64) / 7
    torch.testing.assert_close(odds(top_k=2)[0], two)
    assert (odds(top_k=2)[1] > 0).sum() == 2 and torch.equal(odds(top_k=9), odds())
    torch.testing.assert_close(odds(top_p=0.6)[0], two)  # 0.4 is too little, 0.7 is enough
    assert (odds(top_p=0.75)[0] > 0).tolist() == [False, True, False, True, True]
    assert (odds(top_p=1e-9) > 0).sum(-1).tolist() == [1, 1]
    torch.testing.assert_close(odds(top_k=3, top_p=0.8)[0], two)  # 0.7 of 0.85 is above 0.8


def test_odds_of_narrow_logits_and_small_temperatures() -> None:
    """Sums of odds have two digits in bfloat16, where 2043 were kept; logits over 1e-40 are infinite in float32."""
    flat = torch.zeros(1, 4096, dtype=torch.bfloat16)
    kept = Sampling(top_p=0.5).odds(flat)
    assert kept.dtype == torch.float32 and int((kept > 0).sum()) == 2048
    for temperature in (1e-40, 5e-324):
        found = Sampling(temperature=temperature).odds(torch.tensor([[1.0, 3.0, -2.0]]))
        assert found.tolist() == [[0.0, 1.0, 0.0]]


def test_draws_are_of_the_odds() -> None:
    logits = ODDS[:1].log().expand(4000, -1)
    drawn = Sampling(top_k=3).draw(logits, torch.Generator().manual_seed(0))[:, 0]
    shares = torch.bincount(drawn, minlength=5) / 4000
    want = torch.tensor([0, 40, 0, 30, 15]) / 85
    assert (shares - want).abs().max() < 0.03  # four deviations of 0.0079
    assert shares[0] == shares[2] == 0


def test_a_row_ends_behind_its_stop() -> None:
    made, words = model(), text()
    free = made.generate(words, 12, temperature=0)[:, 5:]
    stop = int(free[0, 3])
    ended = made.generate(words, 12, temperature=0, stop=[stop])[:, 5:]
    ends = [row.index(stop) if stop in row else 12 for row in free.tolist()]
    assert min(ends) < 12 and ended.shape[1] == min(12, max(ends) + 1)
    for said, whole, end in zip(ended, free, ends):
        assert torch.equal(said[: end + 1], whole[: min(end + 1, len(said))])
        assert bool((said[end + 1 :] == stop).all())
    all_tokens = list(range(11))
    assert made.generate(words, 12, temperature=0, stop=all_tokens).shape == (3, 6)


def test_prompts_in_a_list_are_each_alone() -> None:
    made = model()
    prompts = [text(1, n)[0] for n in (5, 1, 8)]
    alone = [made.generate(p[None], 6, temperature=0)[0] for p in prompts]
    found = made.generate(prompts, 6, temperature=0)
    assert all(torch.equal(a, b) for a, b in zip(found, alone, strict=True))
    stop = int(alone[2][8 + 2])
    cut = made.generate(prompts, 6, temperature=0, stop=(stop,))
    for prompt, said, whole in zip(prompts, cut, alone, strict=True):
        more = whole[len(prompt) :].tolist()
        end = more.index(stop) + 1 if stop in more else 6
        assert said.tolist() == [*prompt.tolist(), *more[:end]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"top_k": 0}, "top_k must be at least 1 but is 0"),
        ({"top_k": True}, "top_k must be a whole number, at least 1, but is True"),
        ({"temperature": "hot"}, "temperature must be finite and >= 0 but is 'hot'"),
        ({"top_p": "all"}, "top_p must be above 0 and at most 1 but is all"),
        ({"top_k": 1.5}, "top_k must be a whole number, at least 1, but is 1.5"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1 but is 0.0"),
        ({"top_p": float("nan")}, "top_p must be above 0 and at most 1 but is nan"),
        ({"stop": 3}, "stop must be a list of tokens, whole numbers, but is 3"),
        ({"stop": [1.5]}, r"stop must be a list of tokens, whole numbers, but is \[1.5\]"),
        ({"topk": 3}, "did you mean top_k"),
    ],
)
def test_bad_words(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model().generate(text(), 1, **words)


def test_numbers_in_lists_are_prompts() -> None:
    made = model()
    found = made.generate([[1, 2, 3], (4,)], 3, temperature=0)
    tensors = made.generate([torch.tensor([1, 2, 3]), torch.tensor([4], dtype=torch.uint8)], 3, temperature=0)
    assert [row.dtype for row in (*found, *tensors)] == [torch.int64] * 4
    assert all(torch.equal(a, b) for a, b in zip(found, tensors, strict=True))


def test_bad_prompts() -> None:
    made = model()
    strange: Any
    for strange, given in (("abc", "str"), (text().double(), r"torch.float64 \[3, 5\]"), (text()[0], r"torch.int64 \[5\]")):
        with pytest.raises(ValueError, match=f"tokens must be .* of whole numbers but is {given}"):
            made.generate(strange, 1)
    with pytest.raises(ValueError, match=r"tokens must be \[B,T\] of whole numbers but is torch.float32"):
        made.generate([[0.5]], 1)
    with pytest.raises(ValueError, match="count must be a whole number, at least 0, but is 1.5"):
        made.generate(text(), 1.5)  # type: ignore[arg-type]
    for bad in ([], [torch.tensor([], dtype=torch.long)], [text()]):
        with pytest.raises(ValueError, match=r"tokens must be prompts \[T\] of a token at least"):
            made.generate(bad, 1)
    with pytest.raises(ValueError, match="attention_mask and lengths must be absent where prompts"):
        made.generate([text()[0]], 1, lengths=torch.tensor([5]))
