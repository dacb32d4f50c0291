"""What must be reached, what is aimed at, and what was measured."""

from .tables import markdown

HEBBIAN = ("retnet", "gla", "mamba2", "linear_attention")
SCAN = ("hgrn", "rg_lru", "lru", "mamba")
EXACT = ("rls", "weighted_rls", "mesa{decay: none}")  # tokens share a factor


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
    return found


def least_squares_goals(bench, forward, gradients):
    """Goals of least squares; `forward` and `gradients` are the rows of the peers."""
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
