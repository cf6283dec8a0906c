"""fathom sweep: rows equal count, order and content independent of threads, resume, fronts, failures."""

import csv
import io
import json
import re
import pathlib

from _cli import ARGUMENTS, CliTest, main


class Sweep(CliTest):
    def rows(self, *arguments, **keywords):
        return list(csv.DictReader(io.StringIO(self.run_fathom("sweep", *arguments, **keywords).stdout)))

    def test_rows_equal_count(self):
        rows = self.rows("gpt2-124m", "--mod-every", "2", "--capacity", "none,1/8", "--seq", "256,2048", "--batch", "1,3", "--logits", "all")
        self.assertEqual(len(rows), 8)
        for row in rows:
            twin = ["--mod-every", "2", "--capacity", "1/8"] if row["capacity"] else []
            totals = self.json("count", "gpt2-124m", *twin, "--seq", row["seq"], "--batch", row["batch"], "--logits", "all", "-o", "json")["totals"]
            for key in ("params_total", "params_active", "flops_matmul", "elements_vector", "bytes_read", "bytes_written", "kv_bytes"):
                self.assertEqual(int(row[key]), totals[key], (row, key))
        # issue figures: batch 1, 2048 tokens, logits everywhere
        wanted = {("", "2048", "1"): 583334363136, ("0.125", "2048", "1"): 393083092992}
        found = {(r["capacity"], r["seq"], r["batch"]): int(r["flops_matmul"]) for r in rows}
        for key, flops in wanted.items():
            self.assertEqual(found[key], flops)

    def test_order_is_that_of_the_flags_and_independent_of_threads(self):
        arguments = ["mod-tiny", "dense-60m", "--phase", "prefill,decode", "--seq", "16:128:16", "--batch", "1:64"]
        one = self.run_fathom("sweep", *arguments, "--jobs", "1").stdout
        self.assertEqual(one, self.run_fathom("sweep", *arguments, "--jobs", "3").stdout)
        rows = list(csv.DictReader(io.StringIO(one)))
        self.assertEqual(len(rows), 2 * 2 * 8 * 64)
        self.assertEqual([r["batch"] for r in rows[:64]], [str(b) for b in range(1, 65)])

    def test_model_keys(self):
        rows = self.rows("dense-60m", "--set", "width=512,1024", "--set", "heads=width/64", "--set", "mlp=4*width", "--set", "layers=2:4")
        self.assertEqual([(r["width"], r["heads"], r["mlp"], r["layers"]) for r in rows[:4]],
                         [("512", "8", "2048", "2"), ("512", "8", "2048", "3"), ("512", "8", "2048", "4"), ("1024", "16", "4096", "2")])
        for row in rows:  # tied table, 4h^2 + 8h^2 per block, two gains per block and the last
            h, layers = int(row["width"]), int(row["layers"])
            self.assertEqual(int(row["params_total"]), 32000 * h + layers * (12 * h * h + 2 * h) + h)
        # every second block stays routed when the depth grows
        mod = self.rows("mod-60m", "--set", "layers=4,8", "--set", "capacity=1/4", "--columns", "flops,flops_ratio")
        self.assertEqual([r["layers"] for r in mod], ["4", "8"])
        self.assertLess(float(mod[1]["flops_ratio"]), float(mod[0]["flops_ratio"]))
        words = self.rows("dense-60m", "--set", "norm=rms,layer", "--columns", "params")
        self.assertEqual(int(words[1]["params_total"]) - int(words[0]["params_total"]), (2 * 9 + 1) * 576)

    def test_a_share_reads_back_as_the_slots_it_gave(self):
        """Every capacity and participation that a row shows, given to count as it stands, is the same share: exact fractions round to the same slots."""
        shares = "1/3,2/3,0.1,1/7,0.00002,1/1024,1/1048576,123456789/1000000007,0.1:0.9:0.1,0,1,none"
        for form, lengths in (("csv", "3,10,21"), ("jsonl", "3")):
            text = self.run_fathom("sweep", "dense-60m", "--set", "layers=2", "--mod-every", "2", "--capacity", shares, "--seq", lengths, "-o", form).stdout
            rows = list(csv.DictReader(io.StringIO(text))) if form == "csv" else [json.loads(line) for line in text.splitlines()]
            self.assertEqual(len(rows), 20 * len(lengths.split(",")))
            for row in rows:
                if row["capacity"] in ("", None):
                    continue
                counted = self.json("count", "dense-60m", "--mod-every", "2", "--capacity", str(row["capacity"]), "--seq", str(row["seq"]), "--ops", "-o", "json")
                slots = next(op["rows_declared"] for op in counted["ops"] if op["path"].endswith("mod/attn/qkv"))
                # The row again, by the slots that count found.
                again = self.rows("dense-60m", "--set", "layers=2", "--mod-every", "2", "--slots", str(slots), "--seq", str(row["seq"]))[0]
                for key in ("flops_matmul", "kv_bytes", "bytes_read"):
                    self.assertEqual(int(again[key]), int(row[key]), row)
        rows = self.rows("mod-tiny", "--phase", "decode", "--participation", "1/3,0.25,1/7", "--columns", "flops_expected")
        self.assertEqual([row["participation"] for row in rows], ["1/3", "0.25", "1/7"])
        for row in rows:
            counted = self.json("count", "mod-tiny", "--phase", "decode", "--participation", row["participation"], "-o", "json")["totals"]["flops_expected"]
            self.assertAlmostEqual(float(row["flops_expected"]) / counted, 1, delta=1e-12)
        self.assertEqual([row["capacity"] for row in self.rows("dense-60m", "--mod-every", "2", "--capacity", "1/3,2/6,12.5%,0.5", "--columns", "flops")], ["1/3", "1/3", "0.125", "0.5"])
        self.assertEqual([row["capacity"] for row in self.rows("dense-60m", "--mod-every", "2", "--capacity", "0.00002,0.0001,1/1048576", "--columns", "flops")], ["1/50000", "0.0001", "1/1048576"])

    def test_where_experts_and_routes_stand(self):
        """first_dense and every, as a file with these keys has them; and what is refused says why."""
        body = "[network]\nwidth = 64\nvocab = 100\nlayers = 12\nheads = 4\nmlp = 96\n[moe]\nexperts = 4\npicks = 2\nexpert_width = 32\n"
        model = self.folder / "model.ini"
        model.write_text(body + "first_dense = 1\n")
        columns = ("params", "flops", "bytes_read", "bytes_read_expected")
        rows = self.rows(str(model), "--set", "first_dense=0:12", "--set", "moe.every=1:12", "--seq", "5", "--phase", "prefill,train", "--columns", ",".join(columns))
        self.assertEqual(len(rows), 13 * 12 * 2)
        for row in rows[::7]:
            model.write_text(body + f"first_dense = {row['first_dense']}\nevery = {row['moe.every']}\n")
            totals = self.json("count", str(model), "--seq", "5", "--phase", row["phase"], "-o", "json")["totals"]
            self.assertEqual([int(row[key]) for key in ("params_total", "flops_matmul", "bytes_read")], [totals[key] for key in ("params_total", "flops_matmul", "bytes_read")], row)
        rows = self.rows("mod-60m", "--set", "every=1:9", "--columns", "flops")
        for row in rows:
            totals = self.json("count", "dense-60m", "--mod-every", row["every"], "--capacity", "1/8", "-o", "json")["totals"]
            self.assertEqual(int(row["flops_matmul"]), totals["flops_matmul"], row)
        self.refuses(3, "one by one", "sweep", "mod-60m", "--set", "at=1,3")
        self.refuses(3, "names the block of every layer", "sweep", "mod-60m", "--set", "pattern=a")
        self.refuses(2, "a step of one configuration that was timed", "sweep", "mod-60m", "--step-time", "1s")

    def test_tables_say_what_an_import_left_out(self):
        model = str(pathlib.Path(ARGUMENTS.source) / "tests/data/hf/gemma-3-4b.json")
        for command in (("sweep", model, "--batch", "1,2", "--pareto", "flops"), ("plan", model, "--budget", "1e18"), ("audit", model), ("count", model)):
            notes = [note["text"] for note in self.json(*command, "-o", "json")["notes"]]
            self.assertTrue(any("left out: vision_config" in note for note in notes), (command, notes))
            self.assertIn("left out: vision_config", self.run_fathom(*command, "-o", "csv").stderr, command)
            self.assertIn("left out: vision_config", self.run_fathom(*command, "-o", "md").stdout, command)

    def test_loads_of_experts(self):
        decode = ("mixtral-8x7b", "--phase", "decode", "--batch", "4", "--columns", "bytes_read_expected")
        one = self.rows(*decode, "--expert-loads", "8,7,6,5,4,3,2,1")
        self.assertEqual([row["expert_loads"] for row in one], ["8+7+6+5+4+3+2+1"])
        rows = self.rows(*decode, "--expert-loads", "8+7+6+5+4+3+2+1,none")
        self.assertEqual(rows[0]["bytes_read_expected"], one[0]["bytes_read_expected"])
        for row in rows:
            loads = () if row["expert_loads"] == "none" else ("--expert-loads", row["expert_loads"].replace("+", ","))
            count = self.json("count", *decode[:-2], *loads, "-o", "json")["totals"]["bytes_read_expected"]
            self.assertAlmostEqual(float(row["bytes_read_expected"]), count, delta=1)
        self.assertNotEqual(rows[0]["bytes_read_expected"], rows[1]["bytes_read_expected"])
        self.refuses(2, "exclude each other", "sweep", "mixtral-8x7b", "--expert-loads", "1,1", "--expert-skew", "1")

    def test_every_figure_and_option_of_count(self):
        """What count gives and reads is a column or an axis of a sweep, with the same values."""
        totals = ("weight_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "run_steps", "run_flops")
        train = ("--phase", "train", "--seq", "64", "--run-tokens", "1000")
        row = self.rows("mod-tiny", *train, "--columns", ",".join(totals), "--convention", "palm")[0]
        record = self.json("count", "mod-tiny", *train, "--convention", "palm", "-o", "json")
        self.assertEqual([int(row[key]) for key in totals], [record["totals"][key] for key in totals])
        self.assertEqual(row["convention_flops"], str(record["convention"]["flops"]))
        self.assertEqual(row["run_steps"], "16")
        decode = ("--phase", "decode", "--batch", "4", "--context", "64")
        for row in self.rows("mixtral-8x7b", *decode, "--expert-skew", "0,1", "--columns", "bytes_read_expected,gradient_bytes"):
            count = self.json("count", "mixtral-8x7b", *decode, "--expert-skew", row["expert_skew"], "-o", "json")["totals"]
            self.assertAlmostEqual(float(row["bytes_read_expected"]), count["bytes_read_expected"], delta=1)
            self.assertEqual(row["gradient_bytes"], "")
        for row in self.rows("deepseek-v3", "--seq", "16", "--mtp", "0,1", "--columns", "flops,params"):
            count = self.json("count", "deepseek-v3", "--seq", "16", "--mtp", row["mtp"], "-o", "json")["totals"]
            self.assertEqual((int(row["flops_matmul"]), int(row["params_total"])), (count["flops_matmul"], count["params_total"]))
        rows = self.rows("latent-attention", "--mla", "naive,absorbed", "--phase", "decode,prefill", "--batch", "1,2,3", "--context", "32", "--seq", "32")
        self.assertEqual([row["mla"] for row in rows[:6]], ["naive"] * 3 + ["absorbed"] * 3)
        for row in rows:
            reach = ("--context", row["context"]) if row["context"] else ("--seq", row["seq"])
            count = self.json("count", "latent-attention", "--mla", row["mla"], "--phase", row["phase"], "--batch", row["batch"], *reach, "-o", "json")["totals"]
            self.assertEqual((int(row["flops_matmul"]), int(row["kv_bytes"]), int(row["bytes_read"])), (count["flops_matmul"], count["kv_bytes"], count["bytes_read"]), row)
        rows = self.rows("gpt2-124m", "--fusion", "none,all,qkv+attention", "--seq", "64,65")
        self.assertEqual([row["fusion"] for row in rows[::2]], ["none", "all", "qkv+attention"])
        for row in rows:
            count = self.json("count", "gpt2-124m", "--fusion", row["fusion"], "--seq", row["seq"], "-o", "json")["totals"]
            self.assertEqual((int(row["bytes_read"]), int(row["bytes_written"])), (count["bytes_read"], count["bytes_written"]), row)
        self.assertEqual([row["fusion"] for row in self.rows("gpt2-124m", "--fusion", "qkv,attention", "--seq", "64")], ["qkv+attention"])
        self.refuses(2, "--run-tokens", "sweep", "mod-tiny", "--phase", "train", "--columns", "run_flops")
        self.refuses(3, "did you mean 'palm'?", "sweep", "mod-tiny", "--convention", "plam")

    def test_conventions_are_an_axis(self):
        rows = self.rows("gpt2-124m", "mod-tiny", "--seq", "64,65", "--phase", "prefill,train,decode", "--convention", "exact,palm,causal-half,full")
        self.assertEqual(len(rows), 2 * 6 * 4)
        self.assertEqual({row["convention"] for row in rows}, {"exact", "palm", "causal-half", "full"})
        for row in rows:
            reach = ("--context", row["context"]) if row["context"] else ("--seq", row["seq"])
            record = self.json("count", row["model"], "--phase", row["phase"], *reach, "--convention", row["convention"], "-o", "json")
            figure = record["convention"]["flops"]
            self.assertEqual(row["convention_flops"], "" if figure is None else str(figure), row)
            self.assertEqual(int(row["flops_matmul"]), record["totals"]["flops_matmul"])
        # One name is an axis of one value; two names of one convention are two rows.
        self.assertEqual([row["convention"] for row in self.rows("mod-tiny", "--convention", "palm")], ["palm"])
        same = self.rows("gpt2-124m", "--seq", "64", "--convention", "maxtext,causal-half", "--columns", "convention_flops")
        self.assertEqual([row["convention"] for row in same], ["maxtext", "causal-half"])
        self.assertEqual(same[0]["convention_flops"], same[1]["convention_flops"])
        self.assertNotIn("convention", self.rows("mod-tiny")[0])
        front = self.rows("gpt2-124m", "--seq", "64", "--convention", "exact,full", "--pareto", "convention_flops", "-o", "csv")
        self.assertEqual([row["convention"] for row in front], ["exact"])
        self.refuses(3, "did you mean 'palm'?", "sweep", "mod-tiny", "--convention", "exact,plam")
        self.refuses(3, ["'exact,palm' is a list", "fathom sweep"], "count", "mod-tiny", "--convention", "exact,palm")

    def test_generations_are_rows(self):
        """A row is what count and predict say of that generation, whatever the order in which rows come."""
        figures = ("params_total", "flops_matmul", "flops_expected", "elements_vector", "bytes_read", "bytes_read_expected", "bytes_written", "kv_bytes", "kv_bytes_per_token", "weight_bytes", "peak_bytes")
        models = ("mod-tiny", "mixtral-8x7b", "local-global", "mode-integrated", "mod-adapter")
        for model in models:
            rows = self.rows(model, "--phase", "generate", "--prompt", "7,40", "--tokens", "1,2,9:30:7", "--batch", "1,3", "--columns", ",".join(figures))
            self.assertEqual([(row["prompt"], row["tokens"], row["batch"]) for row in rows], [(p, t, b) for p in ("7", "40") for t in ("1", "2", "9", "16", "23", "30") for b in ("1", "3")])
            for row in rows:
                self.assertEqual((row["phase"], row["status"]), ("generate", ""))
                totals = self.json("count", model, "--phase", "generate", "--prompt", row["prompt"], "--tokens", row["tokens"], "--batch", row["batch"], "-o", "json")["totals"]
                for key in figures:
                    if key in totals:
                        self.assertEqual(float(row[key]) if isinstance(totals[key], float) else int(row[key]), totals[key], (row, key))
        # Tokens innermost: sums that go on from the row before. Options of the cache, of routing and of another convention are read.
        for extra in ((), ("--kv-dtype", "f8", "--kv-page", "16"), ("--participation", "0.3"), ("--convention", "full"), ("--mla", "absorbed")):
            model = "latent-attention" if "--mla" in extra else "mod-60m"
            for row in self.rows(model, "--phase", "generate", "--prompt", "20", "--tokens", "1:12", *extra):
                record = self.json("count", model, "--phase", "generate", "--prompt", "20", "--tokens", row["tokens"], *extra, "-o", "json")
                for key in ("flops_matmul", "bytes_read", "bytes_written", "kv_bytes"):
                    self.assertEqual(int(row[key]), record["totals"][key], (extra, row))
                self.assertEqual(float(row["flops_expected"]) if "flops_expected" in row else 0, record["totals"].get("flops_expected", 0), (extra, row))
                if "--convention" in extra:
                    self.assertEqual(row["convention_flops"], str(record["convention"]["flops"]))
        # Beside other phases, with lengths of their own.
        rows = self.rows("mod-tiny", "--phase", "generate,decode,prefill", "--prompt", "8", "--tokens", "3", "--context", "9", "--seq", "16", "--columns", "flops")
        self.assertEqual([(row["phase"], row["seq"], row["prompt"], row["context"], row["tokens"]) for row in rows], [("generate", "", "8", "", "3"), ("decode", "", "", "9", ""), ("prefill", "16", "", "", "")])
        bad = self.rows("mod-tiny", "--phase", "generate", "--tokens", "2,0")
        self.assertIn("tokens: must be at least 1", bad[1]["status"])

    def test_generations_are_predicted(self):
        keys = ("predicted_s", "predicted_ttft_s", "predicted_tpot_s", "predicted_p50_s", "predicted_p95_s", "predicted_p99_s")
        for machine in ("h200", ARGUMENTS.source / "tests/golden/data/machine.ini"):
            for row in self.rows("mod-60m", "--phase", "generate", "--prompt", "30", "--tokens", "1,2,20", "--batch", "1,4", "--do", "predict", "--on", machine, "--columns", ",".join(keys)):
                totals = self.json("predict", "mod-60m", "--phase", "generate", "--prompt", "30", "--tokens", row["tokens"], "--batch", row["batch"], "--on", machine, "-o", "json")["totals"]
                for key in keys:
                    self.assertEqual(float(row[key]) if row[key] else None, totals.get(key), (row, key))
        measured = self.rows("mod-tiny", "--phase", "generate", "--prompt", "4", "--tokens", "3", "--do", "compare", "--backend", "reference", "--on", ARGUMENTS.source / "tests/golden/data/machine.ini")[0]
        self.assertGreater(float(measured["measured_s"]), float(measured["ttft_s"]))
        self.assertGreater(float(measured["predicted_s"]), 0)
        self.assertEqual(measured["status"], "")

    def test_a_bad_combination_is_a_row(self):
        result = self.run_fathom("sweep", "dense-60m", "--set", "heads=5,9", "--set", "width=576")
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        self.assertIn("multiple", rows[0]["status"] + rows[0]["status"].replace("divides", "multiple"))
        self.assertEqual(rows[0]["flops_matmul"], "")
        self.assertEqual(rows[1]["status"], "")
        self.assertIn("1 of 2 configurations", result.stderr)

    def test_refusals(self):
        self.refuses(3, "none of the 2 configurations", "sweep", "dense-60m", "--set", "heads=5,7")
        self.refuses(3, "write --seq 512,1024", "sweep", "dense-60m", "--set", "seq=512,1024")
        self.refuses(3, "did you mean 'width'", "sweep", "dense-60m", "--set", "widht=512")
        self.refuses(3, "--do predict", "sweep", "dense-60m", "--pareto", "flops,time")
        self.refuses(3, "did you mean 'flops'", "sweep", "dense-60m", "--pareto", "flop,params")
        self.refuses(2, "KEY=VALUES", "sweep", "dense-60m", "--set", "width")
        self.refuses(2, "--sort", "sweep", "dense-60m", "--top", "3")
        self.refuses(2, "--save", "sweep", "dense-60m", "--resume")
        for words in (["md"], ["table"], ["table", "--save", "rows.csv"]):
            self.refuses(3, "csv or jsonl", "sweep", "dense-60m", "-o", *words)
        self.refuses(3, "runs backwards", "sweep", "dense-60m", "--seq", "128:64")
        self.refuses(3, "varied twice", "sweep", "mod-60m", "--set", "capacity=1/8", "--set", "route.capacity=1/4")

    def test_jsonl(self):
        lines = self.run_fathom("sweep", "mod-tiny", "--phase", "decode", "--context", "8,128", "-o", "jsonl").stdout.splitlines()
        rows = [json.loads(line) for line in lines]
        self.assertEqual([r["context"] for r in rows], [8, 128])
        self.assertIsInstance(rows[0]["flops_matmul"], int)
        self.assertLess(rows[1]["flops_expected"], rows[1]["flops_matmul"])

    def test_front_and_top(self):
        arguments = ["dense-60m", "--set", "width=512:1024:64", "--set", "heads=width/64", "--set", "layers=2:12:2"]
        everything = self.rows(*arguments)
        front = self.rows(*arguments, "--pareto", "flops,max:params", "-o", "csv")
        points = {(int(r["flops_matmul"]), -int(r["params_total"])) for r in everything}
        best = {p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)}
        self.assertEqual({(int(r["flops_matmul"]), -int(r["params_total"])) for r in front}, best)
        self.assertEqual([int(r["flops_matmul"]) for r in front], sorted(int(r["flops_matmul"]) for r in front))
        top = self.rows(*arguments, "--top", "3", "--sort", "max:flops", "-o", "csv")
        self.assertEqual([int(r["flops_matmul"]) for r in top], sorted((int(r["flops_matmul"]) for r in everything), reverse=True)[:3])

    def test_the_columns_that_rank_are_shown(self):
        text = self.run_fathom("sweep", "mod-tiny", "--batch", "1:8:x2", "--pareto", "memory,max:params", "--top", "2", "--sort", "elements_vector", "--width", "60").stdout
        front, top = text.split("Top 2")
        for column in ("peak memory", "params"):
            self.assertIn(column, front.split("\u2500")[0])
        self.assertIn("vector elements", top.split("\u2500")[0])

    def test_rows_of_a_front_can_be_told_apart(self):
        """What varies is shown at 60 columns; what does not gives way and is said below."""
        text = self.run_fathom("sweep", "mod-tiny", "--phase", "decode", "--batch", "1:8:x2", "--context", "64", "--top", "4", "--sort", "flops", "--width", "60").stdout
        self.assertIn("batch", text.split("\u2500")[0])
        self.assertIn("The same in every row: model mod-tiny, phase decode,", re.sub(r"\s+", " ", text))
        self.assertNotIn("phase", text.split("\u2500")[0])

    def test_resume(self):
        arguments = ["mod-tiny", "--seq", "8:128:8", "--batch", "1:40"]
        for name in ("rows.csv", "rows.jsonl"):
            file = self.folder / name
            self.run_fathom("sweep", *arguments, "--save", name)
            whole = file.read_bytes()
            self.assertEqual(whole.count(b"\n"), 16 * 40 + (name == "rows.csv"))
            for cut in (0, 10, len(whole) // 2, len(whole) - 1, len(whole)):
                file.write_bytes(whole[:cut])
                front = self.run_fathom("sweep", *arguments, "--save", name, "--resume", "--top", "2", "--sort", "flops", "-o", "csv").stdout
                self.assertEqual(file.read_bytes(), whole, (name, cut))
                self.assertEqual([r["batch"] for r in csv.DictReader(io.StringIO(front))], ["1", "2"])
            self.refuses(3, [name, "another sweep"], "sweep", "mod-tiny", "--seq", "8:128:8", "--batch", "2:41", "--save", name, "--resume")
            self.refuses(3, "another sweep", "sweep", "mod-tiny", "--seq", "8,16", "--save", name, "--resume")
            self.assertEqual(file.read_bytes(), whole)

    def test_resume_of_a_changed_row(self):
        file = self.folder / "rows.csv"
        for arguments in (["mod-tiny", "--seq", "8:64:8", "--batch", "1:4"], ["mod-tiny", "--seq", "8:64:8", "--batch", "1:4", "--do", "predict", "--on", "h200"]):
            for name in ("rows.csv", "rows.jsonl"):
                file = self.folder / name
                self.run_fathom("sweep", *arguments, "--save", name)
                lines = file.read_text().splitlines(keepends=True)
                text = lines[10]
                figures = text.rsplit(',', 2)[0] if name == "rows.csv" else text.split(',"fathom_version"')[0]
                digits = [i for i, c in enumerate(figures) if c.isdigit()]
                for at in (digits[-1], digits[len(digits) // 2], digits[-6]):  # any digit of any figure
                    other = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1:]
                    file.write_text("".join(lines[:10] + [other] + lines[11:20]))
                    self.refuses(3, [f"{name}:11", "not "], "sweep", *arguments, "--save", name, "--resume")
                # Cut before that line, it goes on to the same file.
                file.write_text("".join(lines[:10]))
                self.run_fathom("sweep", *arguments, "--save", name, "--resume")
                self.assertEqual(file.read_text(), "".join(lines))
                # A status where figures belong, and figures where a status belongs.
                if name == "rows.csv":
                    file.write_text("".join(lines[:10] + [text.rstrip("\n") + "no\n"]))
                    self.refuses(3, ["rows.csv:11", "status is 'no', not empty"], "sweep", *arguments, "--save", name, "--resume")
        message = self.run_fathom("sweep", *arguments[:5], "--save", "rows.csv").stdout
        rows = (self.folder / "rows.csv").read_text().replace(",217856,", ",217857,")
        (self.folder / "rows.csv").write_text(rows)
        self.refuses(3, ["params_total is '217857', not '217856'", "cut the file before line 2"], "sweep", *arguments[:5], "--save", "rows.csv", "--resume")
        self.assertEqual(message, "")
        # Measured rows: what is counted beside them.
        measured = ["mod-tiny", "--seq", "8,16", "--do", "compare", "--threads", "1"]
        self.run_fathom("sweep", *measured, "--save", "rows.csv")
        rows = (self.folder / "rows.csv").read_text()
        self.run_fathom("sweep", *measured, "--save", "rows.csv", "--resume")
        self.assertEqual((self.folder / "rows.csv").read_text(), rows)
        (self.folder / "rows.csv").write_text(rows.replace(",217856,", ",217857,"))
        self.refuses(3, "params_total is '217857'", "sweep", *measured, "--save", "rows.csv", "--resume")

    def test_predict(self):
        rows = self.rows("mod-60m", "dense-60m", "--do", "predict", "--on", "h200", "--batch", "1:4")
        self.assertEqual(len(rows), 8)
        self.assertEqual(rows[0]["dtype"], "bf16")
        for row in rows:
            self.assertGreater(float(row["predicted_s"]), 0)
        front = self.rows("mod-60m", "dense-60m", "--do", "predict", "--on", "h200", "--pareto", "flops,time", "-o", "csv")
        self.assertEqual(front[0]["model"], "mod-60m")
        self.assertEqual(front[0]["fathom_version"], rows[0]["fathom_version"])

    def test_exact_rows_are_those_of_predict(self):
        """With --exact a row has the time of `fathom predict` to the last digit; without, that of tensors with memory of their own, a few per cent away."""
        near = 0
        for machine in ("h200", ARGUMENTS.source / "tests/golden/data/machine.ini"):
            for phase, length in (("prefill", "--seq"), ("train", "--seq"), ("decode", "--context")):
                asked = ("mod-60m", "--phase", phase, "--batch", "1,4", length, "256", "--on", machine)
                quick, exact = (self.rows(*asked, "--do", "predict", "--columns", "time,predicted_lo_s,predicted_ratio,compute_s,predicted_p99_s", *flags) for flags in ((), ("--exact",)))
                said = self.json("predict", *asked, "-o", "json")["results"]
                self.assertEqual(len(exact), 2)
                for one, other, result in zip(exact, quick, said):
                    for key in ("predicted_s", "predicted_lo_s", "predicted_ratio", "compute_s"):
                        self.assertEqual(float(one[key]), result["totals"].get(key, result["totals"]["predicted_s"]), (one, key))  # roofline has no interval
                    self.assertLess(abs(float(other["predicted_s"]) / float(one["predicted_s"]) - 1), 0.1)
                    near += other["predicted_s"] != one["predicted_s"]
        self.assertGreater(near, 0)
        self.assertIn("--exact changes nothing here", self.run_fathom("sweep", "mod-tiny", "--exact").stderr)

    def test_machines_are_an_axis(self):
        asked = ("mod-60m", "--batch", "1,2", "--do", "predict", "--columns", "time")
        rows = self.rows(*asked, "--on", "h100,h200")
        self.assertEqual([(row["machine"], row["batch"]) for row in rows], [("h100", "1"), ("h100", "2"), ("h200", "1"), ("h200", "2")])
        self.assertEqual([row["predicted_s"] for row in rows], [row["predicted_s"] for machine in ("h100", "h200") for row in self.rows(*asked, "--on", machine)])
        self.assertNotEqual(rows[0]["predicted_s"], rows[2]["predicted_s"])
        best = self.rows(*asked, "--on", "l40s,h200", "--top", "1", "--sort", "time", "-o", "csv")
        self.assertEqual(best[0]["machine"], "h200")
        self.refuses(3, ["--on", "two machines are called 'h100'"], "sweep", *asked, "--on", "h100,h100")
        self.refuses(3, ["f32", "--dtype"], "sweep", *asked, "--on", f"h100,{ARGUMENTS.source / 'tests/golden/data/machine.ini'}")
        self.assertEqual(len(self.rows(*asked, "--dtype", "f32", "--on", f"h100,{ARGUMENTS.source / 'tests/golden/data/machine.ini'}")), 4)
        self.refuses(3, "did you mean 'h200'?", "sweep", *asked, "--on", "h100,h20")
        self.refuses(3, "one machine", "sweep", "mod-tiny", "--do", "compare", "--backend", "fake", "--on", "h100,h200")
        # A file of one machine is not continued with rows of another.
        self.run_fathom("sweep", *asked, "--on", "h100", "--save", "rows.csv")
        self.refuses(3, "another sweep", "sweep", *asked, "--on", "h200", "--save", "rows.csv", "--resume")

    def test_rows_say_who_made_them(self):
        version = self.json("count", "mod-tiny", "-o", "json")["version"].removeprefix("fathom ")
        for flags in ((), ("--do", "predict", "--on", "h200"), ("--do", "compare", "--backend", "fake", "--on", ARGUMENTS.source / "tests/golden/data/machine.ini")):
            row = self.rows("mod-tiny", *flags)[0]
            self.assertEqual(row["fathom_version"], version)
            self.assertEqual("machine" in row, bool(flags))
            self.assertEqual("started" in row, "compare" in flags)
        self.assertEqual(json.loads(self.run_fathom("sweep", "mod-tiny", "-o", "jsonl").stdout)["fathom_version"], version)
        # Rows of another version with the same figures are continued; other figures are not.
        self.run_fathom("sweep", "mod-tiny", "--batch", "1:4", "--save", "rows.csv")
        whole = (self.folder / "rows.csv").read_text()
        older = "".join(whole.replace(version, "0.0.1").splitlines(keepends=True)[:3])
        (self.folder / "rows.csv").write_text(older)
        self.run_fathom("sweep", "mod-tiny", "--batch", "1:4", "--save", "rows.csv", "--resume")
        self.assertEqual((self.folder / "rows.csv").read_text(), older + "".join(whole.splitlines(keepends=True)[3:]))

    def test_all_columns(self):
        counted = self.rows("mod-tiny", "--phase", "train", "--columns", "all")[0]
        predicted = self.rows("mod-tiny", "--do", "predict", "--on", "h200", "--columns", "all")[0]
        for key in ("flops_matmul", "intensity", "gradient_bytes", "peak_bytes"):
            self.assertTrue(counted[key], key)
        self.assertTrue({"predicted_p99_s", "predicted_ratio", "tokens_per_s"} < set(predicted))
        self.assertTrue(set(predicted).isdisjoint({"run_flops", "convention_flops", "predicted_ttft_s", "measured_s"}))
        self.refuses(3, ["has no column 'zzzz'", "fathom list columns"], "sweep", "mod-tiny", "--columns", "zzzz")


if __name__ == "__main__":
    main()
