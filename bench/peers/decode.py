#!/usr/bin/env python3
"""Times a token of ttr's Decoder beside PyTorch's operators, compiled and not, and zentorch, in one run.

    pip install -r bench/peers/requirements.txt          # and ttr itself
    pip install --no-deps zentorch==2.13.0.2 && pip install deprecated safetensors
    bench/peers/decode.py                                # states of 2 MB and of 64 MB, one thread
    bench/peers/decode.py --layers kda --d 128 --mb 64 --threads 2 --markdown table.md

All of them read the same tokens; before timing, answers of a few tokens are compared. Each round times
one after another: nanoseconds a token and head, the medians over the rounds, and the ratio to ttr's
with its range. PyTorch's state is overwritten in place. *bfloat16* is ttr's decoder with states of two
bytes a number, which is not held to the same answers. zentorch (AMD's operators) has the gated delta
rule alone.
"""

import argparse
import importlib.util
import pathlib
import statistics
import sys

import common

LAYERS = ["gated_deltanet", "kda", "mamba2", "retnet"]
TOKENS = 8
WORST_ERROR = 1e-4


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=LAYERS)
    parser.add_argument("--d", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--mb", type=int, nargs="+", default=[2, 64], help="of states in float32, in all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=pathlib.Path, help="write the table")
    return parser.parse_args()


def ttr_decoder(problem, dtype):
    """A call of token t, with a decoder of one stream; heads first, as the problem has them."""
    import torch
    import ttr.torch

    decoder = ttr.torch.Decoder(problem.layer, dtype=dtype)
    channel = common.LAYERS[problem.layer][1] == "channel"
    given = {n: torch.from_numpy(common.to_ttr(n, problem.inputs[n], channel)) for n in problem.given}
    tokens = [{n: x[:, t : t + 1].contiguous() for n, x in given.items()} for t in range(TOKENS)]
    return lambda t: decoder.step(**tokens[t])[0, 0]


def torch_token(problem, compiled):
    """The recurrence by PyTorch's operators, on a memory [H, d, d] that is overwritten."""
    import torch
    import torch_peer

    token = fused_token if compiled else torch_peer.token

    def advance(memory, q, k, v, decay, step):
        after, y = token(memory, q, k, v, decay, step)
        memory.copy_(after)
        return y

    run = torch.compile(advance, dynamic=False) if compiled else advance
    inputs = {n: torch.from_numpy(x) for n, x in problem.inputs.items()}
    decay = inputs["log_decay"].exp() if "log_decay" in inputs else None
    memory = torch.zeros(problem.heads, problem.d, problem.d)
    at = lambda x, t: None if x is None else x[:, t].contiguous()
    rows = [*(inputs[n] for n in ("q", "k", "v")), decay, inputs.get("step")]
    tokens = [[at(x, t) for x in rows] for t in range(TOKENS)]
    return lambda t: run(memory, *tokens[t])


def fused_token(memory, q, k, v, decay, step):
    """torch_peer.token by sums of products, which a compiler fuses with what is around them."""
    if decay is not None:
        memory = memory * decay[:, :, None]
    if step is not None:
        v = step * (v - (k[:, :, None] * memory).sum(1))
    memory = memory + k[:, :, None] * v[:, None]
    return memory, (q[:, :, None] * memory).sum(1)


def zentorch_token(problem):
    """zentorch's gated delta rule, whose gates are -softplus(a) and sigmoid(b)."""
    import torch

    update = torch.ops.zentorch.gdn_fused_sigmoid_gating_delta_rule_update
    inputs = {n: torch.from_numpy(x).transpose(0, 1)[None] for n, x in problem.inputs.items()}
    gates = [torch.log(torch.expm1(-inputs["log_decay"][..., 0])), torch.logit(inputs["step"][..., 0])]
    rows = [*gates, inputs["q"], inputs["k"], inputs["v"]]
    tokens = [[x[:, t : t + 1].contiguous() for x in rows] for t in range(TOKENS)]
    none = torch.zeros(problem.heads)
    states = torch.zeros(2, problem.heads, problem.d, problem.d)  # row 0 is nobody's
    bounds, row = torch.tensor([0, 1], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)

    def call(t):
        a, b, q, k, v = tokens[t]
        return update(none, a, b, none, q, k, v, 1.0, 20.0, 1.0, states, bounds, row, None, False)[0, 0]

    return call


def calls_of(problem):
    import torch

    calls = {
        "ttr": ttr_decoder(problem, None),
        "ttr, bfloat16": ttr_decoder(problem, torch.bfloat16),
        f"torch {torch.__version__.split('+')[0]}": torch_token(problem, False),
        "torch.compile": torch_token(problem, True),
    }
    if problem.layer == "gated_deltanet" and importlib.util.find_spec("zentorch"):
        importlib.import_module("zentorch")
        calls["zentorch"] = zentorch_token(problem)
    return calls


def compare(problem, rounds):
    """{who: nanoseconds of each round}; who answers something else is left out."""
    import torch

    calls = calls_of(problem)
    with torch.inference_mode():
        answers = {name: [call(t).numpy().copy() for t in range(TOKENS)] for name, call in calls.items()}
    for name in list(calls):
        worst = max(common.error(a, b) for a, b in zip(answers[name], answers["ttr"]))
        if "bfloat16" not in name and not worst < WORST_ERROR:
            print(f"{name} is left out: its {problem.layer} is off by {worst:.1e}", file=sys.stderr)
            del calls[name]

    def run(call):
        with torch.inference_mode():
            for t in range(TOKENS):
                call(t)

    times = {name: [] for name in calls}
    for call in calls.values():
        run(call)
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(common.nanoseconds(lambda: run(call), TOKENS * problem.heads))
    return times


def cells(problem, megabytes, times, head):
    """A row of the table; `head` takes names that it has not yet."""
    own = times["ttr"]
    head += [name for name in times if name not in head]
    row = [problem.layer, str(problem.d), str(megabytes), f"{statistics.median(own):.0f}"]
    for name in head[len(row):]:
        values = times.get(name)
        if values is None:
            row.append("")
            continue
        ratios = [value / mine for value, mine in zip(values, own)]
        middle = statistics.median(ratios)
        row.append(f"{statistics.median(values):.0f}: {middle:.2f} x ({min(ratios):.2f} .. {max(ratios):.2f})")
    return row


def main():
    options = arguments()
    common.restart(options.threads, unlock=False)
    import torch

    torch.set_num_threads(options.threads)
    torch._dynamo.config.cache_size_limit = 64
    head, rows = ["layer", "d", "MB"], []
    for layer in options.layers:
        for d in options.d:
            for megabytes in options.mb:
                heads = max(1, (megabytes << 20) // (4 * d * d))
                problem = common.make_problem(layer, d, TOKENS, heads)
                times = compare(problem, options.rounds)
                rows.append(cells(problem, megabytes, times, head))
                print(*rows[-1], file=sys.stderr, flush=True)
    print(f"{common.processor()}, {options.threads} thread(s): ns a token and head, times ttr (range)")
    common.write_table([head, *(row + [""] * (len(head) - len(row)) for row in rows)], options.markdown, text=(0,))


if __name__ == "__main__":
    main()
