#!/usr/bin/env python3
"""Writes the measured parts of docs/performance.md.

    ttr bench --out build/bench
    TTR_TARGET=AVX2 ttr bench gated_deltanet --part limits prefill --out build/bench/AVX2
    bench/peers/run.py --json build/bench/peers.json
    bench/peers/run.py --gradients --json build/bench/peers-gradients.json
    bench/report.py build/bench

Only the first is needed; what else is there is taken.

Text between `<!-- begin NAME -->` and `<!-- end -->` is replaced; pictures go to docs/images. Needs
Python's standard library alone. `make performance` does all of it.
"""

import argparse
import json
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURES = ("roofline", "cost-T", "cost-d", "cost-H", "cost-threads")
HEBBIAN = ("retnet", "gla", "mamba2", "linear_attention")
SCAN = ("hgrn", "rg_lru", "lru", "mamba")


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
            return "Not measured."
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


def goals(bench, avx2):
    """Every goal with what must be reached, what is aimed at (if more), and what was measured."""
    rows = []

    def add(work, must, aim, measured, unit="%", least=True):
        if measured is None:
            verdict, shown = "no engine yet", "-"
        else:
            better = (lambda goal: measured >= goal) if least else (lambda goal: measured <= goal)
            verdict = "must" if better(must) else "missed"
            verdict = "aim" if aim is not None and better(aim) else verdict
            shown = f"{measured:.1f} {unit}" if unit == "%" else f"{measured:.2f} {unit}"
        further = "" if aim is None else f"{aim} {unit}"
        rows.append([work, f"{must} {unit}", further, shown, verdict])

    delta = "gated_deltanet"
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
    add(f"bfloat16 inputs, {delta}, d = 128: times float32", 1.0, 0.7, bf16, "x", least=False)
    for layer in SCAN:
        share = bench.cell("prefill", layer, 128, "of limit")
        add(f"scan, {layer}, d = 128: of the limit that binds", 50, 80, share)
    for d in (128, 64) if avx2 is not None else ():
        work = f"prefill by AVX2, {delta}, d = {d}: of the FMA peak of AVX2"
        add(work, 55, None, avx2.of_peak(delta, d))
    return markdown(["work", "must", "aim", "measured", "reached"], rows, text=(0, 4))


def about(bench):
    a = bench.json["about"]
    options = " ".join(f"--{n} {a[n]}" for n in ("tokens", "heads", "threads", "repeats"))
    return (
        f"{a['processor']}, target {a['target']}, ttr {a['version']}. Unless said otherwise "
        f"T = {a['tokens']}, H = {a['heads']}, {a['threads']} thread(s), medians of {a['repeats']} "
        f"interleaved runs:\n\n    ttr bench {options} --out build/bench\n"
    )


def peers(path):
    """One line a layer and d: ttr's time, then every peer's and its ratio to ttr's."""
    if not path.exists():
        return "Not measured."
    run = json.loads(path.read_text())
    a = run["about"]
    options = "".join(f" --{n} {a[n]}" for n in ("tokens", "heads", "threads", "rounds"))
    options += " --peers " + " ".join(a["peers"])
    options += "".join(f" --{n}" for n in ("unlock", "gradients", "compile") if a[n])
    worst = max(row.get("error", 0) for row in run["rows"])
    note = f"{a['processor']}; ns a token and head, times ttr (range); greatest error {worst:.0e}:"
    note += f"\n\n    bench/peers/run.py{options}\n\n"

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


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="what `ttr bench --out` wrote")
    parser.add_argument("--document", type=pathlib.Path, default=ROOT / "docs/performance.md")
    options = parser.parse_args()
    bench = Bench(options.folder / "bench.json")
    tables = ("limits", "prefill", "decode", "train", "threads", "bf16")
    parts = {name: bench.table(name) for name in tables}
    parts["about"] = about(bench)
    other = options.folder / "AVX2/bench.json"
    parts["goals"] = goals(bench, Bench(other) if other.exists() else None)
    for name in ("peers", "peers-unlocked", "peers-gradients"):
        parts[name] = peers(options.folder / f"{name}.json")

    def fill(found):
        if found[1] not in parts:
            sys.exit(f"report.py: '{found[1]}' is none of {', '.join(sorted(parts))}")
        return f"<!-- begin {found[1]} -->\n{parts[found[1]]}\n<!-- end -->"

    text = options.document.read_text()
    text = re.sub(r"<!-- begin ([a-z0-9-]+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)
    options.document.write_text(text)
    images = options.document.parent / "images"
    images.mkdir(exist_ok=True)
    for picture in PICTURES:
        source = options.folder / f"{picture}.svg"
        if source.exists():
            shutil.copyfile(source, images / source.name)


if __name__ == "__main__":
    main()
