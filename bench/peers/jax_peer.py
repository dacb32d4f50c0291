"""JAX on the CPU, jitted: lax.scan over the tokens, and over the chunks of the chunkwise form."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

NAME = f"jax {jax.__version__}"
CHUNK = 32  # of 8, 16, 32, 64 the fastest or near it, forward and backward, d = 64 and 128


def scan(inputs):
    """The recurrence; arrays [H, T, ...], memory [H, d, d]."""
    q, v = inputs["q"], inputs["v"]
    rows = {name: jnp.moveaxis(x, 1, 0) for name, x in inputs.items()}
    if "log_decay" in rows:
        rows["decay"] = jnp.exp(rows.pop("log_decay"))

    def token(memory, row):
        if "decay" in row:
            memory = memory * row["decay"][:, :, None]
        u = row["v"]
        if "step" in row:
            u = row["step"] * (u - jnp.einsum("hkv,hk->hv", memory, row["k"]))
        memory = memory + row["k"][:, :, None] * u[:, None]
        return memory, jnp.einsum("hkv,hk->hv", memory, row["q"])

    _, y = lax.scan(token, jnp.zeros((q.shape[0], q.shape[2], v.shape[2])), rows)
    return jnp.moveaxis(y, 0, 1)


def chunk(inputs):
    """As torch_peer.chunk, the solve inside the scan."""
    heads, tokens, d = inputs["q"].shape
    size = min(CHUNK, tokens)
    cut = lambda x: jnp.moveaxis(x.reshape(heads, tokens // size, size, x.shape[-1]), 1, 0)
    lower = jnp.tril(jnp.ones((size, size), bool))
    eye = jnp.eye(size)

    def advance(memory, x):
        q, k, v = x["q"], x["k"], x["v"]
        gram, scores = k @ k.mT, q @ k.mT
        k_in, k_end = k, k
        if "log_decay" in x:
            c = jnp.cumsum(x["log_decay"], 1)
            read, last = jnp.exp(c), c[:, -1:]
            k_in, k_end = k * read, k * jnp.exp(last - c)
            if c.shape[-1] == 1:
                ratio = jnp.exp(jnp.where(lower, c - c.mT, -jnp.inf))
                gram, scores, q = gram * ratio, scores * ratio, q * read
            else:
                k_out, q = k * jnp.exp(-c), q * read
                gram, scores = k_in @ k_out.mT, q @ k_out.mT
        u = v
        if "step" in x:
            u = lax.linalg.triangular_solve(
                jnp.tril(gram * x["step"], -1) + eye, x["step"] * (v - k_in @ memory),
                left_side=True, lower=True, unit_diagonal=True,
            )
        y = q @ memory + jnp.where(lower, scores, 0) @ u
        if "log_decay" in x:
            memory = memory * jnp.exp(last).mT
        return memory + k_end.mT @ u, y

    start = jnp.zeros((heads, d, inputs["v"].shape[2]))
    _, y = lax.scan(advance, start, {name: cut(x) for name, x in inputs.items()})
    return jnp.moveaxis(y, 0, 1).reshape(heads, tokens, -1)


def peers(problem, options):
    if problem.layer == "softmax":  # no kernel of its own
        return {}
    inputs = {name: jnp.asarray(x) for name, x in problem.inputs.items()}
    run = {"scan": jax.jit(scan), "chunk": jax.jit(chunk)}
    return {f"{NAME} {n}": (lambda f=f: f(inputs).block_until_ready()) for n, f in run.items()}


def gradient_peers(problem, dy, options):
    if problem.layer == "softmax":  # no kernel of its own
        return {}
    inputs = {name: jnp.asarray(x) for name, x in problem.inputs.items()}
    dy = jnp.asarray(dy)

    @functools.partial(jax.jit, static_argnums=0)
    def gradients(form, x):
        return lax.optimization_barrier(jax.vjp(form, x)[1](dy)[0])

    return {f"{NAME} chunk": lambda: jax.block_until_ready(gradients(chunk, inputs))}
