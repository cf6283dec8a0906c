"""Flags of what is counted beyond the default: stored widths, expert loads, recomputation by name, fusions; and one convention per report."""

import csv
import io

from _cli import ARGUMENTS, CliTest, main

COHERE = '''{"model_type": "cohere", "hidden_size": 64, "vocab_size": 100, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
 "layer_norm_eps": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": true}'''


class CountedFlags(CliTest):
    def totals(self, *arguments):
        return self.json("count", *arguments, "-o", "json")["totals"]

    def test_widths(self):
        # Llama 3 8B: 6,979,321,856 bytes of matrices at one byte, the other 1,050,939,392 parameters at two.
        narrow = self.json("count", "llama-3-8b", "--phase", "decode", "--dtype", "bf16", "--weight-dtype", "f8", "--kv-dtype", "f8", "-o", "json")
        self.assertEqual(narrow["totals"]["weight_bytes"], 9081200640)
        self.assertEqual(narrow["totals"]["kv_bytes_per_token"], 65536)
        self.assertEqual((narrow["scenario"]["weight_dtype"], narrow["scenario"]["kv_dtype"]), ("f8", "f8"))
        self.assertEqual(self.totals("llama-3-8b", "--phase", "decode", "--dtype", "bf16")["weight_bytes"], 2 * 8030261248)
        self.refuses(3, "compute type", "count", "llama-3-8b", "--phase", "train", "--dtype", "bf16", "--weight-dtype", "f8")
        self.refuses(3, "stored in", "count", "llama-3-8b", "--weight-dtype", "i32")
        self.refuses(2, "--weight-dtype", "run", "mod-tiny", "--weight-dtype", "f8")  # counted, not run

    def test_flags_of_other_phases(self):
        for flag, value, phase, reader in (("--context", "5", "prefill", "decode"), ("--recompute", "full", "prefill", "train"), ("--past", "3", "train", "prefill")):
            for asked, expected in ((phase, 1), (reader, 0)):
                notes = self.json("count", "dense-60m", "--phase", asked, flag, value, "-o", "json").get("notes", [])
                self.assertEqual(sum(f"{flag} changes nothing here" in str(note) for note in notes), expected, (flag, asked))

    def test_flags_that_a_model_has_no_part_for(self):
        def said(model, *arguments):
            notes = self.json("count", model, *arguments, "-o", "json").get("notes", [])
            return [note["text"] for note in notes if "changes nothing" in note["text"]]

        for model, phase, flag, value in (
            ("gpt2-124m", "prefill", "--mla", "absorbed"), ("mixtral-8x7b", "decode", "--mla", "naive"), ("gpt2-124m", "decode", "--routing", "threshold"),
            ("mode-integrated", "prefill", "--routing", "predictor"), ("mixtral-8x7b", "prefill", "--participation", "0.3"), ("mod-60m", "prefill", "--participation", "0.3"),
            ("mod-60m", "decode", "--routing", "topk"), ("dense-60m", "train", "--kv-page", "7"), ("dense-60m", "train", "--logits", "none"),
        ):
            base = self.totals(model, "--phase", phase)
            self.assertEqual(self.totals(model, "--phase", phase, flag, value), base, (model, flag))
            self.assertEqual(sum(text.startswith(flag + " ") for text in said(model, "--phase", phase, flag, value)), 1, (model, phase, flag))
            # On stderr too, and in a sweep.
            self.assertIn(f"{flag} changes nothing", self.run_fathom("count", model, "--phase", phase, flag, value, "-o", "csv").stderr)
            self.assertIn(f"{flag} changes nothing", self.run_fathom("sweep", model, "--phase", phase, flag, value).stderr)
        self.assertTrue(said("gpt2-124m", "--strict"))
        self.assertTrue(said("gpt2-124m", "--phase", "decode", "--full-mask"))
        # Where they do something, nothing is said.
        for model, *arguments in (
            ("latent-attention", "--mla", "absorbed"), ("mod-60m", "--routing", "threshold"), ("mod-60m", "--routing", "threshold", "--participation", "0.3"),
            ("mod-60m", "--phase", "decode", "--participation", "0.3"), ("local-global", "--phase", "decode", "--full-mask"), ("dense-60m", "--kv-page", "7"),
            ("dense-60m", "--mod-every", "2", "--routing", "threshold"), ("dense-60m", "--phase", "train", "--logits", "all"),
        ):
            self.assertEqual(said(model, *arguments), [], (model, arguments))
        self.refuses(3, "--routing topk", "count", "mod-60m", "--routing", "topk", "--participation", "0.3")

    def test_loads(self):
        decode = ("mixtral-8x7b", "--phase", "decode", "--batch", "4", "--dtype", "bf16")
        even, some = self.totals(*decode), self.totals(*decode, "--expert-loads", "1,1,1,1,0,0,0,0")
        # (5.46875 - 3.75) experts of 352,321,536 bytes in 32 layers.
        self.assertAlmostEqual(even["bytes_read_expected"] - some["bytes_read_expected"], 1.71875 * 352321536 * 32, delta=1e3)
        self.assertEqual(even["flops_matmul"], some["flops_matmul"])
        self.assertEqual(self.totals(*decode, "--expert-skew", "0"), even)
        self.refuses(3, "no experts", "count", "llama-3-8b", "--expert-skew", "1")
        self.refuses(3, "3 loads for 8 experts", "count", "mixtral-8x7b", "--expert-loads", "1,2,3")
        self.refuses(2, "exclude each other", "count", "mixtral-8x7b", "--expert-loads", "1,1,1,1,1,1,1,1", "--expert-skew", "1")
        # 2048 tokens read all 8 experts however they are loaded, 4 do not; under a limit per expert loads say what is dropped.
        capped = self.write("capped.ini", "[network]\nwidth = 64\nvocab = 100\nlayers = 2\nheads = 4\n[moe]\nexperts = 8\npicks = 2\nexpert_width = 64\nexpert_capacity = 1\n")
        for idle, arguments in ((True, ("mixtral-8x7b",)), (True, ("mixtral-8x7b", "--phase", "train")), (False, decode), (False, (capped,)), (True, ("mixtral-8x7b", "--seq", "64,2048"))):
            for loads in (("--expert-skew", "1"), ("--expert-loads", "2,1,1,1,1,1,1,1")):
                notes = str(self.json("count", *arguments, *loads, "-o", "json"))
                self.assertEqual(f"{loads[0]} changes nothing in" in notes, idle, (arguments, loads))
        self.assertNotIn("changes nothing", str(self.json("count", "mixtral-8x7b", "--expert-skew", "0", "-o", "json")))
        for wrong in ("nan", "inf", "-1", "17"):
            self.refuses(3, "expert_skew", "count", "mixtral-8x7b", f"--expert-skew={wrong}")

    def test_recomputation_by_name(self):
        train = ("gpt2-124m", "--phase", "train", "--seq", "64", "--dtype", "bf16")
        none, act = self.totals(*train), self.totals(*train, "--recompute", "mlp/act")
        self.assertEqual(none["saved_bytes"] - act["saved_bytes"], 12 * 64 * 4 * 768 * 2)
        self.assertEqual(none["flops_matmul"], act["flops_matmul"])
        up = self.totals(*train, "--recompute", "mlp/up+mlp/act")
        self.assertEqual(up["flops_matmul"] - none["flops_matmul"], 12 * 2 * 64 * 768 * 3072)
        # The dense twin of a routed block has no rows to gather: what it can follow of the list is followed.
        mod = ("mod-60m", "--phase", "train", "--seq", "64")
        self.assertEqual(self.totals(*mod, "--recompute", "route/gather,mlp/act")["flops_ratio"], self.totals(*mod)["flops_ratio"])
        self.run_fathom("sweep", *mod, "--recompute", "route/gather", "--columns", "flops_ratio")
        self.run_fathom("predict", *mod, "--recompute", "route/gather", "--on", "h200")
        self.refuses(3, "did you mean 'mlp/act'", "count", *train, "--recompute", "mlp/atc")
        self.refuses(3, "did you mean 'selective'", "count", *train, "--recompute", "selectiv")
        self.refuses(3, "training step", "count", "gpt2-124m", "--recompute", "mlp/act")
        self.refuses(3, "stands alone", "count", *train, "--recompute", "full,mlp/act")

    def test_modules_that_are_counted_are_not_left_out(self):
        model = ARGUMENTS.source / "tests/data/hf/deepseek-v3.json"
        said = lambda *more: str(self.json("count", model, "--seq", "16", *more, "-o", "json")["notes"])
        self.assertIn("left out: 1 multi-token", said())
        self.assertNotIn("left out: 1 multi-token", said("--mtp", "1"))
        self.assertIn("left out: 1 multi-token", said("--mtp", "0"))
        self.assertNotIn("left out", self.run_fathom("sweep", model, "--seq", "16", "--mtp", "1").stderr)

    def test_the_epsilon_that_a_file_gives(self):
        for name in ("cohere", "cohere2"):
            notes = self.json("count", self.write(f"{name}.json", COHERE.replace("cohere", name, 1)), "--seq", "16", "-o", "json").get("notes", [])
            self.assertNotIn("rms_norm_eps", str(notes))

    def test_fusions(self):
        base = ("gpt2-124m", "--seq", "64", "--dtype", "bf16")
        default, unfused = self.totals(*base), self.totals(*base, "--fusion", "qkv")
        # 12 layers, 12 heads, 2080 pairs: scores and probabilities, written and read in two bytes.
        self.assertEqual(unfused["bytes_read"] - default["bytes_read"], 12 * 12 * 2080 * 2 * 2)
        self.assertEqual(unfused["bytes_written"] - default["bytes_written"], 12 * 12 * 2080 * 2 * 2)
        long = ("gpt2-124m", "--seq", "512", "--dtype", "bf16")
        self.assertGreater(self.totals(*long, "--fusion", "qkv")["peak_bytes"], self.totals(*long)["peak_bytes"])
        self.assertEqual(self.totals(*base, "--fusion", "attention,qkv"), default)
        self.assertLess(self.totals(*base, "--fusion", "all")["bytes_read"], default["bytes_read"])
        self.refuses(3, "gate-up", "count", *base, "--fusion", "gateup")
        self.refuses(3, "too many", "count", *base[:1], "--seq", "1000000000", "--fusion", "none")
        self.refuses(2, "--fusion", "predict", "gpt2-124m", "--fusion", "none", "--on", "h200")

    def test_sweeps(self):
        rows = self.run_fathom("sweep", "mixtral-8x7b", "--set", "expert_skew=0,1", "--phase", "decode", "--dtype", "bf16", "--weight-dtype", "bf16,f8", "--columns", "flops_matmul", "--fusion", "none").stdout
        self.assertEqual(len(rows.splitlines()), 5)
        rows = self.run_fathom("sweep", "gpt2-124m", "--phase", "train", "--recompute", "none,full,mlp/act+mlp/up", "--seq", "16", "--columns", "flops_matmul").stdout
        self.assertIn("mlp/act+mlp/up", rows)
        self.assertEqual(len({row["flops_matmul"] for row in csv.DictReader(io.StringIO(rows))}), 3)

    def test_stored_widths_are_counted_and_not_run(self):
        model = self.write("narrow.ini", "[network]\nwidth = 64\nvocab = 100\nlayers = 2\nheads = 4\nmlp = 256\nweight_dtype = f8\n")
        # Four matrices of attention and two of the MLP, 64 x 64 x 12 in each of two layers, at one byte.
        wide, narrow = self.totals(model, "--dtype", "bf16", "--weight-dtype", "bf16"), self.totals(model, "--dtype", "bf16")
        self.assertEqual(wide["weight_bytes"] - narrow["weight_bytes"], 2 * 12 * 64 * 64)
        self.assertEqual(self.totals(model, "--dtype", "bf16", "--phase", "train")["weight_bytes"], wide["weight_bytes"])
        self.run_fathom("trace", model, "--seq", "16", "--on", "h200")
        self.assertIn("as stored", self.run_fathom("predict", model, "--seq", "16", "--on", "h200").stdout)
        self.run_fathom("sweep", model, "--do", "predict", "--on", "h200", "--seq", "16")
        self.refuses(2, "counted, not predicted", "sweep", model, "--do", "predict", "--on", "h200", "--seq", "16", "--fusion", "none")

    def test_whole_runs_pass_64_bits(self):
        # 235,106,230,272 FLOP per token x 10^13 tokens; 10^13 / 2048 steps.
        for text in ("1e13", "10T", "10000000000000", "10000B"):
            totals = self.totals("deepseek-v3", "--phase", "train", "--seq", "2048", "--run-tokens", text)
            self.assertEqual((totals["run_flops"], totals["run_steps"]), (2351062302720000000000000, 4882812500))
        run = self.json("count", "gpt2-124m", "--phase", "train", "--seq", "100", "--batch", "3", "--grad-accumulation", "2", "--run-tokens", "1000", "-o", "json")
        self.assertEqual(run["totals"]["run_steps"], 2)  # of 600 tokens
        self.assertEqual(run["totals"]["run_flops"], 2 * run["totals"]["flops_matmul"])
        self.assertIn("only 400 of its 600 tokens", str(run["notes"]))
        self.assertIn("changes nothing here", str(self.json("count", "gpt2-124m", "--run-tokens", "5", "-o", "json")["notes"]))
        self.assertIn("about one step", str(self.json("count", "gpt2-124m", "--phase", "generate", "--prompt", "4", "--tokens", "2", "--run-tokens", "5", "-o", "json")["notes"]))
        for text in ("0", "-3", "1.5", "nan", "1e", "1e99", "1x", ".", "1e-3", "99999999999999999999999999999999999999"):
            self.refuses(3, "--run-tokens", "count", "gpt2-124m", "--phase", "train", "--run-tokens=" + text)

    def test_utilisation(self):
        # Llama 3 8B, training, 16 x 2048 tokens: 46,639,349,760 FLOP per token, 46,907,916,288 with the QK^T that a fused backward repeats.
        base = ("llama-3-8b", "--phase", "train", "--batch", "16", "--seq", "2048", "--step-time", "500ms", "--peak", "989TFLOP/s", "--devices", "8")
        record = self.json("count", *base, "-o", "json")
        whole = 0.5 * 8 * 989e12
        self.assertAlmostEqual(record["totals"]["mfu"], 46639349760 * 16 * 2048 / whole, places=12)
        self.assertAlmostEqual(record["totals"]["hfu"], 46907916288 * 16 * 2048 / whole, places=12)
        self.assertIn("8 devices of 989.0 TFLOP/s", str(record["notes"]))
        # Full recomputation changes what runs: 61,135,126,528 per token and the repeated product.
        again = self.json("count", *base, "--recompute", "full", "-o", "json")["totals"]
        self.assertEqual(again["mfu"], record["totals"]["mfu"])
        self.assertAlmostEqual(again["hfu"], (61135126528 + 46907916288 - 46639349760) * 16 * 2048 / whole, places=12)
        palm = self.json("count", *base, "--convention", "palm", "-o", "json")["totals"]
        self.assertAlmostEqual(palm["mfu"], 3 * 17134264320 * 16 * 2048 / whole, places=12)
        self.assertIn("more than 100 %", self.run_fathom("count", *base[:-6], "--step-time", "1ms", "--peak", "989TFLOP/s").stdout)
        self.assertIsNone(self.json("count", "gpt2-124m", "--phase", "decode", "--convention", "palm", "--step-time", "1ms", "--peak", "1TFLOP/s", "-o", "json")["totals"]["mfu"])
        for code, words, flags in ((2, "belong together", ("--step-time", "1s")), (2, "--devices", ("--devices", "2")), (3, "--step-time", ("--step-time", "1", "--peak", "1TFLOP/s")),
                                   (3, "--step-time", ("--step-time", "0s", "--peak", "1TFLOP/s")), (3, "--peak", ("--step-time", "1s", "--peak", "-1TFLOP/s")), (3, "--devices", ("--step-time", "1s", "--peak", "1TFLOP/s", "--devices", "0"))):
            self.refuses(code, words, "count", "gpt2-124m", *flags)

    def test_utilisation_where_rows_are_random(self):
        # Two layers of width 64 with 4 heads, 64 tokens. Per token and layer 32,768 in projections, 2 x 64 x (E + E0) in the router, 2 x 2 x 2 x 64 x 64 = 32,768 in the
        # experts; 12,800 in the logits; core 2 x 4 x 64 x 2080 = 1,064,960; training 3x. Done again: all but the logits, and QK^T: 532,480.
        base = "[network]\nwidth=64\nvocab=100\nlayers=2\nheads=4\nmlp=96\n"
        experts = base + "[moe]\nexperts=4\npicks=2\nexpert_width=64\n"
        core, qk, logits = 1064960, 532480, 12800 * 64
        even = 2 * 64 * (32768 + 512 + 32768) + logits + core
        skipped = 2 * 64 * (32768 + 768 + 16384) + logits + core  # six outputs, half of the choices no-ops
        # Capacity factor 2: 64 slots in each of 4 experts, 128 of 256 empty; two matrices of 2 x 64 x 64 each, in every pass.
        empty = 2 * 128 * 2 * 8192
        rate = ("--phase", "train", "--seq", "64", "--step-time", "1s", "--peak", "1GFLOP/s")
        for text, model, padded in ((experts, even, 0), (experts + "expert_capacity=2\n", even, empty), (experts + "noops=2\nnoop_share=1/2\n", skipped, 0)):
            path = self.write("m.ini", text)
            once, again = (self.totals(path, *rate, "--recompute", how) for how in ("none", "full"))
            for totals, repeated in ((once, 0), (again, model - logits + padded)):
                self.assertEqual(round(totals["mfu"] * 1e9, 3), 3 * model)
                self.assertEqual(round(totals["hfu"] * 1e9, 3), 3 * (model + padded) + repeated + qk)
        # Which tokens a router chose decides how many pairs a window shows: the same model FLOPs whatever is done again.
        path = self.write("w.ini", base + "window=8\n[route]\nat=1\ncapacity=1/4\n")
        once, again = (self.totals(path, *rate, "--recompute", how) for how in ("none", "full"))
        self.assertAlmostEqual(once["mfu"] * 1e9, once["flops_expected"], places=3)
        self.assertAlmostEqual(again["mfu"], once["mfu"], places=15)
        self.assertAlmostEqual(again["hfu"] - once["hfu"], (again["flops_expected"] - once["flops_expected"]) / 1e9, places=15)

    def test_model_flops_of_a_convention_are_without_recomputation(self):
        # Per token of Llama 3 8B with the whole square 3 x 16,083,058,688; 6 N = 6 x 8,030,261,248; GPT-NeoX 3 x 14,746,648,576.
        base = ("llama-3-8b", "--phase", "train", "--seq", "2048", "--dtype", "bf16", "--step-time", "1s", "--peak", "100TFLOP/s")
        for name, per_token in (("full", 3 * 16083058688), ("6nd", 6 * 8030261248), ("8nd", 6 * 8030261248), ("gpt-neox", 3 * 14746648576)):
            for again in ("none", "selective", "full"):
                self.assertAlmostEqual(self.totals(*base, "--convention", name, "--recompute", again)["mfu"], per_token * 2048 / 1e14, places=12)
        flops = {name: self.json("count", *base, "--convention", name, "-o", "json")["convention"] for name in ("6nd", "8nd")}
        self.assertEqual(flops, {name: {"name": name, "flops": int(name[0]) * 8030261248 * 2048} for name in flops})

    def test_expectations_of_a_generation(self):
        # A prefill of 128 tokens and decode steps over 129 and 130 keys: every figure is the sum of the three. Mixtral's first reads all of its experts' weights, the steps
        # those of two experts each.
        base = ("--batch", "1")
        for model, routing, known in (("mixtral-8x7b", (), {"bytes_read_expected": 291159068940}), ("mode-integrated", (), {"flops_expected": 723808256}),
                                      ("mod-60m", ("--routing", "threshold"), {"bytes_read_expected": 587316866}), ("dense-60m", (), {})):
            whole = self.totals(model, *base, "--phase", "generate", "--prompt", "128", "--tokens", "3")
            parts = [self.totals(model, *base, *routing, "--phase", "prefill", "--seq", "128")]
            parts += [self.totals(model, *base, "--phase", "decode", "--context", str(keys)) for keys in (129, 130)]
            for figure in ("flops_matmul", "flops_expected", "bytes_read", "bytes_read_expected", "bytes_written", "elements_vector"):
                self.assertEqual(figure in whole, figure in parts[1], (model, figure))
                if figure in whole:
                    self.assertLess(abs(whole[figure] - sum(part[figure] for part in parts)), 1e-12 * whole[figure] + 1e-9, (model, figure))
            for figure, value in known.items():
                self.assertEqual(round(whole[figure]), value, (model, figure))

    def test_impossible_records(self):
        self.run_fathom("count", "mod-tiny", "--phase", "train", "--save", "r.json")
        self.run_fathom("report", "r.json")
        good = (self.folder / "r.json").read_text()
        for before, after, pointer in (('"flops_matmul": 122691584', '"flops_matmul": -122691584', "/totals/flops_matmul"), ('"flops_matmul": 122691584', '"flops_matmul": "NaN"', "/totals/flops_matmul"),
                                       ('"flops": 122691584', '"flops": 122691585', "/convention/flops"), ('"elements_vector": 16384', '"elements_vector": 16385', "/totals/elements_vector")):
            self.assertIn(before, good)
            bad = self.write("bad.json", good.replace(before, after, 1))
            for command in (("report", bad), ("compare", "r.json", bad)):
                self.refuses(3, ("bad.json", pointer), *command)

    def test_one_convention_per_report(self):
        for name, arguments in (("a.json", ()), ("b.json", ("--convention", "palm")), ("c.json", ("--full-mask",)), ("d.json", ())):
            self.run_fathom("count", "gpt2-124m", "--seq", "64", *arguments, "--save", name)
        self.run_fathom("report", "a.json", "d.json")
        self.run_fathom("compare", "a.json", "d.json")
        for command in ("report", "compare"):
            self.refuses(3, ("'exact'", "'palm'", "one --convention"), command, "a.json", "b.json")
            self.refuses(3, "with a full mask", command, "a.json", "c.json")


if __name__ == "__main__":
    main()
