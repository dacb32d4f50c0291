"""Models as data: `ModelConfig`, and the folders of `LanguageModel.save_pretrained`."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors", reason="tensors in folders are its files")

import torch
import ttr
from nn_cases import CAUSAL
from torch import Tensor, nn
from ttr.torch.nn import PUBLISHED, Design, LanguageModel, LayerConfig, ModelConfig, TestTimeRegression, gates
from ttr.torch.nn.designs import GENERIC, published

WORDS: dict[str, Any] = {
    "layers": [
        "gated_deltanet",
        {"recipe": "rls{ridge: 0.1}", "design": {"key_lags": [0, 1], "learn": ["ridge"]}},
        {"recipe": "kda", "design": {"like": "kda", "conv_size": 0, "gates": {"step": "KeySigmoid"}}},
    ],
    "vocabulary": 11, "hidden_size": 8, "num_heads": 2, "num_layers": 3,
}  # fmt: skip


def text() -> Tensor:
    return torch.randint(0, 11, (2, 9), generator=torch.Generator().manual_seed(3))


def model(**changes: Any) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel.from_config({**WORDS, **changes})


def test_a_configuration_is_json_and_back() -> None:
    config = ModelConfig.from_dict(json.loads(json.dumps(WORDS)))
    again = ModelConfig.from_dict(json.loads(config.to_json()))
    assert again.to_dict() == config.to_dict()
    assert config.layers[0] == LayerConfig("gated_deltanet", PUBLISHED["gated_deltanet"])
    assert config.layers[1].design == Design(key_lags=(0, 1), learn=("ridge",))
    assert config.layers[2].design == replace(
        PUBLISHED["kda"],
        conv_size=0,
        gates={**PUBLISHED["kda"].gates, "step": gates.KeySigmoid},
    )
    assert config.to_dict()["layers"][0]["design"]["gates"] == {"log_decay": {"gate": "Decay", "a": [0, 1]}}
    assert "mlp_ratio" not in config.to_dict() and config.to_dict()["model_type"] == "ttr"
    assert model().config.to_dict() == config.to_dict()


@pytest.mark.parametrize("design", [*PUBLISHED.values(), GENERIC, published("softmax")])
def test_every_published_design_can_be_written(design: Design) -> None:
    """Fields are equal, and gates are the same classes with the same options."""

    def plain(design: Design) -> Any:
        made: dict[str, Any] = {
            name: (gate.func, gate.keywords) if isinstance(gate, functools.partial) else gate
            for name, gate in design.gates.items()
        }
        return replace(design, gates=made)

    config = ModelConfig({"recipe": "rls", "design": design}, 11, 8, 2, 1)
    again = ModelConfig.from_dict(json.loads(config.to_json()))
    assert plain(again.layers[0].design) == plain(design)


@pytest.mark.parametrize("name", [*CAUSAL, "gated_deltanet{normalise_qk: true}"])
@torch.no_grad()
def test_a_folder_is_the_model(name: str, tmp_path: Path) -> None:
    made = model(layers=name, num_layers=1)
    made.save_pretrained(tmp_path)
    state = torch.random.get_rng_state()
    again = LanguageModel.from_pretrained(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)  # nothing was drawn
    assert torch.equal(again(text()), made(text()))
    assert str(again) == str(made)
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in made.parameters()]


@torch.no_grad()
def test_types_heads_and_sizes_come_back(tmp_path: Path) -> None:
    made = model(tied=False, head_dim=3, value_dim=5, num_key_heads=1, mlp_ratio=2).bfloat16()
    made.blocks[0].double()
    made.save_pretrained(tmp_path / "new" / "folder")
    again = LanguageModel.from_pretrained(tmp_path / "new" / "folder")
    assert {n: t.dtype for n, t in again.state_dict().items()} == {
        n: t.dtype for n, t in made.state_dict().items()
    }
    assert "head.weight" in again.state_dict()
    assert again.config == made.config or again.config.to_dict() == made.config.to_dict()
    assert torch.equal(again.float()(text()), made.float()(text()))
    made.save_pretrained(tmp_path / "new" / "folder")  # over what is there
    assert LanguageModel.from_pretrained(tmp_path / "new" / "folder").embedding.weight.dtype == torch.float32


def test_a_head_of_its_own_learns() -> None:
    made = model(tied=False)
    made.loss(text()).backward()
    assert made.head is not None and made.head.weight.grad is not None
    assert made.head.weight.grad.abs().sum() > 0


def test_checkpoints_of_blocks_have_the_same_gradients() -> None:
    made = model()
    for words in ({}, {"lengths": torch.tensor([4, 9])}):
        losses, gradients = [], []
        for again in (False, True):
            made.gradient_checkpointing = again
            made.zero_grad()
            loss = made.loss(text(), **words)
            loss.backward()
            losses.append(loss.detach())
            gradients.append([p.grad.clone() for p in made.parameters() if p.grad is not None])
        assert torch.equal(*losses) and len(gradients[0]) == len(list(made.parameters()))
        for a, b in zip(*gradients, strict=True):
            assert torch.equal(a, b)


def test_state_dicts_of_earlier_versions(tmp_path: Path) -> None:
    """Names and shapes of a model without words of a configuration."""
    torch.manual_seed(0)
    plain = LanguageModel("gated_deltanet", 11, hidden_size=8, num_heads=2, num_layers=1)
    names = set(plain.state_dict())
    assert {"embedding.weight", "norm.weight", "blocks.0.norm.weight"} <= names
    assert "blocks.0.layer.convolve.q.weight" in names and not any("head" in n for n in names)


class Own(nn.Module):
    """A gate that no word stands for."""

    def __init__(self, need: gates.Need) -> None:
        super().__init__()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"hiden_size": 8}, r"one is 'hiden_size': did you mean hidden_size\?"),
    ({"model_type": "mamba"}, "model_type must be 'ttr' but is 'mamba'"),
    ({"layers": [{"recipe": "rls", "desing": {}}]}, r"'desing': did you mean design\?"),
    ({"layers": {"recipe": "rls", "design": {"qk_nrom": "l2"}}}, r"did you mean qk_norm\?"),
    ({"layers": {"recipe": "rls", "design": "gated_deltanett"}}, r"did you mean gated_deltanet\?"),
    ({"layers": {"recipe": "rls", "design": {"gates": {"step": "Sigmoyd"}}}}, r"mean Sigmoid\?"),
    (
        {"layers": {"recipe": "rls", "design": {"gates": {"step": {"gate": "Sigmoid", "scal": 2}}}}},
        r"\[Sigmoid\] words must be of bias, flat, rank, scale, start, tanh but one is 'scal': did you mean sc",
    ),
    ({"layers": {"recipe": "rls", "design": {"gates": {"step": {"scale": 2}}}}}, r"gates\['step'\] must"),
    ({"layers": {"recipe": "rls", "design": 3}}, "design must be a published name or fields"),
    ({"layers": ["gated_deltanett"]}, "gated_deltanet"),
    ({"num_layers": 0}, "num_layers must be at least 1"),
    ({"num_heads": "2"}, "num_heads must be a whole number, at least 1, but is '2'"),
    ({"num_heads": 2.0}, "num_heads must be a whole number, at least 1, but is 2.0"),
    ({"head_dim": True}, "head_dim must be a whole number, at least 1, but is True"),
    ({"num_key_heads": "1"}, "num_key_heads must be a whole number"),
    ({"mlp_ratio": "2"}, "mlp_ratio must be finite and >= 0 but is '2'"),
    ({"mlp_ratio": 0.01}, "mlp_ratio must be 0, or 1 / hidden_size = 0.125 at least, but is 0.01"),
    ({"tied": "false"}, "tied must be True or False but is 'false'"),
]


@pytest.mark.parametrize(("changes", "words"), BAD)
def test_bad_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LanguageModel.from_config({**WORDS, **changes})


#: Fields of a design that people would write, and that would have been taken for something else.
BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"silu": "xyz"}, "silu must be letters of 'qkv' but is 'xyz'"),
    ({"convolved": ["q"]}, "convolved must be letters of 'qkvx'"),
    ({"qk_norm": "l3"}, "qk_norm must be l2, rms, layer or None but is 'l3'"),
    ({"output_norm": True}, "output_norm must be rms, layer, l2 or None but is True"),
    ({"output_gate": "relu", "output_norm": None}, "output_gate must be silu, sigmoid or None but is 'relu'"),
    ({"skip": "no"}, "skip must be True or False but is 'no'"),
    ({"bias": "false"}, "bias must be True or False"),
    ({"conv_size": "4"}, "conv_size must be a whole number but is '4'"),
    ({"rotary": "10000"}, "rotary must be a finite number"),
    ({"start_size": -1}, "start_size must be finite and >= 0"),
    ({"learn": "ridge"}, "learn must be a list of names of inputs but is 'ridge'"),
    ({"key_lags": [math.nan]}, "key_lags must be a list of finite numbers"),
    ({"gates": ["step"]}, "gates must be inputs with what makes them"),
    ({"gates": {"step": None}}, r"gates\['step'\] must be a name, or options"),
    ({"gates": {"step": {"gate": "Sigmoid", "scale": "2"}}}, r"gates\['step'\].scale must be like 1.0, .* '2'"),
    ({"gates": {"log_decay": {"gate": "Decay", "a": [1]}}}, r"a must be like \(1.0, 16.0\), .* \(1,\)"),
    ({"gates": {"log_decay": {"gate": "Decay", "rank": -1}}}, "rank must be like 0, .* -1"),
    ({"gates": {"ridge": {"gate": "Positive", "start": "x"}}}, "start must be a number, .* 'x'"),
]


@pytest.mark.parametrize(("fields", "words"), BAD_FIELDS)
def test_bad_designs(fields: dict[str, Any], words: str) -> None:
    layer = {"recipe": "gated_deltanet", "design": {"like": "gated_deltanet", **fields}}
    with pytest.raises(ValueError, match=words):
        LanguageModel.from_config({**WORDS, "layers": layer})


def test_a_layer_takes_a_design_as_it_is_written() -> None:
    made = TestTimeRegression("rls", 8, 2, design="softmax")
    assert made.design == PUBLISHED["softmax"]
    assert TestTimeRegression("rls", 8, 2, design={"learn": ["ridge"]}).design == Design(learn=("ridge",))
    assert Design(learn=["ridge"], key_lags=[0.0, 1.0]).key_lags == (0.0, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="words must be a dictionary, as JSON has objects, but is 'x'"):
        ModelConfig.from_dict("x")  # type: ignore[arg-type]


def test_bad_folders(tmp_path: Path) -> None:
    made = model()
    made.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    words = json.loads(path.read_text())
    for changes, message in (
        ({"hidden_size": 16}, r"blocks.0.layer.convolve.k.weight must be \[16, 4\], as .* is \[8, 4\]"),
        ({"num_layers": 2}, "blocks.2.* must be absent, as config.json has it, but is"),
        ({"tied": False}, r"head.weight must be \[11, 8\], as config.json has it, but is absent"),
    ):
        path.write_text(json.dumps({**words, **changes}))
        with pytest.raises(ValueError, match=message):
            LanguageModel.from_pretrained(tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match="config.json must be JSON but"):
        LanguageModel.from_pretrained(tmp_path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="must be an object of JSON"):
        LanguageModel.from_pretrained(tmp_path)
    path.write_text(json.dumps({n: w for n, w in words.items() if n != "vocabulary"}))
    with pytest.raises(ValueError, match="vocabulary must be given but is absent"):
        LanguageModel.from_pretrained(tmp_path)
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="config.json must be JSON but"):
        LanguageModel.from_pretrained(tmp_path)
    path.write_text(json.dumps(words))
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="model.safetensors must be a file of safetensors but"):
        LanguageModel.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors must be there"):
        LanguageModel.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError):
        LanguageModel.from_pretrained(tmp_path / "nowhere")


def test_a_gate_of_ones_own_cannot_be_written(tmp_path: Path) -> None:
    design = Design(gates={"step": Own})
    config = ModelConfig({"recipe": "deltanet", "design": design}, 11, 8, 2, 1)
    with pytest.raises(ValueError, match=r"design.gates\['step'\] must be of ttr.torch.nn.gates, .*Own"):
        config.to_json()
    with pytest.raises(ValueError, match="design must be one for all recipes, or one for each, but is 1 for 2"):
        LanguageModel(["rls", "lru"], 11, hidden_size=8, num_heads=2, num_layers=2, design=[None])
    assert ttr.state_specs("deltanet") and not list(tmp_path.iterdir())
