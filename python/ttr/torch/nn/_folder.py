"""A model in a folder: config.json, and its tensors in model.safetensors."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..._files import whole, write_whole
from ._config import ModelConfig

CONFIG, TENSORS = "config.json", "model.safetensors"


def save(folder: str | os.PathLike[str], config: ModelConfig, model: nn.Module) -> None:
    """Writes both files, each whole or not at all."""
    safetensors = _safetensors()
    text, place = config.to_json(), Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    with whole(place / TENSORS) as part:
        safetensors.torch.save_file(tensors, part, metadata={"format": "pt"})
    write_whole(place / CONFIG, text)


def config_of(folder: str | os.PathLike[str]) -> ModelConfig:
    """The configuration of a folder. ValueError: no JSON, and whatever `ModelConfig` refuses."""
    path = Path(folder) / CONFIG
    try:
        words = json.loads(path.read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"[from_pretrained] {path} must be JSON but: {error}") from None
    if not isinstance(words, dict):
        raise ValueError(f"[from_pretrained] {path} must be an object of JSON but is {words!r}")
    return ModelConfig.from_dict(words)


def load_into(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """The tensors of a folder become those of a model, in their own types. ValueError: others than the
    model has, by their names."""
    path = Path(folder) / TENSORS
    if not path.exists():
        raise FileNotFoundError(f"[from_pretrained] {path} must be there but is not")
    safetensors = _safetensors()
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"[from_pretrained] {path} must be a file of safetensors but: {error}") from None
    if tensors and all(name.startswith("model.") for name in tensors):  # of a TtrForCausalLM
        tensors = {name.removeprefix("model."): t for name, t in tensors.items()}
    wanted = {name: list(t.shape) for name, t in model.state_dict().items()}
    given = {name: list(t.shape) for name, t in tensors.items()}
    for name in sorted({*wanted, *given}):
        if wanted.get(name) != given.get(name):
            is_ = f"is {given[name]}" if name in given else "is absent"
            must = f"be {wanted[name]}" if name in wanted else "be absent"
            raise ValueError(
                f"[from_pretrained] {name} must {must}, as {CONFIG} has it, but {is_} in {path}"
            )
    # In a file tensors lie side by side, in memory of their own they are aligned.
    model.load_state_dict({name: t.clone() for name, t in tensors.items()}, assign=True)


def _safetensors() -> Any:
    if importlib.util.find_spec("safetensors") is None:
        raise ImportError("models in folders need safetensors: pip install safetensors")
    import safetensors.torch

    return safetensors


def on_no_device() -> torch.device:
    """Where a model is made whose tensors are read afterwards: numbers are not drawn."""
    return torch.device("meta")
