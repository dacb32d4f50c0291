"""The files of docs/performance: a title, and then text and `{part}`s."""

import re

from .tables import NOT_MEASURED

PAGES = {
    "limits": """# The machine's limits

{about}
One thread. Cache levels are measured at half of what they hold.

{limits}
""",
    "goals": """# Goals

{about}
What must be reached, what is aimed at, and what was measured. The goals of least squares stand
[with its tables](least_squares.md#goals).

{goals}
""",
    "machines": """# Machines

What `make performance` measured, a column for every machine that it ran on: limits, [goals](goals.md), other
memories' shares of the multiply-add peak, and how many times ttr's time [peers](peers.md) took. A run replaces the
figures of its own column (`bench/report.py --machine NAME`); the numbers are in [machines.json](machines.json). Runs
of earlier versions on further machines are [other machines](other_machines.md).

{all-machines}
""",
    "prefill": """# Prefill, and scans

{about}
`Layer::Forward` on T tokens and H heads, float32. *Useful* flops are those of the recurrence, as `ttr
plan` says them. *Of limit* is the share of the slowest of what the work needs at the least:
multiply-adds, exponentials or bytes ([how](../performance.md#how-it-is-measured)).

{prefill}
""",
    "decode": """# Decode

{about}
`Layer::Step` with as many heads as make 2 MB (cache) and 64 MB (DRAM) of states. *Of in-place* is the
share of an in-place update of as many bytes. Where *of limit* is above it, multiply-adds bind and not
the memory. *State written* is without deferred writes, where they make a difference. *Draft of 4*: four tokens in
one step of a decoder that can take them back, each.

{decode}
""",
    "train": """# Forward and backward

{about}
`Forward` that saves what `Backward` needs, then `Backward` with the gradient of every input.
*Forward* is one that saves nothing. Both together count three times the useful flops of a forward.

{train}
""",
    "threads": """# Two threads, one head

{about}
`Forward` on one head, by one thread and by several.

{threads}
""",
    "bf16": """# bfloat16

{about}
`Forward` with bfloat16 q, k, v and y and float32 gates, with products of float32 and of bfloat16.
Errors are those against float32 outputs of the same rounded inputs, over the root mean square of y;
the rounding of the outputs themselves, up to 2^-9 = 2e-3, is in both.

{bf16}
""",
    "operators": """# Operators around a memory

{about}
The short convolution, norms and gates of `ttr/short_conv.h`, `ttr/norm.h` and `ttr/gates.h` on T tokens and
H heads, float32. *Both* is forward, then backward with all gradients. *One token* is a step of as many
sequences as make 2 MB of states. *Moved* are the bytes that must be read and written, parameters not
counted; *of stream* is the share of the bandwidth of a loop that reads two arrays and writes one, all of
that size together.

{operators}
""",
    "pairs": """# Memories that keep their pairs

{about}
`ttr bench --measure pairs`: softmax attention and what else keeps its pairs, causal, on T tokens and H heads. Useful
flops of a weighted mean are 2 (Dk + Dv) a pair; of a local linear fit Dk^2 beside them, half a Gram matrix; of kernel
ridge regression 2 T^2 / 3 a token, one factor for all prefixes. Forward and backward count three times forward. *A
flop* is the time of a useful flop over that of softmax.

{pairs}

## Single tokens

One token beside pairs that do not fit into a cache. The limit is the rate at which main memory is read, or
multiply-adds where they take longer.

{pairs-decode}
""",
    "networks": """# Memories that are networks

{about}
`ttr bench --measure networks`: networks that are trained while they read, on T tokens and H heads. Useful flops of TTT-Linear
are 6 d^2 a token, of TTT-MLP and Titans (depth 2, width 4 d) 56 d^2. Forward and backward count three times forward;
*memory* is what both hold. Titans without a mini-batch, and single tokens, write all weights with every token (and the
last update, where there is momentum): *of in-place* is the share of an update of as many bytes in place. *Speed-up* is
that of two threads, on all heads and on one.

{networks}
""",
    "peers": """# Beside peers

`bench/peers/run.py` (after `pip install -r bench/peers/requirements.txt`) runs what is installed of
PyTorch token by token and by chunks of 64, with `--compile` both also by `torch.compile`; JAX jitted,
by `lax.scan` over tokens and over chunks of 32; ONNX Runtime's operator `LinearAttention`. Before
timing, every peer's outputs are compared with those of `ttr apply` (gradients on a small shape); an
error is the greatest difference over the greatest number. ttr and its peers alternate on the same
processors, and peers reuse their memory between calls. The range is that of the ratio over the rounds.

## Forward

{peers}

## PyTorch with AVX-512

PyTorch's matrix library uses its AVX-512 kernels on processors of its maker only. `--unlock` opens them
(a preloaded library of one line).

{peers-unlocked}

## Forward and backward

{peers-gradients}
""",
    "least_squares": """# Least squares

{about}
`ttr bench --measure least_squares` times memories that carry the Gram matrix of their keys beside the delta
rule of the same shape, at T = 1024, in one interleaved run: whole sequences, forward and backward, and
single tokens. Decays are mild (log g from [-0.0054, 0]), so that keys fill the matrix faster than it
forgets. Every sample starts from the recipe's start, single tokens after 4 D random ones. *Least* is
the fastest of the samples. *Solved* is the share of outputs that are exact solutions and not the
smallest-norm one of a singular system. Useful flops a token and head, D = Dphi, m = 64:

- tokens that share a factor: 4 D^2 + 6 D Dv + m (3 D + 3 Dv) + (D^3 + m^3) / 3m,
- a factor of every token's own (a constant ridge beside decays): D^3 / 3 + 5 D^2 + 6 D Dv,
- a single token with a saved factor: 9 D^2 + 5 D Dv; where the factor stands for the state: 3 D^2 + 6 D Dv,
- iterations: 2 D^2 (1 + steps) + 4 D Dv.

Forward and backward count three times forward. The limit of a single token is the larger of these flops
at the FMA peak and of A and B, read and written in place. *State written* is without deferred writes.
A row of the engine `definition` is of 16 tokens of one head.

## Goals

{least-squares-goals}

## Whole sequences

{least-squares}

## Single tokens

{least-squares-decode}

## Beside PyTorch, forward

`bench/peers/run.py --layers rls weighted_rls mesa`, forms in `torch_least_squares.py`: *prefixes* is a
batched Cholesky factor for every prefix, *cg* 30 steps of conjugate gradients, *loop* the textbook
recursion on the inverse token by token, *chunks* the algorithm of this library in PyTorch's operators;
with `--compile` also by `torch.compile`. Errors are against a direct solve in double precision, token
by token. An exact form beyond what float32 and the condition allow is not timed (gradients of ttr are,
and marked). Slow forms run on the first 128 tokens: what they cost a token does not depend on the
length.

{peers-least-squares}

## Beside PyTorch, forward and backward

{peers-least-squares-gradients}
""",
}


def pages(regions):
    """The files' texts by name, without those none of whose tables was measured."""
    written = {}
    for name, text in PAGES.items():
        names = re.findall(r"\{([a-z0-9-]+)\}", text)
        tables = [regions[n] for n in names if n != "about"]
        if all(table == NOT_MEASURED for table in tables):
            continue
        for region in names:
            text = text.replace("{" + region + "}", regions[region])
        written[name] = "<!-- written by bench/report.py -->\n" + text
    return written
