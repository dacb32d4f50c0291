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

reporting/pages.py says what is in which file; a file whose parts were not measured stays as it is. In
docs/performance.md text between `<!-- begin NAME -->` and `<!-- end -->` is replaced. Pictures go to
docs/images. With `--pages NAME...` these files alone are written: a part that was measured on another
machine may stand beside the rest. The column of this machine in the table of machines (machines.json, machines.md,
the region machines) is written always. Needs Python's standard library alone. `make performance` does all of it.
"""

import argparse
import pathlib
import re
import shutil
import sys

from reporting import machines
from reporting.goals import goals, least_squares_goals
from reporting.pages import PAGES, pages
from reporting.peers import least_squares_peers, least_squares_rows, peers
from reporting.tables import Bench, about, summary

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURES = ("roofline", "least-squares", "cost-T", "cost-d", "cost-H", "cost-threads")
PEER_RUNS = {"": "", "-gradients": ", with backward"}
TABLES = ("limits", "prefill", "decode", "train", "threads", "bf16", "operators", "pairs",
          "networks")


def write_regions(parts, document, only=None):
    """The marked regions of `document`, or the one called `only`."""

    def fill(found):
        if only is not None and found[1] != only:
            return found[0]
        if found[1] not in parts:
            sys.exit(f"report.py: '{found[1]}' is none of {', '.join(sorted(parts))}")
        return f"<!-- begin {found[1]} -->\n{parts[found[1]]}\n<!-- end -->"

    text = document.read_text()
    text = re.sub(r"<!-- begin ([a-z0-9-]+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)
    document.write_text(text)


def write_pages(parts, names, folder):
    """Those of `names` whose parts were measured."""
    folder.mkdir(exist_ok=True)
    for name, page in pages(parts).items():
        if name in names:
            (folder / f"{name}.md").write_text(page)


def copy_pictures(source, images):
    images.mkdir(exist_ok=True)
    for picture in PICTURES:
        file = source / f"{picture}.svg"
        if file.exists():
            shutil.copyfile(file, images / file.name)


def parts_of(folder):
    """Every part of the pages as Markdown, by name."""
    bench = Bench(folder / "bench.json")
    parts = {name: bench.table(name) for name in TABLES}
    parts["pairs-decode"] = bench.table("pairs_decode")
    parts["least-squares"] = bench.table("least_squares")
    if (folder / "least-squares.svg").exists():
        picture = "![Least squares beside the delta rule](../images/least-squares.svg)"
        parts["least-squares"] += f"\n\n{picture}"
    parts["least-squares-decode"] = bench.table("least_squares_decode")
    others = [folder / f"peers-least-squares{n}.json" for n in ("", "-gradients")]
    for path in others:
        parts[path.stem] = least_squares_peers(path)
    rows = [least_squares_rows(path) for path in others]
    parts["least-squares-goals"] = least_squares_goals(bench, *rows)
    parts["about"] = about(bench)
    other = folder / "AVX2/bench.json"
    parts["goals"] = goals(bench, Bench(other) if other.exists() else None).table()
    for name in ("peers", "peers-unlocked", "peers-gradients"):
        parts[name] = peers(folder / f"{name}.json")
    parts["summary"] = summary(bench)
    return parts


def machine_parts(folder, file, name):
    """The table of machines and its short form, with the column of this run."""
    bench, other = Bench(folder / "bench.json"), folder / "AVX2/bench.json"
    peer_files = {folder / f"peers{n}.json": what for n, what in PEER_RUNS.items()}
    works = machines.column(bench, Bench(other) if other.exists() else None, peer_files)
    about = bench.json["about"]
    found = machines.with_column(file, name or f"{about['processor']}, {about['target']}", works)
    return {"machines": machines.table(found, machines.SHORT), "all-machines": machines.table(found)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="what `ttr bench --out` wrote")
    parser.add_argument("--document", type=pathlib.Path, default=ROOT / "docs/performance.md")
    parser.add_argument("--machine", help="the column's name (default: processor and target)")
    parser.add_argument("--pages", nargs="+", choices=sorted(PAGES), help="write these alone")
    options = parser.parse_args()
    parts = parts_of(options.folder)
    file = options.document.with_suffix("") / "machines.json"
    parts |= machine_parts(options.folder, file, options.machine)
    names = PAGES if options.pages is None else ["machines", *options.pages]
    write_pages(parts, names, options.document.with_suffix(""))
    write_regions(parts, options.document, only=None if options.pages is None else "machines")
    if options.pages is None:
        copy_pictures(options.folder, options.document.parent / "images")


if __name__ == "__main__":
    main()
