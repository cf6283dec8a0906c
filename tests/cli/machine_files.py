"""Machine files that were probed under load, and machines whose memory is too small: said on every use."""

from _cli import ARGUMENTS, CliTest, main


class MachineFiles(CliTest):
    def machine(self, name, *changes):
        text = (ARGUMENTS.source / "tests/golden/data/machine.ini").read_text()
        for old, new in changes:
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        self.write(name, text)
        return name

    def test_a_spoiled_probe_is_told_on_every_use(self):
        raised = self.machine("raised.ini", ("read.2 = 28 GB/s, datasheet: round figure", "read.2 = 14 GB/s, probed: as at 1 thread, because cores were taken away while more were probed (9e+09)"))
        wild = self.machine("wild.ini", ("read.1 = 14 GB/s, datasheet: round figure", "read.1 = 5.8 GB/s, probed: read of 393216 KiB per thread, 7 samples, spread 8870.0 %"))
        calm = self.machine("calm.ini", ("read.1 = 14 GB/s, datasheet: round figure", "read.1 = 14 GB/s, probed: read of 393216 KiB per thread, 7 samples, spread 12.0 %"))
        run = ["--backend", "fake", "--rounds", "5", "--threads", "2"]
        for file in (raised, wild, calm):
            said = self.assertNotIn if file == calm else self.assertIn
            for command in (["predict", "mod-tiny"], ["compare", "mod-tiny", *run], ["validate", "--quick", *run]):
                said("was busy when it was probed", " ".join(self.run_fathom(*command, "--on", file, "-q").stdout.split()), command)
            for command in (["sweep", "mod-tiny", "--do", "predict"], ["compare", "mod-tiny", *run, "-o", "json"]):
                said("was busy when it was probed", " ".join(self.run_fathom(*command, "--on", file).stderr.split()), command)

    def test_what_does_not_fit_has_no_time(self):
        # 8.03e9 parameters of 4 bytes: 32.1 GB.
        small = self.machine("small.ini", ("cores = 2", "cores = 2\nmemory = 24 GB, datasheet: reported by the system"))
        large = self.machine("large.ini", ("cores = 2", "cores = 2\nmemory = 64 GB, datasheet: reported by the system"))
        asked = ["predict", "llama-3-8b", "--seq", "16"]
        shown = " ".join(self.run_fathom(*asked, "--on", small).stdout.split())
        self.assertIn("does not fit: 32.", shown)
        self.assertIn("of 21.6 GB; largest: weights, 32.1 GB", shown)
        self.assertNotIn("--tp", shown)  # a CPU has no collectives
        self.assertGreater(self.json(*asked, "--on", large, "-o", "json")["totals"]["predicted_s"], 0)

    def test_a_name_in_other_case_is_the_nearest(self):
        self.refuses(3, "did you mean 'h200'?", "predict", "mod-tiny", "--on", "H200")
        self.refuses(3, "did you mean 'h100'?", "predict", "mod-tiny", "--on", "H100")
        self.refuses(3, "did you mean 'gpt2-124m'?", "count", "GPT2-124M")

    def test_the_devices_that_are_named_fit(self):
        told = self.run_fathom("predict", "llama-3-8b", "--phase", "train", "--batch", "16", "--on", "l40s").stdout
        self.assertIn("does not fit", told)
        self.assertNotIn("(--tp 8) fit", " ".join(told.split()))  # 66 GB of 43.2 on each


if __name__ == "__main__":
    main()
