"""What a report of a run holds, in every format: what was asked, the result, tables by part and op, plots, routing, notes, glossary."""

import csv
import io
import json
import re
import shutil
import statistics
import unittest

from _cli import ARGUMENTS, CliTest, main, parse_json
from _record import record_errors

FAKE = ["--backend", "fake", "--rounds", "5", "--threads", "2"]


class ReportContent(CliTest):
    def setUp(self):
        super().setUp()
        self.machine = ["--on", ARGUMENTS.source / "tests/golden/data/machine.ini"]

    def saved(self, *names):
        return [word for name in names for word in ("--save", name)]

    def test_a_pair_of_twins(self):
        self.run_fathom("compare", "mod-60m", "dense-60m", *FAKE, *self.machine, *self.saved("r.md", "r.html", "r.csv", "r.json"), "-q")
        for name in ("r.md", "r.html"):
            text = (self.folder / name).read_text()
            for words in ("Asked: prefill, batch 1, seq 2,048, dtype f32", "convention exact", "of the FLOPs of its dense twin", "Against the dense twin", "By part of the model",
                          "Predicted against measured, per op", "Roofline", "Where the time goes", "Ops of mod-60m", "Ops of dense-60m", "Machine and run", "Reproduce", "Columns"):
                self.assertIn(words, text, name)
        plots = {path.name for path in (self.folder / "r_plots").iterdir()}
        self.assertEqual(plots, {"predicted-measured.svg", "roofline.svg", "where-the-time-goes.svg"})
        for plot in plots:
            self.assertIn(f"](r_plots/{plot})", (self.folder / "r.md").read_text())
        # A report has several plots, so FILE.svg is a folder of them: which is said, unless quiet.
        for quiet in ((), ("-q",)):
            talk = self.run_fathom("report", "r.json", "--save", "again/roof.svg", *quiet).stderr
            self.assertEqual("again/roof_plots/*.svg" in talk, not quiet)
        self.assertFalse((self.folder / "again/roof.svg").exists())
        self.assertIn("ceiling: memory, then compute", (self.folder / "r_plots/roofline.svg").read_text())
        rows = list(csv.DictReader((self.folder / "r.csv").open()))
        self.assertEqual([row["model"] for row in rows], ["mod-60m", "dense-60m"])
        for key in ("flops_matmul", "predicted_s", "measured_s", "peak_flops_per_s", "peak_bytes_per_s"):
            self.assertGreater(float(rows[0][key]), 0, key)
        self.assertEqual(record_errors(ARGUMENTS.source, parse_json((self.folder / "r.json").read_text())), [])

    def test_pages_fit_a_page(self):
        """Tables of Markdown: at most eleven columns, no number apart from its unit, and what is left out is named and can be asked for."""
        self.run_fathom("compare", "mod-60m", "dense-60m", *FAKE, *self.machine, *self.saved("r.md", "r.json"), "-q")
        text = (self.folder / "r.md").read_text()
        tables = re.findall(r"(?m)^(\|.*\|)\n\|[-:|]+\|\n((?:\|.*\n)+)", text)
        self.assertGreater(len(tables), 8)
        for head, rows in tables:
            self.assertLessEqual(head.count("|"), 12, head)
            if not head.strip("| "):  # facts and no table of figures
                continue
            self.assertIsNone(re.search(r"\d (?:[kMGT]?(?:B|FLOP|tokens|FLOP/s)|[munp]?s|%) \|", rows), rows)
        for words in ("| op | predicted | measured, op by op | error | of peak | verdict |", "Not shown: kind, part, ", "`--columns all`", "**Not graded, and why**", "**Distribution of times**"):
            self.assertIn(words, text)
        everything = self.run_fathom("report", "r.json", "--ops", "-o", "md", "--columns", "all").stdout
        for words in ("| kind |", "| light |", "| samples |", "| implementation |"):
            self.assertIn(words, everything)
        self.assertNotIn("Not shown", everything)

    def test_columns_are_chosen(self):
        self.run_fathom("compare", "mod-tiny", *FAKE, *self.machine, *self.saved("r.json"), "-q")
        report = ("report", "r.json", "--columns", "measured_s,p95_s", "--columns", "flops_matmul")
        self.assertIn("| model | measured | p95 | matmul FLOP |", self.run_fathom(*report, "-o", "md").stdout)
        self.assertIn("| op | measured, op by op | p95 | matmul FLOP |", self.run_fathom(*report, "-o", "md", "--ops").stdout)
        self.assertEqual(self.run_fathom(*report, "-o", "csv").stdout.split("\n")[0], "measured_s,p95_s,flops_matmul,status")
        self.assertIn("nothing here has a figure for dram_ratio (ops have more: --ops)", re.sub(r"\s+", " ", self.run_fathom("report", "r.json", "--columns", "dram_ratio").stdout))
        self.refuses(3, "did you mean 'measured_s'?", "report", "r.json", "--columns", "measurd_s")

    def test_headings_are_columns(self):
        self.run_fathom("compare", "mod-tiny", *FAKE, *self.machine, *self.saved("r.json"), "-q")
        self.assertIn("| model | predicted | of peak | p50 |", self.run_fathom("report", "r.json", "--columns", "predicted,of peak,p50", "-o", "md").stdout)
        self.refuses(3, "--columns: unknown column 'predictd'", "report", "r.json", "--columns", "predictd")
        for topic in ("normalised", "A/A noise", "noisy", "slow"):
            self.assertIn("where", self.run_fathom("explain", topic).stdout)
        self.assertIn("above 4 % of an op or 2.5 % of a step", re.sub(r"\s+", " ", self.run_fathom("explain", "verdict").stdout))

    def test_a_quantity_has_one_heading(self):
        """The step as it ran is `measured`, its parts are `measured, op by op` and add up to `normalised`; the median is said once, except beside the percentiles of a decode step."""
        for phase, percentiles in (("prefill", False), ("decode", True)):
            self.run_fathom("compare", "mod-60m", "--phase", phase, *FAKE, *self.machine, *self.saved("r.md", "r.csv"), "-q")
            text = (self.folder / "r.md").read_text()
            self.assertIn("| part | predicted, op by op | measured, op by op | share |", text)
            self.assertIn("These times add up to `normalised`", text)
            self.assertEqual("| p50 |" in text, percentiles, phase)
            self.assertTrue(all(head.count("|") <= 12 for head in re.findall(r"(?m)^(\|.*\|)\n\|[-:|]+\|$", text)))
            self.assertIn("p50_s", (self.folder / "r.csv").read_text())

    def test_a_run_alone_has_a_result(self):
        text = self.run_fathom("run", "mod-tiny", "--backend", "fake", "--rounds", "5", "-q").stdout
        self.assertRegex(text, r"mod-tiny: measured [\d.]+ [mu]s, spread [\d.]+ %, 5 samples, [\d.]+ [kM]?tokens/s\.")

    def test_pages_without_a_record_stand_alone(self):
        """What was asked, the command, the program; of a front also what its rows have in common."""
        front = ("sweep", "mod-tiny", "dense-60m", "--batch", "1:8:x2", "--pareto", "flops,max:params")
        for arguments in (("audit",), ("plan", "dense-60m", "--budget", "6e18"), ("trace", "demo-8x12", "--text", "routed depth", "--backend", "reference"), front):
            pages = [self.run_fathom(*arguments, "-o", "md", "-q").stdout]
            self.run_fathom(*arguments, *self.saved("page.html"), "-q")
            pages.append((self.folder / "page.html").read_text())
            for text in pages:
                for words in ("Asked: ", "Machine and run", "made by", "Reproduce", f"fathom {arguments[0]} "):
                    self.assertIn(words, text, arguments)
            self.assertNotIn("Reproduce", self.run_fathom(*arguments, "-o", "csv", "-q").stdout)

    def test_pages_of_words_and_maps(self):
        """A table of words is no scroller that hides its end; a legend names only what is drawn; wall-clocks of a plan have one unit."""
        self.run_fathom("audit", *self.saved("a.html"))
        self.assertIn('<div class="scroll prose"><table class="sortable prose" id="t-claims">', (self.folder / "a.html").read_text())
        for model, full in (("demo-8x12", False), ("mod-tiny", True)):  # every block of the demo is routed, every second of the other
            self.run_fathom("trace", model, "--text", "routed depth", "--backend", "reference", *self.saved("t.html", "t.txt", "t.gp"), "-q")
            for page in (self.folder / "t.html", self.folder / "t.txt", *(self.folder / "t_plots").glob("routing-map*.gp")):
                self.assertEqual("full block" in page.read_text(), full, page)
        plan = self.run_fathom("plan", "--on", "h200", "--predictor", "roofline", "-o", "md").stdout
        self.assertEqual(len(set(re.findall(r"(?m)[\d.,]+\u00a0(s|min|h|d) \|$", plan))), 1)

    def test_single_samples(self):
        """Every pass and every round of every op: the medians are those of the record, and reading and writing keep them."""
        record = self.json("run", "mod-tiny", "--backend", "reference", "--rounds", "5", "--seq", "32", "-o", "json", "-q")
        self.assertEqual(record_errors(ARGUMENTS.source, record), [])
        totals = record["totals"]
        self.assertEqual(len(totals["samples_s"]), totals["samples"])
        self.assertAlmostEqual(statistics.median(totals["samples_s"]), totals["measured_s"])
        self.assertAlmostEqual(min(totals["samples_s"]), totals["min_s"])
        timed = [op for op in record["ops"] if op["measured_s"] is not None]
        self.assertTrue(timed)
        self.assertEqual({len(op["rounds_s"]) for op in timed}, {5})
        self.write("r.json", json.dumps(record))
        again = self.json("report", "r.json", "-o", "json")
        self.assertEqual(again["totals"]["samples_s"], totals["samples_s"])
        self.assertEqual([op.get("rounds_s") for op in again["ops"]], [op.get("rounds_s") for op in record["ops"]])
        for plant in ([-1.0], ["1"], 3):
            record["totals"]["samples_s"] = plant
            self.assertNotEqual(record_errors(ARGUMENTS.source, record), [], plant)

    def test_the_prediction_of_an_op_lies_in_its_interval(self):
        record = self.json("compare", "mod-60m", "--backend", "fake", "--rounds", "3", "--on", ARGUMENTS.source / "reports/samples/validation_epyc_machine.ini", "-o", "json")
        ops = {op["path"]: op for op in record["ops"] if op.get("predicted_lo_s") is not None}
        self.assertGreater(len(ops), 10)
        for path, op in ops.items():
            self.assertLessEqual(op["predicted_lo_s"], op["predicted_s"], path)
            self.assertLessEqual(op["predicted_s"], op["predicted_hi_s"], path)
        # The ends are shares of the prediction that depend on the class alone. Two norms of one size differ in what they find in the caches.
        one, two = (ops[f"layers.*/dense/{name}"] for name in ("norm1", "norm2"))
        self.assertAlmostEqual(one["predicted_lo_s"] / one["predicted_s"], two["predicted_lo_s"] / two["predicted_s"])

    def test_records_that_are_stored_can_be_read(self):
        for sample in sorted((ARGUMENTS.source / "reports/samples").glob("compare*.json")):
            self.assertIn("Against the dense twin", self.run_fathom("report", sample).stdout)

    def test_rows_say_where_they_come_from(self):
        run = ("run", "mod-tiny", "--backend", "reference", "--rounds", "2", "--seq", "16", "-q")
        self.run_fathom(*run, *self.saved("a.json", "a.csv"))
        row = next(csv.DictReader(io.StringIO((self.folder / "a.csv").read_text())))
        record = parse_json((self.folder / "a.json").read_text())
        self.assertEqual("fathom " + row["fathom_version"], record["version"])
        self.assertEqual((row["started"], row["cpu"], row["cores"], row["threads"]), (record["started"], record["environment"]["cpu"], str(record["environment"]["cores"]), "1"))
        self.assertEqual(list(row)[-5:], ["fathom_version", "started", "cpu", "cores", "status"])
        # Rows of two machines in one file: each keeps its own.
        record["environment"]["cpu"], record["started"], record["version"] = "another, CPU", "2020-01-02T03:04:05Z", "fathom 0.0.1"
        self.write("b.json", json.dumps(record))
        for ops in ((), ("--ops",)):
            rows = list(csv.DictReader(io.StringIO(self.run_fathom("report", "a.json", "b.json", "-o", "csv", *ops).stdout)))
            self.assertEqual([rows[0]["cpu"], rows[-1]["cpu"]], [row["cpu"], "another, CPU"])
            self.assertEqual((rows[-1]["started"], rows[-1]["fathom_version"]), ("2020-01-02T03:04:05Z", "0.0.1"))

    def test_any_two_models_have_ratios(self):
        both = self.json("compare", "dense-60m", "mod-tiny", "--seq", "128", *FAKE, *self.machine, "-o", "json")
        first, second = (result["totals"] for result in both["results"])
        self.assertEqual(record_errors(ARGUMENTS.source, both), [])
        self.assertNotIn("relative_to", first)
        self.assertEqual(second["relative_to"], "dense-60m")
        self.assertNotIn("realised", second)
        for ratio, key in (("relative_flops", "flops_matmul"), ("relative_predicted", "predicted_s"), ("relative_measured", "measured_s")):
            self.assertAlmostEqual(second[ratio], second[key] / first[key])
        text = self.run_fathom("count", "mod-60m", "dense-60m", "dense-120m", "--seq", "256", "-o", "md").stdout
        self.assertIn("`dense-120m` against `mod-60m`: ", text)
        self.assertNotIn("`dense-60m` against", text)  # its twin: the ratio has a table of its own
        text = self.run_fathom("count", "gpt2-124m", "llama-3-8b").stdout
        self.assertIn("llama-3-8b: no ratio to gpt2-124m: seq 1,024 and 2,048", re.sub(r"\s+", " ", text))
        self.assertNotIn("against", text.split("Reproduce")[0].replace("Against", "against").replace("against the", ""))

    def test_parts_are_grouped_when_there_are_more_than_colours(self):
        self.run_fathom("compare", "mod-60m", "dense-60m", *FAKE, *self.machine, *self.saved("r.svg"), "-q")
        bars = (self.folder / "r_plots/where-the-time-goes.svg").read_text()
        self.assertIn("other", bars)
        self.assertIn("ffn", bars)

    def test_parts_have_the_same_colour_in_every_report(self):
        def colours(*arguments):
            self.run_fathom("compare", *arguments, *FAKE, *self.machine, *self.saved("c.svg"), "-q")
            bars = (self.folder / "c_plots/where-the-time-goes.svg").read_text()
            legend = bars.split('class="g"')[0]  # the grid lines come behind it
            return dict(re.findall(r'class="f (c\w)"/>\n(?:<path[^>]*class="ht"/>\n)?<text[^>]*>([\w ]+)</text>', legend)[i][::-1] for i in range(legend.count('width="12"')))

        dense, routed, train = colours("dense-60m"), colours("mod-60m", "dense-60m"), colours("mod-tiny", "--phase", "train")
        self.assertEqual(routed["ffn"], "c2")
        for each in (routed, train):
            for part in dense.keys() & each.keys():
                self.assertEqual(each[part], dense[part], part)
        self.assertGreater(len(dense.keys() & routed.keys() & train.keys()), 3)

    def test_notes_name_their_configurations_once(self):
        self.run_fathom("compare", "mod-60m", "--phase", "decode", "--batch", "1,2,4", *FAKE, *self.machine, *self.saved("n.md"), "-q")
        notes = re.findall(r"(?m)^> (?!\[)(.*)$", (self.folder / "n.md").read_text())
        self.assertEqual(len(notes), len(set(notes)))
        self.assertEqual(sum("without its dense twin" in note for note in notes), 1)
        graded = [note for note in notes if " graded" in note]
        self.assertTrue(graded)
        for note in graded:
            self.assertRegex(note, r"^`mod-60m`(, batch [\d /]+)?: ")
        # Sixteen of them are one note with ranges, and name whom they are of.
        self.run_fathom("compare", "mod-60m", "dense-60m", "--phase", "decode", "--batch", "1:128:x2", *FAKE, *self.machine, *self.saved("n.md"), "-q")
        many = re.findall(r"(?m)^> (.* graded.*)$", (self.folder / "n.md").read_text())
        self.assertLess(len(many), 5)

    def test_the_last_line_says_who_was_faster(self):
        """Of a run and of a comparison, on a terminal last, on a page with the result; ratios of medians."""
        for command in (("run", "mod-60m", "dense-60m", "--backend", "fake", "--rounds", "3"), ("compare", "mod-60m", "dense-60m", *FAKE, *self.machine)):
            text = self.run_fathom(*command, "-q", *self.saved("f.json", "f.md")).stdout
            times = {result["model"]: result["totals"]["measured_s"] for result in parse_json((self.folder / "f.json").read_text())["results"]}
            last = text.rstrip("\n").split("\n")[-1]
            fast, slow = sorted(times, key=times.get)  # the fake backend without a prediction takes what it likes
            found = re.fullmatch(rf"{fast} ran ([\d.]+) times faster than {slow}\.", last)
            self.assertTrue(found, last)
            self.assertAlmostEqual(float(found.group(1)), times[slow] / times[fast], delta=0.006)
            self.assertIn(f"`{fast}` ran ", (self.folder / "f.md").read_text().split("**Configurations**")[0])
        self.assertNotIn("times faster", self.run_fathom("run", "mod-60m", "--backend", "fake", "--rounds", "2").stdout)

    def test_no_key_of_a_machine_stands_on_a_page(self):
        """Facts are words with units; the keys are those of JSON."""
        self.run_fathom("run", "mod-tiny", "--backend", "reference", "--rounds", "2", "--seq", "16", *self.saved("k.md", "k.html", "k.json"), "-q")
        environment = parse_json((self.folder / "k.json").read_text())["environment"]
        keys = [key for key in environment if "_" in key]
        self.assertGreater(len(keys), 3)
        for page in ("k.md", "k.html"):
            text = (self.folder / page).read_text()
            for key in keys:
                self.assertNotIn(key, text, page)
        self.assertRegex((self.folder / "k.md").read_text(), r"\| memory \| [\d.]+ GB \(")

    def test_a_timeline_says_what_lies_between_the_ops(self):
        text = self.run_fathom("trace", "mod-tiny", "--backend", "reference", "--seq", "16", "--timeline", "t.json", "--on", ARGUMENTS.source / "tests/golden/data/machine.ini").stdout
        step = re.sub(r"\s+", " ", text)
        self.assertRegex(step, r"was predicted to take [0-9.]+ \S+ \((roofline|calibrated)\) and took")
        scale = {"us": 1e-6, "ms": 1e-3, "s": 1}
        whole, ops, rest = (float(value) * scale[unit] for value, unit in re.findall(r"([0-9.]+) ([mu]?s)(?= in one pass| in its ops| between them)", step))
        self.assertAlmostEqual(whole, ops + rest, delta=0.01 * whole)

    def test_a_generation_shows_where_the_prompt_ends(self):
        command = ("trace", "mod-tiny", "--backend", "reference", "--phase", "generate", "--text", "routed depth", "--tokens", "5")
        record = self.json(*command, "-o", "json")
        self.assertEqual((record["routing"]["prompt"], record["routing"]["tokens"]), (12, 16))
        rows = list(csv.DictReader(io.StringIO(self.run_fathom(*command, "-o", "csv").stdout)))
        self.assertEqual([row["generated"] for row in rows[:16]], ["0"] * 12 + ["1"] * 4)
        for width in ("40", "100"):
            text = self.run_fathom(*command, "--width", width).stdout
            self.assertIn("▲ from token 12 on: generated", text)
            row, mark = re.search(r"(?m)^(block 0 +\S+).*\n *(▲)$", text), re.search(r"(?m)^( *)▲$", text)
            self.assertEqual(len(mark.group(1)), len("block 0 ") + 12, text)
            self.assertTrue(row, text)
        self.run_fathom(*command, *self.saved("g.html", "g.md"), "-q")
        self.assertIn('class="cut"', (self.folder / "g.html").read_text())
        self.assertIn("Tokens 0 to 11 are the prompt", (self.folder / "g.md").read_text())
        self.assertNotIn("generated", self.run_fathom("trace", "mod-tiny", "--backend", "reference", "--text", "ab", "-o", "csv").stdout.split("\n")[0])

    def test_labels_keep_their_numbers_on_narrow_terminals(self):
        """Bins of the histogram and shares of the bars are whole at every width."""
        wide = self.run_fathom("trace", "demo-8x12", "--text", "routed depth", "--backend", "reference", "--width", "120").stdout
        bins = re.findall(r"(?m)^(-?[\d.e-]+ to -?[\d.e-]+)\b", wide)
        self.assertEqual(len(bins), 16)
        for width in ("20", "30", "40"):
            text = self.run_fathom("trace", "demo-8x12", "--text", "routed depth", "--backend", "reference", "--width", width).stdout
            flat = re.sub(r"\s+", " ", text)
            for label in bins:
                self.assertIn(label, flat, width)
            self.assertTrue(all(len(line) <= int(width) for line in text.split("Reproduce")[0].splitlines()), text)

    def test_decode_latency_against_batch(self):
        self.run_fathom("compare", "mod-tiny", "--phase", "decode", "--batch", "1,2,4", *FAKE, *self.machine, *self.saved("d.md"), "-q")
        text = (self.folder / "d.md").read_text()
        self.assertIn("Decode latency against batch", text)
        self.assertIn("batch 1 / 2 / 4", text)
        self.assertIn("mod-tiny, predicted", (self.folder / "d_plots/decode-batch.svg").read_text())

    def test_training_is_shown_by_pass(self):
        text = self.run_fathom("predict", "mod-tiny", "--phase", "train", "--on", "h200", "--ops", "-o", "md").stdout
        self.assertIn("By pass", text)
        for words in ("| forward |", "| backward |", "| optimizer |"):
            self.assertIn(words, text)

    def test_a_run_shows_which_token_took_which_block(self):
        self.run_fathom("run", "mod-tiny", "--backend", "reference", "--rounds", "2", "--seq", "32", *self.saved("t.json", "t.html", "t.md"), "-q")
        record = parse_json((self.folder / "t.json").read_text())
        self.assertEqual(record_errors(ARGUMENTS.source, record), [])
        routing = record["routing"]
        self.assertEqual(routing["tokens"], 32)
        self.assertEqual(len(routing["blocks"]), 4)
        routed = [block["taken"] for block in routing["blocks"] if "taken" in block]
        self.assertEqual([taken.count("1") for taken in routed], [8, 8])  # capacity 1/4 of 32
        self.assertEqual(sum(routing["weights"]["counts"]), 64)
        plots = {path.name for path in (self.folder / "t_plots").iterdir()}
        self.assertLessEqual({"routing-map.svg", "participation.svg", "router-weights.svg"}, plots)
        if shutil.which("gnuplot"):
            self.run_fathom("report", "t.json", "--save", "drawn.png", "-q")
            self.assertEqual({path.name for path in (self.folder / "drawn_plots").iterdir() if path.suffix == ".png"}, {plot.replace(".svg", ".png") for plot in plots})
        for name in ("t.html", "t.md"):
            for words in ("Which token took which block", "Participation per block", "Router weights"):
                self.assertIn(words, (self.folder / name).read_text(), name)
        again = self.run_fathom("report", "t.json", "-o", "md", "--ops").stdout
        self.assertIn("block 1", again)
        record["routing"]["blocks"][1]["taken"] = "01"
        self.write("bad.json", __import__("json").dumps(record))
        self.refuses(3, ["bad.json", "taken"], "report", "bad.json")

    def test_a_trace_is_data(self):
        record = self.json("trace", "mod-tiny", "--backend", "reference", "--text", "ab, 12", "--timeline", "t.json", *self.machine, "-o", "json")
        self.assertEqual(record_errors(ARGUMENTS.source, record), [])
        routing = record["routing"]
        self.assertEqual(routing["labels"], list("ab,␣12"))
        self.assertEqual([entry["name"] for entry in routing["classes"]], ["space", "digits", "letters", "punctuation"])
        for block in routing["blocks"]:
            self.assertEqual(len(block.get("weights", [])), 6 if "taken" in block else 0)
        taken = routing["blocks"][1]["taken"]
        self.assertEqual(routing["blocks"][1]["participation"], taken.count("1") / 6)
        self.assertAlmostEqual(sum(op["measured_s"] for op in record["ops"]), record["totals"]["measured_s"], delta=record["totals"]["measured_s"])
        self.assertTrue(record["totals"]["predicted_s"] > 0)
        self.write("trace.json", __import__("json").dumps(record))
        self.assertIn("Which token took which block", self.run_fathom("report", "trace.json").stdout)
        rows = list(__import__("csv").DictReader(self.run_fathom("trace", "mod-tiny", "--backend", "reference", "--text", "ab, 12", "-o", "csv").stdout.splitlines()))
        self.assertEqual(len(rows), 4 * 6)
        self.assertEqual("".join(row["taken"] for row in rows if row["block"] == "1"), taken)
        self.assertEqual([float(row["router_weight"]) for row in rows if row["block"] == "1"], routing["blocks"][1]["weights"])
        self.assertEqual({row["taken"] for row in rows if row["routed"] == "0"}, {"1"})
        text = self.run_fathom("trace", "mod-tiny", "--backend", "reference", "--text", "ab, 12").stdout
        self.assertIn("Router weights: log10 of (1 + n), n scores", text)
        self.assertRegex(text, r" n = \d+\n")

    def test_a_generation_is_traced(self):
        command = ("trace", "mod-tiny", "--backend", "reference", "--phase", "generate", "--text", "ab, 12", "--tokens", "5")
        record = self.json(*command, "--timeline", "t.json", *self.machine, "-o", "json")
        self.assertEqual(record_errors(ARGUMENTS.source, record), [])
        self.assertEqual([record["scenario"][key] for key in ("phase", "prompt", "tokens")], ["generate", 6, 5])
        routing = record["routing"]
        self.assertEqual(routing["labels"][:6], list("ab,␣12"))
        self.assertEqual([len(routing["labels"])] + [len(block["taken"]) for block in routing["blocks"] if "taken" in block], [10] * 3)  # the last token passes no block
        self.assertEqual(self.json(*command, "-o", "json")["routing"], routing)  # times do not change it
        for block in routing["blocks"]:  # one threshold for the prompt and what follows
            scores = {mark: [score for score, taken in zip(block.get("weights", []), block.get("taken", "")) if taken == mark] for mark in "01"}
            if scores["0"] and scores["1"]:
                self.assertGreater(min(scores["1"]), max(scores["0"]))
        events = [event for event in parse_json((self.folder / "t.json").read_text())["traceEvents"] if event["ph"] == "X"]
        measured = [event for event in events if event["pid"] == 2]
        names = [event["name"].split("/")[0] for event in measured]
        self.assertEqual(list(dict.fromkeys(names)), ["prompt", "token 2", "token 3", "token 4", "token 5"])
        self.assertEqual([event["name"] for event in events if event["pid"] == 1], [event["name"] for event in measured])
        for track in (1, 2):  # one after another
            ends = 0
            for event in (event for event in events if event["pid"] == track):
                self.assertGreaterEqual(event["ts"], ends - 1e-3)
                ends = event["ts"] + event["dur"]
        self.assertAlmostEqual(ends / 1e6, record["totals"]["measured_s"], delta=1e-8)
        # What the thresholds were set on: greedy tokens are their own sample, drawn ones are not, and a generation that decodes nothing says nothing.
        notes = " ".join(note["text"] for note in record["notes"])
        self.assertIn("with draws of their own", notes)
        self.assertNotIn("greedy ones", notes)
        self.assertIn("another --tokens may change which of its tokens take a block", notes)
        greedy = " ".join(note["text"] for note in self.json(*command, "--temperature", "0", "-o", "json")["notes"])
        self.assertIn("greedy ones are the run itself", greedy)
        self.assertNotIn("thresholds", str(self.json(*command[:-1], "1", "-o", "json")["notes"]))
        dense = self.json("trace", "dense-60m", "--phase", "generate", "--prompt", "4", "--tokens", "3", "-o", "json")
        self.assertEqual(dense["routing"]["tokens"], 6)
        self.assertIn("--ops changes nothing here", self.run_fathom(*command, "--ops").stdout)

    def test_token_classes_stand_in_the_trace(self):
        self.run_fathom("trace", "mod-tiny", "--backend", "reference", "--text", "ab, 12", *self.saved("c.md"))
        text = (self.folder / "c.md").read_text()
        self.assertIn("![Participation per token class, routed blocks](c_plots/participation-by-class.svg)", text)
        self.assertTrue((self.folder / "c_plots/participation-by-class.svg").exists())

    def test_many_records(self):
        for name, seq in (("a", "512"), ("b", "1024")):
            self.run_fathom("compare", "mod-60m", "--seq", seq, *FAKE, *self.machine, *self.saved(f"{name}.json"), "-q")
        for format_ in ("md", "html", "csv", "txt"):
            self.run_fathom("report", "a.json", "b.json", "--ops", "--save", f"both.{format_}")
            for name in ("a.json", "b.json"):
                self.assertIn(name, (self.folder / f"both.{format_}").read_text(), format_)
        both = self.json("report", "a.json", "b.json", "-o", "json")
        self.assertEqual([result["scenario"]["seq"] for result in both["results"]], [512, 1024])
        self.assertEqual(record_errors(ARGUMENTS.source, both), [])
        self.write("both.json", self.run_fathom("report", "a.json", "b.json", "-o", "json").stdout)
        self.assertIn("b.json", self.run_fathom("report", "both.json", "-o", "md", "--ops").stdout)

    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_plots_by_gnuplot(self):
        self.run_fathom("predict", "mod-60m", "--on", "h200", *self.saved("p.png", "p.gp"), "-q")
        self.assertTrue((self.folder / "p_plots/roofline.png").read_bytes().startswith(b"\x89PNG"))
        self.assertIn("set output", (self.folder / "p_plots/roofline.gp").read_text())
        self.refuses(3, "no plot", "list", "models", "--save", "x.svg")
        self.refuses(4, "gnuplot", "predict", "mod-60m", "--on", "h200", "--save", "p.png", env={"PATH": "/nowhere"})

    def test_a_saved_text_has_no_colour(self):
        self.run_fathom("count", "mod-tiny", "--color", "always", "--save", "x.txt")
        self.assertNotIn("\033", (self.folder / "x.txt").read_text())


if __name__ == "__main__":
    main()
