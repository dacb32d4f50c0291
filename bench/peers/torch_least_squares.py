"""PyTorch: least squares in four forms; each but the loop also by torch.compile.

    A_t = g_t A_{t-1} + w_t k_t k_t^T,   B_t = g_t B_{t-1} + w_t k_t v_t^T,   y_t = B_t^T A_t^-1 q_t

With c the running product of decays in a chunk and rows k', v' = sqrt(w / c) (k, v), the prefixes of
a chunk behind A, B are c_t (A + sum_{j <= t} k'_j k'_j^T). A and B before every chunk are made first,
so that all else runs on all chunks at once:

    prefixes  one Cholesky factor a token, batched
    cg        30 steps of conjugate gradients for every token, A_t applied by products with the chunk
    loop      the textbook recursion (Sherman-Morrison on A^-1), token by token
    chunks    one factor a chunk and one of the small system that its tokens add
"""

import torch

from torch_peer import NAME, compile_once

CHUNK = 64  # of 32, 64, 128 the fastest or near it at d = 64 and 128
STEPS = 30
ITERATIVE = ("cg",)  # its answers need not be exact


class Chunks:
    """A sequence by chunks: rows [H, N, C, ...], A and B before every chunk [H, N, d, d]."""

    def __init__(self, q, k, v, log_decay, importance, ridge, constant):
        heads, tokens, d = q.shape
        size = min(CHUNK, tokens)
        if tokens % size != 0:
            raise ValueError(f"the length must be a multiple of {size}")
        cut = lambda x: x.reshape(heads, tokens // size, size, x.shape[-1])
        self.q, k, v = cut(q), cut(k), cut(v)
        c = torch.zeros_like(k[..., :1]) if log_decay is None else cut(log_decay).cumsum(2)
        self.c = c.exp()
        scale = (-0.5 * c).exp() if importance is None else (-0.5 * c).exp() * cut(importance).sqrt()
        self.k, self.v = scale * k, scale * v
        self.ridge = ridge if constant else 0.0
        gram, cross, last = self.k.mT @ self.k, self.k.mT @ self.v, self.c[:, :, -1:]
        a = torch.eye(d, dtype=q.dtype).expand(heads, d, d) * (0.0 if constant else ridge)
        b = q.new_zeros(heads, d, v.shape[-1])
        before_a, before_b = [], []
        for n in range(tokens // size):
            before_a.append(a)
            before_b.append(b)
            a, b = last[:, n] * (a + gram[:, n]), last[:, n] * (b + cross[:, n])
        self.a, self.b = torch.stack(before_a, 1), torch.stack(before_b, 1)

    def apply(self, x):
        """(A_t + R) x_t for every token."""
        return self.c * (x @ self.a + (x @ self.k.mT).tril() @ self.k) + self.ridge * x

    def read(self, x):
        """B_t^T x_t for every token, as one sequence."""
        y = self.c * (x @ self.b + (x @ self.k.mT).tril() @ self.v)
        return y.reshape(y.shape[0], -1, y.shape[-1])


def prefixes(**inputs):
    parts = Chunks(**inputs)
    ridge = parts.ridge * torch.eye(parts.q.shape[-1], dtype=parts.q.dtype)
    solutions = []
    for n in range(parts.q.shape[1]):  # more at once would leave the caches
        k = parts.k[:, n]
        sums = (k[..., :, None] * k[..., None, :]).cumsum(1)
        a = parts.c[:, n, :, None] * (parts.a[:, n, None] + sums) + ridge
        factor = torch.linalg.cholesky(a)
        solutions.append(torch.cholesky_solve(parts.q[:, n, :, :, None], factor)[..., 0])
    return parts.read(torch.stack(solutions, 1))


def cg(**inputs):
    parts = Chunks(**inputs)
    dot = lambda x, y: (x * y).sum(-1, keepdim=True)
    x, r, p = torch.zeros_like(parts.q), parts.q, parts.q
    rr = dot(r, r)
    for _ in range(STEPS):
        ap = parts.apply(p)
        step = rr / dot(p, ap).clamp_min(1e-30)
        x, r = x + step * p, r - step * ap
        rr, old = dot(r, r), rr
        p = r + rr / old.clamp_min(1e-30) * p
    return parts.read(x)


def loop(q, k, v, log_decay, importance, ridge, constant):
    """Carries P = A^-1 and M = P B."""
    heads, tokens, d = q.shape
    p = torch.eye(d, dtype=q.dtype).repeat(heads, 1, 1) / ridge
    m = q.new_zeros(heads, d, v.shape[-1])
    grow = None if log_decay is None else (-log_decay).exp()
    out = []
    for t in range(tokens):
        row = k[:, t, None]
        if grow is not None:
            p = p * grow[:, t, None]
        u = torch.bmm(row, p)
        gain = u / ((1 if importance is None else 1 / importance[:, t, None]) + torch.bmm(u, row.mT))
        p = torch.baddbmm(p, u.mT, gain, alpha=-1)
        m = torch.baddbmm(m, gain.mT, v[:, t, None] - torch.bmm(row, m))
        out.append(torch.bmm(q[:, t, None], m)[:, 0])
    return torch.stack(out, 1)


def chunks(**inputs):
    parts = Chunks(**inputs)
    size = parts.q.shape[2]
    factor = torch.linalg.cholesky(parts.a)
    white = torch.cat((parts.k.mT, parts.q.mT, parts.b), -1)
    white = torch.linalg.solve_triangular(factor, white, upper=False)
    k, q, b = white.split((size, size, parts.b.shape[-1]), -1)
    inner = torch.linalg.cholesky(k.mT @ k + torch.eye(size, dtype=k.dtype))
    right = torch.cat((parts.v - k.mT @ b, k.mT @ q), -1)
    e, g = torch.linalg.solve_triangular(inner, right, upper=False).split((b.shape[-1], size), -1)
    y = q.mT @ b + g.triu().mT @ e
    return y.reshape(y.shape[0], -1, y.shape[-1])


def forms(problem, options, gradients):
    """{name: (function of the inputs, tokens that it is timed on)}"""
    # Slow ones take a part of the sequence: their cost a token does not depend on its length.
    few = min(problem.tokens, 2 * CHUNK)
    found = {"prefixes": (prefixes, few)}
    if not gradients:
        found["cg"] = (cg, problem.tokens)
    if not problem.constant_ridge:
        if not gradients:
            found["loop"] = (loop, problem.tokens)
        found["chunks"] = (chunks, problem.tokens)
    if options.compile:
        for name in [n for n in found if n != "loop"]:
            form, tokens = found[name]
            found[f"{name}, compiled"] = (compile_once(form), tokens)
    return found


def tensors(problem, tokens, dtype=torch.float32):
    inputs = {"log_decay": None, "importance": None}
    for name, x in problem.inputs.items():
        inputs[name] = torch.from_numpy(x[:, :tokens].copy()).to(dtype)
    return inputs


def peers(problem, options):
    """{name: (a call that gives y, tokens)}"""
    torch.set_num_threads(options.threads)

    def make(form, tokens):
        inputs = tensors(problem, tokens)

        def run():
            with torch.inference_mode():
                return form(**inputs, ridge=problem.ridge, constant=problem.constant_ridge)

        return run, tokens

    return {f"{NAME} {n}": make(*f) for n, f in forms(problem, options, False).items()}


def gradients(problem, form, tokens, dtype=torch.float32):
    """A call that gives the gradients by name for dy = v."""
    inputs = tensors(problem, tokens, dtype)
    names = sorted(problem.given)
    leaves = [inputs[name].requires_grad_() for name in names]
    dy = inputs["v"].detach().clone()

    def run():
        y = form(**inputs, ridge=problem.ridge, constant=problem.constant_ridge)
        return dict(zip(names, torch.autograd.grad(y, leaves, dy)))

    return run


def gradient_peers(problem, options):
    """{name: (a call that gives the gradients, tokens)}"""
    torch.set_num_threads(options.threads)
    found = forms(problem, options, True)
    return {f"{NAME} {n}": (gradients(problem, *f), f[1]) for n, f in found.items()}


def exact_gradients(problem):
    """In double precision, a factor a token."""
    return gradients(problem, prefixes, problem.tokens, torch.float64)()
