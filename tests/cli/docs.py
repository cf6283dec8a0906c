"""The pages show what the program prints: every `$` line of a ```console block is run and its output compared; tables between marks are made
from the files they quote; files and commands that READMEs name exist.

After a wanted change: python3 tests/cli/docs.py --fathom build/fathom --source . --binary build --update, and read the diff.

A block "```console TOOL" is left out where TOOL (a program, or a module of Python) is not installed; "```json NAME" is a file that the commands of
the page may read.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from _cli import ARGUMENTS, CliTest, main

PAGES = ("README.md", "reports/tutorial.md", "reports/reading.md", "reports/accuracy.md", "reports/peers.md")
EXAMPLES = {"compare.md", "compare.csv", "compare.json", "config.json", "a.json", "b.json", "today.json", "yesterday.json", "defaults.ini"}  # files of users
GPUS = ("h100", "h200", "a100", "b200", "l40s")


def available(tool):
    if not tool or shutil.which(tool):
        return True
    return subprocess.run(["/usr/bin/env", "python3", "-c", f"import {tool}"], capture_output=True).returncode == 0


def held_out():
    """One row per GPU and op: rows held out, mean and median |error| of the physics form, of the calibrated one, its bias and the interval's coverage."""
    lines = ["| GPU | op | rows | physics: mean | median | calibrated: mean | median | p90 | bias | in the 80 % interval |", "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for gpu in GPUS:
        text = (ARGUMENTS.source / f"models/machines/{gpu}.gpu").read_text()
        for section in re.split(r"(?m)^\[op ", text)[1:]:
            values = {key: line.split() for key, line in re.findall(r"(?m)^held_out_(physics|calibrated)_percent = (.*)$", section)}
            physics, fitted = values["physics"], values["calibrated"]
            lines.append(f"| {gpu} | {section.split(']')[0]} | {fitted[0]} | {float(physics[1]):.1f} % | {float(physics[2]):.1f} % | {float(fitted[1]):.1f} % | {float(fitted[2]):.1f} % | "
                         f"{float(fitted[3]):.1f} % | {float(fitted[4]):+.1f} % | {float(fitted[5]) * 100:.0f} % |")
    return "\n".join(lines)


def published():
    text = (ARGUMENTS.source / "reports/samples/published.md").read_text()
    return "\n".join(f"- {line}" for line in re.findall(r"(?m)^\S.*: \d+ runs, mean \|error\| .*$", text) if "diagnosis" not in line)


def named_tables(text):
    """{title: rows of cells, the heads first} of the tables under a line in bold."""
    tables = {}
    for title, rows in re.findall(r"(?m)^\*\*(.+)\*\*\n\n((?:\|.*\n)+)", text):
        tables[title] = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in rows.strip().split("\n") if not line.startswith("|---")]
    return tables


def validation():
    """Of each reports/samples/validation*.md: the machine, and the rows and columns of its tables that answer how good, of what, and how much was left out."""
    columns = ("n", "dropped", "MAPE", "median", "p90", "max", "bias", "in interval")
    rows = {"Steps": ("all", "prefill", "train", "decode", "dense", "mod", "widths never calibrated", "all, noise gate off", "all, end to end, gate off"),
            "Ops": ("all", "gemm", "gemm, backward", "attention", "attention, backward", "norm", "optimizer")}
    out = []
    for path in sorted((ARGUMENTS.source / "reports/samples").glob("validation*.md")):
        text = path.read_text()
        facts = dict(re.findall(r"(?m)^\| ([\w ]+) \| (.+?) \|(?: .*\|)?$", text.split("\n## ")[0].split("> [!")[0]))
        tables = named_tables(text)
        lines = [f"{facts['machine']}, {facts['threads']} threads, predictor {facts['predictor']}, {facts.get('dtype', 'f32')}, measured {facts['measured at'][:10]}; everything is in [samples/{path.name}](samples/{path.name}).", "",
                 "| of | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
        for title, wanted in rows.items():
            heads, *body = tables[title]
            found = {row[0]: dict(zip(heads, row)) for row in body}
            lines += [f"| {title.lower()}: {name} | " + " | ".join(found[name][column] for column in columns) + " |" for name in wanted if name in found]
        ranks = {row[0]: dict(zip(tables["Ranking"][0], row)) for row in tables["Ranking"][1:]}
        lines += ["", f"Ranking of the configurations by predicted time against measured: Kendall's tau-b {ranks['all']['tau-b']} over {ranks['all']['pairs']} pairs; "
                  f"the one predicted fastest was {ranks['all']['top-1 regret']} slower than the fastest."]
        out.append("\n".join(lines))
    return "\n\n".join(out) or "No validation of a CPU is stored in `reports/samples/` yet."


TABLES = {"held-out": held_out, "published": published, "validation": validation}


def run_page(text, note):
    """The page with each block's output as it is now; `note` is told what was run and what was left out."""
    with tempfile.TemporaryDirectory(prefix="fathom_docs_") as folder:
        (pathlib.Path(folder) / "bin").mkdir()
        (pathlib.Path(folder) / "bin" / "fathom").symlink_to(ARGUMENTS.fathom)
        environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "COLUMNS": "110", "XDG_CACHE_HOME": folder, "XDG_CONFIG_HOME": folder, "NO_COLOR": "1"}
        for name, content in re.findall(r"(?ms)^```json (\S+)\n(.*?)^```$", text):
            (pathlib.Path(folder) / name).write_text(content)

        def run_block(match):
            tool, commands = match.group(1) or "", re.findall(r"(?m)^\$ (.*)$", match.group(2))
            if not available(tool):
                note("skipped", tool)
                return match.group(0)
            out = ""
            for command in commands:
                done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=120, stdin=subprocess.DEVNULL)
                note("ran", command)
                if done.returncode:
                    raise AssertionError(f"$ {command}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}")
                printed = re.split(r"(?m)^(?:Machine and run|Reproduce)$", done.stdout)[0].strip("\n")  # the moment and the build, which pages leave out
                out += f"$ {command}\n" + "".join(line.rstrip() + "\n" for line in printed.split("\n") if printed)
            return f"```console{' ' + tool if tool else ''}\n{out}```\n"

        text = re.sub(r"(?ms)^```console(?: (\S+))?\n(.*?)^```\n", run_block, text)
    for mark, make in TABLES.items():
        text = re.sub(rf"(?s)(<!-- {mark} -->\n).*?(<!-- end -->)", lambda match: match.group(1) + "\n" + make() + "\n\n" + match.group(2), text)
    return text


class Docs(CliTest):
    def test_pages_show_what_is_printed(self):
        ran = []
        for page in PAGES:
            with self.subTest(page):
                text = (ARGUMENTS.source / page).read_text()
                now = run_page(text, lambda what, name: ran.append(what))
                self.assertEqual(text, now, f"{page} is not what the program prints; see tests/cli/docs.py --update")
        self.assertGreater(ran.count("ran"), 8)

    def test_files_that_readmes_name_exist(self):
        folders = ("lib", "models", "kernels", "reports", "tools", "tests")
        for page in sorted(ARGUMENTS.source.glob("*.md")) + sorted(path for folder in folders for path in (ARGUMENTS.source / folder).rglob("*.md")):
            text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
            names = set(re.findall(r"\]\(([^)#:]+)\)", text))                                  # links
            for word in re.findall(r"`([^`\s]+)`", text):
                if re.fullmatch(r"(?:[\w.-]+/)*[\w.-]+\.(?:md|cpp|hpp|py|sh|json|ini|cmake|cu|inl)", word) and ("/" in word or page.name == "README.md"):
                    names.add(word)                                                             # files in backticks
                elif re.fullmatch(r"(?:lib|models|kernels|reports|tools|tests)/[\w/-]*", word):
                    names.add(word)                                                             # folders and files without ending
            for name in sorted(names):
                if name.startswith("reports/out/") or re.search(r"NAME|FILE|KEY", name) or name in EXAMPLES:
                    continue
                places = [page.parent / name, ARGUMENTS.source / name, *(page.parent / sub / name for sub in ("import", "cli", "count")), ARGUMENTS.source / "reports/samples" / name]
                self.assertTrue(any(place.exists() or list(place.parent.glob(place.name + ".*")) for place in places), f"{page.relative_to(ARGUMENTS.source)} names {name}")

    def test_first_column_of_file_tables(self):
        """Rows of the folder READMEs' tables of files: a name is a file of that folder, with any ending, or a folder."""
        for folder in ("lib", "models", "kernels", "reports", "tools"):
            tables = re.findall(r"(?m)^\| (?:file|script) \|.*\n((?:\|.*\n)+)", (ARGUMENTS.source / folder / "README.md").read_text())
            for cells in re.findall(r"(?m)^\| (`[^|]*`) \|", "".join(tables)):
                for name in re.findall(r"`([^`]+)`", cells):
                    pattern = re.sub(r"\{[^}]*\}", "*", name)
                    if not re.fullmatch(r"[\w./*-]+", pattern):
                        continue
                    found = list((ARGUMENTS.source / folder).glob(pattern)) + list((ARGUMENTS.source / folder).glob(pattern + ".*")) + list(ARGUMENTS.source.glob(pattern))
                    self.assertTrue(found, f"{folder}/README.md names {name}")

    def test_commands_in_pages_parse(self):
        """Indented and inline `fathom ...` examples use commands and options that exist."""
        pages = {command: self.run_fathom(command, "--help-all").stdout for command in re.findall(r"(?m)^  ([a-z]+)  ", self.run_fathom("--help").stdout)}
        for page in PAGES:
            for line in re.findall(r"(?m)(?:^    |`|^\$ )fathom ([a-z][^`\n|]*)", (ARGUMENTS.source / page).read_text()):
                command = line.split()[0]
                self.assertIn(command, pages, f"{page}: fathom {line}")
                for option in re.findall(r" (--[a-z-]+)", line.split("#")[0]):
                    self.assertIn(option, pages[command], f"{page}: fathom {line}")


if __name__ == "__main__":
    if "--update" in sys.argv:
        sys.argv.remove("--update")
        import argparse

        parser = argparse.ArgumentParser()
        for name in ("--fathom", "--source", "--binary"):
            parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
        parser.parse_known_args(namespace=ARGUMENTS)
        for page in PAGES:
            file = ARGUMENTS.source / page
            file.write_text(run_page(file.read_text(), lambda what, name: print(what, name)))
    else:
        main()
