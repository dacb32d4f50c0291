"""A server of a recurrent model in a hundred lines: continuous batching of many streams over pools of
slots, guessed tokens that are taken back, a prefix cache. NumPy alone.

    python examples/python/server.py [requests]

The model has random weights: what it writes means nothing, and costs what a trained one of its size
costs. Requests come with prompts of which many begin alike. As many as there are slots are served at
a time; whoever is done makes room for the next. Every call of the model takes all streams together.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter

import numpy as np
import ttr

STREAMS, PREFIXES = 64, 8  # slots of either kind, at most
LAYERS, HEADS, WIDTH, VOCABULARY = 2, 4, 128, 1024
DRAFT = 3  # tokens that are guessed behind the one that is known


class Model:
    """Embedding, layers with a gated delta rule, and the embedding again."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        wide = HEADS * WIDTH

        def matrix(rows: int, columns: int) -> np.ndarray:
            return random.standard_normal((rows, columns)).astype(np.float32) / np.sqrt(rows)

        self.embedding = matrix(VOCABULARY, wide) * np.sqrt(VOCABULARY).astype(np.float32)
        self.layers = [(matrix(wide, 3 * wide + 2 * HEADS), matrix(wide, wide)) for _ in range(LAYERS)]
        self.pools = [
            ttr.StatePool(
                "gated_deltanet{normalise_qk: true}",
                slots=STREAMS + PREFIXES, heads=HEADS, key_dim=WIDTH, value_dim=WIDTH, draft=DRAFT + 1,
            )
            for _ in range(LAYERS)
        ]  # fmt: skip

    def step(self, slots: list[int], tokens: np.ndarray, **packed: np.ndarray) -> np.ndarray:
        """Reads tokens [B, T] into their slots; what comes behind each."""
        x = self.embedding[tokens]
        for (to_inputs, to_output), pool in zip(self.layers, self.pools):
            scale = np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-6)
            made = (x / scale) @ to_inputs
            q, k, v = made[..., : -2 * HEADS].reshape(*x.shape[:2], 3, HEADS, WIDTH).transpose(2, 0, 1, 3, 4)
            decay, step = np.split(made[..., -2 * HEADS :], 2, -1)
            y = pool.step(
                slots, q, k, v,
                log_decay=-0.01 * np.log1p(np.exp(decay)), step=1 / (1 + np.exp(-step)), **packed,
            )  # fmt: skip
            x = x + y.reshape(x.shape) @ to_output
        return np.argmax(x @ self.embedding.T, -1)

    def prefill(self, slots: list[int], prompts: list[np.ndarray]) -> np.ndarray:
        """Reads prompts of any lengths, packed into one call; the token behind each."""
        bounds = np.concatenate([[0], np.cumsum([len(prompt) for prompt in prompts])])
        answers = self.step(slots, np.concatenate(prompts)[None], cu_seqlens=bounds)
        return answers[0, bounds[1:] - 1]

    def copy(self, source: int, target: int) -> None:
        for pool in self.pools:
            pool.copy(source, target)

    def free(self, slot: int) -> None:
        for pool in self.pools:
            pool.free(slot)

    def roll_back(self, slot: int, tokens: int) -> None:
        for pool in self.pools:
            pool.roll_back(slot, tokens)


@dataclasses.dataclass
class Stream:
    slot: int
    text: list[int]  # the prompt, then what was written
    end: int
    followers: dict[tuple[int, int], int] = dataclasses.field(default_factory=dict)

    def append(self, token: int) -> None:
        self.followers[self.text[-2], self.text[-1]] = token
        self.text.append(token)

    def guess(self) -> list[int]:
        """What followed the last two tokens before, and what followed that."""
        pair, guessed = (self.text[-2], self.text[-1]), []
        for _ in range(DRAFT):
            guessed.append(self.followers.get(pair, 0))
            pair = (pair[1], guessed[-1])
        return guessed


class Server:
    def __init__(self, streams: int, prefix: int, drafts: bool) -> None:
        self.model, self.prefix, self.drafts = Model(), prefix, drafts
        self.waiting: list[tuple[np.ndarray, int]] = []
        self.streams: list[Stream] = []
        self.free = list(range(streams))
        self.seen: Counter[bytes] = Counter()  # beginnings of prompts
        self.cached: dict[bytes, int] = {}  # the slots that hold some
        self.done: list[Stream] = []
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        while self.waiting or self.streams:
            self.admit()
            self.advance()

    def admit(self) -> None:
        """As many waiting prompts as there are free slots."""
        new = [self.waiting.pop(0) for _ in range(min(len(self.free), len(self.waiting)))]
        if not new:
            return
        if self.prefix > 0:
            self.seen.update(prompt[: self.prefix].tobytes() for prompt, _ in new)
            self.keep_prefixes()
        slots, rests = [], []
        for prompt, length in new:
            slot, begin = self.free.pop(), 0
            self.model.free(slot)
            if (kept := self.cached.get(prompt[: self.prefix].tobytes())) is not None:
                self.model.copy(kept, slot)
                begin = self.prefix
                self.counts["prompt tokens from the cache"] += begin
            slots.append(slot)
            rests.append(prompt[begin:])
            self.streams.append(Stream(slot, prompt.tolist(), len(prompt) + length))
        self.counts["prompt tokens read"] += sum(map(len, rests))
        for stream, token in zip(self.streams[-len(new) :], self.model.prefill(slots, rests)):
            stream.append(int(token))

    def keep_prefixes(self) -> None:
        """Beginnings that several prompts had and the cache has not, as far as it has room."""
        new = [b for b, times in self.seen.items() if times > 1 and b not in self.cached]
        new = new[: PREFIXES - len(self.cached)]
        if not new:
            return
        slots = [STREAMS + len(self.cached) + i for i in range(len(new))]
        self.model.prefill(slots, [np.frombuffer(b, np.int64) for b in new])
        self.cached |= dict(zip(new, slots))
        self.counts["prompt tokens read"] += self.prefix * len(new)

    def advance(self) -> None:
        """A token of every stream, and those of its guesses that were right."""
        guesses = [stream.guess() if self.drafts else [] for stream in self.streams]
        tokens = np.array([[s.text[-1], *guess] for s, guess in zip(self.streams, guesses)])
        answers = self.model.step([s.slot for s in self.streams], tokens)
        self.counts["steps"] += 1
        for stream, guess, answer in zip(self.streams, guesses, answers):
            right = 0
            while right < len(guess) and guess[right] == answer[right]:
                right += 1
            self.model.roll_back(stream.slot, len(guess) - right)
            for token in answer[: right + 1]:
                stream.append(int(token))
            self.counts["tokens written"] += right + 1
        for stream in [s for s in self.streams if len(s.text) >= s.end]:
            self.streams.remove(stream)
            self.free.append(stream.slot)
            self.done.append(stream)


def main(requests: int = 192) -> list[list[list[int]]]:
    random = np.random.default_rng(1)
    beginnings = random.integers(VOCABULARY, size=(4, 256))
    prompts = [
        np.concatenate([beginnings[i % 4], random.integers(VOCABULARY, size=random.integers(8, 64))])
        for i in range(requests)
    ]
    lengths = random.integers(32, 96, size=requests)
    texts = []
    for streams, prefix, drafts in [
        (STREAMS, 0, False), (STREAMS, 256, False), (STREAMS, 256, True), (2, 256, False), (2, 256, True),
    ]:  # fmt: skip
        server = Server(streams, prefix, drafts)
        server.waiting = [(p, int(n)) for p, n in zip(prompts, lengths)]
        begin = time.perf_counter()
        server.run()
        seconds = time.perf_counter() - begin
        with_what = [f"{streams} streams", *["prefix cache"] * (prefix > 0), *["drafts"] * drafts]
        written = server.counts["tokens written"]
        print(f"{', '.join(with_what)}: {written / seconds:.0f} tokens/s, {seconds:.1f} s")
        print("   ", ", ".join(f"{what}: {count}" for what, count in server.counts.items()))
        texts.append(sorted(stream.text[: stream.end] for stream in server.done))
    return texts


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
