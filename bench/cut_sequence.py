#!/usr/bin/env python3
"""What a rank of ttr.torch.distributed does beside what ttr.torch does with the same piece:
processor time of one thread, the ratio of two calls one after the other, its median and range over
the rounds.

    bench/cut_sequence.py                     # a group of one: everything but the wait for others
    MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=1099511627776 bench/cut_sequence.py

The second line lets malloc keep its memory, so that no call waits for pages of the system. A
sequence on W ranks takes 1 / W of the whole's time, times that ratio.
"""

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import ttr
import ttr.torch
import ttr.torch.distributed

RECIPES = ("mamba2", "gated_deltanet{normalise_qk: true}", "weighted_rls", "mesa")


def inputs(recipe, options, grad):
    torch.manual_seed(0)
    shape = (1, options.tokens, options.heads)
    given = {n: torch.randn(*shape, options.d) * options.d**-0.5 for n in ("q", "k", "v")}
    gates = {"log_decay": -0.1 * torch.rand(shape), "step": torch.rand(shape)}
    required = [spec["name"] for spec in ttr.input_specs(recipe) if spec["required"]]
    given.update((name, gate) for name, gate in gates.items() if name in required)
    return {name: tensor.requires_grad_(grad) for name, tensor in given.items()}


def seconds(call, recipe, given, grad):
    start = time.process_time()
    y = call(recipe, **given)
    if grad:
        y.sum().backward()
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        for recipe in RECIPES:
            for grad, what in ((False, "forward"), (True, "forward + backward")):
                given = inputs(recipe, options, grad)
                calls = (ttr.torch.distributed.regress, ttr.torch.regress)
                ratios = []
                for _ in range(options.rounds + 1):
                    cut, whole = (seconds(call, recipe, given, grad) for call in calls)
                    ratios.append(cut / whole)
                ratios = ratios[1:]
                spread = f"{min(ratios):.2f} .. {max(ratios):.2f}"
                print(f"{recipe:36} {what:18} {statistics.median(ratios):5.2f} ({spread})")
    os._exit(0)  # without PyTorch's tearing down of gloo


if __name__ == "__main__":
    main()
