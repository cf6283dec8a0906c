"""--convention and `fathom explain convention`: exact figures, signed reasons, refusals."""

import json
import subprocess
import sys

fathom = sys.argv[sys.argv.index("--fathom") + 1]


def run(*arguments):
    return subprocess.run([fathom, *arguments], capture_output=True, text=True, timeout=60)


def record(*arguments):
    done = run("count", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# One sequence of 2048 tokens at 302 027 580.75 FLOP per token under vllm.
assert record("gpt2-124m", "--seq", "2048", "--convention", "vllm")["convention"] == {"name": "vllm", "flops": 618552485376}
# Half of the square is S/2 pairs less than the triangle, times 4 n d = 3072 and 12 layers; maxtext is its other name.
half = record("gpt2-124m", "--seq", "2047", "--convention", "maxtext", "--logits", "all")
assert half["convention"]["name"] == "causal-half"
assert half["convention"]["flops"] == half["totals"]["flops_matmul"] - 12 * 3072 * 2047 // 2
# The exact count stays what it is whatever the convention.
assert half["totals"]["flops_matmul"] == record("gpt2-124m", "--seq", "2047", "--logits", "all")["totals"]["flops_matmul"]
# Where no formula applies the figure is missing, not zero.
assert record("gpt2-124m", "--phase", "decode", "--convention", "palm")["convention"]["flops"] is None
# `full` warns and follows the op list.
full = run("count", "gpt2-124m", "--convention", "full", "--seq", "2048", "--logits", "all")
assert "pass 100 %" in full.stdout + full.stderr, full.stdout
assert "660.6 GFLOP" in full.stdout, full.stdout

unknown = run("count", "gpt2-124m", "--convention", "megatorn")
assert unknown.returncode == 3 and "did you mean 'megatron'?" in unknown.stderr, unknown.stderr

explained = run("explain", "convention", "palm", "llama-3-8b")
for text in ("+1 050 673 152", "+536 608 768", "+532 480", "17 134 264 320", "arXiv 2204.02311"):
    assert text in explained.stdout, explained.stdout
missing = run("explain", "convention", "chinchilla", "mixtral-8x7b")
assert missing.returncode == 0 and "no experts" in missing.stdout, missing.stdout
assert "megatron-bridge" in run("explain", "convention", "-o", "csv").stdout
assert run("explain", "convention", "palm", "a", "b").returncode == 2
