"""`fathom count` against an independent calculation (tests/oracle/independent_networks.py) on its stored networks in INI form."""

from _independent import compare, stored_cases

stored = stored_cases("independent_networks")
assert len(stored) >= 300
# Every method and every phase is among them, most of them often.
assert {case["sort"] for case in stored} == {"mod", "schedule", "exit", "recursion", "staged", "integrated", "mixed"}
for has in (
    lambda case: case["phase"] == "train" and "lora" in case["network"],
    lambda case: case["network"].get("freeze_embedding"),
    lambda case: case["network"].get("mtp"),
    lambda case: "weights" in case["network"],
    lambda case: any(layer.get("moe", {}).get("noops") for layer in case["network"]["layers"]),
    lambda case: any("expert_capacity" in layer.get("moe", {}) for layer in case["network"]["layers"]),
    lambda case: any(layer.get("route", {}).get("kv") == "all" for layer in case["network"]["layers"]),
    lambda case: any("adapter" in layer.get("route", {}) for layer in case["network"]["layers"]),
    lambda case: case.get("routing") == "predictor",
    lambda case: case.get("routing") == "threshold",
    lambda case: case.get("recompute") == "full",
    lambda case: case["phase"] == "decode" and any("route" in layer for layer in case["network"]["layers"]),
):
    assert sum(1 for case in stored if has(case)) >= 8

compare("independent_networks", stored, lambda case: case["sort"])
