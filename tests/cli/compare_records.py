"""fathom compare A.json B.json --fail-on ...: formats, conditions, exit codes."""

import csv
import io
import json

from _cli import ARGUMENTS, CliTest, main

MACHINE = "tests/golden/data/machine.ini"


class CompareRecords(CliTest):
    def setUp(self):
        super().setUp()
        self.run_fathom("compare", "mod-60m", "dense-60m", "--backend", "fake", "--on", ARGUMENTS.source / MACHINE, "--rounds", "5", "--threads", "2", "--save", "a.json", "-q")
        self.record = json.loads((self.folder / "a.json").read_text())

    def changed(self, times=1.0, index=0, **totals):
        record = json.loads(json.dumps(self.record))
        result = record["results"][index]
        result["totals"]["measured_s"] *= times
        result["totals"].update(totals)
        for op in result["ops"]:
            if op.get("measured_s"):
                op["measured_s"] *= times
        # What follows from the times follows from the new ones: a record that contradicts itself is refused.
        for figures in (result["totals"], *result["ops"]):
            if figures.get("measured_s") and figures.get("predicted_s"):
                ratio = figures["measured_s"] / figures["predicted_s"]
                for key, value in (("time_ratio", ratio), ("error", 1 / ratio - 1)):
                    if figures.get(key) is not None:
                        figures[key] = value
        self.write("b.json", json.dumps(record))

    def fails(self, *conditions, code=1):
        arguments = [word for condition in conditions for word in ("--fail-on", condition)]
        return self.run_fathom("compare", "a.json", "b.json", *arguments, code=code)

    def test_the_same_is_the_same(self):
        self.changed()
        for condition in ("slower=0%", "faster=0%", "op-slower=0%", "predicted=0%", "memory=0%", "counts", "missing", "undecided", "error=1%"):
            self.fails(condition, code=0)

    def test_slower(self):
        self.changed(1.08)
        result = self.fails("slower=5%")
        self.assertIn("slower=5%: mod-60m, prefill, batch 1, seq 2048, f32 is 8.0", result.stderr)
        self.assertIn("8.0 % slower", result.stdout)
        self.assertIn("8.0", self.fails("op-slower=5%").stderr)
        for condition in ("slower=9%", "faster=0%", "op-slower=10%"):
            self.fails(condition, code=0)
        self.assertIn("off by", self.fails("slower=20%", "error=5%").stderr)

    def test_noise_decides(self):
        self.changed(1.08, noise=0.2)
        self.fails("slower=5%", code=0)
        self.assertIn("cannot be told from noise", self.fails("undecided").stderr)
        self.changed(1.5, noise=0.2)
        self.fails("slower=5%")

    def test_other_conditions(self):
        self.changed(0.9)
        self.fails("faster=5%")
        self.changed(peak_bytes=self.record["results"][0]["totals"]["peak_bytes"] * 2)
        self.fails("memory=50%")
        self.fails("counts")
        self.fails("memory=101%", code=0)
        self.changed(predicted_s=self.record["results"][0]["totals"]["predicted_s"] * 1.02)
        self.fails("predicted=1%")
        record = json.loads(json.dumps(self.record))
        record["results"].pop()
        self.write("b.json", json.dumps(record))
        self.assertIn("dense-60m", self.fails("missing").stderr)

    def test_formats(self):
        self.changed(1.08)
        rows = list(csv.DictReader(io.StringIO(self.run_fathom("compare", "a.json", "b.json", "-o", "csv").stdout)))
        self.assertEqual([(r["model"], r["figure"], r["judgement"]) for r in rows],
                         [("mod-60m", "measured_s", "slower"), ("mod-60m", "predicted_s", "same"), ("dense-60m", "measured_s", "same"), ("dense-60m", "predicted_s", "same")])
        self.assertAlmostEqual(float(rows[0]["change"]), 0.08)
        tables = self.json("compare", "a.json", "b.json", "--ops", "-o", "json")["tables"]
        self.assertEqual(len(tables["changes"]), 4)
        self.assertIn("| mod-60m | prefill |", self.run_fathom("compare", "a.json", "b.json", "-o", "md", "--save", "d.html").stdout)
        self.assertIn("<table", (self.folder / "d.html").read_text())

    def test_refusals(self):
        self.changed()
        compare = ["compare", "a.json", "b.json"]
        self.refuses(3, "did you mean 'slower'?", *compare, "--fail-on", "slowr=5%")
        self.refuses(2, "slower=5%", *compare, "--fail-on", "slower")
        for text in ("slower=5", "slower=x%", "slower=", "slower=-1%", "counts=1%"):
            self.refuses(2, "", *compare, "--fail-on", text)
        self.refuses(3, "one run", *compare, "--fail-on", "noisy")
        self.refuses(3, "two records", "compare", "mod-tiny", "--backend", "fake", "--on", ARGUMENTS.source / MACHINE, "--fail-on", "slower=5%")
        self.refuses(3, "fathom report", "compare", "a.json")
        self.refuses(3, "mod-tiny", "compare", "a.json", "mod-tiny")
        self.run_fathom("count", "mod-tiny", "--save", "c.json")
        self.refuses(3, "no configuration in common", "compare", "a.json", "c.json")

    def test_a_run_can_fail_too(self):
        run = ["compare", "mod-60m", "dense-60m", "--backend", "fake", "--on", ARGUMENTS.source / MACHINE, "--rounds", "5", "--threads", "2"]
        self.run_fathom(*run, "--fail-on", "error=1%", "--fail-on", "noisy", "--fail-on", "faster-than-light", "--fail-on", "realised=50%")
        self.assertIn("realised=150%: mod-60m", self.run_fathom(*run, "--fail-on", "realised=150%", code=1).stderr)

    def test_generations_are_predicted_by_default(self):
        totals = self.json("predict", "mod-60m", "--phase", "generate", "--prompt", "64", "--tokens", "8", "--on", "h200", "-o", "json")["totals"]
        self.assertGreater(totals["predicted_tpot_s"], 0)


if __name__ == "__main__":
    main()
