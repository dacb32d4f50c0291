"""bench.json as Markdown tables."""

import json

NOT_MEASURED = "Not measured."


def markdown(head, rows, text=(0,)):
    """A table; the columns of `text` stand at the left, the others, numbers, at the right."""
    lines = [head, ["---" if c in text else "---:" for c in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


class Bench:
    """bench.json, by measurement, layer and d."""

    def __init__(self, path):
        self.json = json.loads(path.read_text())

    def rows(self, measurement):
        return self.json.get(measurement, {}).get("rows", [])

    def cell(self, measurement, layer, d, column):
        """A number, or None where it was not measured or no engine runs the layer."""
        for row in self.rows(measurement):
            if (row["layer"], row["d"]) == (layer, d):
                return None if row["engine"] == "definition" else row.get(column)
        return None

    def of_peak(self, layer, d):
        useful = self.cell("prefill", layer, d, "useful")
        peak = self.rows("limits")[0]["value"] * self.json["about"]["threads"]
        return None if useful is None else 100 * useful / peak

    def ratio(self, measurement, layer, other, d, column):
        top, bottom = self.cell(measurement, layer, d, column), self.cell(measurement, other, d, column)
        return None if top is None or bottom is None else top / bottom

    def table(self, measurement):
        """The measurement's table as `ttr bench` shows it."""
        found = self.json.get(measurement)
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


def about(bench):
    a = bench.json["about"]
    options = " ".join(f"--{n} {a[n]}" for n in ("tokens", "heads", "threads", "repeats"))
    return (
        f"{a['processor']}, target {a['target']}, ttr {a['version']}. Unless said otherwise "
        f"T = {a['tokens']}, H = {a['heads']}, {a['threads']} thread(s), medians of {a['repeats']} "
        f"interleaved runs:\n\n    ttr bench {options} --out build/bench\n\n{a.get('quietness', '')}\n"
    )


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
        cells = [show(bench.cell(measurement, row["layer"], d, column)) for measurement, column, _ in columns]
        lines.append([row["layer"], row["engine"], *cells])
    if not lines:
        return NOT_MEASURED
    heads = ["layer", "engine", f"prefill, d = {d} (ns)", *(head for *_, head in columns[1:])]
    return markdown(heads, lines, text=(0, 1))
