"""Layers that learn: any recipe as a module of a network.

    from ttr.torch.nn import TestTimeRegression

    layer = TestTimeRegression("gated_deltanet", 256, num_heads=4)
    y = layer(x)                                          # [B, T, 256] -> [B, T, 256]

`Design` is what stands around a memory: gates, convolutions, norms; `published` has those of
published layers. `Block` and `LanguageModel` are a network around it, `ModelConfig` is one as data.
"""

from . import gates
from ._block import Block, GatedMLP
from ._cache import Cache
from ._config import LayerConfig, ModelConfig
from ._convolution import Lags, ShortConvolution
from ._layer import TestTimeRegression
from ._model import LanguageModel
from ._optimizer import parameter_groups
from .designs import DEFAULTS, PUBLISHED, Design, published

__all__ = [
    "DEFAULTS",
    "PUBLISHED",
    "Block",
    "Cache",
    "Design",
    "GatedMLP",
    "Lags",
    "LanguageModel",
    "LayerConfig",
    "ModelConfig",
    "ShortConvolution",
    "TestTimeRegression",
    "gates",
    "parameter_groups",
    "published",
]
