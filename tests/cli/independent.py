"""`fathom count` against an independent calculation (tests/oracle/independent_counts.py) on its stored 240 configurations."""

from _independent import compare, stored_cases

stored = stored_cases("independent_counts")
assert len(stored) >= 200
# Every kind of model and of scenario is among them.
assert {case["config"]["model_type"] for case in stored} >= {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gpt2", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3"}
assert {case["phase"] for case in stored} == {"prefill", "train", "decode"}
assert sum("mod_every" in case for case in stored) >= 40

compare("independent_counts", stored, lambda case: case["config"]["model_type"])
