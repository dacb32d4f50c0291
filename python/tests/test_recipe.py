"""Recipes as values; the zoo; plans; what recipes take and carry."""

import copy
import json
import pickle
from typing import Any

import pytest
import ttr


def test_zoo_is_a_dictionary_of_entries() -> None:
    zoo = ttr.zoo()
    assert len(zoo) >= 46
    entry = zoo["gated_deltanet"]
    assert entry.name == str(entry) == "gated_deltanet"
    assert entry.recipe == "decay(scalar) | linear | sgd"
    assert entry.title and entry.source and entry.recurrence
    assert "ZooEntry" in repr(entry)


@pytest.mark.parametrize("name", list(ttr.zoo()))
def test_every_recipe_survives_every_form(name: str) -> None:
    recipe = ttr.Recipe(name)
    for again in (
        ttr.Recipe(str(recipe)),
        ttr.Recipe(recipe.to_dict()),
        ttr.Recipe(json.loads(recipe.to_json())),
        ttr.Recipe(recipe),
        eval(repr(recipe), {"Recipe": ttr.Recipe}),
        pickle.loads(pickle.dumps(recipe)),
        copy.copy(recipe),
        copy.deepcopy(recipe),
    ):
        assert again == recipe
        assert hash(again) == hash(recipe)


def test_recipes_compare_by_value() -> None:
    assert ttr.Recipe("gated_deltanet") == ttr.Recipe("decay(scalar) | linear | sgd")
    assert ttr.Recipe("gated_deltanet") != ttr.Recipe("deltanet")
    assert ttr.Recipe("deltanet") != "deltanet"
    assert ttr.Recipe("deltanet") != None  # noqa: E711


def test_options_change_by_name() -> None:
    recipe = ttr.Recipe("gated_deltanet")
    changed = recipe.with_options(step="longhorn", normalise_qk=True, scale=0.5)
    assert changed == ttr.Recipe("gated_deltanet{step: longhorn, normalise_qk: true, scale: 0.5}")
    assert recipe == ttr.Recipe("gated_deltanet")
    assert changed.option("step") == "longhorn"
    with pytest.raises(ValueError, match="ridgee"):
        recipe.with_options(ridgee=1)
    with pytest.raises(ValueError, match="ridge"):
        ttr.Recipe("rls").with_options(ridge=-1)


@pytest.mark.parametrize(
    "bad, word",
    [
        ("gated_deltane", "gated_deltanet"),
        ("decay(scalr) | linear | sgd", "scalr"),
        ({"weights": {"decai": "scalar"}}, "decai"),
        ("rls{ridge: -1}", "ridge"),
    ],
)
def test_a_recipe_without_a_meaning_is_refused(bad: object, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        ttr.Recipe(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name, meant",
    [
        ("lms", r"deltanet \(DeltaNet, LMS\)"),
        ("lms{decay: 0.9}", "deltanet"),
        ("TTT", "ttt_linear .* ttt_mlp"),
        ("kaczmarz", "nlms"),
        ("griffin", "rg_lru"),
        ("qknorm", "softmax{normalise_qk: true}"),
        ("s6", "mamba"),
        ("ssd", "mamba2"),
        ("normalized lms", "nlms"),
        ("fast weights", "deltanet .* linear_attention"),
        ("hopfield", "softmax .* linear_attention"),
        ("least squares", "rls{ridge: 0}"),
        ("performer", "linear_attention{features: favor}"),
        ("based", "linear_attention{features: taylor2}"),
        ("newton", "quasi_newton"),
        ("GLA", "gla$"),
        ("RG-LRU", "rg_lru$"),
    ],
)
@pytest.mark.parametrize("call", [ttr.Recipe, ttr.Layer, ttr.plan, ttr.Memory, ttr.input_specs])
def test_other_names_lead_to_the_layer_that_is_meant(call: Any, name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"layer must be a name of the zoo but is .*: try {meant}"):
        call(name)


def test_what_is_no_recipe_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="int"):
        ttr.Recipe(3)  # type: ignore[arg-type]


def test_plan_says_engine_and_cost() -> None:
    plan = ttr.plan("gated_deltanet", key_dim=128, value_dim=64, heads=2, tokens=100)
    assert plan.engine == "fast_weights"
    assert plan.exact is False
    assert plan.state_bytes == 4 * 128 * 64
    assert plan.flops > 0 and plan.bytes > 0 and plan.why
    assert ttr.plan("rls").exact is True
    assert "fast_weights" in repr(plan)
    with pytest.raises(ValueError, match="Dk"):
        ttr.plan("gated_deltanet", key_dim=0)
    assert ttr.engines()[-1] == "definition"


def test_specs_name_inputs_and_states() -> None:
    specs = {spec["name"]: spec for spec in ttr.input_specs("gated_deltanet")}
    assert specs["q"]["shapes"] == [["B", "T", "Hq", "Dk"]]
    assert specs["log_decay"]["range"] == "<= 0"
    assert specs["log_decay"]["required"] is True
    assert specs["cu_seqlens"]["required"] is False
    (state,) = ttr.state_specs("gated_deltanet")
    assert state["name"] == "state" and state["shape"] == ["N", "H", "Dphi", "Dv"]
    features = {spec["name"]: spec for spec in ttr.input_specs("linear_attention{features: t2r}")}
    assert features["features.w"]["keyword"] == "features_w"
    counts = {spec["name"]: spec["counts"] for spec in ttr.state_specs("softmax")}
    assert counts["state.length"] is True
    assert "elu1" in ttr.feature_maps()
