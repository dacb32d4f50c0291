"""PyTorch: the recurrence token by token, and the chunkwise form; each also by torch.compile.

The chunkwise form is the one that PyTorch models carry: with c the running sum of log-decays in a
chunk, everything that does not depend on the memory (Gram matrices, the triangular solve) is made
for all chunks at once; then a loop over the chunks takes the memory along. Channel decays are split
as exp(c_i) exp(-c_j), which holds while a chunk forgets less than float32 spans.
"""

import numpy as np
import torch

NAME = f"torch {torch.__version__.split('+')[0]}"
CHUNK = 64


def token(memory, q, k, v, decay, step):
    """One token of all heads; memory [H, d, d], others [H, d]; decay [H, 1 or d] or None."""
    if decay is not None:
        memory = memory * decay[:, :, None]
    if step is not None:
        v = step * (v - torch.bmm(k[:, None], memory)[:, 0])
    memory = memory + k[:, :, None] * v[:, None]
    return memory, torch.bmm(q[:, None], memory)[:, 0]


def loop(q, k, v, log_decay=None, step=None, *, compiled=False):
    advance = compile_once(token) if compiled else token
    memory = q.new_zeros(q.shape[0], q.shape[2], v.shape[2])
    decay = None if log_decay is None else log_decay.exp()
    at = lambda x, t: None if x is None else x[:, t]
    out = []
    for t in range(q.shape[1]):
        memory, y = advance(memory, q[:, t], k[:, t], v[:, t], at(decay, t), at(step, t))
        out.append(y)
    return torch.stack(out, 1)


def prepare(q, k, v, log_decay, step):
    """What chunks need before the memory is known; all [H, N, C, ...]."""
    size = q.shape[2]
    lower = torch.ones(size, size, dtype=torch.bool).tril()
    if log_decay is None:
        k_in, k_end, last = k, k, None
        scores, gram = q @ k.mT, k @ k.mT
    else:
        c = log_decay.cumsum(2)
        read, last = c.exp(), c[:, :, -1:].exp()
        k_end = k * (c[:, :, -1:] - c).exp()
        if log_decay.shape[-1] == 1:
            ratio = (c - c.mT).masked_fill(~lower, -torch.inf).exp()
            scores, gram = (q @ k.mT) * ratio, (k @ k.mT) * ratio
            q, k_in = q * read, k * read
        else:
            q, k_in, k_out = q * read, k * read, k * (-c).exp()
            scores, gram = q @ k_out.mT, k_in @ k_out.mT
    scores = scores.masked_fill(~lower, 0.0)
    if step is None:
        return q, scores, None, v, k_end, last
    solve = torch.linalg.solve_triangular(
        (gram * step).tril(-1) + torch.eye(size), torch.cat((k_in, v), -1) * step,
        upper=False, unitriangular=True,
    )
    w, u = solve.split((k.shape[-1], v.shape[-1]), -1)
    return q, scores, w, u, k_end, last


def advance_chunk(memory, q, scores, w, u, k_end, last):
    if w is not None:
        u = u - w @ memory
    y = q @ memory + scores @ u
    if last is not None:
        memory = memory * last.mT
    return memory + k_end.mT @ u, y


def chunk(q, k, v, log_decay=None, step=None, *, compiled=False):
    first, advance = prepare, advance_chunk
    if compiled:
        first, advance = compile_once(prepare), compile_once(advance_chunk)
    heads, tokens, _ = q.shape
    size = min(CHUNK, tokens)
    if tokens % size != 0:
        raise ValueError(f"the length must be a multiple of {size}")
    cut = lambda x: None if x is None else x.reshape(heads, tokens // size, size, x.shape[-1])
    parts = first(cut(q), cut(k), cut(v), cut(log_decay), cut(step))
    memory = q.new_zeros(heads, q.shape[2], v.shape[2])
    out = []
    for n in range(tokens // size):
        memory, y = advance(memory, *(None if x is None else x[:, n] for x in parts))
        out.append(y)
    return torch.cat(out, 1)


_compiled = {}


def compile_once(function):
    if function not in _compiled:
        _compiled[function] = torch.compile(function, dynamic=False)
    return _compiled[function]


def attention(q, k, v):
    """PyTorch's own kernel of softmax attention, [H, T, d]."""
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q[None], k[None], v[None], is_causal=True)[0]


def forms(layer, compiled):
    if layer == "softmax":
        return {"attention": attention}
    found = {"loop": loop, "chunk": chunk}
    if compiled:
        found["loop, compiled"] = lambda **x: loop(**x, compiled=True)
        found["chunk, compiled"] = lambda **x: chunk(**x, compiled=True)
    return found


def peers(problem, options):
    """{name: a call that gives y}"""
    torch.set_num_threads(options.threads)
    torch._dynamo.config.cache_size_limit = 64
    inputs = {name: torch.from_numpy(x) for name, x in problem.inputs.items()}

    def run(form):
        with torch.inference_mode():
            return form(**inputs)

    return {f"{NAME} {n}": (lambda f=f: run(f)) for n, f in forms(problem.layer, options.compile).items()}


def gradient_peers(problem, dy, options):
    """{name: a call that gives the gradients by name}"""
    torch.set_num_threads(options.threads)
    names = sorted(problem.given)
    dy = torch.from_numpy(np.ascontiguousarray(dy))

    def run(form):
        inputs = {name: torch.from_numpy(x) for name, x in problem.inputs.items()}
        leaves = [inputs[name].requires_grad_() for name in names]
        return dict(zip(names, torch.autograd.grad(form(**inputs), leaves, dy)))

    found = {"attention": attention} if problem.layer == "softmax" else {"chunk": chunk}
    if options.compile and problem.layer != "softmax":
        found["chunk, compiled"] = lambda **x: chunk(**x, compiled=True)
    return {f"{NAME} {n}": (lambda f=f: run(f)) for n, f in found.items()}
