#!/usr/bin/env python3
"""Writes docs/performance/*.md, the whole tables, and the marked regions of docs/performance.md.

    ttr bench --out build/bench
    TTR_TARGET=AVX2 ttr bench gated_deltanet --part limits prefill --out build/bench/AVX2
    bench/peers/run.py --json build/bench/peers.json
    bench/peers/run.py --gradients --json build/bench/peers-gradients.json
    bench/peers/run.py --layers rls weighted_rls mesa --unlock --compile \\
        --json build/bench/peers-least-squares.json
    bench/peers/run.py --layers rls weighted_rls mesa --unlock --compile --gradients \\
        --json build/bench/peers-least-squares-gradients.json
    bench/report.py build/bench

Only the first is needed; what else is there is taken.

PAGES says what is in which file; a file whose parts were not measured stays as it is. In
docs/performance.md text between `<!-- begin NAME -->` and `<!-- end -->` is replaced. Pictures go to
docs/images. Needs Python's standard library alone. `make performance` does all of it.
"""

import argparse
import json
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURES = ("roofline", "least-squares", "cost-T", "cost-d", "cost-H", "cost-threads")
HEBBIAN = ("retnet", "gla", "mamba2", "linear_attention")
SCAN = ("hgrn", "rg_lru", "lru", "mamba")
EXACT = ("rls", "weighted_rls", "mesa{decay: none}")  # tokens share a factor


def markdown(head, rows, text=(0,)):
    """A table; the columns of `text` stand at the left, the others, numbers, at the right."""
    lines = [head, ["---" if c in text else "---:" for c in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


class Bench:
    """bench.json, by part, layer and d."""

    def __init__(self, path):
        self.json = json.loads(path.read_text())

    def rows(self, part):
        return self.json.get(part, {}).get("rows", [])

    def cell(self, part, layer, d, column):
        """A number, or None where it was not measured or no engine runs the layer."""
        for row in self.rows(part):
            if (row["layer"], row["d"]) == (layer, d):
                return None if row["engine"] == "definition" else row.get(column)
        return None

    def of_peak(self, layer, d):
        useful = self.cell("prefill", layer, d, "useful")
        peak = self.rows("limits")[0]["value"] * self.json["about"]["threads"]
        return None if useful is None else 100 * useful / peak

    def ratio(self, part, layer, other, d, column):
        top, bottom = self.cell(part, layer, d, column), self.cell(part, other, d, column)
        return None if top is None or bottom is None else top / bottom

    def table(self, part):
        """The part's table as `ttr bench` shows it."""
        found = self.json.get(part)
        if found is None:
            return NOT_MEASURED
        columns = found["columns"]
        heads = [c["name"] + (f" ({c['unit']})" if c.get("unit") else "") for c in columns]
        rows = [[row[c["name"]] for c in columns] for row in found["rows"]]
        text = [c for c in range(len(heads)) if any(isinstance(row[c], str) for row in rows)]
        return markdown(heads, [[show(cell) for cell in row] for row in rows], text)


def show(value):
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if value != 0 and abs(value) < 0.01:
        return f"{value:.1e}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"


class Goals:
    """Every goal with what must be reached, what is aimed at (if more), and what was measured."""

    def __init__(self):
        self.rows = []

    def add(self, work, must, aim, measured, unit="%", least=True, absent="no engine yet"):
        if measured is None:
            verdict, shown = absent, "-"
        else:
            better = (lambda goal: measured >= goal) if least else (lambda goal: measured <= goal)
            verdict = "must" if better(must) else "missed"
            verdict = "aim" if aim is not None and better(aim) else verdict
            shown = f"{measured:.1f} {unit}" if unit == "%" else f"{measured:.2f} {unit}"
        further = "" if aim is None else f"{aim} {unit}"
        self.rows.append([work, f"{must} {unit}", further, shown, verdict])

    def table(self):
        return markdown(["work", "must", "aim", "measured", "reached"], self.rows, text=(0, 4))


def goals(bench, avx2):
    found = Goals()
    add, delta = found.add, "gated_deltanet"
    for d, must, aim in ((128, 65, 80), (64, 58, 75)):
        add(f"prefill, {delta}, d = {d}: of the FMA peak", must, aim, bench.of_peak(delta, d))
    for d in (128, 64):
        ratio = bench.ratio("prefill", "kda", delta, d, "time")
        add(f"prefill, kda, d = {d}: times {delta}", 1.3, 1.1, ratio, "x", least=False)
    for layer in HEBBIAN:
        add(f"prefill, {layer}, d = 128: of the FMA peak", 55, 75, bench.of_peak(layer, 128))
    for d in (128, 64):
        ratio = bench.cell("train", delta, d, "ratio")
        work = f"forward + backward, {delta}, d = {d}: times forward"
        add(work, 3.5, 2.8, ratio, "x", least=False)
    for where, must, aim in (("cache", 75, 90), ("DRAM", 80, 92)):
        share = bench.cell("decode", delta, 128, f"of in-place, {where}")
        add(f"decode, {delta}, d = 128, {where}: of an in-place update", must, aim, share)
    for d in (128, 64):
        speed_up = bench.cell("threads", delta, d, "speed-up")
        add(f"two threads, one head, {delta}, d = {d}", 1.8, 1.95, speed_up, "x")
    bf16 = bench.cell("bf16", delta, 128, "ratio")
    add(f"bfloat16 inputs, {delta}, d = 128: times float32", 1.0, None, bf16, "x", least=False)
    products = bench.cell("bf16", delta, 128, "products: ratio")
    error = bench.cell("bf16", delta, 128, "products: median error")
    absent = "not on this processor"
    work = f"bfloat16 inputs and products, {delta}, d = 128"
    add(f"{work}: times float32", 1.0, 0.7, products, "x", least=False, absent=absent)
    error = None if error is None else 1000 * error
    add(f"{work}: median error, of rms y", 2.0, None, error, "e-3", least=False, absent=absent)
    for layer in SCAN:
        share = bench.cell("prefill", layer, 128, "of limit")
        add(f"scan, {layer}, d = 128: of the limit that binds", 50, 80, share)
    for d in (128, 64) if avx2 is not None else ():
        work = f"prefill by AVX2, {delta}, d = {d}: of the FMA peak of AVX2"
        add(work, 55, None, avx2.of_peak(delta, d))
    return found.table()


def least_squares_goals(bench, forward, gradients):
    """Of least squares; `forward` and `gradients` are the rows of the peers."""
    found = Goals()
    cell = lambda layer, d, column: bench.cell("least_squares", layer, d, column)
    for layer in EXACT:
        for d in (64, 128):
            ratio = cell(layer, d, "forward / delta")
            found.add(f"{layer}, d = {d}: times the delta rule", 3, 2.2, ratio, "x", least=False)
    for d, must, aim in ((64, 2.0, 1.3), (128, 10, 7)):
        time = cell("mesa", d, "forward")
        if time is not None:
            time *= bench.rows("limits")[0]["value"] / 260 / 1000
        work = f"mesa, d = {d}: a token and head, as if at 260 GFLOP/s"
        found.add(work, must, aim, time, "us", least=False)
    for layer in (*EXACT, "mesa"):
        for d in (64, 128):
            ratio = cell(layer, d, "both / forward")
            work = f"{layer}, d = {d}: forward + backward, times forward"
            found.add(work, 3.5, 3, ratio, "x", least=False)
    for d in (64, 128):
        for where in ("cache", "DRAM"):
            times = bench.cell("least_squares_decode", "rls", d, f"times limit, {where}")
            found.add(f"rls, d = {d}: decode, {where}, times the limit", 2, 1.3, times, "x", False)

    def beside(rows, layer, d, forms):
        """The smallest ratio of the peers of these forms."""
        ratios = [
            row["ratio"]
            for row in rows
            if (row["layer"], row["d"]) == (layer, d)
            and "ratio" in row
            and "definition" not in row["beside"]
            and row["who"].split(",")[0].split()[-1] in forms
        ]
        return min(ratios, default=None)

    for rows, what in ((forward, ""), (gradients, ", forward + backward")):
        peer = lambda *args: found.add(*args, unit="x", absent="not measured")
        for d in (64, 128):
            ratio = beside(rows, "weighted_rls", d, ("chunks",))
            peer(f"weighted_rls, d = {d}{what}: ahead of chunks in PyTorch", 6, 9, ratio)
            ratio = beside(rows, "weighted_rls", d, ("prefixes", "cg", "loop"))
            peer(f"weighted_rls, d = {d}{what}: ahead of all others", 1, None, ratio)
            ratio = beside(rows, "mesa", d, ("prefixes",))
            peer(f"mesa, d = {d}{what}: ahead of batched Cholesky", 20, 30, ratio)
            if not what:
                ratio = beside(rows, "mesa", d, ("cg",))
                peer(f"mesa, d = {d}: ahead of 30 steps of CG", 1, None, ratio)
    return found.table()


def about(bench):
    a = bench.json["about"]
    options = " ".join(f"--{n} {a[n]}" for n in ("tokens", "heads", "threads", "repeats"))
    return (
        f"{a['processor']}, target {a['target']}, ttr {a['version']}. Unless said otherwise "
        f"T = {a['tokens']}, H = {a['heads']}, {a['threads']} thread(s), medians of {a['repeats']} "
        f"interleaved runs:\n\n    ttr bench {options} --out build/bench\n\n{a.get('quietness', '')}\n"
    )


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

# The files of docs/performance: a title, and then text and `{part}`s.
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
the memory. *State written* is without deferred writes, where they make a difference.

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
`ttr bench --part least_squares` times memories that carry the Gram matrix of their keys beside the delta
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
NOT_MEASURED = "Not measured."


def pages(parts):
    """The files' texts by name, without those none of whose tables was measured."""
    written = {}
    for name, text in PAGES.items():
        names = re.findall(r"\{([a-z0-9-]+)\}", text)
        tables = [parts[n] for n in names if n != "about"]
        if all(table == NOT_MEASURED for table in tables):
            continue
        for part in names:
            text = text.replace("{" + part + "}", parts[part])
        written[name] = "<!-- written by bench/report.py -->\n" + text
    return written


def summary(bench):
    """A line a layer, at the greatest d: what the tables have of it."""
    rows = bench.rows("prefill")
    d = max((row["d"] for row in rows), default=0)
    columns = (
        ("prefill", "time", "ns"),
        ("prefill", "of limit", "of limit (%)"),
        ("decode", "time, cache", "decode, cache"),
        ("decode", "time, DRAM", "decode, DRAM"),
        ("train", "forward + backward", "forward + backward"),
        ("train", "ratio", "times forward"),
        ("threads", "speed-up", "two threads (x)"),
        ("bf16", "products: ratio", "bfloat16 products (x)"),
    )
    lines = []
    for row in rows:
        if row["d"] != d or row["engine"] == "definition":
            continue
        cells = [show(bench.cell(part, row["layer"], d, column)) for part, column, _ in columns]
        lines.append([row["layer"], row["engine"], *cells])
    if not lines:
        return NOT_MEASURED
    heads = ["layer", "engine", f"prefill, d = {d} (ns)", *(head for *_, head in columns[1:])]
    return markdown(heads, lines, text=(0, 1))


def write(parts, document):
    """The regions of `document`, and the folder of its name beside it."""

    def fill(found):
        if found[1] not in parts:
            sys.exit(f"report.py: '{found[1]}' is none of {', '.join(sorted(parts))}")
        return f"<!-- begin {found[1]} -->\n{parts[found[1]]}\n<!-- end -->"

    text = document.read_text()
    text = re.sub(r"<!-- begin ([a-z0-9-]+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)
    document.write_text(text)
    folder = document.with_suffix("")
    folder.mkdir(exist_ok=True)
    for name, page in pages(parts).items():
        (folder / f"{name}.md").write_text(page)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="what `ttr bench --out` wrote")
    parser.add_argument("--document", type=pathlib.Path, default=ROOT / "docs/performance.md")
    options = parser.parse_args()
    bench = Bench(options.folder / "bench.json")
    tables = ("limits", "prefill", "decode", "train", "threads", "bf16", "operators")
    parts = {name: bench.table(name) for name in tables}
    parts["least-squares"] = bench.table("least_squares")
    if (options.folder / "least-squares.svg").exists():
        picture = "![Least squares beside the delta rule](../images/least-squares.svg)"
        parts["least-squares"] += f"\n\n{picture}"
    parts["least-squares-decode"] = bench.table("least_squares_decode")
    others = [options.folder / f"peers-least-squares{n}.json" for n in ("", "-gradients")]
    for path in others:
        parts[path.stem] = least_squares_peers(path)
    rows = [least_squares_rows(path) for path in others]
    parts["least-squares-goals"] = least_squares_goals(bench, *rows)
    parts["about"] = about(bench)
    other = options.folder / "AVX2/bench.json"
    parts["goals"] = goals(bench, Bench(other) if other.exists() else None)
    for name in ("peers", "peers-unlocked", "peers-gradients"):
        parts[name] = peers(options.folder / f"{name}.json")

    parts["summary"] = summary(bench)
    write(parts, options.document)
    images = options.document.parent / "images"
    images.mkdir(exist_ok=True)
    for picture in PICTURES:
        source = options.folder / f"{picture}.svg"
        if source.exists():
            shutil.copyfile(source, images / source.name)


if __name__ == "__main__":
    main()
