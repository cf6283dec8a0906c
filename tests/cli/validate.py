"""`fathom validate`: predictions are on disk before anything runs, once, and tables say nothing that there is not. The fake backend repeats predictions, so every error is 0."""

import csv
import io
import re

from _cli import ARGUMENTS, CliTest, main, parse_json


class Validate(CliTest):
    def validate(self, *arguments, machine="tests/golden/data/machine.ini"):
        return self.run_fathom("validate", "--quick", "--backend", "fake", "--rounds", "2", "--threads", "2", "--on", ARGUMENTS.source / machine, *arguments)

    def test_predictions_are_kept_once(self):
        told = self.validate("--save", "a.md", "--save", "b.json").stderr
        self.assertEqual([path.name for path in self.folder.iterdir() if "predicted" in path.name], ["a.md.predicted.json"])
        self.assertIn("a.md.predicted.json", told)
        self.assertIn("a.md.predicted.json", (self.folder / "a.md").read_text())
        kept = parse_json((self.folder / "a.md.predicted.json").read_text())
        self.assertGreater(len(kept["configurations"]), 5)
        self.assertTrue(all(each["predicted_s"] > 0 for each in kept["configurations"]))
        self.assertEqual(self.validate("--save", "a.md", "-q").stderr, "")
        self.validate("-q")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["a.md", "a.md.predicted.json", "b.json"])

    def test_a_predictor_without_intervals_has_no_share_in_them(self):
        page = self.validate("--predictor", "roofline", "-o", "md").stdout
        self.assertNotIn("| in interval |", page)
        self.assertEqual(page.count("No share is in an interval: the roofline predictor gives none."), 2)  # of steps and of ops
        self.assertIn("| in interval |", self.validate("-o", "md", machine="reports/samples/validation_epyc_machine.ini").stdout)

    def test_what_is_nothing_but_rounding_is_zero(self):
        rows = list(csv.DictReader(io.StringIO(self.validate("--predictor", "roofline", "-o", "csv").stdout)))
        # End to end the fake backend takes what was predicted; op by op it was predicted otherwise.
        whole = [row for row in rows if "end to end" in row["stratum"]]
        self.assertEqual(len(whole), 1)
        for column in ("mape", "median", "p90", "max", "bias", "log2", "wape"):
            self.assertEqual(float(whole[0][column]), 0, column)
        self.assertNotRegex(self.validate("--predictor", "roofline", "-o", "md").stdout, r"\de-\d\d")

    def test_ops_are_the_rows_that_the_classes_count(self):
        rows = list(csv.DictReader(io.StringIO(self.validate("--ops", "-o", "csv", "-q").stdout)))
        record = parse_json(self.validate("--ops", "-o", "json", "-q").stdout)["tables"]
        self.assertEqual([(row["label"], row["op"]) for row in rows], [(row["label"], row["op"]) for row in record["ops"]])
        self.assertEqual(len({row["label"] for row in rows}), len(record["configurations"]))
        for stratum in record["classes"]:
            mine = [row for row in rows if row["class"] == stratum["stratum"] and row["dropped"] != "calibration point"]
            if mine:
                self.assertEqual((sum(row["dropped"] == "" for row in mine), sum(row["dropped"] != "" for row in mine)), (stratum["graded"], stratum["dropped"]), stratum["stratum"])
        self.assertEqual(record["classes"][0]["graded"], sum(row["dropped"] == "" for row in rows))
        self.assertGreater(record["classes"][0]["graded"], 100)
        self.assertNotIn("ops", parse_json(self.validate("-o", "json", "-q").stdout)["tables"])

    def test_the_result_is_one_sentence(self):
        page = " ".join(self.validate("-o", "md").stdout.split())
        self.assertRegex(page, r"Result: mean .{1,2}error.{1,2} of a step .*, over \d+ of \d+ configurations\.")
        pairs = parse_json(self.validate("-o", "json", "-q").stdout)["tables"]["pairs"]
        self.assertTrue(pairs and all(row["verdict"] == "graded" and row["ratio_noise"] < 1e-9 for row in pairs))

    def test_the_page_stands_alone(self):
        page = self.validate("-o", "md").stdout
        for words in ("Asked: set ", "## Machine and run", "### Reproduce", "fathom validate --quick"):
            self.assertIn(words, page)
        self.assertNotRegex(page, r"\b(?:machine_hash|predicted_at|measured_at|foreign_cpu)\b")
        self.assertTrue(re.search(r"\d+ of \d+ configurations executed", page))


if __name__ == "__main__":
    main()
