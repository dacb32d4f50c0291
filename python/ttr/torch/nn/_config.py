"""A language model as data: `ModelConfig`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .._recipes import text_of
from ._sizes import refuse
from ._written import check_words, design_of, write_design
from .designs import Design, published

#: What transformers writes beside ours into the file of a configuration.
OF_TRANSFORMERS = (
    "architectures", "bos_token_id", "dtype", "eos_token_id", "model_type", "pad_token_id",
    "transformers_version", "use_cache",
)  # fmt: skip
MODEL_TYPE = "ttr"


@dataclass(frozen=True)
class LayerConfig:
    """A recipe's text, and what is around its memory."""

    recipe: str
    design: Design


@dataclass(frozen=True)
class ModelConfig:
    """What a `LanguageModel` is made from; `from_dict` and `to_dict` are its form in JSON.

        {"layers": ["gated_deltanet", {"recipe": "softmax", "design": {"qk_norm": "rms"}}],
         "vocabulary": 256, "hidden_size": 64, "num_heads": 4, "num_layers": 4}

    ==============  ================================================================================
    layers          a recipe, or a list of them, one a block, over and over; each a text, or
                    {"recipe": ..., "design": ...}. Designs: `Design`, a published name, or fields
                    of one ("like": the published one that they change); absent: `published(recipe)`
    vocabulary, hidden_size, num_heads, num_layers
    head_dim        Dk of q and k (hidden_size / num_heads)
    value_dim       Dv of v (head_dim)
    num_key_heads   heads of q and k (num_heads)
    mlp_ratio       of the gated MLPs; 0: none (8 / 3)
    tied            whether the embedding is the head, too (True)
    ==============  ================================================================================

    ValueError: an unknown word, with the one that is likely meant; sizes are checked where the model
    is made.
    """

    layers: Any
    vocabulary: int
    hidden_size: int
    num_heads: int
    num_layers: int
    head_dim: int | None = None
    value_dim: int | None = None
    num_key_heads: int | None = None
    mlp_ratio: float = 8 / 3
    tied: bool = True

    def __post_init__(self) -> None:
        given = self.layers if isinstance(self.layers, (list, tuple)) else [self.layers]
        object.__setattr__(self, "layers", tuple(_layer_of(layer) for layer in given))

    @classmethod
    def from_dict(cls, words: Mapping[str, Any]) -> ModelConfig:
        """The configuration that `to_dict` gave, or that a person writes."""
        if not isinstance(words, Mapping):
            refuse("words", "a dictionary, as JSON has objects,", repr(words), "ModelConfig")
        taken = [field.name for field in fields(cls)]
        check_words("ModelConfig", words, [*taken, *OF_TRANSFORMERS])
        if words.get("model_type", MODEL_TYPE) != MODEL_TYPE:
            refuse("model_type", f"'{MODEL_TYPE}'", f"'{words['model_type']}'", "ModelConfig")
        for name in ("layers", "vocabulary", "hidden_size", "num_heads", "num_layers"):
            if name not in words:
                refuse(name, "given", "absent", "ModelConfig")
        return cls(**{name: value for name, value in words.items() if name in taken})

    def to_dict(self) -> dict[str, Any]:
        """Everything that is not a default, designs in full. ValueError: a gate of one's own."""
        written: dict[str, Any] = {"model_type": MODEL_TYPE}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "layers":
                value = [{"recipe": layer.recipe, "design": write_design(layer.design)} for layer in value]
            if value != field.default:
                written[field.name] = value
        return written

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=2) + "\n"


def _layer_of(given: Any) -> LayerConfig:
    """A recipe's JSON has words of its own: what has "recipe" is a layer's."""
    if isinstance(given, LayerConfig):
        return given
    if isinstance(given, Mapping) and "recipe" in given:
        check_words("ModelConfig] layers: [layer", given, ["recipe", "design"])
        recipe, design = given["recipe"], given.get("design")
    else:
        recipe, design = given, None
    return LayerConfig(text_of(recipe), published(recipe) if design is None else design_of(design))
