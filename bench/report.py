#!/usr/bin/env python3
"""Writes docs/performance/*.md, the whole tables, and the marked regions of docs/performance.md.

    ttr bench --out build/bench
    TTR_TARGET=AVX2 ttr bench gated_deltanet --measure limits prefill --out build/bench/AVX2
    bench/peers/run.py --json build/bench/peers.json
    bench/peers/run.py --gradients --json build/bench/peers-gradients.json
    bench/peers/run.py --layers rls weighted_rls mesa --unlock --compile \\
        --json build/bench/peers-least-squares.json
    bench/peers/run.py --layers rls weighted_rls mesa --unlock --compile --gradients \\
        --json build/bench/peers-least-squares-gradients.json
    bench/report.py build/bench

Only the first is needed; what else is there is taken.

reporting/pages.py says what is in which file; a file whose regions were not measured stays as it is. In
docs/performance.md text between `<!-- begin NAME -->` and `<!-- end -->` is replaced. Pictures go to
docs/images. With `--pages NAME...` these files alone are written: a region that was measured on another
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


def write_regions(regions, document, only=None):
    """The marked regions of `document`, or the one called `only`."""

    def fill(found):
        if only is not None and found[1] != only:
            return found[0]
        if found[1] not in regions:
            sys.exit(f"report.py: '{found[1]}' is none of {', '.join(sorted(regions))}")
        return f"<!-- begin {found[1]} -->\n{regions[found[1]]}\n<!-- end -->"

    text = document.read_text()
    text = re.sub(r"<!-- begin ([a-z0-9-]+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)
    document.write_text(text)


def write_pages(regions, names, folder):
    """Those of `names` whose regions were measured."""
    folder.mkdir(exist_ok=True)
    for name, page in pages(regions).items():
        if name in names:
            (folder / f"{name}.md").write_text(page)


def copy_pictures(source, images):
    images.mkdir(exist_ok=True)
    for picture in PICTURES:
        file = source / f"{picture}.svg"
        if file.exists():
            shutil.copyfile(file, images / file.name)


def regions_of(folder):
    """Every region of the pages as Markdown, by name."""
    bench = Bench(folder / "bench.json")
    regions = {name: bench.table(name) for name in TABLES}
    regions["pairs-decode"] = bench.table("pairs_decode")
    regions["least-squares"] = bench.table("least_squares")
    if (folder / "least-squares.svg").exists():
        picture = "![Least squares beside the delta rule](../images/least-squares.svg)"
        regions["least-squares"] += f"\n\n{picture}"
    regions["least-squares-decode"] = bench.table("least_squares_decode")
    others = [folder / f"peers-least-squares{n}.json" for n in ("", "-gradients")]
    for path in others:
        regions[path.stem] = least_squares_peers(path)
    rows = [least_squares_rows(path) for path in others]
    regions["least-squares-goals"] = least_squares_goals(bench, *rows)
    regions["about"] = about(bench)
    other = folder / "AVX2/bench.json"
    regions["goals"] = goals(bench, Bench(other) if other.exists() else None).table()
    for name in ("peers", "peers-unlocked", "peers-gradients"):
        regions[name] = peers(folder / f"{name}.json")
    regions["summary"] = summary(bench)
    return regions


def machine_regions(folder, file, name):
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
    regions = regions_of(options.folder)
    file = options.document.with_suffix("") / "machines.json"
    regions |= machine_regions(options.folder, file, options.machine)
    names = PAGES if options.pages is None else ["machines", *options.pages]
    write_pages(regions, names, options.document.with_suffix(""))
    write_regions(regions, options.document, only=None if options.pages is None else "machines")
    if options.pages is None:
        copy_pictures(options.folder, options.document.parent / "images")


if __name__ == "__main__":
    main()
