"""Random combinations of models, phases and counting options: a count or one clear refusal, ops that add up, expectations within what is declared."""

import random

from _cli import CliTest, main, parse_json

RUNS = 250


class Combinations(CliTest):
    def command(self, dice, models):
        phase = dice.choice(["train", "prefill", "decode", "generate"])
        command = ["count", dice.choice(models), "--phase", phase, "--seq", dice.choice([1, 2, 7, 64, 300]), "--batch", dice.choice([1, 3])]
        train = phase == "train"
        for chance, words in (
            (0.5, ["--fusion", dice.choice(["none", "all", "norm", "qkv+residual", "attention,gate-up"])]),
            (0 if train else 0.3, ["--weight-dtype", dice.choice(["f8", "i8", "bf16"])]),
            (0.5 if train else 0, ["--recompute", dice.choice(["full", "selective", "attn", "mlp", "gemm", "attention", "norm1", "rms_norm", "attn,norm1", "moe", "adapter", "route/gather",
                                                               "activation", "add_residual", "expert_combine"])]),
            (0.3, ["--expert-skew", "1.3"]),
            (0.3, ["--mla", dice.choice(["absorbed", "decompress"])]),
            (0.3, ["--dtype", dice.choice(["bf16", "f8", "f16"])]),
            (0.3, ["--kv-dtype", "f8"]),
            (0.2, ["--full-mask"]),
            (0.3, ["--routing", "threshold"]),
            (0.2 if phase == "prefill" else 0, ["--past", "5"]),
            (0.2 if train else 0, ["--grad-accumulation", "3"]),
        ):
            if dice.random() < chance:
                command += words
        return command

    def test_combinations(self):
        models = [line.split(",")[0] for line in self.run_fathom("list", "models", "-o", "csv").stdout.splitlines()[1:]]
        dice = random.Random(4)
        counted = 0
        for _ in range(RUNS):
            result = self.run_fathom(*self.command(dice, models), "-o", "json", code=None)
            self.assertIn(result.code, (0, 3), str(result))
            if result.code == 3:
                self.assertNotIn("internal", result.stderr)
                continue
            counted += 1
            record = parse_json(result.stdout)
            for figures in [record["totals"]] + record.get("ops", []):
                for expected, declared in (("flops_expected", "flops_matmul"), ("bytes_read_expected", "bytes_read")):
                    if expected in figures:
                        self.assertGreaterEqual(figures[expected], 0, str(result))
                        self.assertLessEqual(figures[expected], figures[declared] * (1 + 1e-6), str(result))
            if "ops" in record:
                for figure in ("flops_matmul", "bytes_read", "bytes_written", "elements_vector"):
                    self.assertEqual(sum(op[figure] for op in record["ops"]), record["totals"][figure], str(result))
        self.assertGreater(counted, RUNS // 2)


if __name__ == "__main__":
    main()
