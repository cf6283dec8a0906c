"""Stored widths, uneven expert loads, recomputation by name and unfused attention, for independent_counts.py: which a case has, and how many experts its
tokens find. Nothing of the project is imported here either."""

import random


def add_features(case, has_experts):
    """Stored widths, uneven expert loads, recomputation by name, unfused attention: drawn apart, so that the rest of a case stays what it was."""
    rng = random.Random(case["seed"] * 7 + 5)
    config = case["config"]
    number = config.get("num_local_experts") or config.get("num_experts") or config.get("n_routed_experts")
    if rng.random() < 0.6 and has_experts:
        if rng.random() < 0.5:
            case["expert_skew"] = rng.choice([0.3, 1, 1.7, 4])
        else:
            case["expert_loads"] = [rng.choice([1, 1, 2, 5, 40, 0.25]) for _ in range(number)]
    if case["phase"] == "train":
        dense = not number
        names = ["attn/core", "norm1", "norm2"] + (["mlp/up", "mlp/act"] if dense else []) + ([] if config["model_type"].startswith("deepseek") else ["attn/qkv"])
        if rng.random() < 0.7:
            case["recompute"] = sorted(name for name in names if rng.random() < 0.5) or ["attn/core"]
    else:
        if rng.random() < 0.4:
            case["weight_dtype"] = "f8"
        case["unfused"] = rng.random() < 0.4


def chances(case, number, picks):
    """How likely a token picks each expert: c w_e, at most 1, with c found by bisection such that they sum to the picks."""
    weights = case.get("expert_loads") or [(rank + 1) ** -case.get("expert_skew", 0) for rank in range(number)]
    low, high = 0.0, 1e9 / min(weights)
    for _ in range(400):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(1.0, middle * w) for w in weights) < picks else (low, middle)
    return [min(1.0, high * w) for w in weights]


def distinct_experts(case, layers, slots):
    """Expected distinct experts per layer that has them, by looking at each expert: one minus the chance that no token picks it."""
    found = []
    new = 1 if case["phase"] == "decode" else case["length"]
    every = case.get("mod_every", 0)
    for index, layer in enumerate(layers):
        if not layer.expert or layer.expert[0] == 1:
            continue
        rows = slots(case["capacity"], new, case["rounding"]) if every > 0 and index % every == every - 1 else new
        sum_over = 0.0
        for p in chances(case, layer.expert[0], layer.expert[1]):
            nobody = 1.0
            for _ in range(rows * case["batch"]):
                nobody *= 1 - p
            sum_over += 1 - nobody
        found.append(sum_over)
    return sorted(set(round(value, 6) for value in found))
