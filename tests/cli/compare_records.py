"""fathom compare A.json B.json --fail-on ...: formats, conditions, exit codes."""

import csv
import io
import json
import math
import re
import statistics

from _cli import ARGUMENTS, CliTest, main

MACHINE = "tests/golden/data/machine.ini"


def grade(row):
    """The side of its interval on which a measurement lies; other verdicts stay."""
    if row.get("verdict") in ("within", "fast", "slow") and row.get("measured_s"):
        low, high = row.get("predicted_lo_s"), row.get("predicted_hi_s")
        if low is None and high is None:
            low, high = 0.9 * row["predicted_s"], 1.1 * row["predicted_s"]
        row["verdict"] = "fast" if row["measured_s"] < (low or 0) else "slow" if high is not None and row["measured_s"] > high else "within"


def settle(record):
    """Sets what follows from other figures to what now follows: a record that contradicts itself is refused."""
    for result in record["results"]:
        totals, scenario, ops = result["totals"], result["scenario"], result["ops"]
        samples = sorted(totals["samples_s"])
        totals["measured_s"] = totals["p50_s"] = statistics.median(samples)
        totals["min_s"] = samples[0]
        for key, share in (("p95_s", 0.95), ("p99_s", 0.99)):
            at = share * (len(samples) - 1)
            low, high = samples[int(at)], samples[min(int(at) + 1, len(samples) - 1)]
            totals[key] = low + (high - low) * (at - int(at))
        tokens = scenario["batch"] * scenario["seq"]
        totals["tokens_per_s"] = tokens / totals["measured_s"]
        totals["predicted_tokens_per_s"] = tokens / totals["predicted_s"]
        totals["normalised_s"] = sum(op["measured_s"] for op in ops if op.get("measured_s"))
        for row in [totals, *ops]:
            if row.get("measured_s") and row.get("predicted_s"):
                for key, value in (("time_ratio", row["measured_s"] / row["predicted_s"]), ("error", row["predicted_s"] / row["measured_s"] - 1)):
                    if row.get(key) is not None:
                        row[key] = value
            if row.get("achieved_flops_per_s"):
                row["achieved_flops_per_s"] = row.get("flops_expected", row["flops_matmul"]) / row["measured_s"]
            if row.get("achieved_bytes_per_s"):
                row["achieved_bytes_per_s"] = (row["bytes_read"] + row["bytes_written"]) / row["measured_s"]
            if row.get("share") is not None:
                row["share"] = row["measured_s"] / totals["normalised_s"]
            grade(row)
        errors = [abs(op["error"]) for op in ops if op.get("error") is not None and op["verdict"] not in ("noisy", "too-short", "skipped")]
        if errors:
            totals["mape"], totals["median_error"] = statistics.mean(errors), statistics.median(errors)
    routed, dense = (result["totals"] for result in record["results"])
    for key, time in (("predicted_ratio", "predicted_s"), ("measured_ratio", "measured_s")):
        routed[key] = routed[time] / dense[time]
    routed["ratio_noise"] = math.hypot(routed["noise"], dense["noise"])
    routed["realised"] = (1 - routed["measured_ratio"]) / (1 - routed["flops_ratio"])


class CompareRecords(CliTest):
    def setUp(self):
        super().setUp()
        self.run_fathom("compare", "mod-60m", "dense-60m", "--backend", "fake", "--on", ARGUMENTS.source / MACHINE, "--rounds", "5", "--threads", "2", "--save", "a.json", "-q")
        self.record = json.loads((self.folder / "a.json").read_text())

    def changed(self, times=1.0, index=0, **totals):
        record = json.loads(json.dumps(self.record))
        result = record["results"][index]
        result["totals"]["samples_s"] = [seconds * times for seconds in result["totals"]["samples_s"]]
        result["totals"].update(totals)
        if "predicted_s" in totals:
            result["totals"].update(compute_s=totals["predicted_s"], memory_s=0, launch_s=0)
        for op in result["ops"]:
            if op.get("measured_s"):
                op["measured_s"] *= times
        settle(record)
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

    def test_narrow_tables_keep_what_they_are_asked_for(self):
        self.changed(1.08)
        for width in (80, 60, 40):
            lines = self.run_fathom("compare", "a.json", "b.json", "--width", width).stdout.splitlines()
            head = lines[lines.index("Changes") + 1].split()
            for word in ("model", "figure", "change", "judgement"):
                self.assertIn(word, head, width)
        for width in (100, 60, 40):  # of a run: the parts have their names
            lines = self.run_fathom("compare", "mod-60m", "--with-twin", "--backend", "fake", "--on", ARGUMENTS.source / MACHINE, "--rounds", "5", "--ops", "--width", width).stdout.splitlines()
            at = next(i for i, line in enumerate(lines) if line.startswith("By part"))
            self.assertIn("part", lines[at + 1].split(), width)
            self.assertIn("predicted", lines[at + 1], width)
            self.assertTrue(any("projections" in line for line in lines[at:]), width)

    def test_equal_times_are_the_same(self):
        self.changed()
        shown = self.run_fathom("compare", "a.json", "b.json").stdout
        self.assertIn(": the same.", " ".join(shown.split()))
        self.assertNotIn("0.00 %.", shown)

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

    # Figures that follow from nothing else in the record: only their range is checked.
    FREE = {"params_total", "kv_bytes", "kv_bytes_per_token", "peak_bytes", "arena_bytes", "light_s", "peak_flops_per_s", "peak_bytes_per_s", "times", "rows_declared", "rows_executed", "noise", "min_s", "p95_s",
            "rounds_s", "threads"}

    def test_an_edited_figure_is_refused(self):
        def places(value, path):
            for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
                if isinstance(each, (int, float)) and not isinstance(each, bool) and abs(each) > 1e-6:  # smaller ones are what is left of equal numbers
                    yield [*path, key]
                yield from places(each, [*path, key])

        seen, free = set(), set()
        for path in places(self.record["results"], ["results"]):
            name = "/".join("*" if isinstance(step, int) else step for step in path)
            if name in seen:
                continue
            seen.add(name)
            record = json.loads(json.dumps(self.record))
            place = record
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] *= 3
            self.write("edited.json", json.dumps(record))
            result = self.run_fathom("report", "edited.json", code=None)
            self.assertIn(result.code, (0, 3), str(result))
            if result.code == 0:
                free.add(next(step for step in reversed(path) if isinstance(step, str)))
                continue
            self.assertRegex(result.stderr, r"edited\.json: /results/\d+/\S+: is .*(expected|cannot|at most)")
            self.assertEqual(self.run_fathom("compare", "a.json", "edited.json", code=3).stderr, result.stderr)
        self.assertEqual(free - self.FREE, set())
        self.assertGreater(len(seen), 40)

    def test_an_emptied_record_is_refused(self):
        for change, words in ((lambda r: r.update(results=[]), "/results: is an empty list"), (lambda r: r["results"][0].update(ops=[]), "/results/0/ops: is an empty list"),
                              (lambda r: r["results"][0].update(totals={}), "/results/0/totals/flops_matmul: is missing"), (lambda r: r["results"][1].pop("ops"), "/results/1/ops: is missing"),
                              (lambda r: r.update(schema=99), 'schema: is 99, and this program reads "fathom-record-1" only')):
            record = json.loads(json.dumps(self.record))
            change(record)
            self.write("b.json", json.dumps(record))
            self.refuses(3, ["b.json", words], "report", "b.json")
            self.refuses(3, ["b.json", words], "compare", "a.json", "b.json")

    def test_formats(self):
        self.changed(1.08)
        rows = list(csv.DictReader(io.StringIO(self.run_fathom("compare", "a.json", "b.json", "-o", "csv").stdout)))
        self.assertEqual([(r["model"], r["figure"], r["judgement"]) for r in rows],
                         [("mod-60m", "measured_s", "slower"), ("mod-60m", "predicted_s", "same"), ("dense-60m", "measured_s", "same"), ("dense-60m", "predicted_s", "same")])
        self.assertAlmostEqual(float(rows[0]["change"]), 0.08)
        tables = self.json("compare", "a.json", "b.json", "--ops", "-o", "json")["tables"]
        self.assertEqual(len(tables["changes"]), 4)
        self.assertTrue(all(row["model"].startswith("mod-60m, prefill, batch 1") or row["model"].startswith("dense-60m") for row in tables["ops"]))
        # For people a configuration is named once, not in every row.
        self.run_fathom("compare", "mod-tiny", "--backend", "fake", "--on", ARGUMENTS.source / "tests/golden/data/machine.ini", "--save", "one.json")
        text = self.run_fathom("compare", "one.json", "one.json", "--ops", "--width", "110").stdout
        self.assertEqual(text.split("Ops of ")[1].count("prefill, batch 1"), 1)
        self.assertIn("noise", text.split("Ops of ")[1].split("\u2500")[0])
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

    def test_what_is_absent_is_said(self):
        machine = ["--on", ARGUMENTS.source / MACHINE]
        for models in (["dense-60m"], ["mod-60m"]):
            self.refuses(3, "no realised fraction: add the dense twin", "compare", *models, "--backend", "fake", *machine, "--fail-on", "realised=50%")
        generate = ["--phase", "generate", "--prompt", "8", "--tokens", "4", "--rounds", "5"]
        self.run_fathom("compare", "mod-tiny", *generate, "--backend", "reference", *machine, "--fail-on", "error=1000000%")

    def test_a_time_that_is_gone_is_missing(self):
        record = json.loads(json.dumps(self.record))
        for result in record["results"]:
            kept = ("params_", "flops_matmul", "flops_expected", "elements_", "bytes_", "kv_", "weight_", "peak_bytes", "predicted_s", "predicted_lo", "predicted_hi")
            result["totals"] = {key: value for key, value in result["totals"].items() if key.startswith(kept) and not key.startswith("peak_bytes_")}
            result["ops"] = [{key: value for key, value in op.items() if key in ("path", "kind", "part", "pass", "shape", "times", "flops_matmul", "flops_expected", "elements_vector", "bytes_read", "bytes_written")}
                             for op in result["ops"]]
        self.write("b.json", json.dumps(record))
        for condition in ("missing", "undecided"):
            result = self.fails(condition)
            self.assertIn(f"{condition}: mod-60m, prefill, batch 1, seq 2048, f32: the new record has no measured_s", result.stderr)
            self.assertIn("only in a.json", result.stdout)
        self.assertIn("has no error: it was not measured", self.fails("error=5%").stderr)
        self.fails("slower=5%", "counts", code=0)

    def test_a_generation_is_repeated(self):
        """Several times the same tokens: samples and spread of the whole; the page says which predictor, and which figures are of a token."""
        generate = ["mod-tiny", "--phase", "generate", "--prompt", "8", "--tokens", "6"]
        totals = self.json("run", *generate, "--backend", "reference", "--rounds", "3", "-o", "json")["totals"]
        self.assertEqual(totals["samples"], 3)
        self.assertGreaterEqual(totals["spread"], 0)
        self.assertGreater(totals["measured_s"], totals["ttft_s"])
        self.assertNotIn("spread", self.json("run", *generate, "--backend", "reference", "--rounds", "1", "-o", "json")["totals"])
        page = re.sub(r"\s+", " ", self.run_fathom("predict", *generate, "--seq", "32", "--on", "h200", "--width", "140").stdout)
        self.assertIn("predictor calibrated", page)
        self.assertIn("prompt 8, tokens 6", page)
        self.assertNotIn("seq 8", page)
        self.assertIn("pred. p50 of a token", page)
        self.assertRegex(page, r"predicted time per token [0-9.]+ .?s from the first to the last")
        rows = list(csv.DictReader(io.StringIO(self.run_fathom("predict", "mod-tiny", "--phase", "generate", "--prompt", "8,16", "--tokens", "6", "--on", "h200", "-o", "csv").stdout)))
        self.assertEqual([row["prompt"] for row in rows], ["8", "16"])

    def test_generations_are_predicted_by_default(self):
        totals = self.json("predict", "mod-60m", "--phase", "generate", "--prompt", "64", "--tokens", "8", "--on", "h200", "-o", "json")["totals"]
        self.assertGreater(totals["predicted_tpot_s"], 0)


if __name__ == "__main__":
    main()
