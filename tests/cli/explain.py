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

    def test_unknown(self):
        self.refuses(3, "did you mean 'total'", "explain", "totl")
        self.refuses(3, "neither a built-in network nor a file", "explain", "total", "nothing")
        self.refuses(3, "no op or column", "explain", "mlp/upp", "gpt2-124m")


if __name__ == "__main__":
    main()
