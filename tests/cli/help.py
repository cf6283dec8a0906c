"""Help pages, man page, shell completion and the defaults file say what the program does."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import unittest

from _cli import ARGUMENTS, CliTest, main

# Options that ask for something: without them nothing happens, so they have no default to show.
ASK = {"--set", "--pareto", "--top", "--sort", "--save", "--table", "--from-table", "--timeline", "--text", "--corpus", "--slots", "--run-tokens", "--peak", "--params", "--on", "--fail-on", "--gpu"}


def options_in(text):
    """Every --option that a page explains (at the start of a line)."""
    return set(re.findall(r"^  (?:-\w,)?(--[a-z][a-z-]*)", text, flags=re.M))


class Help(CliTest):
    def help(self, *arguments):
        return self.run_fathom(*arguments).stdout

    def commands(self):
        names = re.findall(r"(?m)^  ([a-z]+)  ", self.help("--help"))
        self.assertTrue({"count", "predict", "run", "compare", "report", "completion"} <= set(names))
        return names

    def test_pages_fit_a_screen_and_have_two_examples(self):
        for page in [self.help("--help"), *(self.help(command, "--help") for command in self.commands())]:
            lines = page.rstrip("\n").split("\n")
            self.assertLess(len(lines), 25, page)
            self.assertLessEqual(max(map(len, lines)), 100, page)
            self.assertGreaterEqual(len(re.findall(r"(?m)^  (?:source <\()?fathom ", page)), 2, page)

    def test_pages_are_as_wide_as_the_terminal(self):
        for command in ["", *self.commands()]:
            words = command.split()
            wide = self.run_fathom(*words, "--help").stdout
            narrow = self.run_fathom(*words, "--help", env={"COLUMNS": "40"}).stdout
            self.assertEqual(narrow, self.run_fathom(*words, "--help", *([] if not words else ["--width", "40"]), env={"COLUMNS": "40"}).stdout)
            for line in narrow.splitlines():
                self.assertTrue(len(line) <= 40 or " " not in line.strip(), line)  # a word is not broken
            # The same words in the same order, whatever the width; a broken command line goes on behind a backslash.
            self.assertEqual([word for word in narrow.split() if word != "\\"], [word for word in wide.split() if word != "\\"])
            for line in self.run_fathom(*words, "--help-all", env={"COLUMNS": "50"}).stdout.splitlines():
                self.assertTrue(len(line) <= 50 or " " not in line.strip(), line)
        self.assertEqual(self.run_fathom("count", "--help", env={"COLUMNS": "300"}).stdout, self.run_fathom("count", "--help").stdout)

    def test_what_a_newcomer_types_first(self):
        self.refuses(2, ["a COMMAND is required", "fathom --help", "fathom count gpt2-124m"])
        self.assertEqual(self.help("help"), self.help("--help"))
        self.assertEqual(self.help("help", "count"), self.help("count", "--help"))
        self.refuses(2, "did you mean 'count'?", "help", "coutn")
        self.refuses(2, ["MODEL is required", "fathom count --help; fathom list models"], "count")
        self.refuses(2, ["TOPIC is required", "fathom explain --help"], "explain")

    def test_every_option_is_named_in_short_and_explained_in_full(self):
        for command in self.commands():
            short, full = self.help(command, "--help"), self.help(command, "--help-all")
            for option in options_in(full):
                if option not in ("--help", "--help-all"):
                    self.assertIn(option, short, command)

    def test_every_value_has_its_default(self):
        for command in self.commands():
            for option, value, words in re.findall(r"(?m)^  (?:-\w,)?(--[a-z-]+)( [A-Z]\S*)?((?:\s+[^-\s].*|\n {20,}.*)*)", self.help(command, "--help-all")):
                if value and option not in ASK:
                    self.assertRegex(words, r"(?s)\[.+\]", f"{command} {option}")

    def test_examples_parse(self):
        for command in self.commands():
            for line in re.findall(r"(?m)^  fathom (.*)$", self.help(command, "--help")):
                self.assertTrue(line.startswith(command), line)
                options = set(re.findall(r"--[a-z-]+", line))
                self.assertLessEqual(options, options_in(self.help(command, "--help-all")), line)

    def test_man_page_is_the_same_text(self):
        man = self.help("completion", "man")
        plain = man.replace("\\-", "-").replace("\\&", "").replace("\\\\", "\\")
        flat = re.sub(r"\s+", " ", plain)
        for command in self.commands():
            self.assertIn(f".SH FATHOM {command.upper()}\n", man)
            page = self.help(command, "--help-all")
            section = plain.split(f".SH FATHOM {command.upper()}\n")[1].split("\n.SH ")[0]
            self.assertEqual(set(re.findall(r"(?m)^\.B (?:-\w,)?(--[a-z-]+)", section)), options_in(page))
            for words in re.findall(r"(?m)^  (?:-\w,)?--\S+(?: [A-Z.,=]+)?\s+(\S.*)$", page):
                self.assertIn(re.sub(r"\s+", " ", words), flat)
        pages = [man, *(self.help("completion", "man", command) for command in self.commands())]
        for command, page in zip(self.commands(), pages[1:]):
            self.assertIn(f".SH NAME\nfathom\\-{command} \\- ", page)
            self.assertLessEqual(options_in(self.help(command, "--help-all")), set(re.findall(r"(?m)^\.B (?:-\w,)?(--[a-z-]+)", page.replace("\\-", "-"))))
        self.refuses(3, "did you mean 'count'?", "completion", "man", "coutn")
        self.refuses(2, "man", "completion", "bash", "count")
        for page in pages if shutil.which("man") else ():
            done = subprocess.run(["man", "--warnings", "-l", "-"], input=page.encode(), capture_output=True, env={"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
            self.assertEqual(done.returncode, 0, done.stderr)


class Completion(CliTest):
    def complete(self, *words):
        script = self.run_fathom("completion", "bash").stdout
        line = "COMP_WORDS=(%s); COMP_CWORD=%d; _fathom; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (" ".join(f"'{w}'" for w in ("fathom", *words)), len(words))
        done = subprocess.run(["bash", "-c", script + line], capture_output=True, encoding="utf-8", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_bash(self):
        self.assertEqual(self.complete("coun"), ["count"])
        self.assertEqual(self.complete("count", "gpt2"), ["gpt2-124m"])
        self.assertEqual(self.complete("count", "gpt2-124m", "--capa"), ["--capacity"])
        self.assertEqual(self.complete("count", "--phase", "pre"), ["prefill"])
        self.assertEqual(self.complete("count", "--phase", "=", "pre"), ["prefill"])
        self.assertIn("h200", self.complete("predict", "mod-60m", "--on", ""))
        self.assertIn("flops_matmul", self.complete("explain", "flops"))
        self.assertIn("gemm", self.complete("explain", "ge"))
        self.assertIn("palm", self.complete("explain", "convention", "pa"))
        self.assertEqual(self.complete("count", "x", "--convention", "exact,pal"), ["exact,palm"])
        self.assertIn("attention", self.complete("check", "att"))
        self.assertEqual(self.complete("sweep", "x", "--set", "wid"), ["width="])
        self.assertEqual(set(self.complete("count", "x", "--dtype", "")), {"f32", "bf16", "f16", "f64", "f8", "i8"})
        self.assertEqual(self.complete("sweep", "x", "--pareto", "predicted_p5"), ["predicted_p50_s"])
        self.assertEqual(self.complete("compare", "x", "--fail-on", "noi"), ["noisy"])
        # Each condition that the help names can be completed, and is understood.
        for word in self.complete("compare", "x", "--fail-on", ""):
            self.assertIn(word, self.run_fathom("compare", "--help-all").stdout)
            refused = self.run_fathom("compare", "mod-tiny", "--backend", "fake", "--on", ARGUMENTS.source / "tests/golden/data/machine.ini", "--fail-on", word + ("x" if word.endswith("=") else "=5%"), code=None)
            self.assertNotIn("unknown condition", refused.stderr)
            self.assertIn(word.rstrip("="), refused.stderr)

    def test_lists_with_commas(self):
        self.assertEqual(self.complete("report", "--columns", "measured_s,predicted_tt"), ["measured_s,predicted_ttft_s"])
        self.assertEqual(self.complete("report", "--columns", "al"), ["all"])
        self.assertEqual(self.complete("--ver"), ["--version"])
        self.write("a.json", "{}")
        self.assertEqual(self.complete("report", "a"), ["a.json"])
        self.assertNotIn("a.json", self.complete("completion", "a"))
        self.assertEqual(self.complete("help", "pred"), ["predict"])
        self.assertEqual(self.complete("help", "a"), ["audit"])

    # What follows the typed words after a tab.
    TRIED = (("fathom coun", "count"), ("fathom count gpt2", "gpt2-124m"), ("fathom predict mod-60m --on h20", "h200"), ("fathom compare mod-60m --phase de", "decode"),
             ("fathom count mod-60m --capac", "--capacity"), ("fathom explain flops_m", "flops_matmul"), ("fathom report --columns measured_s,predicted_tt", "measured_s,predicted_ttft_s"),
             ("fathom count mod-60m -o cs", "csv"), ("fathom compare --fail-on noi", "noisy"), ("fathom --vers", "--version"), ("fathom completion man pred", "predict"), ("fathom help pred", "predict"))

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish_completes(self):
        self.write("config/fish/completions/fathom.fish", self.run_fathom("completion", "fish").stdout)
        for line, word in self.TRIED:
            done = subprocess.run(["fish", "-c", f"complete -C '{line}'"], capture_output=True, encoding="utf-8", cwd=self.folder, env={**os.environ, "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config"), "PATH": f"{ARGUMENTS.fathom.parent}:{os.environ['PATH']}"})
            self.assertEqual([row.split("\t")[0] for row in done.stdout.splitlines()], [word], f"{line}: {done.stderr}")

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_completes(self):
        """In a terminal, as the completion system cannot be asked otherwise."""
        self.write("functions/_fathom", self.run_fathom("completion", "zsh").stdout)
        child, terminal = pty.fork()
        if child == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb", "HOME": str(self.folder), "COLUMNS": "200"})

        def read(mark):
            text, quiet = "", 0
            while mark not in text and quiet < 100:
                if select.select([terminal], [], [], 0.1)[0]:
                    text += os.read(terminal, 65536).decode("utf-8", "replace")
                else:
                    quiet += 1
            return text

        try:
            os.write(terminal, f"PS1=; unsetopt zle_bracketed_paste; fpath=({self.folder}/functions $fpath); autoload -U compinit; compinit -u -D; setopt NO_BEEP; echo rea''dy\n".encode())
            self.assertIn("ready", read("ready"))
            for line, word in (*self.TRIED, ("fathom compare mod-60m --phase=de", "--phase=decode")):
                os.write(terminal, (line + "\t").encode())
                answer = read(word)
                self.assertIn(word, answer, line)
                self.assertNotIn("bad option", answer, line)
                os.write(terminal, b"\x03\x15")
        finally:
            os.close(terminal)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def test_zsh_and_fish_parse(self):
        for shell, check in (("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])):
            script = self.run_fathom("completion", shell).stdout
            for word in ("count", "gpt2-124m", "mod-every", "h200", "flops_matmul"):
                self.assertIn(word, script)
            if shutil.which(shell):
                file = self.write(f"script.{shell}", script)
                done = subprocess.run([*check, file], capture_output=True)
                self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.refuses(3, "did you mean 'zsh'?", "completion", "zhs")


class Defaults(CliTest):
    def config(self, text):
        self.write("config/fathom/defaults.ini", text)

    def batch(self, *arguments):
        record = self.json("count", "mod-tiny", "-o", "json", *arguments)
        return record["scenario"]["batch"], record["arguments"]

    def test_are_used_and_overruled(self):
        self.assertEqual(self.batch()[0], 1)
        self.config("[common]\nbatch = 4\n[count]\nops = yes\nquiet = no\n")
        self.assertEqual(self.batch()[0], 4)
        self.assertIn("--batch=4 --ops", self.batch()[1])
        self.assertEqual(self.batch("--batch", "2")[0], 2)
        self.assertEqual(self.batch("--batch=3")[0], 3)
        self.assertEqual(self.batch("--no-defaults")[0], 1)
        self.run_fathom("list", "models")  # has no --batch: [common] is for those that have
        self.config("[common]\nbatch = 4\n[count]\nbatch = 5\n")
        self.assertEqual(self.batch()[0], 5)
        self.config("[common]\noutput = csv\n")
        self.assertTrue(self.run_fathom("count", "mod-tiny").stdout.startswith("model,"))
        self.assertIn("{", self.run_fathom("count", "mod-tiny", "-o", "json").stdout)

    def test_nobody_is_told_of_options_that_he_did_not_type(self):
        self.config("[common]\non = h200\nbatch = 4\npast = 3\n")
        for command in (("explain", "defaults"), ("count", "mod-tiny", "--phase", "decode", "--context", "8"), ("sweep", "mod-tiny", "--phase", "decode", "--context", "8", "--do", "predict")):
            done = self.run_fathom(*command)
            self.assertNotIn("changes nothing", done.stdout + done.stderr)
        self.assertIn("--past changes nothing here", self.run_fathom("count", "mod-tiny", "--phase", "decode", "--context", "8", "--past", "2").stdout)

    def test_the_file_is_explained(self):
        text = self.run_fathom("explain", "defaults").stdout
        for word in ("defaults.ini", "[common]", "--no-defaults"):
            self.assertIn(word, text)
        self.assertIn("fathom explain defaults", self.run_fathom("help").stdout)

    def test_mistakes_name_file_and_line(self):
        self.config("[count]\n\nbtach = 4\n")
        self.refuses(3, ["defaults.ini:3", "did you mean 'batch'?"], "count", "mod-tiny")
        self.config("[conut]\nbatch = 4\n")
        self.refuses(3, "defaults.ini:1", "count", "mod-tiny")
        self.config("[common]\nnothing = 4\n")
        self.refuses(3, "defaults.ini:2", "count", "mod-tiny")
        self.config("[common]\nquiet = no\non = h20\n")
        self.refuses(3, ["did you mean 'h200'?", "defaults.ini:3: on = h20"], "predict", "mod-tiny")
        self.config("[predict]\nthreads = x\n")
        self.refuses(2, "defaults.ini:2: threads = x", "predict", "mod-tiny")
        self.assertNotIn("defaults.ini", self.refuses(3, "h2000", "predict", "mod-tiny", "--threads", "1", "--on", "h2000").stderr)
        self.run_fathom("count", "mod-tiny", "--no-defaults")
        self.run_fathom("--version")


if __name__ == "__main__":
    main()
