"""`fathom check`: a table per op and data type, filters, formats, exit codes."""

import csv
import io

from _cli import CliTest, main

FEW = ["select", "gather_rows"]
REFERENCE = ["--backend", "reference"]


class Check(CliTest):
    def test_the_reference_is_its_own_yardstick(self):
        rows = self.json("check", *FEW, *REFERENCE, "-o", "json")["tables"]["check"]
        self.assertEqual({(row["kind"], row["dtype"]) for row in rows}, {(kind, dtype) for kind in FEW for dtype in ("f32", "bf16")})
        for row in rows:
            self.assertGreater(row["cases"], 50)
            self.assertEqual((row["worst_error"], row["counts"], row["status"]), (0, "equal", "ok"))

    def test_formats_hold_the_same_rows(self):
        table = list(csv.DictReader(io.StringIO(self.run_fathom("check", "select", *REFERENCE, "-o", "csv").stdout)))
        self.assertEqual([row["dtype"] for row in table], ["f32", "bf16"])
        self.assertIn("| select |", self.run_fathom("check", "select", *REFERENCE, "-o", "md").stdout)

    def test_every_case_is_listed_on_demand(self):
        tables = self.json("check", "select", *REFERENCE, "--dtype", "f32", "--ops", "-o", "json")["tables"]
        self.assertEqual(sum(row["ops"] for row in tables["cases"]), tables["check"][0]["cases"])
        names = " ".join(row["case"] for row in tables["cases"])
        for needed in ("equal scores", "tied scores", "nobody selected", "everyone selected", "1 x 33", "ragged caches"):
            self.assertIn(needed, names)

    def test_a_condition_that_fails_is_exit_1(self):
        done = self.run_fathom("check", "gemm", "--dtype", "f32", "--tolerance", "0", "-o", "md", code=None)
        if "not available" in done.stderr:
            self.skipTest("no CPU backend in this build")
        self.assertEqual(done.code, 1, done)
        self.assertIn("wrong", done.stdout)
        self.assertIn("values differ by", done.stdout)

    def test_mistakes_are_refused(self):
        self.refuses(3, "did you mean 'gemm'?", "check", "gem", *REFERENCE)
        self.refuses(3, "computes nothing", "check", "--backend", "fake")
        self.refuses(3, "f32 and bf16", "check", *REFERENCE, "--dtype", "i32")
        self.refuses(3, "not negative", "check", *REFERENCE, "--tolerance=-1")
        self.refuses(3, "unknown backend", "check", "--backend", "gpu")


if __name__ == "__main__":
    main()
