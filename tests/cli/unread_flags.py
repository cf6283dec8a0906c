"""Options that a call does not read are named in a note, values that mean nothing are refused."""

from _cli import ARGUMENTS, CliTest, main

MACHINE = "tests/golden/data/machine.ini"


class UnreadFlags(CliTest):
    def setUp(self):
        super().setUp()
        self.fake = ["--backend", "fake", "--on", ARGUMENTS.source / MACHINE, "--threads", "2"]

    def notes(self, *arguments):
        result = self.run_fathom(*arguments)
        return result.stdout + result.stderr

    def test_run(self):
        text = self.notes("run", "mod-tiny", "--backend", "fake", "--rounds", "2", "--steps", "7", "--learning-rate", "0.1", "--time", "3")
        self.assertIn("--steps changes nothing here: only training on a text (--corpus FILE) reads it", text)
        self.assertIn("--learning-rate changes nothing here", text)
        self.assertIn("--time changes nothing here: --rounds says how long", text)
        self.assertNotIn("--rounds changes", text)
        self.write("t.txt", "to be or not to be, that is the question. " * 20)
        text = self.notes("run", "mod-tiny", "--backend", "reference", "--corpus", "t.txt", "--steps", "2", "--seq", "16", "--rounds", "3")
        self.assertIn("--rounds changes nothing here", text)
        self.refuses(3, ["--steps", "at least 1"], "run", "mod-tiny", "--corpus", "t.txt", "--steps", "0")
        self.refuses(3, ["--learning-rate"], "run", "mod-tiny", "--corpus", "t.txt", "--learning-rate", "-1")

    def test_a_seed_is_read_in_training(self):
        self.write("t.txt", "to be or not to be, that is the question. " * 20)
        def losses(seed):
            return self.run_fathom("run", "mod-tiny", "--backend", "reference", "--corpus", "t.txt", "--steps", "2", "--seq", "16", "--seed", seed, "-o", "csv").stdout
        self.assertEqual(losses("1"), losses("1"))
        self.assertNotEqual(losses("1"), losses("2"))

    def test_compare_and_predict(self):
        text = self.notes("compare", "mod-tiny", *self.fake, "--rounds", "2", "--launch", "graph", "--kernels", "library")
        self.assertIn("--launch changes nothing here: only a GPU reads it", text)
        self.assertIn("--kernels changes nothing here", text)
        text = self.notes("predict", "mod-220m", "--on", "h200", "--threads", "3", "--zero", "1", "--grade")
        for flag in ("--threads", "--zero", "--grade"):
            self.assertIn(f"{flag} changes nothing here", text)
        self.assertNotIn("--zero changes", self.notes("predict", "mod-220m", "--on", "h200", "--dp", "2", "--batch", "2", "--phase", "train", "--zero", "1"))

    def test_records(self):
        self.run_fathom("compare", "mod-tiny", *self.fake, "--rounds", "2", "--save", "a.json")
        text = self.notes("compare", "a.json", "a.json", "--batch", "4", "--time", "3", "--fail-on", "counts")
        self.assertIn("--batch changes nothing here: saved records are compared as they are", text)
        self.assertIn("--time changes nothing here", text)
        self.assertNotIn("--fail-on changes", text)

    def test_trace(self):
        self.refuses(3, "the text is empty", "trace", "mod-tiny", "--text", "")
        text = self.notes("trace", "mod-tiny", "--backend", "reference", "--on", "h200", "--classes", self.write("c", "vowels aeiou\n"))
        self.assertIn("--on changes nothing here: only --timeline predicts", text)
        self.assertIn("--classes changes nothing here", text)
        self.assertIn("nothing runs", self.notes("trace", "dense-60m", "--seed", "3"))

    def test_sweep(self):
        self.refuses(3, ["--jobs", "at least 1"], "sweep", "mod-tiny", "--jobs", "0")


if __name__ == "__main__":
    main()
