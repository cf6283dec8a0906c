"""`fathom run --corpus`: a text is learned from, and what cannot be learned from is refused."""

from _cli import ARGUMENTS, CliTest, main


class Corpus(CliTest):
    def setUp(self):
        super().setUp()
        if "not available" in self.run_fathom("check", "select", "--dtype", "f32", code=None).stderr:
            self.skipTest("no CPU backend in this build")

    def text(self):
        return ARGUMENTS.source / "tests/data/text/north_light.txt"

    def test_the_loss_falls(self):
        tables = self.json("run", "mod-tiny", "--phase", "train", "--batch", "2", "--seq", "32", "--corpus", self.text(), "--steps", "30", "-o", "json")["tables"]
        losses = [row["loss"] for row in tables["losses"]]
        self.assertEqual(tables["losses"][-1]["step"], 30)
        self.assertAlmostEqual(losses[0], 5.5, delta=0.2)  # ln 256
        self.assertLess(losses[-1], 4)
        self.assertEqual([row["selected"] for row in tables["predictors"]], [0.25, 0.25])
        self.assertEqual([row["share"] for row in tables["participation"]], [0.25, 0.25])

    def test_a_page_stands_alone(self):
        """What was asked, where it ran, and the command, as every other page has them."""
        page = self.run_fathom("run", "mod-tiny", "--batch", "2", "--seq", "32", "--corpus", self.text(), "--steps", "2", "-o", "md").stdout
        for words in ("Asked: train, 2 steps of 2 x 32 bytes on ", "## Machine and run", "| processor |", "### Reproduce", "--steps 2"):
            self.assertIn(words, page)

    def test_mistakes_are_refused(self):
        self.refuses(3, "cannot read", "run", "mod-tiny", "--corpus", "missing.txt")
        self.refuses(3, "too short", "run", "mod-tiny", "--corpus", self.write("a.txt", "abc"))
        self.refuses(3, "--phase train", "run", "mod-tiny", "--phase", "prefill", "--corpus", self.text())
        self.refuses(3, "vocabulary", "run", self.write("small.ini", "[network]\nwidth = 8\nvocab = 100\nlayers = 1\nheads = 1\nmlp = 16\n"), "--seq", "8", "--corpus", self.text())


if __name__ == "__main__":
    main()
