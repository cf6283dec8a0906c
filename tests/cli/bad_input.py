"""Contradictory, huge, negative and damaged input: one clear error and exit 3 (2 where it cannot be parsed); never a crash, a hang or a number."""

import json
import re
import resource

from _cli import ARGUMENTS, CliTest, main, sanitized


class BadInput(CliTest):
    def quick(self, code, words, *arguments):
        result = self.refuses(code, words, *arguments)
        self.assertEqual(result.stdout, "")
        errors = [line for line in result.stderr.splitlines() if line.startswith("fathom: ")]
        self.assertEqual(len(errors), 1, str(result))

    def test_the_parser_speaks_as_the_rest(self):
        for words, *arguments in (
            (["fathom count has no option '--capcity'", "did you mean '--capacity'?"], "count", "mod-tiny", "--capcity", "3"),
            (["--mod-every: 'x' is not a number", "--help-all"], "count", "mod-tiny", "--mod-every", "x"), ("'1.5' is not a whole number", "count", "mod-tiny", "--devices", "1.5"),
            ("--seq needs a value", "count", "mod-tiny", "--seq"), ("--seq is given more than once", "count", "mod-tiny", "--seq", "5", "--seq", "6"),
            (["fathom has no option '--bogus'", "fathom --help"], "--bogus"), (["fathom has no option '-V'", "--version"], "-V"), ("fathom count has no option '-Z'", "count", "-Z"),
            (["fathom count has no option '--ouput'", "'--output'"], "count", "--ouput", "json"), ("--timeline needs a file", "trace", "mod-tiny", "--text", "x", "--timeline", "--save", "t.html"),
            ("--seq needs a value", "count", "mod-tiny", "--seq", "--batch", "2"), ("--seq needs a value", "count", "mod-tiny", "--seq=", "--batch", "2"), ("--seq needs a value", "count", "--seq=", "mod-tiny"), ("'5parsecs' is not a number of seconds, such as 5", "run", "mod-tiny", "--time", "5parsecs"),
            ("--threads: 'x' is not a number: 1 to 4096", "run", "mod-tiny", "--threads", "x"), ("'2s' is not a number of seconds", "calibrate", "--time", "2s"), ("takes no further argument: 'words'", "list", "models", "extra", "words"), ("leave it out", "count", "mod-tiny", "--full-mask=banana"),
        ):
            self.quick(2, words, *arguments)
        for words, shape in (("below 1: 0", "0x4x4"), ("below 1: -1", "-1x2x3"), ("too large: 99999999999999999999", "99999999999999999999x2x3"), ("too large", "2147483649x1x1"),
                             ("no whole number: 1e3", "1e3x2x3"), ("empty dimension", "2x3x"), ("takes 3 dimensions", "1x2"), ("no whole number: a", "ax2x3"), ("no whole number: 2k", "4x2kx3"), ("no whole number: a", "1xax3"), ("neither", "axbxc")):
            self.quick(3, words, "explain", "gemm", shape)
        self.quick(3, "no kernel computes in that type", "predict", "mod-tiny", "--dtype", "f64", "--on", "h200")
        self.quick(3, "[mode", "predict", "mod-tiny", "--on", self.write("machine.ini", "[model]\nx = 1\n"))
        self.quick(3, "no keys before its first section", "predict", "mod-tiny", "--on", self.write("machine.ini", "[machine]\nx = 1\n"))

    def test_no_option_takes_nothing_for_a_value(self):
        """An unset variable of a shell (--seq "$S") is no default."""
        for command in ("count", "predict", "run", "compare", "calibrate", "sweep", "validate", "check", "list", "explain", "trace", "report", "audit", "plan", "completion"):
            options = re.findall(r"(?m)^  (?:(-\w),)?(--[a-z-]+) [A-Z]", self.run_fathom(command, "--help-all").stdout)
            self.assertTrue(options or command == "completion", command)
            for short, name in options:
                for option in filter(None, (short, name)):
                    self.quick(2, f"{option} needs a value", command, "mod-tiny", option, "")
            self.quick(2, "an argument is empty", command, "")

    def test_no_control_character_of_a_name_reaches_the_terminal(self):
        for name, shown in (("ev\x1b[31mil.ini", "ev\\x1b[31mil.ini"), ("a\nfathom: fine.ini", "a\\nfathom: fine.ini")):
            self.quick(3, shown, "count", name)
            self.quick(3, shown, "count", self.write(name, "[network]\nwidth = 0\n"))

    def test_no_generation_with_a_list_that_does_not_move_on(self):
        near = self.write("near.ini", "[network]\nwidth = 64\nvocab = 100\nlayers = 1\nheads = 4\nmlp = 64\nrope_dim = 8\nwindow = 16\n[mla]\nkv_rank = 16\nnope_dim = 8\nv_dim = 8\n")
        for prompt, tokens in (("30", "8"), ("10", "20")):
            self.quick(3, ["counted, not executed", "naive or absorbed"], "run", near, "--phase", "generate", "--prompt", prompt, "--tokens", tokens, "--mla", "decompress", "-q")

    def test_no_gradient_over_rows_that_a_threshold_chooses(self):
        self.quick(3, "reference backend; train with --routing topk", "run", "mod-tiny", "--phase", "train", "--routing", "threshold", "--rounds", "1", "-q")

    def test_numbers_in_a_range(self):
        for flag, most, call in (("--temperature", 1000, ("run", "mod-tiny", "--phase", "generate", "--prompt", "4", "--tokens", "4")),
                                 ("--overlap", 1, ("predict", "mod-tiny", "--phase", "train", "--on", "h200", "--dp", "2"))):
            for text in ("nan", "-1", "inf", "1001", "warm"):
                self.quick(2, f"{flag}: '{text}' is not a number from 0 to {most}", *call, flag, text)

    def test_no_top_of_nothing(self):
        self.quick(3, "--top: must be at least 1, not 0", "sweep", "mod-tiny", "--top", "0")
        self.quick(3, "--top: must be at least 1, not -1", "sweep", "mod-tiny", "--top", "-1", "--sort", "flops_matmul")

    def test_errors_name_what_was_typed(self):
        self.quick(3, "did you mean 'cuda'?", "run", "mod-tiny", "--backend", "gpu")
        result = self.refuses(3, "--capacity: layer 1 of mod-60m is routed already", "count", "mod-60m", "--capacity", "2")
        self.assertNotIn("mod-every", result.stderr)

    def test_scenarios(self):
        for words, *arguments in (
            ("seq: must be at least 1", "--seq", "0"),
            ("seq: must be at least 1", "--seq", "-5"),
            ("too large", "--seq", "99999999999999999999"),
            ("absurdly large", "--seq", "9223372036854775807"),
            ("too large", "--seq", "1099511627776", "--batch", "1099511627776"),
            ("context: must be at least 1", "--phase", "decode", "--context", "0"),
            ("participation must lie in [0, 1]", "--participation", "2"),
            ("kv-page: must be at least 1", "--kv-page", "0"),
            ("at least 1", "--grad-accumulation", "0", "--phase", "train"),
            ("micro-steps", "--grad-accumulation", "1000000000000", "--phase", "train"),
            ("tokens", "--phase", "generate", "--tokens", "1000000000000"),
            ("never ends", "--seq", "1:10:0"),
            ("runs backwards", "--seq", "10:1"),
            ("more than a million", "--seq", "1:100000000:1"),
            ("unknown phase", "--phase", "bogus"),
            ("did you mean 'absorbed'", "--mla", "absorbd"),
            ("unknown data type", "--dtype", "f33"),
        ):
            self.quick(3, words, "count", "gpt2-124m", *arguments)
        self.quick(2, "not an integer", "count", "gpt2-124m", "--batch", "1e3")
        for flag, words in (("--dtype", "f32,bf16"), ("--logits", "all,last"), ("--routing", "topk,threshold"), ("--participation", "0.1:0.5:0.1"), ("--mla", "naive,absorbed"), ("--kv-dtype", "f32,f8"), ("--weight-dtype", "f8,i8")):
            self.quick(3, [f"{flag}: '{words}' is a list", "fathom sweep takes lists"], "count", "mod-tiny", flag, words)
        self.quick(2, "not an integer", "count", "gpt2-124m", "--seq", "1,,2")

    def test_what_is_wrong_is_named(self):
        base = {"width": 64, "vocab": 100, "layers": 2, "heads": 4, "mlp": 64}

        def model(more="", **change):
            return self.write("named.ini", "[network]\n" + "".join(f"{key} = {value}\n" for key, value in {**base, **change}.items()) + more)

        route, latent = "[route]\nevery = 2\ncapacity = 1/4\n", "rope_dim = 8\n[mla]\nkv_rank = 16\nnope_dim = 8\nv_dim = 8\n"
        self.quick(3, ["named.ini:7", "2147483648 heads of 2 elements of head_dim are 4294967296"], "count", model(heads=2**31, head_dim=2))
        self.quick(3, ["named.ini:2", "1099511627780 is out of range; allowed are 1 to 2147483648"], "count", model(width=2**40 + 4))
        self.quick(3, ["too large to plan", "--batch, --seq, --context"], "count", "dense-60m", "--phase", "decode", "--context", str(2**40), "--batch", str(2**22))
        self.quick(3, "--run-tokens: 1e30 tokens are", "count", "gpt2-124m", "--phase", "train", "--run-tokens", "1e30")
        whole = (ARGUMENTS.source / "tests/data/hf/llama-3-8b.json").read_text()
        result = self.refuses(3, "number overflow", "count", self.write("e.json", whole.replace("4096", "1e999", 1)))
        self.assertNotIn("json.exception", result.stderr)
        self.quick(2, ["fathom has no option '-o'", "fathom count ... -o"], "-o", "json", "count", "gpt2-124m")
        train = ("--phase", "train", "--seq", "16")
        for key, hint, line, text, *arguments in (
            ("targets", "[lora] targets", 14, latent + "[lora]\nrank = 2\ntargets = q\n"), ("mtp", "route other layers", 7, "mtp = 1\n" + route),
            ("parallel", "kv = selected", 7, "parallel = yes\n" + route + "kv = all\n"), ("aux_detached", "aux_detached = no", 12, route + "router = mlp\nrouter_hidden = 8\naux_detached = yes\n", *train),
        ):
            self.quick(3, [f"named.ini:{line}", key, hint], "count", model(text), *arguments)
        self.quick(3, ["named.ini", "--mla naive or absorbed"], "count", model(latent + route), "--mla", "decompress", "--phase", "decode")

    def test_threads(self):
        self.quick(3, "4000 threads cannot be run", "check", "rms_norm", "--threads", "4000")
        for threads in ("0", "-1", "99999"):
            self.refuses(2, "not in range 1 to 4096", "run", "mod-tiny", "--threads", threads)

    def test_a_limit_on_the_address_space(self):
        """Refused with the number before anything is allocated, not by a library that meets the limit on its own."""
        if sanitized():
            self.skipTest("a sanitizer maps more than any such limit")
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (700 << 20, before[1]))
        try:
            # Weights, gradients and two moments of 124 million: 16 bytes each are 1,991 MB.
            error = self.refuses(4, "this run needs ", "run", "gpt2-124m", "--phase", "train", "--seq", "8", "--time", "0.1", "--threads", "1").stderr
            size, unit = error.split("this run needs ")[1].split()[:2]
            self.assertEqual(unit, "GB")  # as people say it
            self.assertGreater(float(size), 1.991)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    def test_memory_that_suffices_is_what_is_asked_for(self):
        """A run starts where the bytes it names are there, and then never meets the limit: weights on their way in and reference work are part of them."""
        if sanitized():
            self.skipTest("a sanitizer maps more than any such limit")
        before = resource.getrlimit(resource.RLIMIT_AS)
        command = ("run", "mod-60m", "--phase", "decode", "--context", "1024", "--batch", "2", "--rounds", "1", "--threads", "1", "-q")
        limit = 400 << 20
        self.run_fathom(*command)  # a machine that was never probed is probed first, which takes more
        try:
            resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
            error = self.refuses(4, "this run needs ", *command).stderr
            need, have = (int(words.split()[0]) for words in (error.split("this run needs ")[1], error.split("of memory, ")[1]))
            resource.setrlimit(resource.RLIMIT_AS, (limit + (need - have - 8) * 1000000, before[1]))
            self.refuses(4, f"this run needs {need} MB", *command)
            resource.setrlimit(resource.RLIMIT_AS, (limit + (need - have + 8) * 1000000, before[1]))
            self.run_fathom(*command)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    def test_times(self):
        for seconds in ("0", "-1", "nan", "inf", "1e9", "ten"):
            self.refuses(2, ["--time: '", "number of seconds" if seconds == "ten" else "more than 0 and at most 1000000"], "run", "mod-tiny", f"--time={seconds}")
        self.refuses(2, "not in range 1 to", "run", "mod-tiny", "--rounds", "0")

    def test_capacities(self):
        for capacity in ("1.5", "-0.1", "nan", "inf", "-inf", "1/0", "1e-400", "0.1234567890123456789012345"):
            self.quick(3, "capacity", "count", "gpt2-124m", f"--capacity={capacity}")
        for capacity in ("half", "0,5", "1/8x"):
            self.quick(2, "capacity", "count", "gpt2-124m", f"--capacity={capacity}")
        self.quick(3, "mod-every", "count", "gpt2-124m", "--mod-every", "0")
        self.quick(3, "no block is routed", "count", "gpt2-124m", "--mod-every", "13")
        self.quick(3, "slots", "count", "gpt2-124m", "--mod-every", "2", "--slots=-1")

    def test_networks(self):
        base = {"width": 64, "vocab": 100, "layers": 4, "heads": 4, "mlp": 256}
        for number, (words, change) in enumerate((
            ("width", {"width": 0}), ("heads", {"heads": 5}), ("kv_heads", {"kv_heads": 3}), ("window", {"window": 0}), ("window", {"window": -1}),
            ("chunk", {"chunk": 0}), ("layers", {"layers": -3}), ("layers", {"layers": 10**12}), ("mlp", {"mlp": "1e9"}), ("vocab", {"vocab": 2**63}),
            ("width", {"width": 10**14}), ("did you mean 'rms'", {"norm": "rmss"}), ("norm_epsilon", {"norm_epsilon": "nan"}), ("rope_base", {"rope_base": "inf"}),
            ("even", {"head_dim": 3}), ("padded_vocab", {"padded_vocab": 50}), ("mtp", {"mtp": -1}), ("unknown key", {"capacityy": "1/8"}),
            ("nest deeper", {"pattern": "(" * 5000 + "a" + ")" * 5000}), ("repetition", {"pattern": "999999999*(a b)"}),
        )):
            text = "[network]\n" + "".join(f"{key} = {value}\n" for key, value in {**base, **change}.items())
            self.quick(3, words, "count", self.write(f"n{number}.ini", text))
        for name, content, words in (
            ("big.ini", "[network]\n" + "# x\n" * 2_600_000, "larger than"), ("utf16.ini", "[network]\nwidth = 8\n".encode("utf-16"), "UTF-16"),
            ("latin.ini", b"[network]\nname = \xff\xfe\n", "not UTF-8"), ("nul.ini", b"[network]\nwidth = 8\0\n", "NUL"), ("empty.ini", "", ""),
            ("twice.ini", "[network]\nwidth = 8\nwidth = 9\n", "twice"), ("open.ini", "[network\n", "lacks its"),
        ):
            self.quick(3, words, "count", self.write(name, content))

    def test_configurations(self):
        whole = json.loads((ARGUMENTS.source / "tests/data/hf/llama-3-8b.json").read_text())
        for number, (key, value) in enumerate((
            ("hidden_size", 0), ("hidden_size", -1), ("hidden_size", 4096.5), ("hidden_size", "4096"), ("hidden_size", True), ("hidden_size", None),
            ("hidden_size", 10**30), ("vocab_size", 2**62), ("num_hidden_layers", 0), ("num_hidden_layers", 10**9), ("num_attention_heads", 33),
            ("num_key_value_heads", 5), ("num_key_value_heads", 0), ("head_dim", 0), ("head_dim", 129), ("intermediate_size", 0), ("tie_word_embeddings", 3),
            ("model_type", "llamma"), ("model_type", 3), ("max_position_embeddings", -5),
        )):
            self.quick(3, "", "count", self.write(f"c{number}.json", json.dumps({**whole, key: value})))
        for key in ("hidden_size", "model_type", "vocab_size", "num_hidden_layers"):
            self.quick(3, key, "count", self.write("missing.json", json.dumps({k: v for k, v in whole.items() if k != key})))
        text = json.dumps(whole)
        for name, content, words in (
            ("deep.json", "[" * 100_000 + "]" * 100_000, "deeper"), ("deep2.json", '{"x":' * 50_000 + "1" + "}" * 50_000, "deeper"),
            ("big.json", '{"model_type":"llama","pad":"' + "a" * 10_000_000 + '"}', ""), ("many.json", "{" + ",".join(f'"k{i}":{i}' for i in range(600_000)) + "}", "values"),
            ("nan.json", text.replace("4096", "NaN", 1), "JSON"), ("e.json", text.replace("4096", "1e999", 1), ""), ("cut.json", text[:-5], "JSON"), ("tail.json", text + "x", "JSON"),
            ("bytes.json", text.encode().replace(b"llama", b"ll\xff\xfeama"), "UTF-8"), ("null.json", "null", "object"), ("list.json", "[1,2]", "object"), ("empty.json", "", ""),
        ):
            self.quick(3, words, "count", self.write(name, content))
        self.quick(3, "unknown", "count", self.write("strict.json", json.dumps({**whole, "brand_new_key": 1})), "--strict")
        self.run_fathom("count", self.write("ignored.json", json.dumps({**whole, "brand_new_key": 1})), "--seq", "16")

    def test_records(self):
        for name, content in (("r1.json", "{}"), ("r2.json", '{"schema": "fathom-record-99"}'), ("r3.json", "[" * 100_000), ("r4.json", b"\xff\xfe"), ("r5.json", "")):
            self.quick(3, "", "report", self.write(name, content))


if __name__ == "__main__":
    main()
