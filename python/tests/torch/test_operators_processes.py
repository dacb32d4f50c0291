"""Threads, forked and spawned processes, training by two of them."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import operator_cases as cases
import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from ttr.torch import regress


def test_python_threads_at_once() -> None:
    inputs = cases.draw("gated_deltanet", dtype=torch.float32, T=70)
    expected = regress("gated_deltanet", **inputs)
    results: list[bool] = []

    def work() -> None:
        for _ in range(20):
            given = {n: t.clone().requires_grad_() for n, t in inputs.items()}
            y = regress("gated_deltanet", **given)
            y.sum().backward()
            results.append(torch.equal(y, expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80


class Layers(Dataset[Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Tensor:
        return regress("gated_deltanet", **cases.draw("gated_deltanet", seed=i, T=70))[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one processor
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_data_loader(start: str) -> None:
    expected = [Layers()[i] for i in range(8)]  # this process has run its threads
    loader = DataLoader(Layers(), num_workers=2, multiprocessing_context=start, timeout=100)
    for answer, wanted in zip(loader, expected):
        assert torch.equal(answer[0], wanted)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_of_one_thread() -> None:
    inputs = cases.draw("gated_deltanet", T=70)
    expected = regress("gated_deltanet", **inputs)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        child = os.fork()
        if child == 0:
            same = torch.equal(regress("gated_deltanet", **inputs), expected)
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)


class Model(torch.nn.Module):
    """A layer of linear attention, with what surrounds it."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(8, 24)
        self.gates = torch.nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Any:
        q, k, v = (t.unflatten(-1, (2, 4)) for t in self.project(x).chunk(3, -1))
        g, b = self.gates(x).chunk(2, -1)
        return regress(
            "gated_deltanet{normalise_qk: true}",
            q,
            k,
            v,
            log_decay=-torch.nn.functional.softplus(g),
            step=b.sigmoid(),
        )


def data() -> Tensor:
    return torch.randn(4, 20, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def model() -> Model:
    torch.manual_seed(0)
    return Model().double()


def train(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    parallel = torch.nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        parallel(data()[rank * 2 : rank * 2 + 2]).square().mean().backward()
        optimizer.step()
    torch.save([p.detach() for p in parallel.parameters()], f"{folder}/{rank}")
    torch.distributed.barrier()
    # Without PyTorch's tearing down of gloo, which now and then waits, with Python's lock, for a
    # thread that waits for that lock.
    os._exit(0)


def test_two_processes_train_as_one() -> None:
    alone = model()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        alone(data()).square().mean().backward()
        optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(2):
            child = torch.multiprocessing.get_context("spawn").Process(
                target=train, args=(rank, folder)
            )
            child.start()
            children.append(child)
        for child in children:
            child.join(120)
        for child in children:
            child.kill()  # one that hangs does not keep the tests from ending
        assert [child.exitcode for child in children] == [0, 0]
        for rank in range(2):
            trained = torch.load(Path(folder) / str(rank))
            for a, b in zip(trained, alone.parameters()):
                torch.testing.assert_close(a, b.detach())
