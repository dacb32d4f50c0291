#!/usr/bin/env python3
"""Times the gated delta rule of ttr beside PyTorch on this machine, where torch can be imported.

    bench/peers/gated_delta.py [--ttr-bench build/release/bench/ttr_bench] [--dims 64 128]
                               [--tokens 512] [--heads 8] [--rounds 5] [--json FILE]

Peers, forward only, float32, one thread:
  loop   the recurrence token by token, all heads at once (what a reference implementation does)
  chunk  the chunkwise form by batched products and triangular solves, 64 tokens a chunk

Each round times ttr and every peer one after another; the table shows medians over the rounds and
their ratio, with the spread of the ratio over rounds. Before timing, the two peers are held against
each other. Exit code 0 also where torch is missing: there is nothing to compare with.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def loop(torch, q, k, v, log_decay, step):
    """M_t = g M_{t-1} + b (v - g M_{t-1} k) k^T, y = M_t q; tensors [H, T, D] and [H, T]."""
    heads, tokens, dim = q.shape
    memory = torch.zeros(heads, dim, dim)
    out = torch.empty_like(v)
    decay = log_decay.exp()
    for t in range(tokens):
        memory = memory * decay[:, t, None, None]
        innovation = v[:, t] - torch.einsum("hkv,hk->hv", memory, k[:, t])
        memory = memory + torch.einsum("hk,hv->hkv", k[:, t] * step[:, t, None], innovation)
        out[:, t] = torch.einsum("hkv,hk->hv", memory, q[:, t])
    return out


def chunk(torch, q, k, v, log_decay, step, size=64):
    """The same by chunks: one triangular solve and a few products for `size` tokens."""
    heads, tokens, dim = q.shape
    memory = torch.zeros(heads, dim, dim)
    out = torch.empty_like(v)
    lower = torch.tril(torch.ones(size, size, dtype=torch.bool))
    eye = torch.eye(size)
    for t in range(0, tokens, size):
        qc, kc, vc = q[:, t : t + size], k[:, t : t + size], v[:, t : t + size]
        log_c = log_decay[:, t : t + size].cumsum(1)
        ratio = torch.where(lower, (log_c[:, :, None] - log_c[:, None, :]).exp(), 0.0)
        b = step[:, t : t + size, None]
        gram = torch.tril(kc @ kc.transpose(1, 2) * ratio * b, -1) + eye
        read = log_c.exp()[:, :, None]
        u = torch.linalg.solve_triangular(
            gram, b * (vc - read * (kc @ memory)), upper=False, unitriangular=True
        )
        out[:, t : t + size] = read * (qc @ memory) + (qc @ kc.transpose(1, 2) * ratio) @ u
        to_end = (log_c[:, -1:] - log_c).exp()[:, :, None]
        memory = memory * log_c[:, -1].exp()[:, None, None] + (kc * to_end).transpose(1, 2) @ u
    return out


def ttr_ns(executable, dim, tokens, heads):
    """ns a token and head, and the share of the machine's peak, of one run of ttr_bench."""
    name = f"prefill/gated_delta/d{dim}/T{tokens}/H{heads}/real_time"
    command = [executable, f"--benchmark_filter=^{name}$", "--benchmark_format=json"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(run.stdout)["benchmarks"]
    if not found:
        sys.exit(f"gated_delta.py: ttr_bench has no benchmark {name}")
    return found[0]["ns/token/head"], found[0]["share_of_peak"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ttr-bench", default=ROOT / "build/release/bench/ttr_bench")
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("torch cannot be imported: nothing to compare with (pip install torch)")
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    peers = {"loop": loop, "chunk": chunk}
    rows = []
    with torch.inference_mode():
        for dim in args.dims:
            shape = (args.heads, args.tokens, dim)
            q, k, v = (torch.randn(shape) / dim**0.5 for _ in range(3))
            log_decay = -0.1 * torch.rand(args.heads, args.tokens)
            step = torch.rand(args.heads, args.tokens)
            inputs = (q, k, v, log_decay, step)
            difference = (loop(torch, *inputs) - chunk(torch, *inputs)).abs().max().item()
            if not difference < 1e-4:
                sys.exit(f"gated_delta.py: the peers differ by {difference} at d = {dim}")
            times = {name: [] for name in ("ttr", *peers)}
            shares = []
            for _ in range(args.rounds):
                ns, share = ttr_ns(args.ttr_bench, dim, args.tokens, args.heads)
                times["ttr"].append(ns)
                shares.append(share)
                for name, run in peers.items():
                    start = time.perf_counter()
                    run(torch, *inputs)
                    seconds = time.perf_counter() - start
                    times[name].append(seconds * 1e9 / (args.tokens * args.heads))
            for name in times:
                ratios = [peer / own for peer, own in zip(times[name], times["ttr"])]
                rows.append(
                    {
                        "d": dim,
                        "T": args.tokens,
                        "H": args.heads,
                        "who": name if name == "ttr" else f"torch {torch.__version__} {name}",
                        "ns": statistics.median(times[name]),
                        "ratio": statistics.median(ratios),
                        "ratio_low": min(ratios),
                        "ratio_high": max(ratios),
                        "share_of_peak": statistics.median(shares) if name == "ttr" else None,
                    }
                )
    print(f"{'d':>4} {'T':>5} {'H':>3}  {'who':<24} {'ns/token/head':>13}  ratio to ttr (range)")
    for row in rows:
        spread = f"{row['ratio']:8.1f} ({row['ratio_low']:.1f} .. {row['ratio_high']:.1f})"
        if row["share_of_peak"] is not None:
            spread = f"{100 * row['share_of_peak']:.0f} % of the FMA peak"
        print(f"{row['d']:>4} {row['T']:>5} {row['H']:>3}  {row['who']:<24} {row['ns']:>13.0f}  {spread}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
