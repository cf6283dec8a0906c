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
        self.refuses(2, "--text needs a value", "trace", "mod-tiny", "--text", "")
        text = self.notes("trace", "mod-tiny", "--backend", "reference", "--on", "h200", "--classes", self.write("c", "vowels aeiou\n"))
        self.assertIn("--on changes nothing here: only --timeline predicts", text)
        self.assertIn("--classes changes nothing here", text)
        self.assertIn("nothing runs", self.notes("trace", "dense-60m", "--seed", "3"))

    def test_sweep(self):
        self.refuses(3, ["--jobs", "at least 1"], "sweep", "mod-tiny", "--jobs", "0")
        measured = ("--backend", "fake", "--time", "3", "--rounds", "2", "--seed", "5")
        predicted = ("--predictor", "light", "--launch", "graph", "--kernels", "library", "--threads", "2")
        text = self.notes("sweep", "mod-tiny", *measured, *predicted, "--ops")
        for flag in (*measured[::2], *predicted[::2], "--ops"):
            self.assertIn(f"{flag} changes nothing here", text)
        text = self.notes("sweep", "mod-tiny", "--do", "predict", "--on", "h200", *measured, *predicted)
        for flag in (*measured[::2], "--threads"):
            self.assertIn(f"{flag} changes nothing here", text)
        for flag in predicted[:-2:2]:
            self.assertNotIn(f"{flag} changes", text)
        self.assertNotIn("changes nothing", self.notes("sweep", "mod-tiny", "--do", "compare", *self.fake, "--rounds", "2", "--seed", "3", "--predictor", "light"))
        self.assertIn("--rounding changes nothing here", self.notes("sweep", "dense-60m", "--slots", "3", "--rounding", "ceil"))

    def test_unknown_names_are_refused_by_who_does_not_read_them(self):
        for arguments, word in ((("sweep", "mod-tiny", "--predictor", "physics"), "unknown predictor"), (("sweep", "mod-tiny", "--backend", "gpu"), "did you mean 'cuda'?"),
                                (("plan", "--predictor", "physics"), "unknown predictor"), (("count", "gpt2-124m", "--phase", "generate", "--convention", "plam"), "did you mean 'palm'?"),
                                (("explain", "realised", "--dtype", "f33"), "unknown data type"), (("explain", "convention", "palm", "gpt2-124m", "--routing", "tpk"), "did you mean 'topk'?"),
                                (("trace", "dense-60m", "--predictor", "physics"), "unknown predictor")):
            self.refuses(3, (arguments[-2], word), *arguments)

    def test_generation(self):
        generate = ("count", "gpt2-124m", "--phase", "generate", "--prompt", "8", "--tokens", "3")
        plain = self.json(*generate, "-o", "json")
        for flag, *value in (("--logits", "all"), ("--seq", "99"), ("--ops",)):
            for form in ("json", "csv"):
                result = self.run_fathom(*generate, flag, *value, "-o", form)
                self.assertIn(f"{flag} changes nothing here", result.stderr)
                self.assertIn("1932304896", result.stdout)
        self.assertNotIn("changes nothing", self.notes(*generate, "--logits", "last"))
        self.assertNotIn("changes nothing", self.notes("count", "gpt2-124m", "--phase", "generate", "--seq", "8", "--tokens", "3"))
        palm = self.json(*generate, "--convention", "palm", "-o", "json")["convention"]
        self.assertEqual(palm["name"], "palm")
        self.assertIn("whole sequences", str(palm["flops"]) + self.notes(*generate, "--convention", "palm"))
        # The square instead of the triangle, in the prefill: 8 x 7 / 2 pairs more, 12 layers, 4 x 768 FLOP each.
        full = self.json(*generate, "--convention", "full", "-o", "json")
        self.assertEqual(full["convention"]["flops"] - plain["totals"]["flops_matmul"], 28 * 12 * 4 * 768)

    def test_lengths(self):
        decode = ("count", "gpt2-124m", "--phase", "decode", "--context", "5", "--seq", "7")
        self.assertIn("--seq changes nothing here: --context", self.notes(*decode))
        self.assertNotIn("--seq changes", self.notes(*decode, "--phase", "prefill"))
        self.assertIn("--seq changes nothing here: --context", self.notes("sweep", *decode[1:]))
        self.assertIn("--mla changes nothing here", self.notes("count", "latent-attention", "--phase", "train", "--seq", "16", "--mla", "decompress"))
        for command in ("count", "sweep"):
            self.assertIn("--mla decompress is naive in training", self.notes(command, "deepseek-v3", "--phase", "train,decode", "--seq", "16", "--mla", "decompress"))
        self.assertNotIn("naive in training", self.notes("count", "deepseek-v3", "--phase", "decode", "--mla", "decompress"))
        for kv, past, told in (("bf16", (), True), ("f32", (), False), ("bf16", ("--past", "8"), False)):
            for command in ("count", "sweep"):
                self.assertEqual("reads the keys and values that it has just made" in self.notes(command, "dense-60m", "--seq", "8", "--kv-dtype", kv, *past), told, (command, kv, past))
        self.assertIn("--rounding changes nothing here", self.notes("count", "dense-60m", "--slots", "3", "--rounding", "ceil"))

    def test_explain(self):
        text = self.run_fathom("explain", "convention", "palm", "gpt2-124m", "--seq", "7,9", "--phase", "decode", "--batch", "3", "--full-mask", "--ops").stderr
        for words in ("one configuration is explained: gpt2-124m, decode, batch 3, context 7; the 1 others", *(f"{flag} changes nothing here: a convention" for flag in ("--phase", "--batch", "--full-mask")), "--ops changes nothing here"):
            self.assertIn(words, text)
        text = self.run_fathom("explain", "attn/core", "gpt2-124m", "--seq", "7", "--phase", "train", "--phase", "prefill", "--on", "h200", "--peak", "1TFLOP/s", "--step-time", "1s").stderr
        for words in ("one configuration is explained: gpt2-124m, train", "--on changes nothing here", "--peak changes nothing here"):
            self.assertIn(words, text)
        self.assertIn("--seq changes nothing here: no MODEL", self.run_fathom("explain", "realised", "--seq", "7").stderr)
        self.assertIn("--batch changes nothing here", self.run_fathom("explain", "gemm", "64x64x64", "--batch", "7", "--on", "h100").stderr)
        for quiet in (("convention", "palm", "gpt2-124m", "--seq", "7"), ("attn/core", "gpt2-124m", "--seq", "7", "--phase", "decode", "--batch", "2"), ("gemm", "64x64x64", "--on", "h100"), ("realised",)):
            self.assertEqual(self.run_fathom("explain", *quiet).stderr, "")

    def test_keys_of_a_file(self):
        base = "[network]\nwidth = 64\nvocab = 100\nlayers = 2\nheads = 4\n"
        experts, route = "[moe]\nexperts = 4\npicks = 2\nexpert_width = 32\n", "[route]\nevery = 2\ncapacity = 1/4\n"
        for words, text in (
            ("line 6: rope_base changes nothing: no block rotates", base + "rope_base = 1e6\npositions = none\n"), ("line 6: norm_bias changes nothing: an RMS norm", base + "norm_bias = no\n"),
            ("line 6: parallel_norms changes nothing: the block is not parallel", base + "parallel_norms = 1\n"), ("sinks changes nothing: the block has no attention", base + "mlp = 8\nattention = no\nsinks = yes\n"),
            ("expert_rounding changes nothing", base + experts + "expert_rounding = ceil\n"),
            ("gate_beta changes nothing: only the gate tanh", base + route + "gate_beta = 0.5\n"), ("gate_on changes nothing: there is no gate", base + "mlp = 8\n" + route + "gate = none\ngate_on = mlp\n"),
            ("aux_detached changes nothing", base + route + "aux_lambda = 0\naux_detached = yes\n"), ("rounding changes nothing: slots", base + "[route]\nevery = 2\nslots = 3\nrounding = ceil\n"),
            ("shared experts get none", base + experts + "shared_experts = 1\n[lora]\nrank = 2\ntargets = up\n"),
            ("line 10: sinks changes nothing", "[network]\nwidth = 64\nvocab = 100\nheads = 4\npattern = a b\n[block.a]\nmlp = 8\n[block.b]\nattention = no\nsinks = yes\nmlp = 8\n"),
        ):
            self.assertIn(words, self.notes("count", self.write("idle.ini", text), "--seq", "16"))
        for text in (base + "mlp = 8\nrope_base = 1e6\n", base + "mlp = 8\nsinks = no\nnorm_bias = yes\nparallel_norms = 2\n", base + "mlp = 8\n" + route + "gate = tanh\ngate_beta = 0.5\ngate_alpha = 2\n",
                     base + "mlp = 8\n[lora]\nrank = 2\ntargets = up\n",
                     "[network]\nwidth = 64\nvocab = 100\nheads = 4\nsinks = yes\npattern = a b\n[block.a]\nmlp = 8\n[block.b]\nattention = no\nmlp = 8\n"):
            self.assertNotIn("changes nothing", self.notes("count", self.write("read.ini", text), "--seq", "16"))

    def test_logits_of_a_convention(self):
        palm = ("count", "gpt2-124m", "--seq", "16", "--convention", "palm")
        self.assertIn("convention palm counts the logits of every position", self.notes(*palm))
        for also in (("--logits", "all"), ("--phase", "train")):
            self.assertNotIn("logits of every position", self.notes(*palm, *also))


if __name__ == "__main__":
    main()
