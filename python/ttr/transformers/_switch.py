"""Which modelling modules run on ours: their globals are rebound, and bound back."""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
from torch.compiler import is_compiling, is_exporting

from ._functions import FUNCTIONS, WITHOUT_BOUNDS, is_packed
from ._past import goes_back, note, of_caches
from ._report import count

# Rebound modules and classes: what their attributes were, and what they are now.
_bound: dict[Any, dict[str, tuple[Any, Any]]] = {}
_lock = threading.RLock()


def served(theirs: Callable[..., Any], name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    """Ours where it takes the call, else theirs; counted but in graphs.

    A program that is exported leaves this process: it keeps the original.
    """

    @functools.wraps(theirs)
    def serve(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            result = "exported" if is_exporting() else ours(*args, **kwargs)
            return theirs(*args, **kwargs) if isinstance(result, str) else result
        note(name, serve, args, kwargs)
        try:
            result = ours(*args, **kwargs)
        except (ValueError, NotImplementedError) as error:  # before any work, as all of ttr
            result = str(error).split(" but is ")[0]
        if isinstance(result, str):
            count(name, result)
            return theirs(*args, **kwargs)
        count(name)
        return result

    return serve


def _for_module(name: str, theirs: Any, bounds: bool) -> Callable[..., Any]:
    """Ours, for one module. `bounds`: whether it passes the bounds of packed sequences to all that
    carries over tokens."""
    ours = FUNCTIONS[name]
    names = tuple(inspect.signature(theirs).parameters)
    if names != tuple(inspect.signature(ours).parameters):
        reason = f"its parameters are ({', '.join(names)})"
        return lambda *args, **kwargs: reason
    if bounds:
        return ours

    def unpacked(*args: Any, **kwargs: Any) -> Any:
        if is_packed(kwargs):
            return "packed sequences, whose bounds the module does not pass to its scan"
        return ours(*args, **kwargs)

    return unpacked


def bind(module: ModuleType) -> bool:
    """Rebinds the functions that a module has. Whether any was found."""
    with _lock:
        if module in _bound:
            return True
        found = {name: vars(module)[name] for name in FUNCTIONS if callable(vars(module).get(name))}
        bounds = WITHOUT_BOUNDS.isdisjoint(found)
        now = {
            name: (theirs, served(theirs, name, _for_module(name, theirs, bounds)))
            for name, theirs in found.items()
        }
        if now:
            _put(module, now)
        if goes_back(now):
            _bind_the_way_back(module)
        return bool(now)


def _put(owner: Any, now: dict[str, tuple[Any, Any]]) -> None:
    for name, (_, ours) in now.items():
        setattr(owner, name, ours)
    _bound[owner] = now


def _bind_the_way_back(module: ModuleType) -> None:
    """Caches can be cropped, so that the module's models are assisted as those without a state."""
    caches = of_caches()
    for owner, now in caches.items():
        if owner not in _bound:
            _put(owner, now)
    for part in list(vars(module).values()) if caches else []:
        if isinstance(part, type) and vars(part).get("_is_stateful") is True and part not in _bound:
            _put(part, {"_is_stateful": (True, False)})


def _restore(owner: Any) -> None:
    for name, (theirs, ours) in _bound.pop(owner).items():
        if vars(owner).get(name) is ours:  # not where somebody else has rebound it since
            setattr(owner, name, theirs)


# ---- Modules that are imported later -----------------------------------------------------------


def _is_modelling(name: str) -> bool:
    return name.rpartition(".")[2].startswith("modeling_")


class _Watch(importlib.abc.MetaPathFinder):
    """Rebinds modelling modules when they have been executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not _is_modelling(fullname):
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_bind(module: ModuleType) -> None:
                execute(module)
                with _lock:
                    _bound.pop(module, None)  # a module that was reloaded has its own again
                    if self in sys.meta_path:
                        bind(module)

            spec.loader.exec_module = execute_and_bind  # type: ignore[method-assign]
        return spec


_watch = _Watch()


# ---- What users call ---------------------------------------------------------------------------


def _modules_of(model: torch.nn.Module) -> list[ModuleType]:
    """The modules that define the model's layers, and those of the classes they derive from."""
    classes = {cls for part in model.modules() for cls in type(part).__mro__}
    names = {cls.__module__ for cls in classes}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


def accelerate(model: torch.nn.Module) -> torch.nn.Module:
    """Serves the model's mixers, and those of every other model of its modelling module.

    Returns the model. ValueError where it has nothing to be served.
    """
    bound = [bind(module) for module in _modules_of(model)]
    if not any(bound):
        raise ValueError(
            "[accelerate] model must have layers of a module with one of the functions "
            f"{', '.join(FUNCTIONS)} but {type(model).__name__} has none"
        )
    return model


def enable() -> None:
    """Serves every modelling module, of those imported by now and of those imported later."""
    with _lock:
        if _watch not in sys.meta_path:
            sys.meta_path.insert(0, _watch)
        for name, module in list(sys.modules.items()):
            if isinstance(module, ModuleType) and _is_modelling(name):
                bind(module)


def disable() -> None:
    """Gives every module its own functions back."""
    with _lock:
        if _watch in sys.meta_path:
            sys.meta_path.remove(_watch)
        for owner in list(_bound):
            _restore(owner)


@contextlib.contextmanager
def accelerated(model: torch.nn.Module | None = None) -> Iterator[None]:
    """`accelerate(model)`, or `enable()`, for the length of a block; then all is as before it."""
    with _lock:
        before, watched = set(_bound), _watch in sys.meta_path
    if model is None:
        enable()
    else:
        accelerate(model)
    try:
        yield
    finally:
        with _lock:
            if not watched and _watch in sys.meta_path:
                sys.meta_path.remove(_watch)
            for owner in [owner for owner in _bound if owner not in before]:
                _restore(owner)
