"""What a layer says of itself."""

from __future__ import annotations

from collections.abc import Iterable

import ttr

from ._sizes import Sizes
from .designs import Design


def describe(
    recipe: ttr.Recipe, sizes: Sizes, design: Design, start: Iterable[str], parameters: int
) -> str:
    """The lines of a layer: what it is, its sizes, and what is around it."""
    lines = [
        f"{entry.name}: {entry.recurrence}"
        for entry in ttr.zoo().values()
        if ttr.Recipe(entry.recipe) == recipe
    ]
    lines.append(f"{recipe}, {sizes}")
    engine = ttr.plan(recipe).engine
    lines.append(f"{sizes.hidden} -> {sizes.hidden}, {parameters:,} parameters, engine {engine}")
    if design.qk_norm:
        lines.append(f"q, k: {design.qk_norm} norm")
    if design.rotary:
        lines.append(f"q, k: rotary positions, base {design.rotary:g}")
    if words := _behind(design):
        lines.append("y: " + ", ".join(words))
    if learned := list(start):
        lines.append(f"starts from {', '.join(learned)}, learned")
    if design.source:
        lines.append(f"design: {design.source}")
    return "\n".join(lines)


def _behind(design: Design) -> list[str]:
    """What follows the memory, in order."""
    words = [f"{design.output_norm} norm"] if design.output_norm else []
    if design.output_gate:
        words.insert(0 if design.gate_first else 1, f"{design.output_gate} gate")
    if design.skip:
        words.insert(0, "+ d v")
    return words


def table(names: Iterable[str]) -> str:
    """What is around the memories of some recipes, as a table of Markdown."""
    from ._layer import TestTimeRegression

    lines = ["| layer | inputs | q, k, v | what is read | source |", "|---|---|---|---|---|"]
    for name in names:
        layer = TestTimeRegression(name, 64, 4)
        made = [f"{n}: {getattr(gate, 'formula', '?')}" for n, gate in layer.gates.items()]
        learned = [f"{n}: learned" for n in layer.start]
        cells = [
            f"`{name}`",
            "; ".join([*made, *learned]),
            ", ".join(_before(layer.design)),
            ", ".join(_behind(layer.design)),
            layer.design.source,
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _before(design: Design) -> list[str]:
    """What q, k and v pass, in order."""
    words = [f"{design.convolved}: convolution of {design.conv_size}"] if design.conv_size else []
    if design.silu:
        words.append(f"{design.silu}: SiLU")
    if design.qk_norm:
        words.append(f"qk: {design.qk_norm} norm")
    if design.rotary:
        words.append("qk: rotary")
    return words
