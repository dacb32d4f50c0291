"""What follows from a recipe's text, asked once and kept."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import torch

from ._library import describe

#: A recipe that has no gradients of its own takes two forward calls of the definition for every
#: number: beyond as many numbers it is refused.
MOST_DIFFERENCES = 4096


class RecipeInfo(NamedTuple):
    """A recipe, seen from an operator: names, axes and what runs it."""

    text: str
    engine: str
    gradients: bool
    keeps_pairs: bool
    #: Whether a pool keeps the writes of a draft beside the state.
    keeps_drafts: bool
    window: int
    expansion: int
    budget: int
    #: (name, (axes, ...), required) of every input.
    inputs: tuple[tuple[str, tuple[tuple[str, ...], ...], bool], ...]
    #: Names of the entries of the state.
    states: tuple[str, ...]
    #: Axes of each entry.
    state_axes: tuple[tuple[str, ...], ...]
    #: Whether it holds counts, int64 and without gradients.
    counts: tuple[bool, ...]

    @property
    def counts_pairs(self) -> bool:
        """Whether the state is a list of pairs, and how many there are."""
        return set(self.states) <= {"state.k", "state.v", "state.length"}


_known: dict[str, RecipeInfo] = {}


def _describe(text: str) -> RecipeInfo:
    known: dict[str, Any] = json.loads(describe(text))
    return RecipeInfo(
        text=text,
        engine=known["engine"],
        gradients=known["gradients"],
        keeps_pairs=known["keeps_pairs"],
        keeps_drafts=known["keeps_drafts"],
        window=known["window"],
        expansion=known["expansion"],
        budget=known["budget"],
        inputs=tuple(
            (i["name"], tuple(tuple(axes) for axes in i["shapes"]), i["required"])
            for i in known["inputs"]
        ),
        states=tuple(s["name"] for s in known["state"]),
        state_axes=tuple(tuple(s["shape"]) for s in known["state"]),
        counts=tuple(s["counts"] for s in known["state"]),
    )


def text_of(recipe: Any) -> str:
    """The text that the library parses: of a str itself, of a dict what ttr.Recipe makes of it."""
    if isinstance(recipe, str):
        return recipe
    if isinstance(recipe, dict):
        from ttr import Recipe

        return str(Recipe(recipe))
    return str(recipe)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def info_of(text: str) -> RecipeInfo:
    """What is known of a recipe's text. ValueError: it is none."""
    info = _known.get(text)
    if info is None:
        if len(_known) >= 1024:  # a program that draws recipes at random stays bounded
            _known.clear()
        info = _known[text] = _describe(text)
    return info
