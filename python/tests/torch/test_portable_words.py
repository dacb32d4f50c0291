"""Every word of every option on the road for other devices: the definition's numbers, or an error that
names it."""

from __future__ import annotations

import re

import operator_cases as cases
import pytest
import torch
import ttr
from ttr.torch import portable
from ttr.torch.portable import recipe as table

OPTIONS = [
    *table.WORDS, "extent", "loss", "adapt", "row_factor", "activation",
    "phase", "momentum", "bonus", "normalise_qk", "causal", "gated", "norm", "residual", "bias",
    "nu", "steps", "block", "rank", "mini_batch", "budget", "window", "degree", "depth", "bandwidth",
]  # fmt: skip
BASES = ["linear_attention", "gated_deltanet", "mesa", "kalmanet", "mlstm", "hgrn", "mamba", "softmax",
         "ttt_mlp", "titans", "lact", "nadaraya_watson", "kernel_smoother", "local_linear", "kernel_ridge",
         "kernel_rls"]
#: Why a family, or a form, has no road there; each is a sentence of its own.
REASONS = "whose eigenvectors|given for features"


def words_of(option: str) -> list[str]:
    """As the library lists them where a word is none."""
    for value in ("no_such_word", "2"):
        try:
            ttr.Recipe(f"gated_deltanet{{{option}: {value}}}")
        except ValueError as error:
            found = re.search(r"must be (?:one of )?(.*?) but is", str(error))
            text = found[1] if found else ""
            words = [w for w in re.findall(r"[a-z_][a-z_0-9]*", text) if w not in ("or", "one", "of")]
            if "one" in re.findall(r"[a-z_0-9]+", text.removeprefix("one of")):
                words.append("one")
            return words + ["2", "3"]
    return ["2", "3"]


def recipes() -> list[str]:
    found: dict[str, None] = dict.fromkeys(cases.NAMES)
    for base in BASES:
        for option in OPTIONS:
            for word in words_of(option):
                text = f"{base}{{{option}: {word}}}"
                try:
                    drawn = ttr.Recipe(text)
                except ValueError:
                    continue
                solves = drawn.option("optimizer") in ("exact", "conjugate_gradient", "chebyshev")
                inverts = solves or drawn.option("preconditioner") != "none"
                inverts = inverts and drawn.option("function") in ("linear", "affine")
                if drawn.option("optimizer") != "sgd" and inverts and float(drawn.option("ridge")) == 0:  # few tokens: singular to rounding
                    text = f"{text[:-1]}, ridge: 0.3}}"
                found[text] = None
    return list(found)


def outcome(recipe: str) -> str | None:
    """The error's text; None where y is the definition's."""
    inputs = cases.draw(recipe)
    expected, _ = cases.definition(recipe, inputs)
    try:
        y = portable.regress(recipe, **inputs)
    except ValueError as error:
        return str(error)
    assert isinstance(y, torch.Tensor)
    assert cases.worst(y, expected) < 1e-7, recipe
    return None


def test_every_word_is_right_or_refused_by_name() -> None:
    drawn = recipes()
    right = 0
    for recipe in drawn:
        text = outcome(recipe)
        right += text is None
        if text is not None and not re.search(REASONS, text):
            option, word = re.findall(r"(\w+): (?=(\w+))", text)[-1]  # which may follow another
            assert option in OPTIONS and word in text, (recipe, text)
    assert len(drawn) > 120 and right > 70, (len(drawn), right)


def test_a_word_without_a_formula_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.WORDS, "step", {"input"})
    table._cached.cache_clear()
    try:
        text = outcome("longhorn")
        assert text is not None and "step: longhorn is not known" in text
        assert outcome("deltanet") is None
    finally:
        table._cached.cache_clear()


def test_an_input_without_a_formula_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "INPUTS", table.INPUTS - {"step"})
    text = outcome("deltanet")
    assert text is not None and "the input step is not known" in text
