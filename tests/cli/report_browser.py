"""The HTML report in a real browser (Debian's chromium, headless): columns sort, frames switch, nothing loads, 390 px suffice."""

import html
import re
import shutil
import subprocess
import tempfile
import unittest

from _cli import ARGUMENTS, main

PROBE = """<script>(function(){
var log=[],table=document.querySelector("#t-ops"),heads=table.querySelectorAll("th button");
function order(column){return Array.prototype.map.call(table.tBodies[0].rows,function(r){return r.cells[column].textContent}).join("|")}
function press(column){heads[column].click();log.push(order(column))}
press(5);press(5);press(0);press(2);
log.push(table.tFoot.rows[0].cells[0].textContent);
function shown(){return Array.prototype.map.call(document.querySelectorAll(".frame"),function(f){return getComputedStyle(f).display}).join("|")}
log.push(shown());document.querySelectorAll(".frames input")[1].click();log.push(shown());
log.push(String(document.documentElement.scrollWidth<=document.documentElement.clientWidth));
log.push(String(performance.getEntriesByType("resource").length));
log.push(getComputedStyle(document.querySelector(".wide")).display+"|"+getComputedStyle(document.querySelector(".narrow")).display);
parent.postMessage(log.join("\\n"),"*");
})()</script>"""

# A table of parts of four configurations: names stand above the rows, until it is sorted.
GROUPED = """<script>(function(){
var log=[],table=document.querySelector("#t-by-part"),heads=table.querySelectorAll("thead th");
function visible(selector){return Array.prototype.filter.call(table.querySelectorAll(selector),function(e){return e.offsetParent!==null}).length}
function state(){log.push([table.querySelectorAll("tr.group").length,visible("tr.group th"),visible("td.gc"),visible("tr.total"),table.tBodies[0].rows.length].join("|"))}
state();
log.push(Array.prototype.map.call(table.querySelectorAll("tr.group"),function(r){return r.textContent}).join("|"));
var key=table.querySelector("thead th.h");log.push(key.textContent+"|"+getComputedStyle(key).position);
Array.prototype.filter.call(heads,function(h){return h.textContent==="share"})[0].querySelector("button").click();
state();
var shares=Array.prototype.map.call(table.tBodies[0].querySelectorAll("tr:not(.group):not(.total)"),function(r){return Number(r.cells[Array.prototype.findIndex.call(heads,function(h){return h.textContent==="share"})].getAttribute("data-v"))});
log.push(String(shares.every(function(v,i){return i===0||v<=shares[i-1]})));
log.push(String(table.tBodies[0].rows[table.tBodies[0].rows.length-1].classList.contains("total")));
log.push(String(document.documentElement.scrollWidth<=document.documentElement.clientWidth));
parent.postMessage(log.join("\\n"),"*");
})()</script>"""

OUTER = """<!DOCTYPE html><meta charset="utf-8"><title>waiting</title><body>
<script>addEventListener("message",function(e){document.title=e.data})</script>
<iframe width="%d" height="800" srcdoc="%s"></iframe></body>"""


@unittest.skipUnless(shutil.which("chromium"), "chromium is not installed")
class ReportBrowser(unittest.TestCase):
    def probe(self, width):
        program = ARGUMENTS.binary / "tests" / "test_unit"
        if not program.exists():
            self.skipTest("test_unit is not built")
        subprocess.run([program, "[report_files]"], check=True, stdout=subprocess.DEVNULL)
        return self.ask((ARGUMENTS.binary / "report_sample" / "report.html").read_text(encoding="utf-8"), PROBE, width)

    def ask(self, page, probe, width):
        with tempfile.TemporaryDirectory(prefix="fathom_browser_", ignore_cleanup_errors=True) as folder:
            outer = f"{folder}/outer.html"
            with open(outer, "w", encoding="utf-8") as file:
                file.write(OUTER % (width, html.escape(page.replace("</body>", probe + "</body>"))))
            done = subprocess.run(
                ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", "--window-size=1500,900",
                 "--virtual-time-budget=3000", "--dump-dom", f"file://{outer}"], capture_output=True, text=True, timeout=100)
        title = re.search(r"<title>(.*?)</title>", done.stdout, re.S)
        self.assertIsNotNone(title, done.stderr[-2000:])
        return html.unescape(title.group(1)).split("\n")

    def test_rows_of_a_configuration_stand_under_its_name(self):
        page = self.page()
        for width in (390, 1400):
            with self.subTest(width=width):
                before, names, key, after, sorted_, total_last, fits = self.ask(page, GROUPED, width)
                groups, shown, cells, totals, _ = map(int, before.split("|"))
                self.assertEqual((groups, shown, cells, totals), (4, 4, 0, 4))  # two models at two batch sizes, each with a sum
                self.assertEqual(names, "mod-60m, batch 1|mod-60m, batch 2|dense-60m, batch 1|dense-60m, batch 2")
                self.assertEqual(key, "part|sticky" if width == 390 else key)
                groups, shown, cells, totals, rows = map(int, after.split("|"))
                self.assertEqual((shown, totals), (0, 4))
                self.assertEqual(cells, 2 * (rows - 1))  # every row names model and batch again; the line of the first group is hidden
                self.assertEqual((sorted_, total_last, fits), ("true", "true", "true"))

    def page(self):
        with tempfile.TemporaryDirectory(prefix="fathom_page_") as folder:
            subprocess.run([ARGUMENTS.fathom, "compare", "mod-60m", "dense-60m", "--phase", "decode", "--batch", "1,2", "--context", "64", "--backend", "fake", "--rounds", "2", "--threads", "2", "--on",
                            ARGUMENTS.source / "tests/golden/data/machine.ini", "--save", f"{folder}/p.html", "-q"], check=True, stdout=subprocess.DEVNULL)
            with open(f"{folder}/p.html", encoding="utf-8") as file:
                return file.read()

    def test_a_phone_and_a_desktop(self):
        for width, drawing in ((390, "none|block"), (1400, "block|none")):
            with self.subTest(width=width):
                down, up, names, flops, foot, first, second, fits, loaded, drawn = self.probe(width)
                self.assertEqual(down, "55.20 ms|32.90 ms|25.10 ms|3.200 ms|238.0 us|(too short)")
                self.assertEqual(up, "238.0 us|3.200 ms|25.10 ms|32.90 ms|55.20 ms|(too short)")  # what is missing stays last
                self.assertTrue(names.startswith("layers.00/attn/core|layers.00/attn/qkv|"), names)
                self.assertEqual(flops, "5.436 GFLOP|4.833 GFLOP|4.077 GFLOP|679.5 MFLOP|2.359 MFLOP|0 FLOP")
                self.assertEqual(foot, "total")
                self.assertEqual((first, second), ("block|none", "none|block"))
                self.assertEqual(fits, "true")  # no sideways scrolling of the page
                self.assertEqual(loaded, "0")
                self.assertEqual(drawn, drawing)


if __name__ == "__main__":
    main()
