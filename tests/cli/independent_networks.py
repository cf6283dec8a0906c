"""`fathom count` against an independent calculation (tests/oracle/independent_networks.py) on its stored networks in INI form."""

import concurrent.futures
import json
import pathlib
import sys
import tempfile

arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
oracle = pathlib.Path(arguments["--source"]) / "tests" / "oracle"
sys.path.insert(0, str(oracle))
sys.dont_write_bytecode = True
import independent_networks  # noqa: E402

stored = json.loads((oracle / "data" / "independent_networks.json").read_text())
assert len(stored) >= 300
# The stored cases are those that the script makes: what is expected does not drift with it.
made = independent_networks.cases(len(stored), 1)
assert json.loads(json.dumps(made)) == stored, "independent_networks.py no longer makes the stored cases: see its first lines"
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


def compare(case):
    with tempfile.TemporaryDirectory() as folder:
        return [f"seed {case['seed']} {case['sort']}: {line}" for line in independent_networks.differences(case, arguments["--fathom"], folder)]


with concurrent.futures.ThreadPoolExecutor(2) as pool:
    wrong = [line for lines in pool.map(compare, stored) for line in lines]
assert not wrong, "\n".join(wrong)
