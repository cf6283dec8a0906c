"""Formats: what each command's help offers works, and what it refuses says what works. Asked of every command, so that help, completion and refusals cannot drift apart."""

import json
import re
import xml.etree.ElementTree

from _cli import ARGUMENTS, CliTest, main, parse_json

MACHINE = "tests/golden/data/machine.ini"
PLOTS = ("svg", "gp")  # png needs gnuplot: tests/cli/report_content.py
PAGES = ["table", "md", "csv", "json", "html"]
FILES = ["md", "csv", "json", "html", "txt"]
NEVER = ("docx", "pdf", "yaml", "")


class Formats(CliTest):
    def setUp(self):
        super().setUp()
        fake = ("--backend", "fake", "--rounds", "2", "--threads", "2", "--on", ARGUMENTS.source / MACHINE)
        self.run_fathom("compare", "mod-tiny", *fake, "--save", "r.json", "-q")
        # One cheap call of each command that prints a document or a record.
        self.calls = {
            "count": ("mod-tiny",), "predict": ("mod-tiny", "--on", ARGUMENTS.source / MACHINE, "--threads", "2"), "run": ("mod-tiny", "--backend", "fake", "--rounds", "2"), "compare": ("mod-tiny", *fake),
            "list": ("machines",), "explain": ("realised",), "trace": ("mod-tiny", "--backend", "reference", "--text", "ab"), "report": ("r.json",), "audit": ("--seq", "64"),
            "plan": ("dense-60m", "--budget", "6e18"), "check": ("select", "--backend", "reference", "--dtype", "f32"), "validate": ("--quick", *fake),
            "sweep": ("mod-tiny", "--batch", "1,2"), "calibrate": None, "completion": None,
        }

    def offered(self, command):
        """The words of the help of -o, and the endings of that of --save."""
        page = re.sub(r"\s+", " ", self.run_fathom(command, "--help-all", env={"COLUMNS": "100"}).stdout)
        output = re.search(r"-o,--output F (.*?) --save", page).group(1)
        save = re.search(r"--save FILE (.*?) --ops", page).group(1)
        return set(re.findall(r"\b(table|md|csv|jsonl|json|html)\b", re.sub(r"\[.*?\]", "", output))), set(re.findall(r"\.([a-z]+)\b", save))

    def check(self, format_, text):
        if format_ in ("json",):
            parse_json(text)
        elif format_ == "jsonl":
            for line in text.splitlines():
                json.loads(line)
        elif format_ == "csv":
            rows = text.rstrip("\n").split("\n")
            self.assertGreater(len(rows), 1, text)
            self.assertGreater(rows[0].count(","), 0, text)
            self.assertRegex(rows[0], r"^[\w,]+$")  # a header of keys, and no page
        elif format_ == "html":
            self.assertTrue(text.startswith("<!DOCTYPE html>"))
        elif format_ == "md":
            self.assertRegex(text, r"(?m)^# |^\|")
        elif format_ == "svg":
            xml.etree.ElementTree.fromstring(text)
        else:
            self.assertTrue(text.strip())

    def test_all_commands_are_here(self):
        self.assertEqual(set(re.findall(r"(?m)^  ([a-z]+)  ", self.run_fathom("--help").stdout)), set(self.calls))

    def test_every_offered_format_works(self):
        for command, call in self.calls.items():
            if call is None or command == "sweep":
                continue
            formats, files = self.offered(command)
            self.assertEqual(formats, set(PAGES), command)
            for format_ in PAGES[:-1]:  # that script of HTML may say NaN is checked with the files
                self.check(format_, self.run_fathom(command, *call, "-o", format_, "-q").stdout)
            plots = PLOTS if "svg" in files else ()
            self.assertEqual(files - {"svg", "png", "gp"}, set(FILES), command)
            saves = [word for ending in (*FILES, *plots) for word in ("--save", f"{command}.{ending}")]
            self.run_fathom(command, *call, *saves, "-q")
            for ending in FILES:
                self.check(ending, (self.folder / f"{command}.{ending}").read_text())
            for ending in plots:
                drawn = list((self.folder / f"{command}_plots").glob(f"*.{ending}"))
                self.assertTrue(drawn, command)
                for file in drawn:
                    self.check(ending, file.read_text())

    def test_every_refusal_says_what_works(self):
        for command, call in self.calls.items():
            if command == "completion":
                continue
            call = call or ()
            formats, files = self.offered(command)
            for ending in NEVER if "svg" in files else (*NEVER, "svg", "png", "gp"):
                error = self.refuses(3, "--save", command, *call, "--save", f"x.{ending}").stderr
                for offered in files - {"svg", "png", "gp"}:
                    self.assertIn(f".{offered}", error, command)
                self.assertEqual("plots" in error, "svg" in files, error)
            error = self.refuses(3, "-o: unknown output format 'docx'", command, *call, "-o", "docx").stderr
            for offered in formats:
                self.assertIn(offered, error.split("hint")[1], command)

    def test_what_is_completed_is_what_is_offered(self):
        script = self.run_fathom("completion", "fish").stdout
        for command in self.calls:
            if command != "completion":
                words = re.search(rf"__fish_seen_subcommand_from {command}' -l output -s o .* -x -a '(.*)'", script).group(1)
                self.assertEqual(set(words.split()), self.offered(command)[0], command)

    def test_a_sweep(self):
        """Rows are streamed to one file; tables of a front are pages."""
        self.assertEqual(self.offered("sweep")[0], {"csv", "jsonl", *PAGES})
        rows, front = ("sweep", "mod-tiny", "--batch", "1,2"), ("sweep", "mod-tiny", "--batch", "1,2", "--pareto", "flops,max:params")
        for format_ in ("csv", "jsonl"):
            self.check(format_, self.run_fathom(*rows, "-o", format_).stdout)
            self.run_fathom(*rows, "--save", f"rows.{format_}")
            self.check(format_, (self.folder / f"rows.{format_}").read_text())
        for format_ in PAGES[:-1]:
            self.check(format_, self.run_fathom(*front, "-o", format_, "-q").stdout)
        saves = ("md", "json", "html", "txt")
        self.run_fathom(*front, *(word for ending in saves for word in ("--save", f"front.{ending}")), "--save", "all.csv", "-q")
        for ending in saves:
            self.check(ending, (self.folder / f"front.{ending}").read_text())
        self.assertEqual(len((self.folder / "all.csv").read_text().splitlines()), 3)  # all rows, not the front alone
        for ending in saves:
            self.refuses(3, [".csv or .jsonl", "--pareto and --top"], *rows, "--save", f"x.{ending}")
            self.assertFalse((self.folder / f"x.{ending}").exists())
        for format_ in ("md", "json", "html"):
            self.refuses(3, ["csv or jsonl", "table, md, csv, json or html"], *rows, "-o", format_)
        self.refuses(3, "--save FILE.jsonl", *front, "-o", "jsonl")
        self.refuses(2, ["rows to one file", "a.csv", "b.jsonl"], *rows, "--save", "a.csv", "--save", "b.jsonl")
        self.assertFalse((self.folder / "a.csv").exists())

    def test_a_sweep_says_where_its_rows_are(self):
        rows = ("sweep", "mod-tiny", "--batch", "1:40", "--save", "rows.csv")
        self.assertRegex(self.run_fathom(*rows).stderr, r"^fathom: 40 rows in rows\.csv, [\d.]+ [nmu]?s \([\d.]+ ?[kM]? per second\)\n$")
        whole = (self.folder / "rows.csv").read_text()
        self.write("rows.csv", "".join(whole.splitlines(True)[:31]))  # the header and thirty
        self.assertRegex(self.run_fathom(*rows, "--resume").stderr, r"fathom: 40 rows in rows\.csv, 10 of them now, ")
        self.assertEqual((self.folder / "rows.csv").read_text(), whole)
        quiet = self.run_fathom(*rows, "-q")
        self.assertEqual((quiet.stdout, quiet.stderr), ("", ""))

    def test_a_machine_file_has_the_ending_of_its_kind(self):
        self.refuses(3, ["NAME.ini", "x.gpu"], "calibrate", "--save", "x.gpu")
        self.refuses(3, ["NAME.gpu", "x.ini"], "calibrate", "--from-table", "missing.csv", "--save", "x.ini")

    def test_an_explanation_is_data(self):
        rows = self.run_fathom("explain", "realised", "-o", "csv").stdout.splitlines()
        self.assertEqual(rows[0], "section,name,value,status")
        self.assertTrue(any(row.startswith("realised,formula,(1 - measured_ratio) / (1 - flops_ratio)") for row in rows), rows)
        made = self.json("explain", "realised", "-o", "json")
        self.assertEqual(made["facts"]["formula"], "(1 - measured_ratio) / (1 - flops_ratio)")
        self.assertIn("time saved over FLOPs saved", made["text"][0])
        ops = self.json("explain", "attn/core", "mod-tiny", "-o", "json")["sections"]  # one per op of that name
        self.assertEqual([section["heading"].split("/")[1] for section in ops], ["dense", "mod"])
        self.assertTrue(all("FLOP" in section["facts"] for section in ops))


if __name__ == "__main__":
    main()
