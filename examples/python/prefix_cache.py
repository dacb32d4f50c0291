"""A prefix cache on disk: states of a model behind the beginnings of prompts, one safetensors file each.

    python examples/python/prefix_cache.py [folder]            (needs: pip install safetensors)

Prompts are cut into pages of 64 tokens, where a state costs nothing but its copy. A page's name is the
hash of its tokens and of the name of the page before it, so that a name stands for a whole beginning.
The longest beginning that is there is looked up, its states restored, and the model goes on from them:
with the bits of a run that never stopped there. A file is written beside its place and renamed into
it: a process that is killed in the middle leaves all that was there before.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import ttr
from safetensors import safe_open
from safetensors.numpy import save_file

PAGE = 64
States = list[dict[str, np.ndarray]]  # of each layer, by the names of its entries


class PrefixCache:
    def __init__(self, folder: str | os.PathLike[str], model: str) -> None:
        """`model`: whatever tells its states from those of others."""
        self.folder, self.model = Path(folder), model
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in self.folder.glob("*.part"):  # of writers that were killed
            if time.time() - part.stat().st_mtime > 3600:
                part.unlink(missing_ok=True)

    def path(self, tokens: np.ndarray) -> Path:
        """Of the file with the states behind these tokens, a number of pages."""
        name = hashlib.sha256(self.model.encode())
        for begin in range(0, len(tokens), PAGE):
            page = np.ascontiguousarray(tokens[begin : begin + PAGE], np.int64)
            name = hashlib.sha256(name.digest() + page.tobytes())
        return self.folder / f"{name.hexdigest()}.safetensors"

    def keep(self, tokens: np.ndarray, states: States) -> None:
        """Whole or not at all; where it is there already nothing is done."""
        if len(tokens) == 0 or len(tokens) % PAGE:
            raise ValueError(f"[keep] tokens must be pages of {PAGE} but are {len(tokens)}")
        path = self.path(tokens)
        if path.exists():
            return
        arrays = {f"{i}.{name}": t for i, layer in enumerate(states) for name, t in layer.items()}
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            save_file(arrays, part, {"tokens": str(len(tokens)), "layers": str(len(states))})
            with part.open("rb") as written:
                os.fsync(written.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def look_up(self, tokens: np.ndarray) -> tuple[int, States | None]:
        """How many of the first tokens need not be read, at most all but one, and the states behind
        them."""
        for length in range((len(tokens) - 1) // PAGE * PAGE, 0, -PAGE):
            path = self.path(tokens[:length])
            if path.exists():
                return length, self._read(path, length)
        return 0, None

    def _read(self, path: Path, length: int) -> States:
        with safe_open(path, "np") as file:
            about = file.metadata() or {}
            if about.get("tokens") != str(length):
                raise ValueError(f"[look_up] {path} must be of {length} tokens but is of {about}")
            states: States = [{} for _ in range(int(about["layers"]))]
            for key in file.keys():
                layer, name = key.split(".", 1)
                states[int(layer)][name] = file.get_tensor(key)
        return states


class Model:
    """Layers with a gated delta rule and random weights. Every page is read alone, so that products of
    matrices have the same rows, and so the same bits, wherever a run began."""

    def __init__(self, layers: int = 2, heads: int = 4, width: int = 64, vocabulary: int = 512) -> None:
        random, wide = np.random.default_rng(0), heads * width
        self.shape = (1, -1, heads, width)
        self.embedding = random.standard_normal((vocabulary, wide)).astype(np.float32)
        sizes = [(wide, 3 * wide + 2 * heads)] * layers
        self.weights = [random.standard_normal(s).astype(np.float32) / s[0] ** 0.5 for s in sizes]
        self.layer = ttr.Layer("gated_deltanet{normalise_qk: true}")

    def read(self, tokens: np.ndarray, states: States | None) -> tuple[np.ndarray, States]:
        """The last layer's output for a page or less, and the states behind it."""
        x, after, heads = self.embedding[tokens][None], [], self.shape[2]
        for weight, state in zip(self.weights, states or [{}] * len(self.weights)):
            made = (x / np.sqrt(np.mean(x**2, -1, keepdims=True))) @ weight
            q, k, v = (part.reshape(self.shape) for part in np.split(made[..., : -2 * heads], 3, -1))
            decay, step = np.split(made[..., -2 * heads :], 2, -1)
            gates = {"log_decay": -0.1 * np.log1p(np.exp(decay)), "step": 1 / (1 + np.exp(-step))}
            y, held = self.layer.forward(q, k, v, state=state, **gates)
            x = x + y.reshape(x.shape)
            after.append(held)
        return x[0], after


def read(model: Model, tokens: np.ndarray, cache: PrefixCache | None) -> tuple[np.ndarray, int]:
    """The output behind a prompt, and how many of its tokens had been read before."""
    found, states = (0, None) if cache is None else cache.look_up(tokens)
    for begin in range(found, len(tokens), PAGE):
        end = min(begin + PAGE, len(tokens))
        answers, states = model.read(tokens[begin:end], states)
        if cache is not None and end - begin == PAGE:
            cache.keep(tokens[:end], states)
    return answers[-1], found


def main(folder: str) -> None:
    random, model = np.random.default_rng(1), Model()
    beginning = random.integers(512, size=2048)
    prompts = [np.concatenate([beginning, random.integers(512, size=40)]) for _ in range(4)]
    cache = PrefixCache(folder, "a model with random weights, seed 0")
    for prompt in prompts:
        begin = time.perf_counter()
        answer, found = read(model, prompt, cache)
        seconds = time.perf_counter() - begin
        same = np.array_equal(answer, read(model, prompt, None)[0])
        took = f"{1e3 * seconds:.0f} ms, the same bits: {same}"
        print(f"{found} of {len(prompt)} tokens from the cache, {took}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(sys.argv[1] if len(sys.argv) > 1 else scratch)
