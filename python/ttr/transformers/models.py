"""A `ttr.torch.nn.LanguageModel` as a model of transformers: `TtrConfig` and `TtrForCausalLM`.

    from ttr.transformers import TtrConfig, TtrForCausalLM     # the Auto classes know them from here on

    config = TtrConfig(layers=["gated_deltanet", "softmax"], vocabulary=256, hidden_size=64,
                       num_heads=4, num_layers=4)
    model = TtrForCausalLM(config)
    loss = model(input_ids, attention_mask=mask, labels=input_ids).loss
    model.generate(input_ids, attention_mask=mask, max_new_tokens=20, num_beams=4)
    model.save_pretrained("folder")                            # LanguageModel.from_pretrained reads it, too

Needs transformers 5.24.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from typing import Any, ClassVar

if importlib.util.find_spec("transformers") is None:
    raise ImportError("ttr.transformers.models needs transformers: pip install transformers")

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.generation.configuration_utils import GenerationMode
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.deprecation import deprecate_kwarg

import ttr
from ttr.torch.nn import Cache, LanguageModel, ModelConfig
from ttr.torch.nn._loss import in_pieces, is_large
from ttr.torch.nn._padding import whole_tokens
from ttr.torch.nn._sizes import refuse
from ttr.torch.nn._written import check_words

_OURS = tuple(field.name for field in dataclasses.fields(ModelConfig))
#: Words that `PreTrainedConfig` takes without having a field of the name.
_THEIRS = (
    "attn_implementation", "experts_implementation", "model_type", "name_or_path", "num_labels",
    "output_attentions", "torch_dtype",
)  # fmt: skip


class TtrConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """`ttr.torch.nn.ModelConfig` among the words that transformers has for every model.

    `vocab_size`, `num_hidden_layers` and `num_attention_heads` are other names of `vocabulary`,
    `num_layers` and `num_heads`. ValueError: an unknown word, with the one that is likely meant.
    """

    model_type: ClassVar[str] = "ttr"
    attribute_map: ClassVar[dict[str, str]] = {
        "vocab_size": "vocabulary",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "tie_word_embeddings": "tied",
    }

    layers: Any = "gated_deltanet"
    vocabulary: int = 256
    hidden_size: int = 256
    num_heads: int = 4
    num_layers: int = 4
    head_dim: int | None = None
    value_dim: int | None = None
    num_key_heads: int | None = None
    mlp_ratio: float | int = 8 / 3
    tied: bool = True
    use_cache: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        public = [word for word in kwargs if not word.startswith("_")]
        generation = GenerationConfig().to_dict()  # type: ignore[no-untyped-call]
        fields = [field.name for field in dataclasses.fields(self)]
        strange = [word for word in public if word not in generation]
        check_words("TtrConfig", strange, [*fields, *self.attribute_map, *_THEIRS])
        for name, ours in self.attribute_map.items():
            if name in kwargs:
                setattr(self, ours, kwargs.pop(name))
        self.layers = self.model_config().to_dict()["layers"]
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]

    def model_config(self) -> ModelConfig:
        """Ours alone."""
        return ModelConfig.from_dict({name: getattr(self, name) for name in _OURS})


class TtrCache:
    """The caches of all blocks, as transformers' generation uses one: beams, repetition, selection, and
    with ``draft`` the way back of as many tokens."""

    is_compileable = False

    def __init__(self, model: LanguageModel, draft: int = 0) -> None:
        self.caches: list[Cache] = model.new_caches(draft)
        self.is_linear = [False] * len(self.caches)  # prompts are cut where the cache ends
        self.columns = 0  # read, padding among them

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns of `attention_mask` that have been read."""
        return self.columns

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row b becomes what row beam_idx[b] was."""
        for cache in self.caches:
            cache.reorder(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keeps some rows."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row as many times, side by side."""
        for cache in self.caches:
            cache.repeat(repeats)

    @property
    def is_croppable(self) -> bool:
        return all(cache.draft > 0 for cache in self.caches)

    def activate_past_recording(self) -> None:
        """What assisted generation asks for, of a cache that has it from the beginning."""
        if not self.is_croppable:
            refuse("draft", "at least the tokens of a draft, for assisted generation,", 0, "TtrCache")

    def crop(self, max_length: int) -> None:
        """Takes back -max_length tokens; where it is above 0, keeps the first ones instead."""
        back = -max_length if max_length <= 0 else max(self.columns - max_length, 0)
        most = min(cache.pending for cache in self.caches)
        if back > most:  # none goes back where one cannot
            what = f"so many that at most {most} tokens go, those that can be taken back,"
            refuse("max_length", what, max_length, "TtrCache")
        for cache in self.caches:
            cache.roll_back(back)
        self.columns -= back


class TtrForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[no-untyped-call]
    """A language model of transformers whose layers are recipes; `model` is the `LanguageModel`.

    Padding (`attention_mask` [B, past + T], 0 and 1) may stand on any side. A cache has no gradients: in
    a call that wants some, `use_cache` is off unless it is asked for, and then a RuntimeError.
    """

    config_class = TtrConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block"]

    def __init__(self, config: TtrConfig) -> None:
        super().__init__(config)
        self.model = LanguageModel.from_config(config.model_config())
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        """Layers have begun as their papers say."""

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As of every model, but tensors that are missing, too many or of other sizes are a ValueError
        that names the first, instead of a warning."""
        wants_report = kwargs.pop("output_loading_info", False)
        strict = not kwargs.get("ignore_mismatched_sizes", False)
        kwargs["ignore_mismatched_sizes"] = True  # they are reported, not raised without a name
        loaded: Any = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        model, report = loaded
        if strict:
            _refuse_others(report)
        return (model, report) if wants_report else model

    def get_input_embeddings(self) -> nn.Module:
        embedding: nn.Module = self.model.embedding
        return embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model.embedding = value

    def get_output_embeddings(self) -> nn.Module | None:
        head: nn.Module | None = self.model.head
        return head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.model.head = new_embeddings

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # `forward` makes its own

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], generation_mode: Any, *args: Any
    ) -> Any:
        """A cache that goes back, where a draft is checked or made."""
        back = generation_mode == GenerationMode.ASSISTED_GENERATION or generation_config.is_assistant
        if back and model_kwargs.get("cache") is None and generation_config.use_cache is not False:
            draft = generation_config.prompt_lookup_num_tokens or ttr.Decoder.most_draft
            model_kwargs["cache"] = TtrCache(self.model, min(draft, ttr.Decoder.most_draft))
            return None
        prepare: Any = super()._prepare_cache_for_generation  # type: ignore[misc]
        return prepare(generation_config, model_kwargs, generation_mode, *args)

    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: TtrCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Logits [B, T, vocabulary] of input_ids [B, T], of the last `logits_to_keep` alone where that is
        above 0; with labels (-100: none) the mean cross entropy of the next token. Where gradients are
        wanted and a vocabulary is large, the loss makes its logits in pieces, and the whole is absent unless
        `logits_to_keep` asks for it (0: all). Sequences that are packed in a row, as `cu_seq_lens_q`, `seq_idx` or
        `position_ids` that begin again say, know nothing of each other. What else the Trainer and generation pass
        to every model goes to the loss."""
        self._refuse_absent(kwargs)
        ids = whole_tokens(input_ids, "input_ids", "TtrForCausalLM")
        if labels is not None:
            labels = _labels_of(labels, ids, logits_to_keep)
        bounds = _bounds_of(ids, attention_mask, kwargs)
        if use_cache is None:
            use_cache = self.config.use_cache and not torch.is_grad_enabled() and bounds is None
        if use_cache and cache is None:
            cache = TtrCache(self.model)
        features = self._features(ids, attention_mask, cache, bounds)
        loss, logits = None, None
        apart = labels is not None and self._is_large(features)
        if not apart or logits_to_keep is not None:
            last = 0 if logits_to_keep is None else logits_to_keep
            keep = slice(-last, None) if isinstance(last, int) else last
            logits = self.model.logits(features[:, keep])
        if labels is not None and apart:
            loss = self._loss_in_pieces(features, labels, **kwargs)
        elif labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocabulary, **kwargs)
        held: Any = cache
        out = CausalLMOutputWithPast(loss=loss, logits=logits, cache=held)
        return out if return_dict is not False else out.to_tuple()

    def _refuse_absent(self, given: dict[str, Any]) -> None:
        """ValueError: what other models of transformers give or take, and this one does not."""
        for word, why in (
            ("inputs_embeds", "as tokens are given by input_ids,"),
            ("output_hidden_states", "as only what the head reads is kept,"),
            ("output_attentions", "as memories have no weights of attention,"),
        ):
            asked = given.pop(word, None)
            if isinstance(asked, Tensor) or (getattr(self.config, word, False) if asked is None else asked):
                refuse(word, f"absent, {why}", "given", "TtrForCausalLM")

    def _features(
        self, ids: Tensor, attention_mask: Tensor | None, cache: Any, bounds: Tensor | None
    ) -> Tensor:
        """What the head reads; the cache has then read it, too."""
        if bounds is not None:
            if cache is not None:
                refuse("cache", "absent where sequences are packed", "given", "TtrForCausalLM")
            packed: Tensor = self.model.features(ids.reshape(1, -1), cu_seqlens=bounds, attention_mask=attention_mask)
            return packed.view(*ids.shape, -1)
        if not isinstance(cache, TtrCache | None):
            what = "a TtrCache, as a call without gradients returns it,"
            refuse("cache", what, type(cache).__name__, "TtrForCausalLM")
        columns, read = ids.shape[1], 0 if cache is None else cache.columns
        if isinstance(attention_mask, Tensor) and attention_mask.dim() == 2:
            if attention_mask.shape[1] not in (columns, read + columns):
                what = f"[B,past + T] = [{ids.shape[0]},{read + columns}]"
                refuse("attention_mask", what, list(attention_mask.shape), "TtrForCausalLM")
            attention_mask = attention_mask[:, attention_mask.shape[1] - columns :]
        caches = None if cache is None else cache.caches
        features: Tensor = self.model.features(ids, caches=caches, attention_mask=attention_mask)
        if cache is not None:
            cache.columns += columns
        return features

    def _is_large(self, features: Tensor) -> bool:
        """Whether a loss of these makes logits in pieces: only gradients need all of them, and a loss of
        one's own is given the whole."""
        rows = features.shape[0] * features.shape[1]
        ours = self.loss_function is ForCausalLMLoss
        return ours and torch.is_grad_enabled() and is_large(rows, self.config.vocabulary)

    def _loss_in_pieces(
        self,
        features: Tensor,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None = None,
        ignore_index: int = -100,
        shift_labels: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """`loss_function` of transformers, piece by piece."""
        if shift_labels is None:
            shift_labels = F.pad(labels, (0, 1), value=ignore_index)[:, 1:]
        targets, vocabulary = shift_labels.flatten(), self.config.vocabulary
        count: Any = num_items_in_batch
        if count is None:
            count = (targets != ignore_index).sum()

        def share(some: Tensor, theirs: Tensor) -> Tensor:
            loss: Tensor = self.loss_function(
                self.model.logits(some), None, vocab_size=vocabulary, num_items_in_batch=count,
                ignore_index=ignore_index, shift_labels=theirs, **kwargs,
            )  # fmt: skip
            return loss

        return in_pieces(share, features.flatten(0, 1), targets, vocabulary)


def _labels_of(labels: Any, ids: Tensor, kept: Any) -> Tensor:
    """Labels as a loss takes them. ValueError: others than input_ids has, and a row of one token."""
    if ids.shape[1] < 2:
        least = "[B,T], T >= 2, where labels are given, as the first token is not asked for,"
        refuse("input_ids", least, list(ids.shape), "TtrForCausalLM")
    whole: Tensor = whole_tokens(labels, "labels", "TtrForCausalLM")
    if kept is None and whole.shape != ids.shape:
        refuse("labels", f"{list(ids.shape)}, as input_ids is,", list(whole.shape), "TtrForCausalLM")
    return whole


def _bounds_of(ids: Tensor, attention_mask: Tensor | None, given: dict[str, Any]) -> Tensor | None:
    """The bounds of packed sequences among all tokens of ids [B, T], row behind row; None where a row is one
    sequence. Positions beside a mask are those of its real tokens, and say nothing more."""
    bounds: Tensor | None
    bounds, numbers, positions = (given.pop(w, None) for w in ("cu_seq_lens_q", "seq_idx", "position_ids"))
    for word in ("cu_seq_lens_k", "max_length_q", "max_length_k"):
        given.pop(word, None)
    if bounds is not None:
        return bounds
    rows = positions if numbers is None else numbers
    if rows is None or (numbers is None and attention_mask is not None):
        return None
    if rows.shape not in (ids.shape, (1, ids.shape[1])):
        name = "position_ids" if numbers is None else "seq_idx"
        refuse(name, f"[B,T] = {list(ids.shape)}", list(rows.shape), "TtrForCausalLM")
    begins = rows.diff(dim=1) != (1 if numbers is None else 0)
    if not bool(begins.any()):
        return None
    first = F.pad(begins.expand(len(ids), -1), (1, 0), value=True)
    return F.pad(first.flatten().nonzero()[:, 0], (0, 1), value=ids.numel())


def _refuse_others(report: dict[str, Any]) -> None:
    """ValueError: what a checkpoint has that is not this configuration's."""
    for name, given, wanted in sorted(report["mismatched_keys"]):
        refuse(name, f"{list(wanted)}, as config.json has it,", list(given), "from_pretrained")
    for what, must, is_ in (
        ("missing_keys", "in the checkpoint", "absent"),
        ("unexpected_keys", "absent, as config.json has it,", "in the checkpoint"),
    ):
        names: Sequence[str] = sorted(report[what])
        if names:
            refuse(names[0], must, is_, "from_pretrained")


AutoConfig.register(TtrConfig.model_type, TtrConfig, exist_ok=True)
AutoModelForCausalLM.register(TtrConfig, TtrForCausalLM, exist_ok=True)
