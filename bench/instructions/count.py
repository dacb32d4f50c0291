"""Instructions of a token and memory on 64-bit Arm (NEON) and on x86-64 (AVX2), counted by emulators.

    scripts/setup --arm
    scripts/build release ttr_calls && scripts/build arm ttr_calls
    python bench/instructions/count.py            # the table, into docs/performance/instructions.md
    python bench/instructions/count.py retnet     # of some layers, printed

A count is the difference of a program of three calls and one of a single call. Beside it stand the vector
multiply-adds that the useful work needs at the least: what an instruction count is over them says how
well registers are used, whatever the width of a vector. There are no times: an emulator has none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from reporting.tables import markdown  # noqa: E402

PLUGIN = ROOT / "build/instructions/counter.so"
TOKENS, HEADS, CALLS = 256, 1, (1, 3)
#: The emulator, the folder of the build, lanes of a vector of float32.
PROCESSORS = {
    "NEON": (["qemu-aarch64"], "arm", 4),
    "AVX2": (["qemu-x86_64", "-cpu", "max"], "release", 8),
}
LAYERS = (
    *("linear_attention", "retnet", "mamba2", "gla", "deltanet", "gated_deltanet", "kda", "rwkv7"),
    *("hgrn", "mamba{decay: matrix}", "rls", "mesa", "softmax", "kernel_ridge", "local_linear"),
    *("ttt_linear", "ttt_mlp", "titans{mini_batch: 16}"),
)
#: What is counted, and how a row names it.
WHAT = {"forward": "", "backward": ", with backward", "products": ", products of bfloat16"}


def build_plugin() -> None:
    PLUGIN.parent.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("counter.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", PLUGIN, source], check=True)


def run(processor: str, layer: str, d: int, calls: int, what: str) -> tuple[int, float, bool]:
    """Instructions of a program, useful flops of a token and memory, and whether it has products of bfloat16."""
    emulator, preset, _ = PROCESSORS[processor]
    program = ROOT / "build" / preset / "bench/instructions/ttr_calls"
    sizes = [str(n) for n in (d, TOKENS, HEADS, calls)]
    done = subprocess.run(
        [*emulator, "-plugin", PLUGIN, program, layer, *sizes, what],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TTR_TARGET": processor},
    )
    _, flops, products = done.stdout.split()
    return int(done.stderr.split()[-1]), float(flops), products == "1"


def row(layer: str, what: str) -> list[str]:
    cells = [layer + WHAT[what]]
    for d in (64, 128):
        for processor, (_, _, lanes) in PROCESSORS.items():
            once, flops, products = run(processor, layer, d, CALLS[0], what)
            if what == "products" and not products:
                cells.append("none")
                continue
            more, _, _ = run(processor, layer, d, CALLS[1], what)
            count = (more - once) / (CALLS[1] - CALLS[0]) / TOKENS / HEADS
            cells.append(f"{count:.0f} ({count * 2 * lanes / flops:.2f})")
    return cells


HEAD = f"""# Instructions on 64-bit Arm

[`bench/instructions/count.py`](../../bench/instructions/count.py) wrote this page. Instructions of a token and
memory, float32, {TOKENS} tokens, one head, counted under emulation; in parentheses what they are over the vector
multiply-adds that the useful work needs (4 lanes of NEON, 8 of AVX2): 1 would be multiply-adds alone. They stand in
for times on a processor that was not there. Products of bfloat16 are those of `CallOptions::bfloat16_products`, by
BFDOT, which makes two a lane.

"""
COLUMNS = ["layer", "NEON, d = 64", "AVX2, d = 64", "NEON, d = 128", "AVX2, d = 128"]


def main() -> None:
    build_plugin()
    rows = []
    for layer in sys.argv[1:] or LAYERS:
        for what in WHAT:
            cells = row(layer, what)
            if what == "products" and cells.count("none") == 2 * len(PROCESSORS):
                continue
            rows.append(cells)
            print(*cells, sep="  ", flush=True)
    if not sys.argv[1:]:
        text = HEAD + markdown(COLUMNS, rows) + "\n"
        (ROOT / "docs/performance/instructions.md").write_text(text)


if __name__ == "__main__":
    main()
