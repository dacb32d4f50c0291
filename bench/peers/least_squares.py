"""Least squares beside PyTorch: what run.py does for the layers of common.RIDGES.

Answers, ttr's and every peer's, are held against a direct solve in double precision, token by token;
gradients, on a short sequence, against automatic differentiation of the same. An error is the
greatest difference as a share of the greatest number; it may reach some roundings times the
condition of the systems. Conjugate gradients may be off by what its steps leave. Where ttr's
gradients are beyond it, they are timed and marked; answers beyond it are an error.
"""

import statistics
import sys

import numpy as np

import common
import torch_least_squares as peers

ROUNDINGS = 8  # times eps and the condition
MOST = 0.05  # whatever the condition


def direct(problem):
    """The answers in double precision, and the greatest condition of a system."""
    heads, tokens, d = problem.inputs["q"].shape
    x = {n: a.astype(np.float64) for n, a in problem.inputs.items()}
    one = np.ones((heads, tokens, 1))
    decay = np.exp(x["log_decay"]) if "log_decay" in x else one
    importance = x.get("importance", one)
    start = 0.0 if problem.constant_ridge else problem.ridge
    a = np.tile(start * np.eye(d), (heads, 1, 1))
    ridge = problem.ridge * np.eye(d) if problem.constant_ridge else 0.0
    b, y, condition = np.zeros((heads, d, d)), np.empty((heads, tokens, d)), 1.0
    for t in range(tokens):
        k, g = x["k"][:, t, :, None], decay[:, t, :, None]
        row = importance[:, t, :, None] * k.swapaxes(1, 2)
        a = g * a + k * row
        b = g * b + row.swapaxes(1, 2) * x["v"][:, t, None]
        solution = np.linalg.solve(a + ridge, x["q"][:, t, :, None])
        y[:, t] = (solution.swapaxes(1, 2) @ b)[:, 0]
        if t % 16 == 0:
            condition = max(condition, np.linalg.cond(a + ridge).max())
    return y, condition


def is_exact(name):
    return not any(name.split(",")[0].endswith(f" {form}") for form in peers.ITERATIVE)


def forward_errors(problem, ttr, calls):
    """Errors of ttr and every peer, and what an exact one may have."""
    want, condition = direct(problem)
    errors = {"ttr": common.error(ttr.apply(problem), want)}
    for name, (run, tokens) in calls.items():
        errors[name] = common.error(run(), want[:, :tokens])
    return errors, condition


def gradient_errors(problem, ttr, options, engine):
    small = common.make_problem(problem.layer, problem.d, 2 * peers.CHUNK, 2)
    want = {n: np.asarray(x) for n, x in peers.exact_gradients(small).items()}
    worst = lambda got: max(common.error(np.asarray(got[n]), want[n]) for n in want)
    errors = {}
    if engine != "definition":  # its gradients are central differences
        errors["ttr"] = worst(ttr.apply(small, small.inputs["v"]))
    for name, (run, _) in peers.gradient_peers(small, options).items():
        errors[name] = worst(run())
    return errors, direct(small)[1]


def compare(problem, ttr, options):
    """The rows of one layer at one size."""
    column = "forward + backward" if options.gradients else "forward"
    measured = ttr.bench(problem, "least_squares")
    engine = measured["engine"]
    if options.gradients:
        calls = peers.gradient_peers(problem, options)
        errors, condition = gradient_errors(problem, ttr, options, engine)
    else:
        calls = peers.peers(problem, options)
        errors, condition = forward_errors(problem, ttr, calls)
    allowed = min(MOST, ROUNDINGS * np.finfo(np.float32).eps * condition)
    for name, found in errors.items():
        if is_exact(name) and not found < allowed:
            off = f"{name} is off by {found:.1e} in {problem.layer} (allowed {allowed:.1e})"
            if name != "ttr":
                print(f"{off}: left out", file=sys.stderr)
                del calls[name]
            elif options.gradients:
                print(f"{off}: a time of inexact gradients", file=sys.stderr)
            else:
                sys.exit(off)
    own, times = [], {name: [] for name in calls}
    for _ in range(options.rounds):
        own.append(ttr.bench(problem, "least_squares")[column])
        for name, (run, tokens) in calls.items():
            times[name].append(common.nanoseconds(run, tokens * problem.heads))
    base = {"layer": problem.layer, "d": problem.d, "T": problem.tokens, "H": problem.heads}
    timed = None not in own
    mine = {"ns": statistics.median(own), "least": min(own)} if timed else {"ns": None}
    rows = [{**base, "who": f"ttr ({engine})", **mine}]
    if "ttr" in errors:
        rows[0].update(error=errors["ttr"], inexact=bool(not errors["ttr"] < allowed))
    for name, values in times.items():
        row = {**base, "T": calls[name][1], "who": name, "ns": statistics.median(values)}
        row.update(least=min(values), error=errors[name])
        if timed:
            ratios = [value / time for value, time in zip(values, own)]
            row.update(ratio=statistics.median(ratios), low=min(ratios), high=max(ratios))
        rows.append(row)
    return rows
