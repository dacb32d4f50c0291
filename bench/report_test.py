#!/usr/bin/env python3
"""report.py on made-up measurements: what is measured is written, what is not is left alone."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

REPORT = pathlib.Path(__file__).with_name("report.py")
DOCUMENT = "# Page\n\n<!-- begin about -->\n<!-- end -->\ntext\n<!-- begin summary -->\nold\n<!-- end -->\n"


def table(*rows):
    columns = [{"name": n, "unit": "ns" if n == "time" else ""} for n in rows[0]]
    return {"columns": columns, "rows": list(rows)}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.document = self.folder / "page.md"
        self.document.write_text(DOCUMENT)

    def run_on(self, bench, *options):
        about = {"version": "1", "processor": "P", "target": "T", "quietness": "Quiet."}
        about |= {"tokens": 8, "heads": 2, "threads": 1, "repeats": 3}
        (self.folder / "bench.json").write_text(json.dumps({"about": about, **bench}))
        call = [sys.executable, REPORT, self.folder, "--document", self.document, *options]
        return subprocess.run(call, capture_output=True, text=True)

    def prefill(self):
        row = {"layer": "retnet", "engine": "fast_weights", "d": 64, "time": 12.5}
        slow = row | {"layer": "softmax", "engine": "definition", "time": 1e6}
        return {"prefill": table(row, slow), "limits": table({"limit": "fma", "value": 100.0})}

    def test_tables_and_regions(self):
        done = self.run_on(self.prefill())
        self.assertEqual(done.returncode, 0, done.stderr)
        page = (self.folder / "page/prefill.md").read_text()
        self.assertIn("| layer | engine | d | time (ns) |", page)
        self.assertIn("| retnet | fast_weights | 64 | 12 |", page)
        self.assertIn("P, target T", page)
        self.assertNotRegex(page, r"\{[a-z0-9-]+\}")
        text = self.document.read_text()
        self.assertIn("\ntext\n", text)
        self.assertIn("| retnet | fast_weights | 12 |", text)
        self.assertNotIn("softmax", text)  # the definition is no measure of speed
        self.assertNotIn("old", text)
        self.assertEqual(self.run_on(self.prefill()).returncode, 0)
        self.assertEqual(self.document.read_text(), text)

    def test_pages_that_are_named_are_written_alone(self):
        bench = self.prefill() | {"pairs": table({"memory": "softmax", "d": 64, "time": 3.0})}
        self.assertEqual(self.run_on(bench, "--pages", "pairs", "decode").returncode, 0)
        self.assertEqual([file.name for file in (self.folder / "page").iterdir()], ["pairs.md"])
        self.assertIn("| softmax | 64 | 3.00 |", (self.folder / "page/pairs.md").read_text())
        self.assertEqual(self.document.read_text(), DOCUMENT)

    def test_every_machine_keeps_its_column(self):
        row = {"layer": "gated_deltanet", "engine": "fast_weights", "d": 64, "useful": 50.0}
        limits = table({"limit": "fused multiply-adds, float32", "value": 100.0, "unit": "GFLOP/s"})
        pairs = table({"memory": "softmax", "d": 64, "of peak": 43.2})
        self.document.write_text(DOCUMENT + "<!-- begin machines -->\n<!-- end -->\n")
        first = self.run_on({"prefill": table(row), "limits": limits, "pairs": pairs})
        self.assertEqual(first.returncode, 0, first.stderr)
        other = {"prefill": table(row | {"useful": 80.0}), "limits": limits}
        self.assertEqual(self.run_on(other, "--machine", "Q", "--pages", "prefill").returncode, 0)
        self.assertEqual(self.run_on(other).returncode, 0)  # without pairs, which stay
        page = (self.folder / "page/machines.md").read_text()
        self.assertIn("| work | P, T | Q |", page)
        self.assertIn("| prefill, gated_deltanet, d = 64: of the FMA peak | 80.0 % | 80.0 % |", page)
        self.assertIn("| softmax, d = 64: of the FMA peak | 43 % |  |", page)
        self.assertIn("| multiply-adds, float32, one thread | 100 GFLOP/s |", page)
        self.assertIn("| softmax, d = 64: of the FMA peak | 43 % |  |", self.document.read_text())

    def test_what_was_not_measured_stays(self):
        (self.folder / "page").mkdir()
        kept = self.folder / "page/decode.md"
        kept.write_text("of another day")
        self.assertEqual(self.run_on(self.prefill()).returncode, 0)
        self.assertEqual(kept.read_text(), "of another day")
        self.assertFalse((self.folder / "page/peers.md").exists())

    def test_an_unknown_region_is_an_error(self):
        self.document.write_text("<!-- begin nothing -->\n<!-- end -->")
        done = self.run_on(self.prefill())
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("'nothing' is none of", done.stderr)


if __name__ == "__main__":
    unittest.main()
