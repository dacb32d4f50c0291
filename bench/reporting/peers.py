"""What bench/peers/run.py measured, as Markdown tables."""

import json

from .tables import NOT_MEASURED, markdown


def peer_command(a):
    options = "".join(f" --{n} {a[n]}" for n in ("tokens", "heads", "threads", "rounds"))
    if "layers" in a:
        options += " --layers " + " ".join(a["layers"])
    options += " --peers " + " ".join(a["peers"])
    options += "".join(f" --{n}" for n in ("unlock", "gradients", "compile") if a[n])
    return f"    bench/peers/run.py{options}\n\n"


def least_squares_rows(path):
    """The rows of the peers, each with what stands beside it."""
    if not path.exists():
        return []
    rows, beside = json.loads(path.read_text())["rows"], ""
    for row in rows:
        beside = row["who"] if row["who"].startswith("ttr") else beside
        row["beside"] = beside
    return rows


def least_squares_peers(path):
    """One line a layer, d and peer, errors among them: the iterative ones are not exact."""
    rows = least_squares_rows(path)
    if not rows:
        return NOT_MEASURED
    a = json.loads(path.read_text())["about"]
    lines = []
    for row in rows:
        ratio = f"{row['ratio']:.1f} ({row['low']:.1f} .. {row['high']:.1f})" if "ratio" in row else ""
        error = f"{row['error']:.0e}" if "error" in row else ""
        error += " (beyond the condition)" if row.get("inexact") else ""
        times = ["-" if row.get(n) is None else f"{row[n]:.0f}" for n in ("ns", "least")]
        where = [row["layer"], str(row["d"]), row["who"], str(row["T"])]
        lines.append([*where, *times, ratio, error])
    head = ["layer", "d", "who", "T", "ns/token/head", "least", "times ttr (range)", "error"]
    note = f"{a['processor']}; H = {a['heads']}; medians of {a['rounds']} rounds:\n\n"
    return note + peer_command(a) + markdown(head, lines, text=(0, 2))


def peers(path):
    """One line a layer and d: ttr's time, then every peer's and its ratio to ttr's."""
    if not path.exists():
        return NOT_MEASURED
    run = json.loads(path.read_text())
    a = run["about"]
    worst = max(row.get("error", 0) for row in run["rows"])
    note = f"{a['processor']}; ns a token and head, times ttr (range); greatest error {worst:.0e}:"
    note += f"\n\n{peer_command(a)}"

    lines, names = {}, []
    for row in run["rows"]:
        line = lines.setdefault((row["layer"], row["d"]), {})
        name = "ttr" if row["who"].startswith("ttr") else row["who"]
        names += [] if name in names else [name]
        cell = "-" if row["ns"] is None else f"{row['ns']:.0f}"
        if "ratio" in row:
            cell += f": {row['ratio']:.1f} x ({row['low']:.1f} .. {row['high']:.1f})"
        line[name] = cell + (", definition" if row["who"] == "ttr (definition)" else "")
    rows = []
    for (layer, d), line in lines.items():
        rows.append([layer, str(d), *(line.get(n, "") for n in names)])
    return note + markdown(["layer", "d", *names], rows)


def peer_ratios(path):
    """By layer, d and peer: how many times ttr's time it took."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text())["rows"]
    return {(r["layer"], r["d"], r["who"]): r["ratio"] for r in rows if "ratio" in r}
