"""The build backend: scikit-build-core's, which asks for PyTorch only where there is none.

The operators of `ttr.torch` are compiled against PyTorch's headers. Where the environment that is
built for has a PyTorch, these are its own. Elsewhere an isolated build gets the pinned one: a range
would take the newest, with gigabytes of CUDA. `-Ccmake.define.TTR_TORCH=OFF` goes without.
"""

from __future__ import annotations

from typing import Any

from find_torch import find_torch
from scikit_build_core import build as _backend
from scikit_build_core.build import *  # noqa: F403

PINNED = "torch==2.13.0"
OFF = {"off", "no", "false", "0"}


def _with_torch(requirements: list[str], settings: dict[str, Any] | None) -> list[str]:
    wanted = str((settings or {}).get("cmake.define.TTR_TORCH", "ON")).lower() not in OFF
    return [*requirements, PINNED] if wanted and find_torch() is None else requirements


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    requirements = _backend.get_requires_for_build_wheel(config_settings)
    return _with_torch(requirements, config_settings)


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    requirements = _backend.get_requires_for_build_editable(config_settings)
    return _with_torch(requirements, config_settings)
