"""A bar on a terminal's standard error; nothing where that is no terminal."""

from __future__ import annotations

import sys
import time


class Progress:
    """`done` of `total` parts, with what is under way and how long the rest may take."""

    def __init__(self, total: float, quiet: bool = False) -> None:
        self.total, self.done = total, 0.0
        self._shown = not quiet and sys.stderr.isatty()
        self._start = self._last = time.monotonic()

    def show(self, done: float, what: str) -> None:
        self.done = done
        now = time.monotonic()
        if not self._shown or now - self._last < 0.2:
            return
        self._last = now
        share = min(1.0, done / self.total) if self.total else 1.0
        rest = (now - self._start) * (1 - share) / share if share else 0.0
        bar = "#" * round(24 * share)
        sys.stderr.write(f"\r\033[K[{bar:<24}] {100 * share:3.0f} %  {_clock(rest)} left  {what}")
        sys.stderr.flush()

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def _clock(seconds: float) -> str:
    minutes = int(seconds) // 60
    return f"{minutes // 60}:{minutes % 60:02}:{int(seconds) % 60:02}"
