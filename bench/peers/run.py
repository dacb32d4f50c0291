#!/usr/bin/env python3
"""Times ttr beside the peers that are installed here, in one run.

    pip install -r bench/peers/requirements.txt
    bench/peers/run.py                                        # forward, every layer and peer
    bench/peers/run.py --layers gated_deltanet --d 128 --tokens 2048 --heads 32 --compile
    bench/peers/run.py --gradients --unlock                   # forward + backward; AVX-512 in PyTorch
    bench/peers/run.py --layers rls weighted_rls mesa         # least squares: see least_squares.py
    bench/peers/run.py --layers ttt_linear ttt_mlp --gradients --compile

Before timing, every peer's answers are held against ttr's (gradients on a small shape); "error" is
the greatest difference as a share of the greatest number. Each round then times ttr and every peer
one after another. The table has the medians over the rounds and the ratio to ttr with its range.
"""

import argparse
import importlib
import json
import pathlib
import statistics
import sys

try:
    import common
except ImportError as missing:
    print(f"nothing to compare with: {missing} (pip install -r bench/peers/requirements.txt)")
    sys.exit(0)

PEERS = {"torch": "torch_peer", "jax": "jax_peer", "onnx": "onnx_peer"}
WORST_ERROR = 1e-3  # float32, thousands of tokens; a peer beyond it computes something else


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ttr", default=common.ROOT / "build/native/tools/ttr")
    special = {**common.RIDGES, **common.NETWORKS}
    default = [layer for layer in common.LAYERS if layer not in special]
    parser.add_argument("--layers", nargs="+", choices=common.LAYERS, default=default)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--d", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--tokens", type=int, default=1024, help="a multiple of 64")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gradients", action="store_true", help="forward + backward")
    parser.add_argument("--compile", action="store_true", help="torch.compile too (slow to start)")
    parser.add_argument("--unlock", action="store_true", help="MKL's AVX-512 on every processor")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the table")
    return parser.parse_args()


def modules(names):
    """The peers that can be imported here."""
    found = []
    for name in names:
        try:
            found.append(importlib.import_module(PEERS[name]))
        except ImportError as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr)
    return found


def numbers(result):
    return {n: common.np.asarray(x) for n, x in result.items()}


def gradient_errors(layer, found, ttr, options):
    """Every peer's gradients against ttr's, on a shape small enough for central differences, cut in
    two chunks."""
    # Several mini-batches of a network.
    small = common.make_problem(layer, 8, 48 if layer in common.NETWORKS else 16, 2)
    dy = small.inputs["v"][:, ::-1].copy()
    want = ttr.apply(small, dy)
    errors = {}
    for module in found:
        chunk, module.CHUNK = getattr(module, "CHUNK", None), 8
        for name, run in module.gradient_peers(small, dy, options).items():
            got = numbers(run())
            errors[name] = max(common.error(got[n], want[n]) for n in want)
        module.CHUNK = chunk
    return errors


def forward_errors(problem, calls, ttr):
    want = ttr.apply(problem)
    return {name: common.error(run(), want) for name, run in calls.items()}


def compare(problem, found, ttr, options):
    """The rows of one layer at one size."""
    calls = {}
    dy = problem.inputs["v"]
    for module in found:
        calls.update(
            module.gradient_peers(problem, dy, options)
            if options.gradients
            else module.peers(problem, options)
        )
    if options.gradients:
        errors = gradient_errors(problem.layer, found, ttr, options)
    else:
        errors = forward_errors(problem, calls, ttr)
    for name in list(calls):
        if not errors[name] < WORST_ERROR:
            off = f"its {problem.layer} is off by {errors[name]:.1e}"
            print(f"{name} is left out: {off}", file=sys.stderr)
            del calls[name]
    measurement, column = ("train", "forward + backward") if options.gradients else ("prefill", "time")
    own, times = [], {name: [] for name in calls}
    for run in calls.values():
        run()
    for _ in range(options.rounds):
        measured = ttr.bench(problem, measurement)
        own.append(measured[column])
        for name, run in calls.items():
            times[name].append(common.nanoseconds(run, problem.tokens * problem.heads))
    # Without gradients by an engine there is nothing to divide by.
    timed = None not in own
    base = {"layer": problem.layer, "d": problem.d, "T": problem.tokens, "H": problem.heads}
    who = f"ttr ({measured['engine']})"
    rows = [{**base, "who": who, "ns": statistics.median(own) if timed else None}]
    weighs = options.gradients and problem.layer in common.NETWORKS
    if weighs:
        rows[0]["MB"] = ttr.megabytes(problem)
    for name, values in times.items():
        row = {**base, "who": name, "ns": statistics.median(values), "error": errors[name]}
        if timed:
            ratios = [value / mine for value, mine in zip(values, own)]
            row.update(ratio=statistics.median(ratios), low=min(ratios), high=max(ratios))
        if weighs:
            row["MB"] = found[0].megabytes(problem, name)
        rows.append(row)
    return rows


def table(rows):
    """Cells as text, the heading first."""
    cells = [["layer", "d", "T", "H", "who", "ns/token/head", "ratio to ttr (range)", "error"]]
    weighed = any("MB" in row for row in rows)
    if weighed:
        cells[0].append("MB")
    for row in rows:
        ns = "-" if row["ns"] is None else f"{row['ns']:.0f}"
        ratio = error = ""
        if "ratio" in row:
            ratio = f"{row['ratio']:.1f} ({row['low']:.1f} .. {row['high']:.1f})"
        if "error" in row:
            error = f"{row['error']:.0e}"
        where = [row["layer"], str(row["d"]), str(row["T"]), str(row["H"])]
        cells.append([*where, row["who"], ns, ratio, error])
        if weighed:
            cells[-1].append(f"{row['MB']:.0f}" if "MB" in row else "")
    return cells


def main():
    options = arguments()
    common.restart(options.threads, options.unlock)
    ttr = common.Ttr(options.ttr, options.threads)
    found = modules(options.peers)
    torch = any(module.__name__ == PEERS["torch"] for module in found)
    if torch:
        import least_squares
        import torch_networks
    rows = []
    for layer in options.layers:
        for d in options.d:
            problem = common.make_problem(layer, d, options.tokens, options.heads)
            if layer in common.NETWORKS:
                rows += compare(problem, [torch_networks], ttr, options) if torch else []
            elif layer not in common.RIDGES:
                rows += compare(problem, found, ttr, options)
            elif torch:
                rows += least_squares.compare(problem, ttr, options)
            print(f"{layer}, d = {d}: done", file=sys.stderr)
    cells = table(rows)
    common.write_table(cells, options.markdown, text=(0, 4))
    if options.json:
        about = {"processor": common.processor()}
        chosen = ("tokens", "heads", "threads", "rounds", "peers", "unlock", "gradients", "compile")
        about.update({name: getattr(options, name) for name in chosen})
        about["layers"] = options.layers
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
