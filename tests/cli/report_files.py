"""The sample report, written by test_unit, read back by other programs: XML and HTML parsers, csv and JSON modules, gnuplot."""

import csv
import html.parser
import json
import re
import shutil
import subprocess
import unittest
import xml.etree.ElementTree as ET

from _cli import ARGUMENTS, main

VOID = {"meta", "br", "wbr", "input", "img", "hr", "link"}
SVG_EMPTY = {"line", "rect", "path", "circle"}


class Balanced(html.parser.HTMLParser):
    """Every element is closed in order; nothing refers outside the file."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.problems, self.tags, self.ids = [], [], {}, []

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href") and not value.startswith("#"):
                self.problems.append(f"<{tag} {name}={value}> loads something")
            if name.startswith("on"):
                self.problems.append(f"inline handler {name}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        if tag not in SVG_EMPTY:
            self.problems.append(f"self-closed <{tag}/>")
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.problems.append(f"</{tag}> closes {self.open[-3:]}")
        else:
            self.open.pop()


class ReportFiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = ARGUMENTS.binary / "tests" / "test_unit"
        if not program.exists():
            raise unittest.SkipTest("test_unit is not built")
        subprocess.run([program, "[report_files]"], check=True, stdout=subprocess.DEVNULL)
        cls.folder = ARGUMENTS.binary / "report_sample"

    def test_committed_records_are_read(self):
        records = [file for file in sorted((ARGUMENTS.source / "reports" / "samples").glob("*.json")) if '"schema": "fathom-record' in file.read_text()[:300]]
        self.assertGreaterEqual(len(records), 2)
        for file in records:
            done = subprocess.run([ARGUMENTS.fathom, "report", file, "-o", "csv"], capture_output=True, encoding="utf-8")
            self.assertEqual((done.returncode, done.stderr), (0, ""), file)

    def text(self, name):
        return (self.folder / name).read_bytes().decode("utf-8")  # strict: invalid UTF-8 fails

    def test_svg_is_well_formed_and_labelled(self):
        files = sorted((self.folder / "plots").glob("*.svg"))
        self.assertEqual(len(files), 6)
        for path in files:
            root = ET.fromstring(path.read_bytes())
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg", path)
            self.assertTrue(root.get("aria-label"), path)
            width, height = (float(x) for x in root.get("viewBox").split()[2:])
            words = ["".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")]
            self.assertGreater(len(words), 6, path)
            for element in root.iter():
                for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy"):
                    value = element.get(name)
                    if value is not None:
                        limit = width if "x" in name else height
                        self.assertTrue(-1 <= float(value) <= limit + 1, f"{path}: {element.tag} {name}={value} of {limit}")
        scatter = (self.folder / "plots" / "scatter.svg").read_text()
        for words in ("measured time", "predicted time", "predicted = measured", "within 10 %", "10 ms"):
            self.assertIn(words, scatter)

    def test_html_is_one_balanced_file(self):
        text = self.text("report.html")
        page = Balanced()
        page.feed(text)
        page.close()
        self.assertEqual(page.problems, [])
        self.assertEqual(page.open, [])
        self.assertEqual(len(page.ids), len(set(page.ids)))
        self.assertEqual(page.tags["table"], 3)
        self.assertGreaterEqual(page.tags["svg"], 12)
        self.assertNotRegex(text, r"https?://|@import|url\(")
        self.assertIn("prefers-color-scheme:dark", text)
        self.assertIn("example &lt;machine&gt; &amp; co", text)
        script = re.search(r"<script>(.*?)</script>", text, re.S).group(1)
        if shutil.which("node"):
            subprocess.run(["node", "--check", "-"], input=script, text=True, check=True)

    def test_csv_has_every_digit(self):
        raw = (self.folder / "ops.csv").read_bytes()
        self.assertEqual(raw.count(b"\n"), raw.count(b"\r\n"))
        rows = list(csv.DictReader(raw.decode("utf-8").splitlines()))
        self.assertEqual(len(rows), 6)  # the total is not a row
        self.assertEqual(rows[0]["flops_matmul"], "4076863488")
        self.assertEqual(float(rows[0]["predicted_s"]), 24.5e-3)
        self.assertEqual(rows[4]["measured_s"], "")
        self.assertEqual(rows[4]["status"], "measured_s: too short")

    def test_json_rows_equal_csv_rows(self):
        rows = json.loads(self.text("ops.json"))
        table = list(csv.DictReader((self.folder / "ops.csv").read_bytes().decode("utf-8").splitlines()))
        self.assertEqual(len(rows), len(table))
        for row, line in zip(rows, table):
            self.assertEqual(str(row["flops_matmul"]), line["flops_matmul"])
            self.assertEqual(row["predicted_s"], float(line["predicted_s"]))
        self.assertIsNone(rows[4]["measured_s"])
        self.assertEqual(rows[4]["status"], {"measured_s": "too short"})

    def test_text_fits(self):
        for name, width in (("report.txt", 100), ("narrow.txt", 40)):
            for line in self.text(name).splitlines():
                if "fathom compare" not in line:  # commands are not broken
                    wide = sum(2 if "\u2e80" <= c <= "\uffe0" and c != "\ufffd" else 1 for c in line)
                    self.assertLessEqual(wide, width, f"{name}: {line}")

    def test_markdown_tables_are_rectangular_and_images_exist(self):
        text = self.text("report.md")
        block = []
        for line in text.splitlines() + [""]:
            if line.startswith("|"):
                block.append(len(re.findall(r"(?<!\\)\|", line)))
            elif block:
                self.assertEqual(len(set(block)), 1, line)
                block = []
        images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
        self.assertEqual(len(images), 6)
        for image in images:
            self.assertTrue((self.folder / image).exists(), image)

    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_gnuplot_draws_the_scripts(self):
        for name in ("scatter", "decode", "time", "errors", "map"):
            for form in ("svg", "png"):
                done = subprocess.run(["gnuplot", "-e", f"format='{form}'", f"{name}.gp"], cwd=self.folder, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            output = re.search(r"(?m)^set output '([^']*)'", (self.folder / f"{name}.gp").read_text()).group(1)
            ET.parse(self.folder / f"{output}.svg")
            self.assertTrue((self.folder / f"{output}.png").read_bytes().startswith(b"\x89PNG"))


if __name__ == "__main__":
    main()
