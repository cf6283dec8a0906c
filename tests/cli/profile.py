"""--profile as a user sees it, on the fake backend: passes in child processes, the ladder, records, refusals."""

import shutil
import subprocess

from _cli import ARGUMENTS, CliTest, main
from _record import record_errors


class Profile(CliTest):
    def compare(self, *arguments, **keywords):
        machine = str(ARGUMENTS.source / "tests/golden/data/machine.ini")
        return self.json("compare", "mod-tiny", "--backend", "fake", "--on", machine, "--rounds", "3", "--dtype", "bf16", "-o", "json", *arguments, **keywords)

    def test_counters_reach_the_record(self):
        record = self.compare("--profile", "counters")
        self.assertEqual(record_errors(ARGUMENTS.source, record), [])
        self.assertEqual(record["command"], "compare")
        self.assertIn("--profile counters", record["arguments"])
        self.assertEqual(record["totals"]["rung"], "counters+activity")
        self.assertEqual(record["environment"]["chip"], "GH100")
        for op in record["ops"]:
            self.assertEqual(op["rung"], "counters+activity", op["path"])
            self.assertGreater(op["kernels"], 0)
            self.assertAlmostEqual(op["kernel_s"], 0.9 * op["measured_s"], delta=1e-3 * op["measured_s"])
            if op["flops_matmul"] > 0:
                self.assertAlmostEqual(op["counter_flops_ratio"], 1.0625, places=6)
        self.assertAlmostEqual(sum(op["kernel_s"] for op in record["ops"]), record["totals"]["kernel_s"], delta=1e-9)

    def test_many_configurations_in_one_call(self):
        record = self.compare("--batch", "1,2", "--phase", "prefill", "--phase", "decode", "--profile", "counters")
        self.assertEqual(len(record["results"]), 4)
        for result in record["results"]:
            self.assertEqual(result["totals"]["rung"], "counters+activity")
            self.assertTrue(all("kernel_s" in op and "sm_cycles" in op for op in result["ops"]))

    def test_activity_alone(self):
        record = self.compare("--profile", "activity")
        self.assertEqual(record["totals"]["rung"], "activity")
        self.assertNotIn("dram_bytes_read", record["ops"][0])

    def test_events_alone(self):
        record = self.compare("--profile", "events")
        self.assertEqual(record["totals"]["rung"], "events")
        self.assertNotIn("kernel_s", record["ops"][0])

    def test_off_is_silent(self):
        record = self.compare("--profile", "off")
        self.assertNotIn("rung", record["totals"])

    def test_the_ladder(self):
        record = self.compare("--profile", "counters", "--fake-profiler", "counters=35")
        self.assertEqual(record["totals"]["rung"], "activity")
        self.assertIn("GPU counters are restricted to administrators (RmProfilingAdminOnly: 1, CAP_SYS_ADMIN missing); kernel times still work", record["totals"]["rung_reason"])
        record = self.compare("--profile", "counters", "--fake-profiler", "subscribe=39,counters=26")
        self.assertEqual(record["totals"]["rung"], "events")
        self.assertIn("CUPTI is in use by another profiler", record["totals"]["rung_reason"])
        self.assertIn("another profiler or DCGM holds the GPU counters", record["totals"]["rung_reason"])
        self.assertNotIn("kernel_s", record["ops"][0])

    def test_an_empty_profile_is_a_fall_and_no_zero(self):
        record = self.compare("--profile", "activity", "--fake-profiler", "silent=1")
        self.assertEqual(record["totals"]["rung"], "events")
        self.assertIn("the tracer records nothing", record["totals"]["rung_reason"])

    def test_lost_stamps_are_a_status(self):
        record = self.compare("--profile", "activity", "--fake-profiler", "stamps=2")
        self.assertIsNone(record["ops"][0]["kernel_s"])
        self.assertIn("carry no time", record["ops"][0]["status"]["kernel_s"])
        self.assertEqual(record["ops"][0]["rung"], "events")
        self.assertEqual(record_errors(ARGUMENTS.source, record), [])

    def test_require(self):
        machine = str(ARGUMENTS.source / "tests/golden/data/machine.ini")
        common = ["compare", "mod-tiny", "--backend", "fake", "--on", machine, "--rounds", "3", "--profile", "require"]
        self.assertIn("counters+activity", self.run_fathom(*common, "--width", "200").stdout)
        self.refuses(4, ["--profile require is not met", "restricted to administrators"], *common, "--fake-profiler", "counters=35")

    def test_only_where_there_is_something_to_read(self):
        self.refuses(3, ["on the cuda backend only", "--backend cuda"], "run", "mod-tiny", "--backend", "reference", "--profile", "counters")
        self.refuses(3, "did you mean 'counters'?", "run", "mod-tiny", "--backend", "fake", "--profile", "counter")
        self.refuses(3, "only the fake profiler fails on request", "run", "mod-tiny", "--backend", "cuda", "--fake-profiler", "silent=1", "--profile-pass", "activity")

    def test_nothing_is_linked_against_the_profiler(self):
        """CUPTI is opened when a profile is asked for; a process that only measures time never has it."""
        if not shutil.which("readelf"):
            self.skipTest("readelf is not installed")
        files = [ARGUMENTS.fathom, *ARGUMENTS.binary.glob("libfathom_cuda.so")]
        for file in files:
            needed = subprocess.run(["readelf", "-d", str(file)], capture_output=True, text=True, check=True, timeout=60).stdout
            self.assertIn("NEEDED", needed)
            for library in ("libcupti", "libnvperf", "libcuda.so"):
                self.assertNotIn(library, needed, str(file))

    def test_a_refused_time_pass_is_the_refusal(self):
        self.refuses(3, "did you mean", "run", "mod-tinny", "--backend", "fake", "--profile", "counters")

    def test_files_and_saved_records(self):
        self.compare("--profile", "counters", "--save", "r.json", "--save", "r.md")
        self.assertIn("Profile of mod-tiny", (self.folder / "r.md").read_text())
        again = self.run_fathom("report", "r.json", "--ops", "--width", "200").stdout
        self.assertIn("counters+activity", again)
        self.assertIn("dram", again.lower())


if __name__ == "__main__":
    main()
