"""A sequence cut over processes of gloo: the same as whole, forward and backward; and training by
several processes as by one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import operator_cases as cases
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
import ttr.torch
from torch import Tensor
from ttr.torch.distributed import refusal, regress, summary_bytes

CUT = [name for name in cases.NAMES if refusal(name) is None]

#: Options that meet what the zoo's names do not: features, intercepts, ridges, constant decays.
RECIPES = [
    *CUT,
    "affine_rls{decay: 0.9}",
    "feature_rls{features: relu, decay: scalar}",
    "weighted_rls{normalise_qk: true, read: before}",
    "linear_attention{features: elu1, normalise_sum: sum}",
    "gated_deltanet{normalise_qk: true, read: before, scale: 0.5}",
    "momentum_deltanet{decay: scalar}",
    "deltanet{features: elu1}",
    "retnet{output_norm: rms}",
    "rls{decay: retention}",
    "linear_attention{importance: log, decay: retention}",
]
#: With tokens that forget everything, or nearly.
FORGETTING = ["gla", "mamba2", "mlstm", "kda", "gated_deltanet", "weighted_rls{ridge: 0.1}", "lru"]
RECIPES += [recipe for recipe in FORGETTING if recipe not in RECIPES]
LENGTHS = {2: (5, 9), 3: (6, 0, 8)}  # no two alike, and one piece of nothing
TIMES = ("T", "T n")


def whole(recipe: str, state: bool) -> tuple[cases.Inputs, dict[str, Tensor]]:
    """One head of keys and of values for two memories, where gates say that there are two."""
    options: Any = {"optional": recipe in CUT, "Dv": 3, "Hk": 1, "Hv": 1}
    inputs = cases.draw(recipe, T=14, **options)
    if recipe in FORGETTING:
        inputs["log_decay"][:, 2] = inputs["log_decay"][:, 9] = -torch.inf
        inputs["log_decay"][:, 6] = -70
    return inputs, cases.reached(recipe, T=5, **options) if state else {}


def part(recipe: str, inputs: cases.Inputs, begin: int, end: int) -> cases.Inputs:
    specs = {s["keyword"]: s["shapes"][0] for s in ttr.input_specs(recipe)}
    rows = cases.sizes_of(recipe)["T n"] // cases.sizes_of(recipe)["T"]
    cut = {}
    for name, tensor in inputs.items():
        axes = specs[name]
        steps = rows if "T n" in axes else 1
        time = len(axes) > 1 and axes[1] in TIMES
        tensor = tensor[:, begin * steps : end * steps] if time else tensor
        cut[name] = tensor.detach().clone().requires_grad_()
    return cut


def loss_of(y: Tensor, begin: int) -> Tensor:
    """Weighs every token otherwise."""
    weights = torch.arange(begin, begin + y.shape[1], dtype=y.dtype) + 1
    return (y.sin() * weights[:, None, None]).sum()


def one(recipe: str, state: bool, rank: int, lengths: tuple[int, ...]) -> dict[str, Any]:
    inputs, start = whole(recipe, state)
    begin = sum(lengths[:rank])
    given = part(recipe, inputs, begin, begin + lengths[rank])
    start = {n: t.detach().clone().requires_grad_(t.is_floating_point()) for n, t in start.items()}
    y, final = regress(recipe, **given, state=start, return_state=True)
    loss = loss_of(y, begin)
    if rank == len(lengths) - 1:
        loss = loss + sum(t.square().sum() for t in final.values())
    loss.backward()
    return {
        "y": y.detach(),
        "inputs": {n: t.grad for n, t in given.items()},
        "state": {n: t.grad for n, t in start.items()},
        "final": {n: t.detach() for n, t in final.items()},
    }


def pieces(rank: int, size: int, folder: str) -> None:
    made = {}
    for recipe in RECIPES:
        for state in (False, True):
            try:
                made[recipe, state] = one(recipe, state, rank, LENGTHS[size])
            except Exception as error:
                raise AssertionError(f"{recipe}, state {state}") from error
    torch.save(made, f"{folder}/{rank}")


def _child(work: Callable[..., None], rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    work(rank, size, folder)
    dist.barrier()
    # Without PyTorch's tearing down of gloo, which now and then waits, with Python's lock, for a
    # thread that waits for that lock.
    os._exit(0)


def run(work: Callable[..., None], size: int) -> list[Any]:
    """What every rank saved."""
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("spawn")
        children = [
            context.Process(target=_child, args=(work, rank, size, folder)) for rank in range(size)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(200)
        for child in children:
            child.kill()  # one that hangs does not keep the tests from ending
        assert [child.exitcode for child in children] == [0] * size
        return [torch.load(Path(folder) / str(rank)) for rank in range(size)]


@pytest.mark.parametrize("size", [2, 3])
def test_pieces_are_the_whole(size: int) -> None:
    ranks = run(pieces, size)
    for recipe in RECIPES:
        for state in (False, True):
            _compare(recipe, state, [rank[recipe, state] for rank in ranks])


def _compare(recipe: str, state: bool, ranks: list[dict[str, Any]]) -> None:
    inputs, start = whole(recipe, state)
    given = {n: t.detach().clone().requires_grad_() for n, t in inputs.items()}
    start = {n: t.detach().clone().requires_grad_(t.is_floating_point()) for n, t in start.items()}
    y, final = ttr.torch.regress(recipe, **given, state=start, return_state=True)
    (loss_of(y, 0) + sum(t.square().sum() for t in final.values())).backward()

    def same(a: Tensor, b: Tensor, what: str) -> None:
        scale = float(b.abs().max()) if b.numel() else 1.0
        torch.testing.assert_close(
            a, b, rtol=0, atol=1e-9 * max(scale, 1e-3), msg=lambda m: f"{recipe}, {what}: {m}"
        )

    same(torch.cat([r["y"] for r in ranks], 1), y.detach(), "y")
    for name, tensor in final.items():
        same(ranks[-1]["final"][name], tensor.detach(), name)
    for name, tensor in given.items():
        parts = [r["inputs"][name] for r in ranks]
        joined = torch.cat(parts, 1) if parts[0].shape != tensor.shape else sum(parts)
        assert tensor.grad is not None
        same(joined, tensor.grad, f"gradient of {name}")
    for name, tensor in start.items():
        if tensor.grad is not None:
            same(sum(r["state"][name] for r in ranks), tensor.grad, f"gradient of {name}")


def test_what_is_cut_and_what_is_not() -> None:
    assert len(CUT) >= 30
    for name in set(cases.NAMES) - set(CUT):
        reason = refusal(name)
        assert reason is not None
        with pytest.raises(ValueError, match="recipe must have a piece's summary") as refused:
            regress(name, **cases.draw(name))
        assert reason in str(refused.value)


#: Conditions: of the systems that are solved, (|A| + ridge) / ridge from the first token on; else of the sums.
CONDITIONS = {"gated_deltanet": 10, "mesa": 60, "mlstm": 10, "affine_rls": 2000}


def narrow(rank: int, size: int, folder: str) -> None:
    made = []
    for recipe in CONDITIONS:
        for dtype in (torch.float32, torch.bfloat16):
            given = part(recipe, cases.draw(recipe, T=90, dtype=dtype), rank * 45, rank * 45 + 45)
            with torch.no_grad():
                made.append(regress(recipe, **given))
    torch.save(made, f"{folder}/{rank}")


def test_narrow_numbers_are_the_definitions() -> None:
    results = iter(zip(*run(narrow, 2)))
    for recipe, condition in CONDITIONS.items():
        for dtype in (torch.float32, torch.bfloat16):
            expected = cases.definition(recipe, cases.draw(recipe, T=90, dtype=dtype))[0]
            y = torch.cat(next(results), 1)
            assert y.dtype == dtype
            rounding = 0 if dtype == torch.float32 else torch.finfo(dtype).eps
            assert cases.worst(y, expected) < 10 * 2**-23 * condition + rounding, recipe


def test_packed_sequences_are_refused() -> None:
    inputs = cases.draw("gla", B=1)
    with pytest.raises(ValueError, match="cu_seqlens must be absent"):
        regress("gla", **inputs, cu_seqlens=torch.tensor([0, 4, 9]))
    with pytest.raises(ValueError, match="v must be given"):
        regress("gla", inputs["q"])


def test_bytes_do_not_grow_with_the_length() -> None:
    assert summary_bytes("gla", key_dim=8, value_dim=3) == (4 * (24 + 8), 4 * 24)
    assert summary_bytes("deltanet", key_dim=8, value_dim=3) == (4 * (24 + 64), 4 * 24)
    assert summary_bytes("rls", key_dim=8, value_dim=3) == (4 * (24 + 64 + 1), 4 * (24 + 64))
    two = summary_bytes("gated_deltanet", key_dim=8, value_dim=3, heads=2, batch=3, itemsize=8)
    assert two == (48 * (24 + 64), 48 * 24)


# ---- Training ------------------------------------------------------------------------------------


class Model(torch.nn.Module):
    """A layer with what surrounds it; the sequence whole, or cut over a group."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(8, 24)
        self.gates = torch.nn.Linear(8, 4)
        self.cut: Any = None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, 4)) for t in self.project(x).chunk(3, -1))
        g, b = self.gates(x).chunk(2, -1)
        gates = {"log_decay": -torch.nn.functional.softplus(g), "step": b.sigmoid()}
        recipe = "gated_deltanet{normalise_qk: true}"
        if self.cut is None:
            return ttr.torch.regress(recipe, q, k, v, **gates)
        y: Tensor = regress(recipe, q, k, v, group=self.cut, **gates)
        return y


def model() -> Model:
    torch.manual_seed(0)
    return Model().double()


def data() -> Tensor:
    return torch.randn(4, 20, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def train(network: torch.nn.Module, x: Tensor) -> list[float]:
    """Losses of five steps, each of this process's part of the data."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = network(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def ddp(rank: int, size: int, folder: str) -> None:
    network = torch.nn.parallel.DistributedDataParallel(model())
    torch.save(train(network, data()[rank * 2 : rank * 2 + 2]), f"{folder}/{rank}")


def fsdp(rank: int, size: int, folder: str) -> None:
    from torch.distributed.fsdp import fully_shard

    network = model()
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    fully_shard(network, mesh=mesh)
    assert network.project.weight.to_local().shape == (12, 8)
    torch.save(train(network, data()[rank * 2 : rank * 2 + 2]), f"{folder}/{rank}")


def context_parallel(rank: int, size: int, folder: str) -> None:
    network = model()
    network.cut = dist.new_group()  # the wrapper's own sums go by the other one
    parallel = torch.nn.parallel.DistributedDataParallel(network)
    torch.save(train(parallel, data()[:, rank * 10 : rank * 10 + 10]), f"{folder}/{rank}")


@pytest.mark.parametrize("work", [ddp, fsdp, context_parallel])
def test_two_processes_train_to_the_loss_of_one(work: Callable[..., None]) -> None:
    alone = train(model(), data())
    assert alone[-1] < 0.8 * alone[0]
    ranks = torch.tensor(run(work, 2), dtype=torch.float64).mean(0)
    expected = torch.tensor(alone, dtype=torch.float64)
    torch.testing.assert_close(ranks, expected, rtol=1e-10, atol=0)
