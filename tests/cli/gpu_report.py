"""tools/gpu_report.sh, the one prepared run on a GPU machine: its time limits, and a whole dry run on the fake backend."""

import json
import pathlib
import re
import shutil
import subprocess

from _cli import ARGUMENTS, CliTest, main
from _record import record_errors

FILES = {"run.log", "report.md", "check.txt", "machine.ini", "timing.json", "counters.json", "compare.jsonl", "decode.json"}


class GpuReport(CliTest):
    def script(self):
        return ARGUMENTS.source / "tools/gpu_report.sh"

    def test_limits_sum_to_at_most_480_seconds(self):
        limits = [int(n) for n in re.findall(r"^\s*(?:stage|compare) (\d+) ", self.script().read_text(), re.MULTILINE)]
        self.assertGreaterEqual(len(limits), 8)
        self.assertLessEqual(sum(limits), 480)

    def test_dry_run(self):
        out = self.folder / "out"
        done = subprocess.run(["bash", str(self.script()), "--dry-run", str(out)], env={"PATH": "/usr/bin:/bin", "FATHOM": str(ARGUMENTS.fathom), "HOME": str(self.folder)},
                              capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({path.name for path in out.iterdir()}, FILES, done.stderr)
        log = (out / "run.log").read_text()
        ended = dict(re.findall(r"^stage (\w+): rc (\d+)", log, re.MULTILINE))
        self.assertEqual(ended, dict.fromkeys(["machine", "timing", "counters", "pair_220m", "pair_gpt2", "pair_8b", "decode", "launch_graph", "launch_buckets", "launch_eager", "questions"], "0"), log)
        report = (out / "report.md").read_text()
        for heading in ["The machine", "Correctness", "Times and fractions of peak", "Counters against counts", "Pair: 220M", "Pair: GPT-2", "Pair: two blocks of 8B shape", "Decode latency", "Decode steps launched as: buckets", "Questions"]:
            self.assertIn(heading, report)
        self.assertNotIn("Nothing: see run.log", report)
        counters = json.loads((out / "counters.json").read_text())
        self.assertEqual({result["totals"]["rung"] for result in counters["results"]}, {"counters+activity"})
        pairs = [json.loads(line) for line in (out / "compare.jsonl").read_text().splitlines()]
        self.assertEqual(len(pairs), 6)
        for record in [counters, *pairs, json.loads((out / "timing.json").read_text()), json.loads((out / "decode.json").read_text())]:
            self.assertEqual(record_errors(ARGUMENTS.source, record), [])
        steps = re.search(r"^\| decode step: one graph, graphs by row count, op by op \| batch 1: graph [0-9.]+ ms, buckets [0-9.]+ ms, eager [0-9.]+ ms; batch 16: ", report, re.MULTILINE)
        self.assertTrue(steps, report[report.find("## Questions"):])
        self.assertRegex(report, r"(?m)^\| chip as CUPTI names it, FLOP per math_op \| GH100; one math_op is 2 FLOP \|")
        for record in pairs[:3]:   # every routed model was measured with its dense twin
            self.assertTrue(any("measured_ratio" in result["totals"] for result in record["results"]))

    def test_without_a_device_every_stage_says_so_and_the_next_runs(self):
        module = pathlib.Path(ARGUMENTS.binary) / "libfathom_cuda.so"
        environment = {"PATH": "/usr/bin:/bin", "FATHOM": str(ARGUMENTS.fathom), "FATHOM_CUDA_MODULE": str(module), "HOME": str(self.folder)}
        listed = subprocess.run([ARGUMENTS.fathom, "list", "backends", "-o", "csv"], env=environment, capture_output=True, text=True, timeout=60)
        reason = re.search(r"^cuda,.*unavailable: ([^(,\n\"]*)", listed.stdout, re.MULTILINE)
        if not reason:
            self.skipTest("this machine has a GPU")
        out = self.folder / "out"
        done = subprocess.run(["bash", str(self.script()), str(out)], env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 1, done.stderr)
        log = (out / "run.log").read_text()
        ended = dict(re.findall(r"^stage (\w+): rc (\d+)", log, re.MULTILINE))
        self.assertEqual(ended.pop("machine"), "0", log)
        self.assertEqual(ended.pop("questions"), "0", log)   # each says that this run did not tell
        self.assertEqual(ended.pop("sanitizer", "4"), "4", log)
        self.assertEqual(ended, dict.fromkeys(["check", "calibrate", "timing", "counters", "pair_220m", "pair_gpt2", "pair_8b", "decode", "launch_graph", "launch_buckets", "launch_eager"], "4"), log)
        self.assertEqual(log.count("the cuda backend is not available: " + reason[1].strip()), len(ended), log)
        self.assertEqual({path.name for path in out.iterdir()}, FILES)

    def test_questions_are_answered_from_what_the_files_say(self):
        out = self.folder / "out"
        out.mkdir()
        ask = lambda: subprocess.run(["python3", str(ARGUMENTS.source / "tools/gpu_questions.py"), str(out)], capture_output=True, text=True, timeout=60)
        nothing = ask()
        self.assertEqual(nothing.returncode, 0, nothing.stderr)
        self.assertNotIn("None", nothing.stdout)
        self.assertGreaterEqual(nothing.stdout.count("not told by this run"), 10)
        (out / "check.txt").write_text("# a GPU\n\n part         cases  worst error  tolerance  status\n mma_16816       64      1.2e-07      1e-05  ok\n"
                                       " ldmatrix_x4     64      differs          0  3 wrong, case 0, lane 1, word 2: 0x00000001 instead of 0x00000002\n")
        (out / "counters.json").write_text("{ cut off")
        said = ask()
        self.assertIn("ldmatrix_x4: 3 wrong, case 0, lane 1, word 2: 0x00000001 instead of 0x00000002", said.stdout)
        self.assertNotIn("mma_16816", said.stdout)

    def test_without_a_program_it_says_what_to_do(self):
        shutil.copytree(self.script().parent, self.folder / "tools")
        done = subprocess.run(["bash", str(self.folder / "tools/gpu_report.sh"), str(self.folder / "out")], env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}, capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("--prepare", done.stderr)

    def test_shellcheck(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not installed")
        done = subprocess.run(["shellcheck", str(self.script())], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    main()
