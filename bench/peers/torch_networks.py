"""PyTorch: networks trained while they read (TTT-Linear, TTT-MLP), a mini-batch at a time.

    f(x) = x + LN(z(x)),   z = x W + b   or   gelu(x W1 + b1) W2 + b2;   loss 1/2 |f(k) - v|^2

All gradients of a mini-batch are taken at the weights where it began. What token i makes of them is
linear in outer products, so its query needs two products a layer and no weights of its own:

    z_i = u W + b - row_i sum_{j <= i} step_j (u . x_j + 1) dz_j

Heads side by side, a loop over mini-batches; gradients by autograd through all of it. Each also by
torch.compile of what a mini-batch does. As a program it prints how many MB the forward and the
backward pass raise the greatest memory of a process by:

    python bench/peers/torch_networks.py ttt_mlp 64 2048 12 "dual form"
"""

import argparse
import subprocess
import sys

import torch

import common
from torch_peer import NAME, compile_once

MINI_BATCH = 16  # tokens of a mini-batch: the recipe's
EPS = 1e-6
ROOT = 0.7978845608028654  # sqrt(2 / pi)


def gelu(z):
    """The tanh form, and its slope."""
    inner = ROOT * z * (1 + 0.044715 * z * z)
    t = torch.tanh(inner)
    slope = 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * ROOT * (1 + 3 * 0.044715 * z * z)
    return 0.5 * z * (1 + t), slope


def normalise(z):
    """Centred, of variance 1; and the inverse of its deviation."""
    centred = z - z.mean(-1, keepdim=True)
    inverse = torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)
    return centred * inverse, inverse


def descend(z, k, v, weight, bias):
    """The gradient of the loss for z."""
    standard, inverse = normalise(z)
    h = weight * (weight * standard + bias + k - v)
    along = (h * standard).mean(-1, keepdim=True)
    return inverse * (h - h.mean(-1, keepdim=True) - standard * along)


def finish(q, z, weight, bias):
    return q + weight * normalise(z)[0] + bias


def read(u, x, dz, w, b, rates):
    """What queries u see of one layer, each with its own weights."""
    return torch.baddbmm(b, u, w) - ((u @ x.mT + 1) * rates) @ dz


def write(x, dz, w, b, rates):
    """The layer behind its mini-batch."""
    taken = rates[:, -1:, :].mT * dz
    return w - x.mT @ taken, b - taken.sum(1, keepdim=True)


def linear(weights, q, k, v, rates, weight, bias):
    """One mini-batch; q, k, v [H, C, d], rates [H, C, C]: row_i step_j, 0 above the diagonal."""
    w, b = weights
    dz = descend(torch.baddbmm(b, k, w), k, v, weight, bias)
    y = finish(q, read(q, k, dz, w, b, rates), weight, bias)
    return write(k, dz, w, b, rates), y


def mlp(weights, q, k, v, rates, weight, bias):
    w1, b1, w2, b2 = weights
    x, slope = gelu(torch.baddbmm(b1, k, w1))
    dz2 = descend(torch.baddbmm(b2, x, w2), k, v, weight, bias)
    dz1 = (dz2 @ w2.mT) * slope
    u = gelu(read(q, k, dz1, w1, b1, rates))[0]
    y = finish(q, read(u, x, dz2, w2, b2, rates), weight, bias)
    return (*write(k, dz1, w1, b1, rates), *write(x, dz2, w2, b2, rates)), y


BATCHES = {"ttt_linear": linear, "ttt_mlp": mlp}


def rates_of(step, row_bias):
    """[H, N, C, C] of steps [H, N, C, 1]"""
    places = torch.arange(1, MINI_BATCH + 1, dtype=step.dtype)
    rows = (1 / places + row_bias).clamp_min(0)
    return (rows[:, None, :, None] * step.mT).tril()


def run(batch, q, k, v, step, ln_weight, ln_bias, row_bias, **state):
    heads, tokens, d = q.shape
    if tokens % MINI_BATCH != 0:
        raise ValueError(f"the length must be a multiple of {MINI_BATCH}")
    cut = lambda x: x.reshape(heads, tokens // MINI_BATCH, MINI_BATCH, x.shape[-1])
    q, k, v, rates = cut(q), cut(k), cut(v), rates_of(cut(step), row_bias)
    weight, bias = ln_weight[:, None], ln_bias[:, None]
    matrix = lambda name, x: x[:, None] if name.startswith("state.b") else x
    order = sorted(state, key=lambda name: (name[-1], name[-2] == "b"))  # w1, b1, w2, b2
    weights, out = tuple(matrix(name, state[name]) for name in order), []
    for n in range(tokens // MINI_BATCH):
        weights, y = batch(weights, q[:, n], k[:, n], v[:, n], rates[:, n], weight, bias)
        out.append(y)
    return torch.cat(out, 1)


def forms(problem, options):
    batch = BATCHES[problem.layer]
    found = {"dual form": lambda **x: run(batch, **x)}
    if options.compile:
        found["dual form, compiled"] = lambda **x: run(compile_once(batch), **x)
    return found


def tensors(problem):
    return {n: torch.from_numpy(x) for n, x in (problem.inputs | problem.constants).items()}


def peers(problem, options):
    """{name: a call that gives y}"""
    torch.set_num_threads(options.threads)
    inputs = tensors(problem)

    def answer(form):
        with torch.inference_mode():
            return form(**inputs)

    found = forms(problem, options)
    return {f"{NAME} {n}": (lambda f=f: answer(f)) for n, f in found.items()}


def gradient_peers(problem, dy, options):
    """{name: a call that gives the gradients by name}"""
    torch.set_num_threads(options.threads)
    dy = torch.from_numpy(dy)

    def differentiate(form):
        leaves = {n: x.requires_grad_() for n, x in tensors(problem).items()}
        return dict(zip(leaves, torch.autograd.grad(form(**leaves), leaves.values(), dy)))

    found = forms(problem, options)
    return {f"{NAME} {n}": (lambda f=f: differentiate(f)) for n, f in found.items()}


def megabytes(problem, name):
    """What a program of its own finds."""
    size = [str(n) for n in (problem.d, problem.tokens, problem.heads)]
    command = [sys.executable, __file__, problem.layer, *size, name.removeprefix(f"{NAME} ")]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def greatest():
    """The greatest memory of this program so far, in MB; not that of who has started it."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3


def main():
    layer, d, tokens, heads, form = sys.argv[1:]
    options = argparse.Namespace(threads=1, compile="compiled" in form)
    make = lambda length: common.make_problem(layer, int(d), length, int(heads))
    call = lambda problem: gradient_peers(problem, problem.inputs["v"], options)[f"{NAME} {form}"]()
    call(make(2 * MINI_BATCH))  # what libraries and compilers take once
    problem, before = make(int(tokens)), greatest()
    call(problem)
    print(f"{greatest() - before:.0f}")


if __name__ == "__main__":
    main()
