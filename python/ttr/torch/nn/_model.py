"""A network of layers: `LanguageModel`, small enough to read."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch
import torch.nn.functional as F
import ttr
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ._block import Block
from ._cache import Cache
from ._config import ModelConfig
from ._folder import config_of, load_into, on_no_device, save
from ._layer import TestTimeRegression
from ._loss import cross_entropy
from ._padding import bounds_of, padding_of, real_tokens, whole_tokens
from ._sampling import Sampling, pad, sampling_of
from ._sizes import refuse, whole
from ._start import start_small
from .designs import Design


class LanguageModel(nn.Module):
    """Embedding, blocks, norm, and the embedding again as the head.

        model = LanguageModel("gated_deltanet", 256, hidden_size=128, num_heads=4, num_layers=2)
        logits = model(tokens)                            # [B, T] -> [B, T, vocabulary]
        loss = model.loss(tokens)                         # nats a token, of the next one
        more = model.generate(tokens, 100)                # [B, T + 100]
        model.save_pretrained("folder")
        model = LanguageModel.from_pretrained("folder")

    `recipes` is one recipe for all blocks, or a sequence of them, one a block, over and over;
    `design` is what is around each of their memories (`published(recipe)`), or a sequence of as many as
    there are recipes, None among them. Sizes as `TestTimeRegression` has them; without `tied` the head
    has a matrix of its own. `config` is all of that, a `ModelConfig`; `from_config` makes a model of one.

    With `gradient_checkpointing = True` a training step keeps the inputs of blocks alone, and runs each
    again for its gradients. ValueError: a recipe that reads the whole sequence.
    """

    def __init__(
        self,
        recipes: Any,
        vocabulary: int,
        *,
        hidden_size: int,
        num_heads: int,
        num_layers: int,
        head_dim: int | None = None,
        value_dim: int | None = None,
        num_key_heads: int | None = None,
        mlp_ratio: float = 8 / 3,
        tied: bool = True,
        design: Design | Sequence[Design | None] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(recipes, (list, tuple)):
            recipes = [recipes]
        if not recipes:
            refuse("recipes", "a recipe, or a sequence of them,", recipes, "LanguageModel")
        sizes = {"vocabulary": vocabulary, "hidden_size": hidden_size, "num_layers": num_layers}
        sizes = {name: whole(name, size, op="LanguageModel") for name, size in sizes.items()}
        if not isinstance(tied, bool):
            refuse("tied", "True or False", repr(tied), "LanguageModel")
        for recipe in recipes:
            if not ttr.state_specs(recipe):
                why = "as others read the tokens that are asked for,"
                refuse("recipes", f"causal, {why}", str(ttr.Recipe(recipe)), "LanguageModel")
        self._config = ModelConfig(
            _layers(recipes, design), **sizes, num_heads=num_heads, head_dim=head_dim,
            value_dim=value_dim, num_key_heads=num_key_heads, mlp_ratio=mlp_ratio, tied=tied,
        )  # fmt: skip
        vocabulary, hidden_size, num_layers = sizes.values()
        self.embedding = nn.Embedding(vocabulary, hidden_size)
        nn.init.normal_(self.embedding.weight, std=hidden_size**-0.5)
        heads = {"head_dim": head_dim, "value_dim": value_dim, "num_key_heads": num_key_heads}
        self.blocks = nn.ModuleList(
            Block(
                TestTimeRegression(recipe, hidden_size, num_heads, design=layer.design, **heads),
                mlp_ratio=mlp_ratio,
            )
            for recipe, layer in islice(cycle(zip(recipes, self._config.layers)), num_layers)
        )
        start_small(self.blocks, hidden_size**-0.5)
        self.norm = nn.RMSNorm(hidden_size)
        self.head = None if tied else nn.Linear(hidden_size, vocabulary, bias=False)
        self.gradient_checkpointing = False

    # ---- A configuration, and a folder -----------------------------------------------------------

    @property
    def config(self) -> ModelConfig:
        """What the model was made from."""
        return dataclasses.replace(self._config, vocabulary=self.embedding.num_embeddings)

    @classmethod
    def from_config(cls, config: ModelConfig | Mapping[str, Any]) -> LanguageModel:
        """A new model; of a `ModelConfig`, or of its form in JSON."""
        if not isinstance(config, ModelConfig):
            config = ModelConfig.from_dict(config)
        words = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        layers = words.pop("layers")
        recipes, designs = [one.recipe for one in layers], [one.design for one in layers]
        return cls(recipes, words.pop("vocabulary"), design=designs, **words)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes config.json and model.safetensors into a folder, which is made where it is not there.
        Needs safetensors. ValueError: a gate of one's own, which no word stands for."""
        save(folder, self.config, self)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> LanguageModel:
        """The model of a folder, in the types that it was saved in and on the CPU. Needs safetensors.
        ValueError: unknown words, or tensors of another configuration, by their names."""
        config = config_of(folder)
        with on_no_device():
            model = cls.from_config(config)
        load_into(model, folder)
        return model

    # ---- Running ---------------------------------------------------------------------------------

    def forward(self, tokens: Tensor, **given: Any) -> Tensor:
        """Logits [B, T, vocabulary] of tokens [B, T], zeros at padding; all else as `features`."""
        return self.logits(self.features(tokens, **given))

    def features(
        self,
        tokens: Tensor,
        *,
        caches: Sequence[Cache] | None = None,
        cu_seqlens: Tensor | Sequence[int] | None = None,
        attention_mask: Tensor | Sequence[Any] | None = None,
        lengths: Tensor | Sequence[Any] | None = None,
    ) -> Tensor:
        """What the head reads, [B, T, hidden_size], zeros at padding; caches one a block, and all else
        as `TestTimeRegression`."""
        tokens = whole_tokens(tokens, "tokens", "LanguageModel")
        if caches is not None and (isinstance(caches, Cache) or len(caches) != len(self.blocks)):
            given = "one" if isinstance(caches, Cache) else len(caches)
            refuse("caches", f"{len(self.blocks)}, one a block,", given, "LanguageModel")
        cu_seqlens = bounds_of("LanguageModel", cu_seqlens, tokens)
        padding = padding_of("LanguageModel", tokens, cu_seqlens, attention_mask, lengths)
        if padding is not None:
            packed = self._run(padding.pack(tokens), caches, padding.cu_seqlens)
            return padding.unpack(packed)
        return self._run(tokens, caches, cu_seqlens)

    def logits(self, features: Tensor) -> Tensor:
        """The head of some features."""
        if self.head is not None:
            told: Tensor = self.head(features)
            return told
        return F.linear(features, self.embedding.weight)

    def _run(
        self, tokens: Tensor, caches: Sequence[Cache] | None, cu_seqlens: Tensor | None
    ) -> Tensor:
        try:
            x = self.embedding(tokens)
        except IndexError:  # PyTorch's, which does not say what it found
            low, high = int(tokens.min()), int(tokens.max())
            taken = f"in 0 .. {self.embedding.num_embeddings - 1}, the vocabulary,"
            refuse("tokens", taken, f"in {low} .. {high}", "LanguageModel")
        again = self.gradient_checkpointing and torch.is_grad_enabled() and caches is None
        for i, block in enumerate(self.blocks):
            if again:
                x = self._gradient_checkpointing_func(partial(block, cu_seqlens=cu_seqlens), x)
            else:
                x = block(x, cache=caches[i] if caches else None, cu_seqlens=cu_seqlens)
        y: Tensor = self.norm(x)
        return y

    @staticmethod
    def _gradient_checkpointing_func(block: Callable[[Tensor], Tensor], x: Tensor) -> Any:
        """transformers puts its own in the place."""
        return checkpoint(block, x, use_reentrant=False)

    def loss(
        self,
        tokens: Tensor,
        *,
        attention_mask: Tensor | Sequence[Any] | None = None,
        lengths: Tensor | Sequence[Any] | None = None,
    ) -> Tensor:
        """The mean cross entropy of every real token but the first of its row, given those before it.
        tokens [B, T], T >= 2, B >= 1, two real ones in a row at least; ValueError otherwise. Logits of
        large vocabularies are made in pieces, and not kept."""
        tokens = whole_tokens(tokens, "tokens", "LanguageModel")
        if tokens.shape[0] < 1 or tokens.shape[1] < 2:
            refuse("tokens", "[B,T], B >= 1, T >= 2,", list(tokens.shape), "LanguageModel")
        padding = padding_of("LanguageModel", tokens, None, attention_mask, lengths)
        vocabulary = self.embedding.num_embeddings
        if padding is None:
            features = self.features(tokens[:, :-1]).flatten(0, 1)
            return cross_entropy(features, self.logits, vocabulary, tokens[:, 1:].flatten())
        packed, bounds = padding.pack(tokens), padding.cu_seqlens
        known = torch.ones_like(packed[0], dtype=torch.bool)
        known[bounds[:-1][bounds.diff() > 0]] = False  # of a row's first token nothing is asked
        asked = known.nonzero()[:, 0]
        if asked.numel() == 0:
            given = bounds.diff().tolist()
            refuse("attention_mask or lengths", "of two tokens in some row", given, "LanguageModel")
        features = self.features(packed, cu_seqlens=bounds)
        return cross_entropy(features[0, asked - 1], self.logits, vocabulary, packed[0, asked])

    def new_caches(self, draft: int = 0) -> list[Cache]:
        """A cache for every block, of which the last `draft` tokens can be taken back."""
        return [block.new_cache(draft) for block in self.blocks]  # type: ignore[operator]

    @torch.no_grad()
    def generate(
        self,
        tokens: Any,
        count: int,
        *,
        generator: torch.Generator | None = None,
        attention_mask: Tensor | Sequence[Any] | None = None,
        lengths: Tensor | Sequence[Any] | None = None,
        **sampling: Any,
    ) -> Any:
        """tokens [B, T], T >= 1, and behind them `count` more. Padding may stand anywhere; each row goes
        on from its last real token. Of prompts in a list, each [T_b] or a list of numbers, a list comes back.

        `sampling`: temperature (1), the likeliest where that is 0; top_k, among the k likeliest; top_p,
        among as few of these as have that share together; stop, tokens behind which a row ends: it
        repeats that one until the others have ended, and in a list it is cut there.

        ValueError: a temperature that is negative or not finite, top_k below 1, top_p outside 0 .. 1, a
        negative count, a row without a real token, words that are none of these."""
        how = sampling_of(sampling)
        if isinstance(tokens, (list, tuple)):
            if attention_mask is not None or lengths is not None:
                absent = "absent where prompts are a list"
                refuse("attention_mask and lengths", absent, "given", "LanguageModel")
            padded, counts = pad(tokens, self.embedding.weight.device)
            real = real_tokens("LanguageModel", padded, None, counts)
            continued = self._generate(padded, count, how, generator, real)
            return how.cut(padded, counts, continued[:, padded.shape[1] :])
        tokens = whole_tokens(tokens, "tokens", "LanguageModel")
        if tokens.shape[1] < 1:
            refuse("tokens", "[B,T], T >= 1,", list(tokens.shape), "LanguageModel")
        real = real_tokens("LanguageModel", tokens, attention_mask, lengths)
        return self._generate(tokens, count, how, generator, real)

    def _generate(
        self, tokens: Tensor, count: int, how: Sampling, generator: Any, real: Tensor | None
    ) -> Tensor:
        count = whole("count", count, 0, "LanguageModel")
        last = torch.full_like(tokens[:, 0], -1) if real is None else _last(real)
        caches, new, rows = self.new_caches(), tokens, torch.arange(len(tokens), device=tokens.device)
        ended = torch.zeros_like(last, dtype=torch.bool)
        for _ in range(count):
            logits = self.logits(self.features(new, caches=caches, attention_mask=real)[rows, last])
            drawn = how.draw(logits, generator)
            new = torch.where(ended[:, None], tokens[:, -1:], drawn)
            tokens = torch.cat([tokens, new], 1)
            real, last = None, torch.full_like(last, -1)
            if how.stop:
                ended = ended | how.ends(new[:, 0])
                if bool(ended.all()):
                    break
        return tokens


def _layers(recipes: Sequence[Any], design: Any) -> list[Any]:
    """Recipes and what is around each. ValueError: designs of another number."""
    designs = design if isinstance(design, (list, tuple)) else [design] * len(recipes)
    if len(designs) != len(recipes):
        given = f"{len(designs)} for {len(recipes)}"
        refuse("design", "one for all recipes, or one for each,", given, "LanguageModel")
    return [{"recipe": recipe, "design": one} for recipe, one in zip(recipes, designs)]


def _last(real: Tensor) -> Tensor:
    """The place of the last real token of each row, [B]. ValueError: a row without one."""
    if not bool(real.any(1).all()):
        counts = real.sum(1).tolist()
        refuse("attention_mask or lengths", "of a token in every row", counts, "LanguageModel")
    return real.shape[1] - 1 - real.flip(1).int().argmax(1)
