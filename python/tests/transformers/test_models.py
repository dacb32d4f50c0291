"""`TtrForCausalLM`: loss, generation with and without a cache, padding, folders, training."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers", reason="the models are those of transformers")

import torch
from torch import Tensor
from ttr.torch.nn import LanguageModel, _loss
from ttr.transformers import TtrConfig, TtrForCausalLM
from ttr.transformers.models import TtrCache

LAYERS = ["gated_deltanet", {"recipe": "softmax", "design": {"qk_norm": "rms", "conv_size": 3}}, "rls"]


def model(**words: Any) -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = dict(layers=LAYERS, vocabulary=23, hidden_size=16, num_heads=2, num_layers=3)
    return TtrForCausalLM(TtrConfig(**{**sizes, "pad_token_id": 0, **words})).double().eval()


def prompt(batch: int = 3, count: int = 9) -> Tensor:
    return torch.randint(1, 23, (batch, count), generator=torch.Generator().manual_seed(3))


def left_padded() -> tuple[Tensor, Tensor]:
    ids, mask = prompt(), torch.ones(3, 9, dtype=torch.long)
    mask[1, :4], mask[2, :8] = 0, 0
    return ids * mask, mask


WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True, "temperature": 0.8},
    "beam search": {"num_beams": 3},
    "several beams": {"num_beams": 3, "num_return_sequences": 2},
    "sampled beams": {"num_beams": 3, "do_sample": True},
    "several answers": {"do_sample": True, "num_return_sequences": 2},
}


def generate(made: Any, ids: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
    torch.manual_seed(0)
    words: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, **options}
    tokens: Tensor = made.generate(ids, attention_mask=mask, **words)
    return tokens


@pytest.mark.parametrize("way", WAYS)
def test_a_cache_changes_no_token(way: str) -> None:
    made, (ids, mask) = model(), left_padded()
    with_cache = generate(made, ids, mask, **WAYS[way])
    assert torch.equal(with_cache, generate(made, ids, mask, use_cache=False, **WAYS[way]))
    assert with_cache.shape[1] == 15


def test_padded_rows_say_what_they_say_alone() -> None:
    made, (ids, mask) = model(), left_padded()
    told = generate(made, ids, mask)
    by_nn = made.model.generate(ids, 6, temperature=0, attention_mask=mask)
    assert torch.equal(told, by_nn)
    for row in range(3):
        real = mask[row].bool()
        alone = generate(made, ids[row : row + 1, real])
        assert torch.equal(told[row, 9:], alone[0, int(real.sum()) :])


def test_the_loss_is_of_labels() -> None:
    made, (ids, mask) = model(), left_padded()
    labels = ids.masked_fill(mask == 0, -100)
    out = made(ids, attention_mask=mask, labels=labels)
    assert out.cache is None  # as gradients are wanted
    logits = out.logits[:, :-1].flatten(0, 1).float()
    want = torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), ignore_index=-100)
    torch.testing.assert_close(out.loss, want)
    whole = made(prompt(), labels=prompt()).loss
    torch.testing.assert_close(whole, made.model.loss(prompt()).float(), rtol=1e-5, atol=1e-6)
    by_place = made(ids, attention_mask=mask, labels=labels, return_dict=False)
    assert torch.equal(by_place[0], out.loss) and torch.equal(by_place[1], out.logits)
    torch.testing.assert_close(made(ids, attention_mask=mask, logits_to_keep=2).logits, out.logits[:, -2:])


def test_the_loss_of_a_large_vocabulary_has_no_whole_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    made, (ids, mask) = model().float(), left_padded()
    labels = ids.masked_fill(mask == 0, -100)
    items = torch.tensor(7)

    def trained(**words: Any) -> tuple[Any, list[Tensor]]:
        made.zero_grad()
        out = made(ids, attention_mask=mask, labels=labels, **words)
        out.loss.backward()
        return out, [p.grad.clone() for p in made.parameters()]

    whole = [trained(), trained(num_items_in_batch=items)]
    assert all(out.logits.shape == (3, 9, 23) for out, _ in whole)
    monkeypatch.setattr(_loss, "MOST_LOGITS", 4 * 23)
    rows: list[int] = []
    head = made.model.logits
    monkeypatch.setattr(made.model, "logits", lambda f: rows.append(f[..., 0].numel()) or head(f))
    for (want, gradients), words in zip(whole, ({}, {"num_items_in_batch": items})):
        found, others = trained(**words)
        assert found.logits is None and max(rows) == 4
        torch.testing.assert_close(found.loss, want.loss)
        torch.testing.assert_close(others, gradients)
    asked = made(ids, attention_mask=mask, labels=labels, logits_to_keep=0)
    torch.testing.assert_close(asked.logits, whole[0][0].logits)
    with torch.no_grad():  # an evaluation may want them
        assert made(ids, attention_mask=mask, labels=labels).logits.shape == (3, 9, 23)
    made.loss_function = lambda logits, labels, vocab_size: logits.sum()  # whose pieces mean nothing
    assert made(ids, labels=labels).logits.shape == (3, 9, 23)


def test_one_token_has_no_loss() -> None:
    ids = prompt()[:, :1]
    with pytest.raises(ValueError, match=r"\[TtrForCausalLM\] input_ids must be \[B,T\], T >= 2, where labels"):
        model()(ids, labels=ids)
    model()(ids)


def test_checkpoints_of_blocks_have_the_same_gradients() -> None:
    made, ids = model().train(), prompt()
    made(ids, labels=ids).loss.backward()
    plain = {name: p.grad.clone() for name, p in made.named_parameters()}
    made.zero_grad()
    made.activation_checkpointing_enable()
    assert made.model.gradient_checkpointing
    made(ids, labels=ids).loss.backward()
    for name, parameter in made.named_parameters():
        assert torch.equal(parameter.grad, plain[name]), name
    made.activation_checkpointing_disable()
    assert not made.model.gradient_checkpointing


def test_a_cache_that_wants_gradients_is_refused() -> None:
    made, ids = model(), prompt()
    with pytest.raises(RuntimeError, match="must not require gradients where a cache is given"):
        made(ids, use_cache=True)
    with torch.no_grad():
        out = made(ids[:, :5])
        more = made(ids[:, 5:], cache=out.cache)
        assert more.cache is out.cache and more.cache.get_seq_length() == 9
        torch.testing.assert_close(more.logits, made(ids).logits[:, 5:])


@torch.no_grad()
def test_caches_go_back_and_select() -> None:
    made, ids = model(), prompt()
    cache = TtrCache(made.model, draft=4)
    made(ids, cache=cache)
    cache.crop(7)
    cache.crop(-1)
    cache.batch_select_indices(torch.tensor([2, 0]))
    cache.batch_repeat_interleave(2)
    rows = ids[[2, 2, 0, 0]]
    assert cache.get_seq_length() == 6
    torch.testing.assert_close(made(rows[:, 6:], cache=cache).logits, made(rows).logits[:, 6:])


@torch.no_grad()
def test_the_older_name_of_a_cache_is_one() -> None:
    made, ids = model(), prompt()
    out = made(ids[:, :5])
    with pytest.warns(FutureWarning, match="Use `cache` instead"):  # as other models of transformers say
        after = made(ids[:, 5:], past_key_values=out.cache).logits
    torch.testing.assert_close(after, made(ids).logits[:, 5:])


@pytest.mark.parametrize("batch", [1, 2])
def test_packed_sequences_know_nothing_of_each_other(batch: int) -> None:
    """By whichever words the data collators of transformers say where they begin."""
    made, ids = model(), prompt(2, 9)
    packed = torch.cat([ids, ids.flip(0)], 1)[:batch]  # sequences of 9 and 9 tokens in each row
    want = torch.cat([made(packed[:, :9]).logits, made(packed[:, 9:]).logits], 1)
    positions = torch.arange(9).repeat(2)[None]
    ways: list[dict[str, Any]] = [{"position_ids": positions}, {"seq_idx": (torch.arange(18) // 9)[None]}]
    if batch == 1:
        cuts = torch.tensor([0, 9, 18], dtype=torch.int32)
        ways.append({"cu_seq_lens_q": cuts, "cu_seq_lens_k": cuts, "max_length_q": 9, "max_length_k": 9})
    for words in ways:
        out = made(packed, labels=packed, **words)
        torch.testing.assert_close(out.logits, want)
        with torch.no_grad():
            assert made(packed, **words).cache is None
            with pytest.raises(ValueError, match="cache must be absent where sequences are packed"):
                made(packed, use_cache=True, **words)
    whole = made(packed, position_ids=torch.arange(3, 21)[None]).logits  # one sequence, wherever it begins
    torch.testing.assert_close(whole, made(packed).logits)
    with pytest.raises(ValueError, match=r"position_ids must be \[B,T\] = \[., 18\] but is \[1, 9\]"):
        made(packed, position_ids=positions[:, :9])


@torch.no_grad()
def test_what_a_call_refuses() -> None:
    made, (ids, mask) = model(), left_padded()
    for words, message in (
        ({"attention_mask": torch.cat([mask, mask], 1)}, r"attention_mask must be \[B,past \+ T\] = \[3,9\] but is \[3, 18\]"),
        ({"output_hidden_states": True}, "output_hidden_states must be absent, .* but is given"),
        ({"output_attentions": True}, "output_attentions must be absent"),
        ({"inputs_embeds": torch.zeros(3, 9, 16)}, "inputs_embeds must be absent, as tokens are given by input_ids"),
        ({"cache": transformers.DynamicCache()}, "cache must be a TtrCache, .* but is DynamicCache"),
        ({"labels": ids[:, :5]}, r"labels must be \[3, 9\], as input_ids is, but is \[3, 5\]"),
    ):
        with pytest.raises(ValueError, match=message):
            made(ids, **words)
    with pytest.raises(ValueError, match=r"input_ids must be a tensor \[B,T\] of whole numbers but is NoneType"):
        made()
    cache = made(ids[:, :5], attention_mask=mask[:, :5]).cache
    for given in (mask[:, 5:], mask):  # of what is new, or of all
        after = made(ids[:, 5:], cache=copy.deepcopy(cache), attention_mask=given).logits
        torch.testing.assert_close(after, made(ids, attention_mask=mask).logits[:, 5:])
    assert made(ids[:, :0], cache=cache, attention_mask=mask[:, :5]).logits.shape == (3, 0, 23)
    with pytest.raises(ValueError, match=r"attention_mask must be \[B,past \+ T\] = \[3,9\] but is \[3, 8\]"):
        made(ids[:, 5:], cache=cache, attention_mask=mask[:, 1:])


@torch.no_grad()
def test_all_blocks_go_back_or_none() -> None:
    made, ids = model(), prompt()
    cache = TtrCache(made.model, draft=3)
    made(ids, cache=cache)
    cache.caches[2].reorder([0, 1, 2])  # least squares cannot go back behind that
    with pytest.raises(ValueError, match="max_length must be so many that at most 0 tokens go, .* but is -1"):
        cache.crop(-1)
    assert [one.tokens for one in cache.caches] == [9, 9, 9]


@pytest.mark.parametrize("words", [{}, {"tied": False, "head_dim": 5, "mlp_ratio": 0}])
@torch.no_grad()
def test_folders(words: dict[str, Any], tmp_path: Path) -> None:
    made, ids = model(**words), prompt()

    def same(other: Any) -> None:
        """Tensors are equal; products of matrices depend on where in memory they lie."""
        for name, tensor in made.model.state_dict().items():
            assert torch.equal(other.state_dict()[name], tensor), name
        torch.testing.assert_close(other(ids), made(ids).logits, rtol=1e-11, atol=1e-11)

    made.save_pretrained(tmp_path / "a")
    for kind in (TtrForCausalLM, transformers.AutoModelForCausalLM):
        again = kind.from_pretrained(tmp_path / "a", dtype="auto")
        assert type(again) is TtrForCausalLM and again.dtype == torch.float64
        same(again.model)
    assert TtrForCausalLM.from_pretrained(tmp_path / "a", dtype=torch.float32).dtype == torch.float32
    fresh = transformers.AutoModelForCausalLM.from_config(made.config)
    assert {n: t.shape for n, t in fresh.state_dict().items()} == {
        n: t.shape for n, t in made.state_dict().items()
    }
    decay = fresh.model.blocks[0].layer.gates["log_decay"]
    assert decay.A_log.exp().max() <= 16 and decay.dt_bias.std() > 0  # as its paper starts
    config = transformers.AutoConfig.from_pretrained(tmp_path / "a")
    assert type(config) is TtrConfig and config.vocab_size == 23 and config.num_hidden_layers == 3
    # And without transformers, there and back.
    plain = LanguageModel.from_pretrained(tmp_path / "a")
    same(plain)
    plain.save_pretrained(tmp_path / "b")
    same(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "b", dtype="auto").model)


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_more_words(tied: bool, tmp_path: Path) -> None:
    made, ids = model(tied=tied), prompt()
    before = made(ids).logits
    made.resize_token_embeddings(30)
    assert made.config.vocabulary == made.model.config.vocabulary == 30
    logits = made(ids).logits
    assert logits.shape == (3, 9, 30)
    torch.testing.assert_close(logits[..., :23], before)
    made.save_pretrained(tmp_path)
    torch.testing.assert_close(LanguageModel.from_pretrained(tmp_path)(ids), logits)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one is 'hidden_sise': did you mean hidden_size\?"):
        TtrConfig(hidden_sise=8)
    with pytest.raises(ValueError, match=r"did you mean gated_deltanet\?|gated_deltanet"):
        TtrForCausalLM(TtrConfig(layers="gated_deltanett"))
    assert TtrConfig(vocab_size=5, num_hidden_layers=1).model_config().vocabulary == 5
    model().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    words = json.loads(path.read_text())
    for changes, message in (
        ({"hidden_size": 32, "num_heads": 4}, r"model.\S+ must be \[.*\], as config.json has it, but is \["),
        ({"num_layers": 2}, r"model.blocks.2\S+ must be absent, as config.json has it, but is in"),
        ({"num_layers": 4}, r"model.blocks.3\S+ must be in the checkpoint but is absent"),
    ):
        path.write_text(json.dumps({**words, **changes}))
        with pytest.raises(ValueError, match=message):
            TtrForCausalLM.from_pretrained(tmp_path)


@pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="the Trainer needs accelerate"
)
def test_the_trainer_learns_a_text(tmp_path: Path) -> None:
    text = list(b"to be or not to be " * 3)
    made = model(vocabulary=128, layers="gated_deltanet", num_layers=1).float()
    rows = [{"input_ids": text[i : i + 24], "labels": text[i : i + 24]} for i in range(16)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=8, learning_rate=1e-2, logging_steps=1, save_steps=8,
        per_device_train_batch_size=4, report_to=[], use_cpu=True, activation_checkpointing=True,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(model=made, args=arguments, train_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 0.5, losses
    again = TtrForCausalLM.from_pretrained(tmp_path / "checkpoint-8")
    ids = torch.tensor([text[:24]])
    with torch.no_grad():
        assert torch.equal(again(ids).logits, made.eval()(ids).logits)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # PEFT's
def test_adapters_of_peft(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="adapters are those of PEFT")
    base, ids = model(tied=False), prompt()
    before = base(ids).logits.detach()
    base.save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["project.q", "project.v", "output", "head"])
    adapted = peft.get_peft_model(base, config)
    torch.testing.assert_close(adapted(ids).logits, before)  # adapters begin as nothing
    optimizer = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=1.0)
    for _ in range(3):
        adapted(ids, labels=ids).loss.backward()
        asked = {name.split(".lora_")[0].split(".")[-1] for name, p in adapted.named_parameters() if p.grad is not None}
        assert asked == {"q", "v", "output", "head"}  # and nothing else learns
        optimizer.step()
        optimizer.zero_grad()
    adapted.eval()
    with torch.no_grad():
        after = adapted(ids).logits
        assert (after - before).abs().max() > 1e-3
        assert torch.equal(generate(adapted, ids), generate(adapted, ids, use_cache=False))
        adapted.save_pretrained(tmp_path / "adapters")
        fresh = TtrForCausalLM.from_pretrained(tmp_path / "base", dtype="auto")
        again = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapters").eval()
        torch.testing.assert_close(again(ids).logits, after, rtol=1e-6, atol=1e-6)
        merged = again.merge_and_unload()
        torch.testing.assert_close(merged(ids).logits, after, rtol=1e-6, atol=1e-6)
