"""count, list, explain, report, predict and run as a user meets them: exact figures, formats, exit codes, hints, odd terminals and streams."""

import csv
import io
import json
import os
import pathlib
import pty
import shlex
import shutil
import signal
import subprocess
import time

from _cli import ARGUMENTS, CliTest, main, parse_json
from _record import record_errors


class Count(CliTest):
    def totals(self, *arguments):
        return self.json("count", *arguments, "-o", "json")["totals"]

    def test_published_figures(self):
        common = ["--phase", "prefill", "--batch", "1", "--seq", "2048", "--logits", "all"]
        twin = ["--mod-every", "2", "--capacity", "0.125"]
        for model, extra, flops, params in (("gpt2-124m", [], 583334363136, 124439808), ("gpt2-124m", twin, 393083092992, None),
                                            ("llama-3-8b", [], 31839129436160, 8030261248), ("llama-3-8b", twin, 18791052345344, None)):
            totals = self.totals(model, *extra, *common)
            self.assertEqual(totals["flops_matmul"], flops, model)
            if params:
                self.assertEqual(totals["params_total"], params)

    def test_ladder(self):
        for size, dense, mod in (("60m", 265772335104, 189672062976), ("220m", 963078258688, 585746022400), ("3b", 12018211880960, 6867293306880)):
            self.assertEqual(self.totals(f"dense-{size}", "--logits", "all")["flops_matmul"], dense)
            self.assertEqual(self.totals(f"mod-{size}", "--logits", "all")["flops_matmul"], mod)

    def test_lists_and_ranges(self):
        record = self.json("count", "mod-tiny", "--batch", "1,3,8:10", "--seq", "16:64:x2", "-o", "json")
        asked = [(r["scenario"]["seq"], r["scenario"]["batch"]) for r in record["results"]]
        self.assertEqual(asked, [(s, b) for s in (16, 32, 64) for b in (1, 3, 8, 9, 10)])
        for text in ("", "1,,2", "x", "1:2:3:4", "1.5", "1:8:x", "0x10"):
            if text:
                self.refuses(2, "--batch", "count", "mod-tiny", "--batch", text)
        for text in ("8:1", "1:8:0", "1:8:x1", "0", "99999999999999999999", "1:9999999"):
            self.refuses(3, "", "count", "mod-tiny", "--batch", text)
        self.refuses(3, "batch", "count", "mod-tiny", "--batch=-1")

    def test_a_list_of_phases(self):
        """As the option said twice, for every command that takes lists."""
        for command in (("count",), ("predict", "--on", "h200")):
            listed = self.json(*command, "mod-tiny", "--phase", "train,decode,generate", "--seq", "16", "--batch", "1,2", "-o", "json")["results"]
            twice = self.json(*command, "mod-tiny", "--phase", "train", "--phase", "decode", "--phase", "generate", "--seq", "16", "--batch", "1,2", "-o", "json")["results"]
            self.assertEqual([(r["scenario"]["phase"], r["scenario"]["batch"]) for r in listed], [(r["scenario"]["phase"], r["scenario"]["batch"]) for r in twice])
            self.assertEqual([r["totals"] for r in listed], [r["totals"] for r in twice])
            self.assertEqual(len(listed), 6)
        self.refuses(3, "unknown phase ''", "count", "mod-tiny", "--phase", "train,")
        self.refuses(3, "did you mean 'decode'?", "count", "mod-tiny", "--phase", "train,decod")

    def test_an_option_does_not_swallow_the_model(self):
        self.run_fathom("count", "--phase", "train", "dense-60m")
        self.run_fathom("count", "--save", "x.json", "mod-tiny")
        self.assertTrue((self.folder / "x.json").exists())

    def test_formats(self):
        for format_ in ("table", "md", "csv", "json"):
            self.run_fathom("count", "mod-tiny", "--ops", "-o", format_, "--save", f"out/x.{format_.replace('table', 'txt')}")
        self.run_fathom("count", "mod-tiny", "--save", "out/x.html")
        for name in ("x.txt", "x.md", "x.csv", "x.json", "x.html"):
            self.assertGreater((self.folder / "out" / name).stat().st_size, 100, name)
        for models in (["mod-tiny"], ["mod-tiny", "gpt2-124m"]):
            record = self.json("count", *models, "--phase", "prefill", "--phase", "decode", "-o", "json")
            self.assertEqual(record_errors(ARGUMENTS.source, record), [])
        rows = list(csv.DictReader(io.StringIO(self.run_fathom("count", "mod-tiny", "dense-60m", "-o", "csv").stdout)))
        self.assertEqual([r["model"] for r in rows], ["mod-tiny", "dense-60m"])
        ops = list(csv.DictReader(io.StringIO(self.run_fathom("count", "mod-tiny", "--ops", "-o", "csv").stdout)))
        self.assertEqual(sum(int(r["flops_matmul"]) for r in ops), self.totals("mod-tiny")["flops_matmul"])

    def test_what_a_window_leaves_behind_is_allocated_and_said(self):
        self.write("w.ini", "[network]\nwidth = 64\nvocab = 100\nlayers = 2\nheads = 4\nmlp = 64\nwindow = 16\n")
        def counted(*arguments):
            return self.json("count", "w.ini", "--phase", "decode", *arguments, "-o", "json")
        # 2 layers x 2 x 64 elements of 4 bytes a token: 16 tokens are in reach, 200 have room beside a length of 4 bytes a layer.
        far, near = counted("--context", "200"), counted("--context", "16")
        self.assertEqual((far["totals"]["kv_bytes"], near["totals"]["kv_bytes"]), (16 * 1024, 16 * 1024))
        self.assertIn("peak memory is what a run allocates, with 204.8 kB of cache", str(far["notes"]))
        self.assertNotIn("left behind", str(near))

    def test_rows_of_nobody_are_declared(self):
        self.write("z.ini", "[network]\nwidth = 64\nvocab = 100\nlayers = 2\nheads = 4\nmlp = 64\n[route]\nevery = 2\ncapacity = 0\n")
        ops = self.json("count", "z.ini", "--seq", "32", "--phase", "train", "-o", "json")["ops"]
        for op in ops:
            self.assertEqual("rows_declared" in op, op["kind"] not in ("adamw", "gradient_norm"), op["path"])
        self.assertIn(0, [op.get("rows_declared") for op in ops if "mod" in op["path"] and op["kind"] == "gemm"])

    def test_a_window_over_routed_tokens_has_an_expectation(self):
        self.write("m.ini", "[network]\nwidth = 96\nvocab = 1000\nlayers = 6\nheads = 6\nkv_heads = 2\nmlp = 200\nwindow = 37\n[route]\nevery = 3\ncapacity = 3/7\nrounding = half-up\n")
        record = self.json("count", "m.ini", "--seq", "101", "-o", "json")
        core = next(op for op in record["ops"] if op["path"] == "layers.*/mod/attn/core")
        pairs = 43 + 43 / 101 * 42 / 100 * (sum(min(i + 1, 37) for i in range(101)) - 101)   # a token sees itself; two tokens are both chosen
        self.assertAlmostEqual(core["flops_expected"], 2 * pairs * 2 * 6 * 32, delta=1)
        self.assertAlmostEqual(record["totals"]["flops_matmul"] - record["totals"]["flops_expected"], core["flops_matmul"] - core["flops_expected"], delta=1)

    def test_report_renders_what_was_saved(self):
        self.run_fathom("count", "mod-tiny", "--save", "a.json", "-q")
        self.run_fathom("count", "gpt2-124m", "--save", "b.json", "-q")
        both = self.json("report", "a.json", "b.json", "-o", "json")
        self.assertEqual([r["model"] for r in both["results"]], ["mod-tiny", "gpt2-124m"])
        again, first = (self.run_fathom(*a).stdout.split("\nReproduce")[0] for a in (["report", "a.json"], ["count", "mod-tiny"]))
        self.assertEqual(again, first)
        self.refuses(3, "nothing.json", "report", "nothing.json")
        self.write("broken.json", '{"schema": "fathom-record-1", ')
        self.refuses(3, "broken.json:1", "report", "broken.json")
        self.write("other.json", '{"schema": "fathom-record-9"}')
        self.refuses(3, "other.json", "report", "other.json")


class Errors(CliTest):
    def test_exit_codes_and_hints(self):
        self.refuses(2, "did you mean '--capacity'?", "count", "gpt2-124m", "--capcity", "1/8")
        self.refuses(2, "did you mean 'count'?", "cout", "gpt2-124m")
        self.refuses(2, "", "count")
        self.refuses(2, "--capacity", "count", "gpt2-124m", "--mod-every", "2", "--capacity", "lots")
        self.refuses(2, "--mod-every", "count", "gpt2-124m", "--mod-every", "two")
        self.refuses(3, "did you mean 'gpt2-124m'?", "count", "gpt2-124")
        self.refuses(3, "did you mean 'prefill'?", "count", "gpt2-124m", "--phase", "prefil")
        self.refuses(3, "did you mean 'bf16'?", "count", "gpt2-124m", "--dtype", "bf61")
        self.refuses(3, "did you mean 'json'?", "count", "gpt2-124m", "-o", "jsn")
        self.refuses(3, "capacity", "count", "gpt2-124m", "--mod-every", "2", "--capacity", "1.5")
        self.refuses(3, "did you mean", "explain", "flops_matmull")
        self.refuses(3, "did you mean 'models'?", "list", "modles")
        self.refuses(3, ".md", "count", "gpt2-124m", "--save", "x.docx")
        self.refuses(3, "'all' stands alone", "count", "gpt2-124m", "--fusion", "all,none")
        self.refuses(3, "larger than 256 MiB", "report", "/dev/zero")

    def test_measuring_has_limits(self):
        for flags in (["--threads", "99999"], ["--threads", "-1"], ["--time", "-1"], ["--time", "nan"], ["--time", "1e300"], ["--rounds", "-1"]):
            self.refuses(2, flags[0], "run", "mod-tiny", "--backend", "fake", *flags)
        self.refuses(2, "--threads", "compare", "mod-tiny", "--threads", "99999")
        self.refuses(2, "--threads", "check", "gemm", "--threads", "99999")
        self.assertNotIn("did you mean", self.run_fathom("run", "mod-tiny", "--threads", "4294967297", code=2).stderr)

    def test_a_model_file_names_its_line(self):
        self.write("m.ini", "[network]\nwidth = 64\nvocab = 256\nlayers = 2\nheads = 4\nmlpp = 256\n")
        self.refuses(3, ["m.ini:6", "mlpp", "did you mean 'mlp'?"], "count", "m.ini")
        self.write("m.ini", "[network]\nwidth = 64\nvocab = 256\nlayers = 2\nheads = 5\nmlp = 256\n")
        self.refuses(3, ["m.ini:", "64"], "count", "m.ini")
        self.write("config.json", '{"model_type": "nothing-known"}')
        self.refuses(3, ["config.json", "nothing-known"], "count", "config.json")

    def test_places_that_cannot_be_written(self):
        if os.geteuid() != 0:
            (self.folder / "closed").mkdir(mode=0o500)
            self.refuses(4, "closed", "count", "mod-tiny", "--save", "closed/x.json")
        self.write("file", "x")
        self.refuses(4, "file", "count", "mod-tiny", "--save", "file/x.json")
        (self.folder / "folder.json").mkdir()
        self.refuses(4, "folder.json", "count", "mod-tiny", "--save", "folder.json")


class Streams(CliTest):
    commands = (["count", "mod-tiny"], ["list", "columns"], ["explain", "gemm"], ["completion", "bash"], ["count", "mod-tiny", "-o", "json"], ["count", "--help-all"])

    def test_closed_pipe_is_no_error(self):
        for command in self.commands:
            read, write = os.pipe()
            os.close(read)
            done = subprocess.run([ARGUMENTS.fathom, *command], stdout=write, stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
            os.close(write)
            self.assertEqual((done.returncode, done.stderr), (0, b""), command)

    def test_full_disk(self):
        if not pathlib.Path("/dev/full").exists():
            self.skipTest("no /dev/full")
        for command in (*self.commands, ["--version"], ["count", "--help"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([ARGUMENTS.fathom, *command], stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 4, command)
            self.assertIn(b"No space left", done.stderr)

    def test_closed_stdout(self):
        done = subprocess.run(["bash", "-c", '"$0" count mod-tiny >&-', ARGUMENTS.fathom], capture_output=True)
        self.assertEqual(done.returncode, 4, done.stderr)

    def interrupted(self, seconds, *arguments):
        """What a command wrote that got SIGINT after `seconds`; it must end by itself, with 130."""
        program = subprocess.Popen([ARGUMENTS.fathom, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "XDG_CONFIG_HOME": str(self.folder)})
        try:
            output, errors = program.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            program.send_signal(signal.SIGINT)
            output, errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130, errors)
        self.errors = errors.decode()
        return output.decode()

    def test_every_command_says_that_it_was_interrupted(self):
        for command in (["calibrate", "--time", "3600", "--threads", "1", "--save", "m.ini"], ["predict", "mod-tiny", "--seq", "16:2048", "--on", "h200"],
                        ["trace", "mod-60m", "--seq", "2048", "--backend", "reference"]):
            self.assertEqual(self.interrupted(1, *command), "", command)
            self.assertIn("fathom: interrupted\n", self.errors)

    def test_an_interrupted_comparison_claims_nothing(self):
        machine = str(ARGUMENTS.source / "tests/golden/data/machine.ini")
        output = self.interrupted(2, "compare", "mod-60m", "dense-60m", "--backend", "reference", "--on", machine, "--save", str(self.folder / "r.json"), "-o", "json")
        record = parse_json(output)
        self.assertEqual(record["environment"]["stopped_by"], "interrupt")  # also where it came before the first pass
        totals = record["results"][0]["totals"]
        for key in ("measured_s", "spread", "noise"):
            self.assertIsNone(totals.get(key), key)
        self.run_fathom("report", "r.json")

    def test_interrupt_keeps_the_measured(self):
        self.interrupted(3, "run", "mod-tiny", "--backend", "reference", "--time", "60", "--save", str(self.folder / "r.json"))
        self.assertEqual(record_errors(ARGUMENTS.source, parse_json((self.folder / "r.json").read_text())), [])

    def test_a_time_limit_that_is_told_twice_keeps_the_measured(self):
        # timeout(1) sends SIGTERM to the process and then to its group.
        saved = self.folder / "r.json"
        program = subprocess.Popen([ARGUMENTS.fathom, "run", "mod-tiny", "--backend", "reference", "--time", "60", "--save", str(saved)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, env={**os.environ, "XDG_CONFIG_HOME": str(self.folder)})
        time.sleep(2)
        for _ in range(3):
            program.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        errors = program.communicate(timeout=60)[1]
        self.assertEqual(program.returncode, 130, errors)
        self.assertEqual(record_errors(ARGUMENTS.source, parse_json(saved.read_text())), [])

    def test_interrupt_before_the_last_model(self):
        self.interrupted(3, "run", "mod-tiny", "demo-8x12", "--backend", "reference", "--time", "600", "--save", str(self.folder / "r.json"))
        record = parse_json((self.folder / "r.json").read_text())
        self.assertEqual(record_errors(ARGUMENTS.source, record), [])
        self.assertEqual(len(record["results"]), 2)
        self.assertIsNone(record["results"][1]["totals"]["measured_s"])
        self.assertEqual(record["environment"]["stopped_by"], "interrupt")

    def test_interrupted_generation_has_no_total(self):
        output = self.interrupted(3, "run", "mod-tiny", "--phase", "generate", "--prompt", "16", "--tokens", "100000", "--backend", "reference", "-o", "json")
        self.assertIsNone(parse_json(output)["totals"]["measured_s"])
        self.assertEqual(parse_json(output)["environment"]["stopped_by"], "interrupt")

    def test_interrupted_validation(self):
        self.interrupted(2, "validate", "--quick", "--backend", "reference", "--on", "h200")


class Twins(CliTest):
    def compared(self, *models, code=0):
        return self.run_fathom("compare", *models, "--seq", "64", "--backend", "fake", "--on", ARGUMENTS.source / "tests/golden/data/machine.ini", "-o", "json", code=code)

    def test_the_dense_twin_runs_along(self):
        both = parse_json(self.compared("gpt2-124m", "--mod-every", "2", "--with-twin", "--fail-on", "realised=1%").stdout)["results"]
        self.assertEqual([result["model"] for result in both], ["gpt2-124m+mod(2@1/8)", "gpt2-124m"])
        self.assertLess(both[0]["totals"]["measured_ratio"], 1)
        # One that is there already is not run again.
        models = [result["model"] for result in parse_json(self.compared("mod-60m", "dense-60m", "mod-tiny", "--batch", "1,2", "--with-twin").stdout)["results"]]
        self.assertEqual(sorted(models), sorted(["mod-60m", "dense-60m", "mod-tiny", "mod-tiny-dense"] * 2))

    def test_who_lacks_its_twin_is_told(self):
        self.assertIn("--with-twin runs it too", self.compared("mod-tiny").stderr)
        self.assertNotIn("--with-twin", self.compared("mod-60m", "dense-60m").stderr)
        self.assertIn("no model is routed", self.compared("dense-60m", "--with-twin").stderr)


class Terminals(CliTest):
    def on_terminal(self, columns, *arguments, env=None, talk=False):
        """What a command writes to a terminal; `talk`: that of its stderr."""
        import fcntl
        import struct
        import termios

        try:
            parent, child = pty.openpty()
        except OSError as error:  # a root folder without /dev/pts
            self.skipTest(f"no terminal to be had: {error}")
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
        program = subprocess.Popen([ARGUMENTS.fathom, *arguments], stdout=subprocess.DEVNULL if talk else child, stderr=child if talk else subprocess.DEVNULL, env={**environment, "LC_ALL": "C.UTF-8", **(env or {})})
        os.close(child)
        text = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        os.close(parent)
        self.assertEqual(program.wait(timeout=60), 0)
        return text.decode().replace("\r\n", "\n")

    def test_forty_columns(self):
        text = self.on_terminal(40, "count", "mod-60m", "dense-60m", env={"NO_COLOR": "1"})
        self.assertNotIn("\033", text)
        table = [line for line in text.splitlines() if line]
        self.assertLessEqual(max(map(len, table)), 40, text)

    def test_progress_is_one_line_with_the_estimate_so_far(self):
        for columns in (40, 120):
            text = self.on_terminal(columns, "run", "mod-tiny", "--backend", "reference", "--time", "2", talk=True, env={"TERM": "xterm"})
            lines = [line for line in text.split("\r\033[K") if line.strip()]
            shown = [line for line in lines if line.startswith("measuring")]
            self.assertGreater(len(shown), 1, text)
            self.assertLess(max(map(len, shown)), columns, text)
            if columns == 120:
                self.assertRegex(text, r"so far [0-9.]+ [mu]?s +[0-9]+ %")

    def test_colour_only_where_asked(self):
        self.assertNotIn("\033", self.run_fathom("count", "mod-60m", env={"NO_COLOR": ""}).stdout)
        self.assertNotIn("\033", self.on_terminal(100, "count", "mod-60m", "--color", "never"))
        self.assertNotIn("\033", self.on_terminal(100, "count", "mod-60m", env={"TERM": "dumb"}))
        self.assertIn("\033", self.on_terminal(100, "count", "mod-60m", env={"TERM": "xterm"}))
        self.assertIn("\033[", self.run_fathom("count", "mod-60m", "--color", "always").stdout)

    def test_names_that_are_no_utf8(self):
        name = b"mod\xff\xfe.ini"
        network = "[network]\nwidth = 64\nvocab = 256\nlayers = 2\nheads = 4\nmlp = 256\n"
        path = os.path.join(os.fsencode(self.folder), name)
        with open(path, "w") as file:
            file.write(network)
        for arguments in (["count", path], ["count", path, "-o", "json"], ["count", path, "-o", "csv"], ["sweep", path], ["sweep", path, "-o", "jsonl"]):
            done = subprocess.run([ARGUMENTS.fathom, *arguments], capture_output=True, cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            done.stdout.decode("utf-8")
        # What Reproduce shows is run by a shell and gives the same record.
        for asked in (path, os.fsencode(self.folder) + b"/it's one.ini"):
            shutil.copy(path, asked) if asked != path else None
            command = json.loads(subprocess.run([ARGUMENTS.fathom, "count", asked, "-o", "json"], capture_output=True).stdout)["arguments"]
            command.encode("ascii")
            again = subprocess.run(["bash", "-c", f"exec {shlex.quote(str(ARGUMENTS.fathom))} {command}"], capture_output=True)
            self.assertEqual(again.returncode, 0, command)
            self.assertEqual(json.loads(again.stdout)["arguments"], command)
        done = subprocess.run([ARGUMENTS.fathom, "count", b"nothing\xff"], capture_output=True)
        self.assertEqual(done.returncode, 3)


class Program(CliTest):
    def test_a_server_with_memory_to_spare(self):
        """Where memory holds more sequences than a server runs at once, the answer is of those 1024."""
        record = self.json("predict", "mod-60m", "--phase", "decode", "--context", "256", "--on", "h200", "-o", "json")
        totals = record["totals"]
        self.assertGreater(totals["concurrency"], 1024)
        self.assertAlmostEqual(totals["served_tokens_per_s"] * totals["served_s"], 1024)
        self.assertIn("1024 sequences", str(record["notes"]))
        small = self.json("predict", "llama-3-8b", "--phase", "decode", "--context", "32768", "--on", "h200", "-o", "json")["totals"]
        self.assertLess(small["concurrency"], 1024)
        self.assertAlmostEqual(small["served_tokens_per_s"] * small["served_s"], small["concurrency"])

    def test_what_is_listed_is_no_command(self):
        self.refuses(2, "fathom list models", "models")
        self.refuses(2, "fathom list machines", "machines")

    def test_a_cache_that_may_not_be_entered(self):
        loop = self.folder / "loop"
        loop.symlink_to(loop)  # as with a folder without permission, asking whether a file is there fails; for root too
        result = self.run_fathom("predict", "mod-tiny", "--seq", "16", env={"XDG_CACHE_HOME": str(loop / "cache")})
        self.assertIn("could not be kept", result.stderr)
        self.assertIn("XDG_CACHE_HOME", result.stderr)
        self.assertNotIn("--save", result.stderr)

    def test_lists_and_explanations(self):
        models = self.run_fathom("list", "models").stdout
        for name in ("gpt2-124m", "llama-3-8b", "mod-60m", "demo-8x12"):
            self.assertIn(name, models)
        for what in ("machines", "backends", "ops", "columns"):
            self.assertGreater(len(self.run_fathom("list", what).stdout.splitlines()), 3)
        self.assertIn("flops_matmul", self.run_fathom("explain", "flops_matmul").stdout)
        self.run_fathom("explain", "gemm")
        self.assertIn("h200", self.run_fathom("list", "machines").stdout)

    def test_version(self):
        self.assertTrue(self.run_fathom("--version").stdout.startswith("fathom "))

    def test_predict_needs_no_probe_on_a_named_machine(self):
        totals = self.json("predict", "mod-60m", "--on", "h200", "-o", "json")["totals"]
        self.assertGreater(totals["predicted_s"], 0)
        self.refuses(3, "did you mean 'h200'?", "predict", "mod-60m", "--on", "h20")


if __name__ == "__main__":
    main()
