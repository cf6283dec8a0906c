"""`fathom audit` and `fathom plan`: formats agree, figures that the texts are audited for are there, refusals."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile

fathom = sys.argv[sys.argv.index("--fathom") + 1]


def run(*arguments):
    return subprocess.run([fathom, *arguments], capture_output=True, text=True, timeout=120)


audit = json.loads(run("audit", "-o", "json").stdout)["tables"]
rows = list(csv.DictReader(io.StringIO(run("audit", "-o", "csv").stdout)))
assert len(audit["claims"]) == len(rows) == 31
assert [row["verdict"] for row in rows].count("does not hold") >= 7
claims = "\n".join(row["claim"] for row in rows)
figures = "\n".join(str(figure) for figure in audit["figures"])
# The figures of the three texts each have a row.
for claimed in ("56.25 %", "50.78125 %", "39.8 %", "87.5 %", "50 %", "75 %", "40 %", "twice", "0.1 %", "1 - capacity"):
    assert claimed in claims, claimed
for value in ("56.25 %", "43.75 %", "39.759 %", "1.778 x"):
    assert value in figures, value
# Counts are exact: Mixtral 8x7B has 46 702 792 704 parameters, 2 bytes each.
assert [figure["exact_value"] for figure in audit["figures"] if figure["figure"] == "its bytes in bf16"] == [2 * 46702792704]
assert "93,405,585,408" in run("audit", "-o", "md").stdout
short = run("audit", "--seq", "7")
assert short.returncode == 3 and "at least 8 tokens" in short.stderr, short.stderr
assert run("audit", "mod-recursion").returncode == 0
assert "| 18 |" in run("audit", "-o", "md").stdout
assert run("audit", "llama-3-8b", "-o", "csv").stdout != run("audit", "-o", "csv").stdout

# Blocks that nobody takes: quotients by their tokens have no number.
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "nobody.ini")
    with open(path, "w") as file:
        file.write("[network]\nwidth = 64\nvocab = 100\nlayers = 4\nheads = 4\nmlp = 64\n[route]\nevery = 1\ncapacity = 0\n")
    for form in ("csv", "md", "json"):
        nobody = run("audit", path, "--seq", "64", "-o", form)
        assert nobody.returncode == 0 and "unbounded" in nobody.stdout, nobody.stderr
        assert not re.search(r"\b(inf|nan|not finite)\b", nobody.stdout, re.IGNORECASE), form

plan = json.loads(run("plan", "dense-220m", "--budget", "6e18", "--convention", "mod-b", "-o", "json").stdout)["tables"]["plan"]
assert [(row["variant"], row["layers"], row["steps"]) for row in plan[:2]] == [("dense", 18, 14186), ("MoD", 18, 23818)]
assert (plan[2]["variant"], plan[2]["layers"]) == ("MoD deeper", 33)
# People see budget and model once for the rows they share; CSV and JSON have them in every row.
asked = ("plan", "dense-120m", "dense-220m", "--budget", "6e18,2e19")
cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in run(*asked, "-o", "md").stdout.replace("\xa0", " ").splitlines() if re.search(r"\| (dense|MoD|MoD deeper) \| \d", line)]
assert [c[1] for c in cells] == ["dense-120m", "", "", "dense-220m", "", ""] * 2, cells
assert [c[0] for c in cells] == ["6.000 EFLOP", "", "", "6.000 EFLOP", "", "", "20.00 EFLOP", "", "", "20.00 EFLOP", "", ""], cells
page = run(*asked, "-o", "html").stdout
assert page.count('<tr class="group">') == 4 and page.index('"group"') < page.index("MoD deeper")
in_csv = list(csv.DictReader(io.StringIO(run(*asked, "-o", "csv").stdout)))
assert [row["model"] for row in in_csv] == (["dense-120m"] * 3 + ["dense-220m"] * 3) * 2 and all(float(row["budget_flops"]) in (6e18, 2e19) for row in in_csv)
timed = json.loads(run("plan", "dense-60m", "--peak", "100TFLOP/s", "--mfu", "0.5", "-o", "json").stdout)["tables"]["plan"]
for row in timed:
    assert abs(row["wall_s"] / (row["step_s"] * row["steps"]) - 1) < 1e-9
    # 3 x forward x 128 sequences at 50 TFLOP/s
    assert abs(row["step_s"] * 50e12 / (3 * 128 * row["forward_flops"]) - 1) < 1e-9
# What nothing reads is named.
unread = run("plan", "dense-60m", "--budget", "6e18", "--mfu", "0.5", "--devices", "2", "--predictor", "light")
assert unread.returncode == 0
for flag in ("--mfu", "--devices", "--predictor"):
    assert f"{flag} changes nothing here" in unread.stderr, unread.stderr
assert "changes nothing" not in run("plan", "dense-60m", "--budget", "6e18", "--peak", "100TFLOP/s", "--mfu", "0.5", "--devices", "2").stderr
assert "changes nothing" not in run("plan", "dense-60m", "--budget", "6e18", "--on", "h200", "--predictor", "light").stderr
# A plan's times are those that predict gives: calibrated where the machine is.
asked = ("plan", "dense-60m", "--budget", "6e18", "--on", "h200")
assert run(*asked).stdout == run(*asked, "--predictor", "calibrated").stdout != run(*asked, "--predictor", "roofline").stdout
for arguments, code in ((["mod-60m"], 3), (["--budget", "x"], 2), (["--budget", "-1"], 3), (["--law", "none"], 3), (["--mfu", "2", "--peak", "1TFLOP/s"], 3),
                        (["--params", "1T:2T"], 3), (["--convention", "palm"], 3)):
    done = run("plan", *arguments)
    assert done.returncode == code and "fathom:" in done.stderr, (arguments, done.returncode, done.stderr)
