"""`fathom explain`: every name that `fathom list` gives, totals that add up, columns with their value for a model."""

import csv
import io
import re

from _cli import ARGUMENTS, CliTest, main


class Explain(CliTest):
    def names(self, what):
        return [row[0] for row in list(csv.reader(io.StringIO(self.run_fathom("list", what, "-o", "csv").stdout)))[1:]]

    def tables(self, *arguments):
        """The tables of a document by key, as lists of rows."""
        return {table["key"]: table["rows"] for table in self.json("explain", *arguments, "-o", "json")["tables"]}

    def test_every_listed_name(self):
        for what in ("models", "machines", "backends", "ops", "columns"):
            names = self.names(what)
            self.assertGreater(len(names), 3)
            for name in names:
                page = self.run_fathom("explain", name).stdout
                self.assertGreater(len(page.splitlines()), 3, name)

    def test_the_cache_of_latent_attention(self):
        """DeepSeek-V3: (c + d_r) w L = (512 + 64) x 4 x 61 = 140 544 bytes in f32."""
        page = self.run_fathom("explain", "kv_bytes_per_token", "deepseek-v3", "--width", "400").stdout
        self.assertIn("(512 + 64) w 61", page)
        self.assertIn("140,544 B", page)
        self.assertNotIn("2*kv_heads*head_dim", page)
        self.assertIn("2*kv_heads*head_dim", self.run_fathom("explain", "kv_bytes_per_token", "gpt2-124m", "--width", "400").stdout)

    def test_pairs_of_an_op(self):
        """Hand-worked visible pairs: the text names the mask that is there."""
        near = self.write("near.ini", "[network]\nwidth = 64\nvocab = 100\nlayers = 1\nheads = 4\nmlp = 64\nwindow = 4\n")
        chunk = self.write("chunk.ini", "[network]\nwidth = 64\nvocab = 100\nlayers = 1\nheads = 4\nmlp = 64\nchunk = 4\n")
        for words, *arguments in (
            (r"2 sequences x 10 x 11 / 2 = 110$", "gpt2-124m", "--seq", "10", "--batch", "2"), (r"1 sequence x 10 queries x 10 keys = 100$", "gpt2-124m", "--seq", "10", "--full-mask"),
            (r"3 sequences x 12 keys = 36$", "gpt2-124m", "--phase", "decode", "--context", "12", "--batch", "3"), (r"1 sequence x \(4 x 6 \+ 4 x 5 / 2\) = 34$", "gpt2-124m", "--seq", "4", "--past", "6"),
            (r"of min\(4, position\) = 34$", near, "--seq", "10"),        # 1 + 2 + 3 + 7 x 4
            (r"1 \+ \(position - 1\) mod 4 = 23$", chunk, "--seq", "10"),  # 10 + 10 + 3
            (r"16 chosen queries x the keys that a query sees on average", "demo-8x12", "--seq", "32"),
        ):
            page = self.run_fathom("explain", "attn/core", *arguments, "--width", "400").stdout
            self.assertRegex(page, r"(?m)^pairs +.*" + words)
            self.assertRegex(page, r"(?m)^mask +(causal|full)$")
            self.assertNotRegex(page, r"(?m)^\w+ +-1$")
        self.assertRegex(self.run_fathom("explain", "mlp/act", "gpt2-124m", "--width", "400").stdout, r"(?m)^kind +gelu-tanh$")

    def test_every_figure_of_a_step_has_a_formula(self):
        for column in ("kv_bytes", "params_total", "params_active", "kv_bytes_per_token", "mfu", "run_flops"):
            self.assertRegex(self.run_fathom("explain", column, "--width", "400").stdout, r"(?m)^formula +\S")
        self.assertIn("kv_rank + rope_dim", self.run_fathom("explain", "kv_bytes_per_token", "--width", "400").stdout)
        # mfu = flops / (time x devices x peak); two steps of 64 tokens are 128.
        train = ("gpt2-124m", "--phase", "train", "--seq", "64")
        flops = self.json("count", *train, "-o", "json")["totals"]["flops_matmul"]
        page = self.run_fathom("explain", "mfu", *train, "--step-time", "10ms", "--peak", "100TFLOP/s", "--devices", "2", "--width", "400").stdout
        self.assertRegex(page, r"(?m)^time and peak +step time 10ms, 2 x 100TFLOP/s$")
        self.assertIn(f"{flops:,} FLOP", page)
        self.assertRegex(page, rf"(?m)^result +{flops / 2e12 * 100:.1f} %$")
        self.assertRegex(self.run_fathom("explain", "run_flops", *train, "--run-tokens", "128", "--width", "400").stdout, rf"(?m)^result +{2 * flops:,} FLOP$")
        self.assertIn("--step-time 1.2s", self.run_fathom("explain", "mfu", *train).stdout)
        self.assertIn("--run-tokens", self.run_fathom("explain", "run_flops", *train).stdout)

    def test_what_a_utilisation_divides(self):
        """MFU divides the FLOPs of the model as the convention counts them, HFU those that run; neither is flops_matmul where rows are random, dropped or computed again."""
        known = ("--step-time", "2ms", "--peak", "100GFLOP/s", "--devices", "3")  # 0.6 GFLOP are possible
        possible = 6e8
        def fields(*arguments):
            page = self.run_fathom("explain", *arguments, *known, "--width", "400").stdout
            return dict(re.findall(r"(?m)^(\S.*?)  +(\S.*)$", page)), page
        number = lambda text: float(text.split(" ")[0].replace(",", ""))
        for model, *scenario in (("gpt2-124m", "--phase", "train", "--seq", "64", "--recompute", "full"), ("mod-60m", "--phase", "decode", "--context", "100", "--batch", "4"), ("mixtral-8x7b", "--seq", "32"), ("gpt2-124m", "--phase", "train", "--seq", "64"),
                                 ("gpt2-124m", "--phase", "train", "--seq", "64", "--convention", "palm"), ("gpt2-124m", "--phase", "train", "--seq", "64", "--convention", "8nd"), ("llama-3-8b", "--seq", "16", "--logits", "all", "--convention", "full")):
            convention = scenario[-1] if "--convention" in scenario else "exact"
            plain = scenario[:-2] if "--convention" in scenario else scenario
            totals = self.json("count", model, *scenario, *known, "-o", "json")["totals"]
            shown, page = fields("mfu", model, *scenario)
            self.assertEqual(number(shown["divided by"]), possible)
            self.assertAlmostEqual(number(shown[f"model FLOP, {convention}"]) / possible, totals["mfu"], delta=totals["mfu"] * 1e-13, msg=page)
            self.assertAlmostEqual(number(shown["result"]) / 100, totals["mfu"], delta=5.1e-4 + totals["mfu"] * 1e-4)
            shown, page = fields("hfu", model, *plain)
            self.assertAlmostEqual(number(shown["executed FLOP"]) / possible, totals["hfu"], delta=totals["hfu"] * 1e-13, msg=page)
            self.assertAlmostEqual(number(shown["result"]) / 100, totals["hfu"], delta=5.1e-4 + totals["hfu"] * 1e-4)
        # By hand: 12 layers of 2 x 64 x 768 x 9216 in products and 3072 x 2080 in cores, 64 rows of logits; training is three times that, recomputation of the layers one more.
        layers, head = 12 * (2 * 64 * 768 * 9216 + 3072 * 2080), 2 * 64 * 768 * 50257
        train = ("gpt2-124m", "--phase", "train", "--seq", "64", "--recompute", "full")
        self.assertEqual(fields("mfu", *train)[0]["model FLOP, exact"], f"{3 * (layers + head):,} FLOP")
        executed = number(fields("hfu", *train)[0]["executed FLOP"])
        self.assertGreaterEqual(executed, 4 * layers + 3 * head)
        self.assertGreater(executed, self.json("count", *train, "-o", "json")["totals"]["flops_matmul"] - 1)
        self.assertIn("a generation has many", self.run_fathom("explain", "mfu", "gpt2-124m", "--phase", "generate", *known).stdout)

    def test_a_convention_where_it_changes_the_figure(self):
        flops = self.json("count", "gpt2-124m", "--seq", "64", "--convention", "palm", "-o", "json")["convention"]["flops"]
        page = self.run_fathom("explain", "convention_flops", "gpt2-124m", "--seq", "64", "--convention", "palm", "--width", "400").stdout
        self.assertRegex(page, rf"(?m)^result +{flops:,} FLOP$")
        self.assertIn("fathom explain convention palm gpt2-124m", page)
        for topic in ("hfu", "flops_matmul", "mlp/up", "total"):
            self.assertIn("--convention changes nothing here: only mfu and convention_flops", self.run_fathom("explain", topic, "gpt2-124m", "--convention", "palm").stderr)
        self.assertIn("--convention changes nothing here", self.run_fathom("explain", "mfu", "--convention", "palm").stderr)
        self.refuses(3, "did you mean 'palm'?", "explain", "mfu", "gpt2-124m", "--convention", "plam")

    def test_a_convention_in_numbers(self):
        """Files carry numbers, not grouped text; the reasons of a difference add up to it."""
        made = self.json("explain", "convention", "palm", "gpt2-124m", "--seq", "1024", "-o", "json")
        rows = made["tables"]["reasons"]
        for row in rows:
            self.assertIsInstance(row["per_token"], (int, float), row)
            self.assertEqual(row["per_sequence"], row["per_token"] * 1024)
        self.assertEqual(sum(row["per_token"] for row in rows), made["facts"]["palm, per token"])
        table = list(csv.DictReader(io.StringIO(self.run_fathom("explain", "convention", "palm", "gpt2-124m", "--seq", "1024", "-o", "csv").stdout)))
        self.assertEqual([float(row["per_token"]) for row in table][: len(rows)], [row["per_token"] for row in rows])
        self.assertRegex(self.run_fathom("explain", "convention", "palm", "gpt2-124m", "--seq", "1024").stdout, r"\d \d{3} \d{3}")

    def test_sources_can_be_found(self):
        """Sources name files of this tree and papers; every op kind and every counted column has one."""
        kinds, columns = self.names("ops"), ("flops_matmul", "flops_expected", "elements_vector", "bytes_read", "params_total", "kv_bytes", "peak_bytes", "saved_bytes", "rows_declared")
        for name in (*kinds, *columns, "total"):
            page = self.run_fathom("explain", name, "--width", "400").stdout
            sources = re.findall(r"(?m)^source +(.*)$", page)
            self.assertTrue(sources and all(sources), name)
            for file in re.findall(r"\b(?:lib|models|kernels)/[\w/]+(?:\.\w+)?", page):
                self.assertTrue((ARGUMENTS.source / file).exists(), f"{name} names {file}")
            for source in sources:
                self.assertRegex(source, r"lib/|models/|arXiv \d{4}\.\d{5}", name)

    def test_exit_codes(self):
        page = self.run_fathom("explain", "exit-codes").stdout
        for code in ("0", "1", "2", "3", "4", "70", "130"):
            self.assertRegex(page, rf"(?m)^ *{code}  ")
            self.assertRegex(self.run_fathom("--help").stdout, rf"(?m)^Exit codes:.* {code} ")

    def test_every_column_and_kind_of_a_model(self):
        for name in self.names("columns") + self.names("ops"):
            if name != "convention":  # takes the name of a preset
                self.run_fathom("explain", name, "mod-tiny", "--phase", "train")

    def test_every_convention(self):
        names = [row[0] for row in list(csv.reader(io.StringIO(self.run_fathom("explain", "convention", "-o", "csv").stdout)))[1:]]
        self.assertGreater(len(names), 20)
        for name in names:
            self.run_fathom("explain", "convention", name)
            self.run_fathom("explain", "convention", name, "llama-3-8b")

    def test_total(self):
        general = self.run_fathom("explain", "total").stdout
        for words in ("formula", "sum over ops", "source", "lib/cost_rules.cpp", "projections", "logits"):
            self.assertIn(words, general)
        # GPT-2 dims, S = 64: 12 layers of 2 * 64 * 768 * 9216 and 12 cores of 2 * 12 * 128 * 2080, one row of logits.
        page = self.run_fathom("explain", "total", "gpt2-124m", "--seq", "64").stdout
        for words in ("11,025,507,840", "2 x 64 x 768 x 2304 = 226492416", "3,623,878,656", "76,677,120", "77,194,752", "inputs", "source", "100 %"):
            self.assertIn(words, page)
        self.assertEqual(3 * 3623878656 + 76677120 + 77194752, 11025507840)
        for model in ("mixtral-8x7b", "deepseek-v3", "mod-60m"):
            for phase in ("train", "prefill", "decode", "generate"):
                self.run_fathom("explain", "total", model, "--phase", phase)

    def test_a_column_of_a_model(self):
        page = self.run_fathom("explain", "flops_matmul", "gpt2-124m", "--seq", "64").stdout
        for words in ("11,025,507,840", "formula", "inputs", "result", "source", "By part", "By op"):
            self.assertIn(words, page)
        # Half of eight experts take part in every choice: 4 (1 - 1/16) = 3.75.
        loads = ("--expert-loads", "1,1,1,1,0,0,0,0")
        self.assertIn("3.75", self.run_fathom("explain", "experts_expected", "mixtral-8x7b", "--phase", "decode", "--batch", "4", *loads).stdout)
        self.assertIn("predict", self.run_fathom("explain", "predicted_s", "gpt2-124m").stdout)

    def pages(self):
        """Markdown pages of every command that has some, with their glossaries."""
        machine = ("--on", ARGUMENTS.source / "tests/golden/data/machine.ini")
        fake = ("--backend", "fake", "--rounds", "2", "--threads", "2", *machine)
        text = self.write("text.txt", "a text to learn from, which is long enough for windows. " * 8)
        self.run_fathom("compare", "mod-60m", "dense-60m", *fake, "--save", "a.json", "-q")
        for call in (("compare", "mod-60m", "dense-60m", "mod-tiny", "--seq", "128", *fake), ("compare", "mod-60m", "dense-60m", "--phase", "decode", "--batch", "1,2", *fake),
                     ("compare", "mod-tiny", "--profile", "counters", *fake), ("run", "mod-tiny", "--backend", "reference", "--phase", "generate", "--prompt", "4", "--tokens", "3"),
                     ("run", "mod-tiny", "--backend", "reference", "--seq", "16", "--corpus", text, "--steps", "2"), ("predict", "mod-220m", "--on", "h200", "--phase", "train", "--tp", "2"),
                     ("predict", "mixtral-8x7b", "--on", "h200", "--phase", "decode"), ("count", "mod-60m", "--phase", "train", "--run-tokens", "1B", "--convention", "palm"),
                     ("validate", "--quick", *fake), ("audit", "--seq", "64"), ("plan", "--on", "h200", "--predictor", "roofline"), ("check", "select", "--backend", "reference"),
                     ("trace", "mod-tiny", "--backend", "reference", "--text", "ab", "--ops", "--timeline", "t.json", *machine), ("compare", "a.json", "a.json", "--ops"),
                     ("sweep", "mod-60m", "dense-60m", "--batch", "1,2", "--set", "width=576,640", "--pareto", "flops,max:params"), ("list", "columns"), ("explain", "total", "mod-tiny"), ("explain", "ini"), ("explain", "exit-codes"),
                     ("explain", "convention", "palm", "gpt2-124m"), ("explain", "convention")):
            yield call, self.run_fathom(*call, "-o", "md", "-v").stdout

    def test_every_word_of_a_page_can_be_explained(self):
        """Headings of tables, keys of glossaries, and the keys that their sentences and formulas name."""
        asked = {}
        for call, page in self.pages():
            for head in re.findall(r"(?m)^\|(.*)\|\n\|[-:|]+\|$", page):
                for word in re.split(r"(?<!\\)\|", head):
                    if word.strip():
                        asked.setdefault(word.strip().replace("\\", ""), call)
            for words in re.findall(r"(?m)^\| [^|]+ \| `\w+` \|.*$", page):
                for key in re.findall(r"\b[a-z]+(?:_[a-z0-9]+)+\b", words):
                    asked.setdefault(key, call)
        for symbol in ("p_e", "n_e", "d_qk", "d_v"):  # of formulas, like the n and k of a product
            asked.pop(symbol, None)
        self.assertGreater(len(asked), 150)
        for word, call in asked.items():
            with self.subTest(word=word, page=call[0]):
                self.assertGreater(len(self.run_fathom("explain", word).stdout.splitlines()), 2)

    def test_words_of_the_command_line(self):
        """Values of options that a reader meets in a page: predictors, routing rules, phases, parts of the model."""
        for word in ("roofline", "calibrated", "light", "threshold", "topk", "top-k", "predictor", "random", "train", "prefill", "decode", "generate", "of_peak", "of peak", "ffn", "core", "kv_cache", "residual",
                     "dense twin", "interval", "measured, op by op", "probed", "extrapolated", "width", "heads"):
            self.assertGreater(len(self.run_fathom("explain", word).stdout.splitlines()), 2, word)
        self.assertIn("too fast as a rule", re.sub(r"\s+", " ", self.run_fathom("explain", "roofline").stdout))
        self.refuses(3, "did you mean 'roofline'", "explain", "rofline")

    def test_unknown(self):
        self.refuses(3, "did you mean 'total'", "explain", "totl")
        self.refuses(3, "neither a built-in network nor a file", "explain", "total", "nothing")
        self.refuses(3, "no op or column", "explain", "mlp/upp", "gpt2-124m")


if __name__ == "__main__":
    main()
