"""Threads of Python, threads of the library, processes."""

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ttr
from drawn import draw, part

NAME = "gated_deltanet"


@pytest.mark.parametrize("threads", [1, 2, 3, 8, None])
@pytest.mark.parametrize("name", [NAME, "lru", "rls", "softmax"])
def test_any_number_of_threads_gives_the_same_bits(name: str, threads: int | None) -> None:
    inputs = draw(name, T=100, H=4, Hq=4, Hk=4, Hv=4)
    y, state = ttr.Layer(name).forward(**inputs, threads=1)
    again, last = ttr.Layer(name).forward(**inputs, threads=threads)
    assert np.array_equal(y, again)
    assert all(np.array_equal(state[key], last[key]) for key in state)


def test_threads_of_python_share_a_layer() -> None:
    layer = ttr.Layer(NAME)
    drawn = [draw(NAME, seed=seed, T=200) for seed in range(8)]
    expected = [layer.forward(**inputs)[0] for inputs in drawn]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            answers = list(pool.map(lambda inputs: layer.forward(**inputs)[0], drawn))
            assert all(np.array_equal(a, b) for a, b in zip(answers, expected))


def test_the_gil_is_free_during_a_call() -> None:
    """Another thread goes on while one call lasts."""
    inputs = draw("local_linear", T=3000, H=1, Hq=1, Hk=1, Hv=1, B=1)
    layer = ttr.Layer("local_linear")
    running = threading.Event()
    done = threading.Event()

    def work() -> None:
        running.set()
        layer.forward(**inputs, threads=1)
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    running.wait()
    steps = 0
    while not done.is_set():
        steps += 1
    worker.join()
    # A thread that waits for the GIL asks for it every 5 ms: a call that kept it would let this
    # loop run for a step or two around its ends.
    assert steps > 1000


def test_threads_take_turns_at_a_memory() -> None:
    memory = ttr.Memory("rls", key_dim=3)
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((4, 250, 3))

    def teach(rows: Any) -> None:
        for key in rows:
            memory.memorize(key, key @ [1.0, -2.0, 3.0])
            memory.retrieve(key)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(teach, keys))
    assert memory.count == 1000
    assert np.allclose(memory.retrieve(np.eye(3)[1]), -2, atol=1e-5)


def test_threads_take_turns_at_a_decoder() -> None:
    decoder = ttr.Decoder("linear_attention", key_dim=4, value_dim=4, dtype="float64")
    token = np.ones((1, 1, 1, 4))

    def step(_: int) -> None:
        decoder.step(token, token, token)
        decoder.state()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(step, range(400)))
    assert np.allclose(decoder.state()["state"], 400)


def forward(seed: int) -> Any:
    inputs = draw(NAME, seed=seed, T=300, H=8, Hq=8, Hk=8, Hv=8)
    y, state = ttr.Layer(NAME).forward(**inputs)
    decoder = ttr.Decoder(NAME, key_dim=4, value_dim=4, heads=8, batch=2)
    decoder.start({"state": state["state"].astype(np.float32)})
    decoder.step(**part(inputs, NAME, 0, 1))
    gradients, _ = ttr.Layer(NAME).backward(y, **inputs)
    return y, decoder.state()["state"], gradients["k"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes(method: str) -> None:
    """Children work, also those forked from a process whose threads are at work."""
    expected = [forward(seed) for seed in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads
        with multiprocessing.get_context(method).Pool(3) as pool:
            answers = pool.map_async(forward, range(3)).get(timeout=100)
    for answer, right in zip(answers, expected):
        assert all(np.array_equal(a, b) for a, b in zip(answer, right))


def test_a_fork_in_the_middle_of_work() -> None:
    """While other threads of the parent are in calls, their locks are held."""
    stop = threading.Event()
    inputs = draw(NAME, T=500, H=8, Hq=8, Hk=8, Hv=8)

    def work() -> None:
        while not stop.is_set():
            ttr.Layer(NAME).forward(**inputs)

    def both() -> None:
        ttr.Layer(NAME).forward(**inputs)
        ttr.Layer(NAME).forward(**inputs, threads=2)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for _ in range(20):
                assert status_of_child(both) == 0
    finally:
        stop.set()
        for worker in workers:
            worker.join()


@pytest.mark.parametrize("kind", ["Decoder", "Memory"])
def test_a_fork_while_a_thread_has_its_turn(kind: str) -> None:
    """The child works, or is told why not; it does not wait for a thread that it has not."""
    stop = threading.Event()
    token = np.ones((1, 1, 64, 64), np.float32)
    decoder = ttr.Decoder(NAME, key_dim=64, value_dim=64, heads=64)
    memory = ttr.Memory("rls", key_dim=64)
    gates = {key: np.zeros((1, 1, 64), np.float32) for key in ("log_decay", "step")}

    def once() -> None:
        if kind == "Decoder":
            decoder.step(token, token, token, **gates)
        else:
            memory.memorize(np.ones(64), 1.0)

    def once_or_told() -> None:
        try:
            once()
        except RuntimeError as error:
            assert "another thread was using it at the fork" in str(error)

    def work() -> None:
        while not stop.is_set():
            once()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for _ in range(40):
                assert status_of_child(once_or_told) == 0
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def status_of_child(call: Callable[[], None]) -> int:
    """0 where a child of this process comes to the end of the call; one that hangs is ended."""
    child = os.fork()
    if child == 0:
        try:
            call()
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    return wait(child, 60)


def wait(child: int, seconds: float) -> int:
    """The exit status of a child; one that hangs is ended, and is -1."""
    import signal
    import time

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def test_a_bad_number_in_the_environment_is_named() -> None:
    program = "import ttr, numpy as np; x = np.ones((1, 1, 1, 1)); ttr.Layer('rls').forward(x, x, x)"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TTR_THREADS": "many"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "ValueError: [executor] TTR_THREADS must be a number from 1 to 4096" in result.stderr


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one processor
def test_workers_of_a_data_loader() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, Dataset

    forward(0)  # the pool of the parent is at work

    class Answers(Dataset[Any]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            return torch.from_numpy(forward(index)[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for index, batch in enumerate(DataLoader(Answers(), batch_size=1, num_workers=2, timeout=100)):
            assert np.array_equal(batch[0].numpy(), forward(index)[0])
