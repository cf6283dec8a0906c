"""`fathom check`: a table per op and data type, filters, formats, exit codes."""

import csv
import io
import signal
import subprocess

from _cli import ARGUMENTS, CliTest, main

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

    def test_csv_is_a_row_per_op(self):
        """Also where parts of kernels are tested before the ops; --ops: a row per op and case."""
        rows = list(csv.DictReader(io.StringIO(self.run_fathom("check", "--dtype", "f32", *REFERENCE, "-o", "csv").stdout)))
        self.assertGreater(len(rows), 30)
        self.assertEqual(set(rows[0]), {"kind", "dtype", "cases", "worst_error", "tolerance", "counts", "status"})
        rows = list(csv.DictReader(io.StringIO(self.run_fathom("check", "select", "--dtype", "f32", *REFERENCE, "--ops", "-o", "csv").stdout)))
        self.assertGreater(len(rows), 10)
        self.assertEqual(set(rows[0]), {"kind", "dtype", "case", "ops", "worst_error", "status"})

    def started(self, *arguments):
        return subprocess.Popen([ARGUMENTS.fathom, "check", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def test_the_first_line_comes_at_once(self):
        for form, first in (("table", b"The reference backend"), ("md", b"# The reference backend"), ("csv", b"kind,dtype,cases"), ("json", b"{"), ("html", b"<!")):
            program = self.started(*REFERENCE, "-o", form)
            line = program.stdout.readline()
            program.send_signal(signal.SIGINT)  # what is interrupted was not at its end
            rest = program.communicate(timeout=60)[0]
            self.assertEqual(program.returncode, 130, form)
            self.assertTrue(line.startswith(first), (form, line))
            self.assertNotEqual(rest[:len(line)], line, form)  # nor written twice

    def test_a_reader_that_has_gone_ends_the_check(self):
        if "not available" in self.run_fathom("check", "select", "--dtype", "f32", code=None).stderr:
            self.skipTest("no CPU backend in this build")
        program = self.started("gemm", "--tolerance", "0", "--ops")
        program.stdout.read(1)
        program.stdout.close()
        self.assertEqual(program.wait(timeout=60), 0)  # at its end it would have found differences: exit code 1

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
