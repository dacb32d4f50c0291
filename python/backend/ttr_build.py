"""The build backend: scikit-build-core's, which first says what a compile lacks.

The operators of `ttr.torch` are compiled against PyTorch's headers: those of the environment that is
built for. Where that has no PyTorch they are left out, since nobody there could call them, and the
rest is built in minutes instead of after gigabytes. `-Ccmake.define.TTR_TORCH=ON` gets the pinned
PyTorch for the build (a range would take the newest), `OFF` goes without in any case.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import needs
from find_torch import find_torch
from scikit_build_core import build as _backend
from scikit_build_core.build import *  # noqa: F403

PINNED = "torch==2.13.0"
ON = {"on", "yes", "true", "1"}


def _setting(settings: dict[str, Any] | None, name: str) -> str:
    return str((settings or {}).get(f"cmake.define.{name}", ""))


def _require(settings: dict[str, Any] | None) -> None:
    """Stops with one line where a compile could not succeed."""
    if os.environ.get("TTR_SETUP") == "skip":
        return
    packages = needs.missing(os.environ, library=not _setting(settings, "TTR_ROOT"))
    if packages:
        raise SystemExit(needs.complaint(packages))


def _requirements(ask: Callable[[Any], list[str]], settings: dict[str, Any] | None) -> list[str]:
    _require(settings)
    found = ask(settings)
    wanted = _setting(settings, "TTR_TORCH").lower() in ON
    return [*found, PINNED] if wanted and find_torch() is None else found


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return _requirements(_backend.get_requires_for_build_wheel, config_settings)


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    return _requirements(_backend.get_requires_for_build_editable, config_settings)


# Without build isolation pip asks for no requirements.
def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    _require(config_settings)
    return _backend.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    _require(config_settings)
    return _backend.build_editable(wheel_directory, config_settings, metadata_directory)
