"""The switches of a call stand once, in python/switches.h: all else reads that table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import ttr
from ttr.torch import _library, regress

ROOT = Path(__file__).parents[3]
TABLE = (ROOT / "python/switches.h").read_text(encoding="utf-8")
ROWS = re.findall(r'{"(\w+)", &CallOptions::(\w+)}', TABLE)


def test_schemas_and_signatures_have_the_rows_of_the_table() -> None:
    assert ROWS and all(name == member for name, member in ROWS)
    assert _library.SWITCHES == tuple(name for name, _ in ROWS)
    for operator in (torch.ops.ttr.forward.default, torch.ops.ttr.backward.default):
        keywords = {a.name: a.default_value for a in operator._schema.arguments if a.kwarg_only}
        assert {name: keywords[name] for name, _ in ROWS} == {name: False for name, _ in ROWS}
    for method in (ttr.Layer.forward, ttr.Layer.memorize):
        assert all(f"{name}: bool = False" in str(method.__nb_signature__) for name, _ in ROWS)


def test_no_code_beside_the_table_repeats_a_row() -> None:
    """One line turns products in bfloat16 off, in calls for gradients; callers and texts name a switch as
    well."""
    lines = []
    for folder in ("core", "torch", "ttr/torch"):
        for path in sorted((ROOT / "python" / folder).rglob("*")):
            if path.suffix not in (".cc", ".h", ".py"):
                continue
            code = re.sub(r'R"\(.*?\)"|""".*?"""|//[^\n]*', "", path.read_text(encoding="utf-8"), flags=re.S)
            lines += [line.strip() for line in code.splitlines() for name, _ in ROWS if name in line]
    assert lines[-1] == "if (saves) options.bfloat16_products = false;"
    assert all("has_bfloat16_products" in line or line.startswith('"') for line in lines[:-1])


@pytest.mark.parametrize("grad", [False, True])
def test_a_switch_is_true_or_false(grad: bool) -> None:
    rows = torch.zeros(1, 3, 1, 2, requires_grad=grad)
    with pytest.raises(RuntimeError, match="type .bool. for argument .bfloat16_products."):
        regress("linear_attention", rows, rows, rows, bfloat16_products="yes")  # type: ignore[call-overload]
    layer, plain = ttr.Layer("linear_attention"), rows.detach().numpy()
    with pytest.raises(TypeError, match="bfloat16_products must be True or False but is 'yes'"):
        layer.forward(plain, plain, plain, bfloat16_products="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", [9, 130])
def test_calls_for_gradients_multiply_in_float32(tokens: int) -> None:
    """Also where nothing is saved, and from whichever side autograd comes."""
    torch.manual_seed(1)
    rows = [torch.randn(1, tokens, 1, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    y = regress("linear_attention", *rows)
    assert torch.equal(y, regress("linear_attention", *rows, bfloat16_products=True))
    asked, _, _ = torch.ops.ttr.forward(
        "linear_attention", rows, 7, [], 0, saves=True, bfloat16_products=True
    )
    assert torch.equal(y, asked)
    plain, again = (torch.autograd.grad(of.float().sum(), rows) for of in (y, asked))
    assert all(torch.equal(a, b) for a, b in zip(plain, again))
