"""What follows from a recipe's text, asked once and kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

import ttr


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
    rank: int
    #: (keyword, (axes, ...), required) of every input.
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
    recipe = ttr.Recipe(text)
    layer, options = ttr.Layer(recipe), recipe.to_dict(every_option=True)
    inputs, state = ttr.input_specs(recipe), ttr.state_specs(recipe)
    axes = tuple(tuple(entry["shape"]) for entry in state)
    return RecipeInfo(
        text=text,
        engine=layer.engine,
        gradients=layer.has_gradients,
        keeps_pairs=any("S" in shape for shape in axes),
        keeps_drafts=layer.keeps_drafts,
        window=options["weights"]["window"],
        expansion=options["function"]["expansion"],
        budget=options["optimizer"]["budget"],
        rank=options["optimizer"]["rank"],
        inputs=tuple(
            (i["keyword"], tuple(tuple(shape) for shape in i["shapes"]), i["required"])
            for i in inputs
        ),
        states=tuple(entry["name"] for entry in state),
        state_axes=axes,
        counts=tuple(entry["counts"] for entry in state),
    )


def text_of(recipe: Any) -> str:
    """The text that the library parses: of a str itself, of a dict what ttr.Recipe makes of it."""
    if isinstance(recipe, str):
        return recipe
    return str(ttr.Recipe(recipe) if isinstance(recipe, dict) else recipe)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def info_of(text: str) -> RecipeInfo:
    """What is known of a recipe's text. ValueError: it is none."""
    info = _known.get(text)
    if info is None:
        if len(_known) >= 1024:  # a program that draws recipes at random stays bounded
            _known.clear()
        info = _known[text] = _describe(text)
    return info
