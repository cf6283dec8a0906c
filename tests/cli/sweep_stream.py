"""fathom sweep as a stream: interrupts, half-written rows, closed pipes, full disks, and memory that does not grow."""

import csv
import io
import os
import pathlib
import signal
import subprocess
import time

from _cli import ARGUMENTS, CliTest, main, sanitized


class SweepStream(CliTest):
    def rows(self, *arguments, **keywords):
        return list(csv.DictReader(io.StringIO(self.run_fathom("sweep", *arguments, **keywords).stdout)))

    def test_interrupt_keeps_rows(self):
        file = self.folder / "rows.csv"
        program = subprocess.Popen([ARGUMENTS.fathom, "sweep", "dense-60m", "--seq", "1:2048", "--batch", "1:100000", "--save", str(file), "--jobs", "2"],
                                   stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(600):
            if file.exists() and file.stat().st_size > 20000:
                break
            time.sleep(0.05)
        program.send_signal(signal.SIGINT)
        _, talk = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130, talk)
        text = file.read_text()
        self.assertTrue(text.endswith("\n"))
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertGreater(len(rows), 10)
        self.assertEqual([int(r["batch"]) for r in rows], [i % 100000 + 1 for i in range(len(rows))])
        self.assertIn(b"--resume", talk)

    def test_an_interrupt_before_the_first_row_has_nothing_to_continue(self):
        command = ["sweep", "mod-60m", "--do", "compare", "--backend", "reference", "--on", str(ARGUMENTS.source / "tests/golden/data/machine.ini"), "--time", "60", "--save", str(self.folder / "rows.csv")]
        program = subprocess.Popen([ARGUMENTS.fathom, *command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        time.sleep(2)  # a pass of the reference kernels takes longer
        program.send_signal(signal.SIGINT)
        _, talk = program.communicate(timeout=120)
        self.assertEqual(program.returncode, 130, talk)
        self.assertIn(b"interrupted after 0 of 1", talk)
        self.assertNotIn(b"--resume", talk)

    def test_half_a_measurement_is_no_row(self):
        file = self.folder / "rows.csv"
        command = ["sweep", "mod-tiny", "--seq", "16:64:16", "--do", "compare", "--backend", "reference", "--on", str(ARGUMENTS.source / "tests/golden/data/machine.ini"), "--time", "1", "--save", str(file)]
        program = subprocess.Popen([ARGUMENTS.fathom, *command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for _ in range(600):
            if file.exists() and file.read_text().count("\n") >= 2:
                break
            time.sleep(0.05)
        time.sleep(0.2)  # the second row is being measured
        program.send_signal(signal.SIGINT)
        _, talk = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130, talk)
        kept = file.read_text()
        rows = list(csv.DictReader(io.StringIO(kept)))
        self.assertTrue(1 <= len(rows) < 4, kept)
        self.assertTrue(all(row["measured_s"] for row in rows), kept)
        # As earlier versions left it, last or with rows behind it: a row without its figures is measured again, the others stay as they are.
        self.run_fathom(*command, "--resume")
        whole = file.read_text()
        lines = whole.splitlines(keepends=True)
        self.assertEqual(len(lines), 5)
        columns = lines[0].rstrip("\n").split(",")
        half = lambda line: ",".join({"measured_s": "", "spread": "0", "error": "", "verdict": "skipped"}.get(name, value) for name, value in zip(columns, line.rstrip("\n").split(","))) + "\n"
        for cut, kept in (((4,), (1, 2, 3)), ((1, 3), (2, 4)), ((2,), (1,))):
            broken = [half(line) if i in cut else line for i, line in enumerate(lines[:max(*cut, *kept) + 1])]
            self.assertNotEqual(broken, lines[:len(broken)])
            file.write_text("".join(broken))
            talk = self.run_fathom(*command, "--resume").stderr
            self.assertIn(f"measured again: {len(cut)} row", talk)
            self.assertIn(f"{len(broken) - 1} of 4 rows are in", talk)
            mended = file.read_text().splitlines(keepends=True)
            self.assertEqual([mended[i] for i in (0, *kept)], [lines[i] for i in (0, *kept)])
            rows = list(csv.DictReader(io.StringIO("".join(mended))))
            self.assertEqual([(row["seq"], bool(row["measured_s"])) for row in rows], [("16", True), ("32", True), ("48", True), ("64", True)])

    def test_closed_pipe(self):
        program = subprocess.Popen([ARGUMENTS.fathom, "sweep", "dense-60m", "--seq", "1:2048", "--batch", "1:100000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(program.stdout.readline().startswith(b"model,"))
        program.stdout.close()
        self.assertEqual(program.wait(timeout=60), 0)
        self.assertEqual(program.stderr.read(), b"")
        program.stderr.close()

    def test_full_disk(self):
        if not pathlib.Path("/dev/full").exists():
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([ARGUMENTS.fathom, "sweep", "mod-tiny"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"No space left", done.stderr)

    def test_memory_does_not_grow(self):
        if sanitized():
            self.skipTest("a sanitizer holds freed memory back")
        def peak(batch):
            with open(os.devnull, "wb") as nowhere:
                program = subprocess.Popen([ARGUMENTS.fathom, "sweep", "mod-tiny", "--seq", "16,32", "--batch", batch, "--jobs", "1"], stdout=nowhere)
                _, status, usage = os.wait4(program.pid, 0)
                program.returncode = status
            self.assertEqual(status, 0)
            return usage.ru_maxrss

        self.assertLess(peak("1:20000") - peak("1:2000"), 4096)  # KiB

    def test_a_range_is_three_numbers(self):
        """Millions of values of any axis take no more memory than ten: one row is read, and the program ends with its reader."""
        if sanitized():
            self.skipTest("a sanitizer holds freed memory back")

        def peak(*arguments):
            program = subprocess.Popen([ARGUMENTS.fathom, "sweep", "dense-60m", *arguments, "--jobs", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            program.stdout.readline()
            program.stdout.readline()
            program.stdout.close()
            _, status, usage = os.wait4(program.pid, 0)
            program.returncode = status
            self.assertEqual(status, 0, arguments)
            return usage.ru_maxrss

        small = peak("--seq", "1:10", "--batch", "1:100000")
        for arguments in (("--seq", "1:5000000:1"), ("--seq", "1:10000000000:3,7"), ("--set", "mlp=64:2000000000:64"), ("--set", "window=1:4000000", "--seq", "1:4000000"), ("--mod-every", "2", "--capacity", "0.000001:1:0.000001"),
                          ("--mod-every", "2", "--slots", "0:9000000"), ("--phase", "decode", "--mod-every", "2", "--participation", "0.000001:1:0.000001"), ("--phase", "generate", "--prompt", "1:5000000", "--tokens", "2,3")):
            self.assertLess(peak(*arguments, "--batch", "1:100000") - small, 4096, arguments)  # KiB
        rows = self.rows("dense-60m", "--seq", "999999999:1000000001", "--columns", "flops")
        self.assertEqual([row["seq"] for row in rows], ["999999999", "1000000000", "1000000001"])


