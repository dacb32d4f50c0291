"""The table of machines: a column each, of what `make performance` measured there, side by side."""

import json
import re

from .goals import goals
from .peers import peer_ratios
from .tables import NOT_MEASURED, markdown, show

LIMITS = {
    "fused multiply-adds, float32": "multiply-adds, float32, one thread",
    "exponentials, float32": "exponentials, float32",
    "read, DRAM": "main memory, read",
    "read + write in place, DRAM": "main memory, updated in place",
}
#: Works beside the goals: the measurement, the names of layer or memory, and the column of its table.
SHARES = (
    ("pairs", ("softmax", "local linear, one head", "kernel ridge, one head"), "of peak"),
    ("networks", ("TTT-Linear", "TTT-MLP", "Titans, mini-batch 16"), "of peak"),
)


def column(bench, avx2, peers):
    """What was measured, by the name of the work, as text; `peers` are files and what they timed."""
    found = {}
    for row in bench.rows("limits"):
        for start, work in LIMITS.items():
            if row["limit"].split(" (")[0] == start:
                found[work] = f"{show(float(row['value']))} {row['unit']}"
    for work, _, _, measured, _ in goals(bench, avx2).rows:
        if measured != "-":
            found[work] = measured
    for measurement, names, share in SHARES:
        for row in bench.rows(measurement):
            if row.get("memory") in names and row.get(share) is not None:
                found[f"{row['memory']}, d = {row['d']}: of the FMA peak"] = f"{row[share]:.0f} %"
    for path, what in peers.items():
        for (layer, d, who), ratio in peer_ratios(path).items():
            if layer == "gated_deltanet":
                peer = re.sub(r" \d+(\.\d+)+", "", who)  # of whatever version
                found[f"{layer}, d = {d}{what}: ahead of {peer}"] = f"{ratio:.1f} x"
    return found


def with_column(file, name, works):
    """All machines of `file`, that of this run among them: what it has measured before and not now
    stays. Written back unless nothing was measured."""
    machines = json.loads(file.read_text()) if file.exists() else {}
    if works:
        machines[name] = {**machines.get(name, {}), **works}
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(machines, indent=1, ensure_ascii=False) + "\n")
    return machines


def table(machines, works=None):
    """Works are rows, machines columns; `works` chooses among the rows."""
    rows = dict.fromkeys(work for found in machines.values() for work in found)
    rows = [work for work in rows if works is None or work in works]
    if not rows:
        return NOT_MEASURED
    lines = [[work, *(found.get(work, "") for found in machines.values())] for work in rows]
    return markdown(["work", *machines], lines)


#: What the short page shows.
SHORT = (
    "multiply-adds, float32, one thread",
    "main memory, read",
    *(f"prefill, gated_deltanet, d = {d}: of the FMA peak" for d in (64, 128)),
    "prefill, retnet, d = 128: of the FMA peak",
    "forward + backward, gated_deltanet, d = 128: times forward",
    "decode, gated_deltanet, d = 128, DRAM: of an in-place update",
    "two threads, one head, gated_deltanet, d = 128",
    "bfloat16 inputs and products, gated_deltanet, d = 128: times float32",
    "softmax, d = 64: of the FMA peak",
    "TTT-MLP, d = 64: of the FMA peak",
)
