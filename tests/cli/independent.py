"""`fathom count` against an independent calculation (tests/oracle/independent_counts.py) on its stored 240 configurations."""

import concurrent.futures
import json
import pathlib
import sys
import tempfile

arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
oracle = pathlib.Path(arguments["--source"]) / "tests" / "oracle"
sys.path.insert(0, str(oracle))
sys.dont_write_bytecode = True
import independent_counts  # noqa: E402

stored = json.loads((oracle / "data" / "independent_counts.json").read_text())
assert len(stored) >= 200
# The stored cases are those that the script makes: what is expected does not drift with it.
made = independent_counts.cases(len(stored), 1)
assert json.loads(json.dumps(made)) == stored, "independent_counts.py no longer makes the stored cases: see its first lines"
# Every kind of model and of scenario is among them.
assert {case["config"]["model_type"] for case in stored} >= {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gpt2", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3"}
assert {case["phase"] for case in stored} == {"prefill", "train", "decode"}
assert sum("mod_every" in case for case in stored) >= 40


def compare(case):
    with tempfile.TemporaryDirectory() as folder:
        return [f"seed {case['seed']} {case['config']['model_type']}: {line}" for line in independent_counts.differences(case, arguments["--fathom"], folder)]


with concurrent.futures.ThreadPoolExecutor(2) as pool:
    wrong = [line for lines in pool.map(compare, stored) for line in lines]
assert not wrong, "\n".join(wrong)
