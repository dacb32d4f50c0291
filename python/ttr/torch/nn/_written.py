"""Designs and their gates as JSON, and back.

    {"qk_norm": "l2", "gates": {"step": {"gate": "Sigmoid", "scale": 2.0}}}

A gate is the name of a class of `ttr.torch.nn.gates`, or that with options. A design is the name of a
published one, or its fields; those that are absent have the defaults of `Design`, or those of the
published design that "like" names.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from ..._names import likely
from . import designs, gates
from ._sizes import refuse
from .designs import Design
from .gates import Factory

#: What a configuration may call a gate.
GATES: Mapping[str, Factory] = {
    **{name: getattr(gates, name) for name in gates.__all__ if name not in ("Factory", "Gate", "Need")},
    **designs.NAMED_GATES,
}
_FIELDS = {field.name: field.default for field in dataclasses.fields(Design)}


def check_words(where: str, given: Iterable[str], taken: Iterable[str]) -> None:
    """ValueError: a word that is none of `taken`; the text has the one that is likely meant."""
    known = sorted(taken)
    for word in given:
        if word not in known:
            meant = likely(str(word), known)
            hint = f": did you mean {meant}?" if meant else ""
            raise ValueError(f"[{where}] words must be of {', '.join(known)} but one is '{word}'{hint}")


# ---- Read ----------------------------------------------------------------------------------------


def design_of(given: Any) -> Design:
    """The design that is written. ValueError: unknown words, options that a gate does not have."""
    if isinstance(given, Design):
        return given
    if isinstance(given, str):
        return _published(given)
    if not isinstance(given, Mapping):
        refuse("design", "a published name or fields of Design", given, "ModelConfig")
    fields = dict(given)
    check_words("ModelConfig] design: [Design", fields, [*_FIELDS, "like"])
    base = _published(fields.pop("like")) if "like" in fields else Design()
    if isinstance(fields.get("gates"), Mapping):
        made = {name: gate_of(name, gate) for name, gate in fields["gates"].items()}
        fields["gates"] = {**base.gates, **made} if "like" in given else made
    return dataclasses.replace(base, **fields)


def _published(name: str) -> Design:
    check_words("ModelConfig] design: [published", [name], designs.PUBLISHED)
    return designs.PUBLISHED[name]


def gate_of(argument: str, given: Any) -> Factory:
    """The gate that is written for an input."""
    words = {"gate": given} if isinstance(given, str) else given
    if not isinstance(words, Mapping) or "gate" not in words:
        refuse(f"gates['{argument}']", 'a name, or options beside "gate"', given, "ModelConfig")
    name = words["gate"]
    options = {n: tuple(v) if isinstance(v, list) else v for n, v in words.items() if n != "gate"}
    check_words(f"ModelConfig] gates['{argument}']: [gates", [name], GATES)
    taken = _options(GATES[name])
    check_words(f"ModelConfig] gates['{argument}']: [{name}", options, taken)
    for option, value in options.items():
        if not _is_like(value, taken[option]):
            what = f"like {taken[option]!r}" if taken[option] is not None else "a number"
            refuse(f"gates['{argument}'].{option}", f"{what}, which it is otherwise,", repr(value), "ModelConfig")
    return functools.partial(GATES[name], **options) if options else GATES[name]


def _is_like(value: Any, default: Any) -> bool:
    """Whether a gate takes `value` where it has `default` otherwise; None stands for a number that it finds."""
    if isinstance(default, tuple):
        return isinstance(value, tuple) and len(value) == len(default) and all(map(_is_like, value, default))
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    if isinstance(default, int):
        return isinstance(value, int) and value >= 0
    return isinstance(value, (int, float)) or value is default is None


def _options(factory: Any) -> dict[str, Any]:
    """The options of a gate and their defaults, those that it hands on to its base as well."""
    if not isinstance(factory, type):
        return {p.name: p.default for p in inspect.signature(factory).parameters.values() if p.name != "need"}
    found: dict[str, Any] = {}
    for base in factory.__mro__:
        if base is nn.Module or "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        found = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY} | found
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found


# ---- Write ---------------------------------------------------------------------------------------


def write_design(design: Design) -> dict[str, Any]:
    """All that a design says, so that it stays what it is when the table of published ones changes.
    ValueError: a gate of one's own."""
    written: dict[str, Any] = {}
    for name, default in _FIELDS.items():
        value = getattr(design, name)
        if name == "gates":
            value, default = {n: _write_gate(n, gate) for n, gate in value.items()}, {}
        if value != default:
            written[name] = list(value) if isinstance(value, tuple) else value
    return written


def _write_gate(argument: str, factory: Factory) -> Any:
    options: dict[str, Any] = {}
    made: Any = factory
    if isinstance(made, functools.partial) and not made.args:
        options = {n: list(v) if isinstance(v, tuple) else v for n, v in made.keywords.items()}
        made = made.func
    name = next((name for name, known in GATES.items() if known is made), None)
    try:
        json.dumps(options)
    except TypeError:
        name = None
    if name is None:
        what = "of ttr.torch.nn.gates, with numbers and words as options, to be written down,"
        refuse(f"design.gates['{argument}']", what, factory, "ModelConfig")
    return {"gate": name, **options} if options else name
