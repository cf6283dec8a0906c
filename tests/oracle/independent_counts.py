"""Parameters, FLOPs and cache sizes of random models, counted straight from a config.json: a second opinion on `fathom count`.

Nothing of the project is imported and none of its formulas is used. A model is a list of tensors as its checkpoint would hold them (their
sizes are the parameters), every matrix product is listed with its rows, and attention is counted by looking at each (query, key) pair of
a short sequence in turn. 1 multiply-add = 2 FLOP; everything else (norms, softmax, embedding lookup) is no FLOP here.

    python3 independent_counts.py --count 240 > data/independent_counts.json       # cases with what is expected of them
    python3 independent_counts.py --count 2000 --seed 7 --fathom build/fathom      # compares; prints what differs

tests/cli/independent.py does both: the stored cases must be those that this file makes, and `fathom count` must agree with all of them.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from fractions import Fraction

from independent_configs import FAMILIES
from independent_features import add_features, distinct_experts


# ---- what a model is -------------------------------------------------------------------------------------------------------------


class Layer:
    """Matrices as (name, inputs, outputs), other parameters as a number, and attention as numbers and a predicate."""

    def __init__(self):
        self.matrices = []
        self.vectors = 0
        self.heads = self.qk = self.v = 0
        self.cached = 0  # elements of keys and values per token
        self.sees = lambda query, key: key <= query
        self.router = None   # (inputs, outputs) of the expert router, every token
        self.expert = None   # (number, chosen, matrices of one)
        self.window = None   # most tokens that a cache of this layer has to hold


def grouped(layer, config, h, n, m, d, bias_qkv, bias_o):
    layer.matrices += [("q", h, n * d), ("k", h, m * d), ("v", h, m * d), ("o", n * d, h)]
    layer.vectors += (n * d + 2 * m * d if bias_qkv else 0) + (h if bias_o else 0)
    layer.heads, layer.qk, layer.v = n, d, d
    layer.cached = 2 * m * d


def windowed(layer, window):
    layer.sees = lambda query, key: key <= query and query - key < window
    layer.window = window


def gated(h, f):
    return [("gate", h, f), ("up", h, f), ("down", f, h)]


def layers_of(c):
    kind = c["model_type"]
    if kind == "gpt2":
        h, n = c["n_embd"], c["n_head"]
        f = c["n_inner"] or 4 * h
        result = []
        for _ in range(c["n_layer"]):
            layer = Layer()
            grouped(layer, c, h, n, n, h // n, True, True)
            layer.matrices += [("up", h, f), ("down", f, h)]
            layer.vectors += f + h + 4 * h  # biases of the MLP; two LayerNorms with gain and bias
            result.append(layer)
        return result
    h, n, m = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    result = []
    for index in range(c["num_hidden_layers"]):
        layer = Layer()
        layer.vectors += 2 * h  # two RMSNorms
        if kind.startswith("deepseek"):
            r_q, r_kv, d_n, d_r, d_v = c["q_lora_rank"], c["kv_lora_rank"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
            if r_q is None:
                layer.matrices.append(("q", h, n * (d_n + d_r)))
            else:
                layer.matrices += [("q_a", h, r_q), ("q_b", r_q, n * (d_n + d_r))]
                layer.vectors += r_q
            layer.matrices += [("kv_a", h, r_kv + d_r), ("kv_b", r_kv, n * (d_n + d_v)), ("o", n * d_v, h)]
            layer.vectors += r_kv
            layer.heads, layer.qk, layer.v = n, d_n + d_r, d_v
            layer.cached = r_kv + d_r  # the latent row
            sparse = index >= c["first_k_dense_replace"] and index % c["moe_layer_freq"] == 0
            if sparse:
                e = c["n_routed_experts"]
                layer.router = (h, e)
                layer.expert = (e, c["num_experts_per_tok"], gated(h, c["moe_intermediate_size"]))
                for _ in range(c["n_shared_experts"] or 0):
                    layer.matrices += gated(h, c["moe_intermediate_size"])
                if kind == "deepseek_v3":
                    layer.vectors += e  # score correction
            else:
                layer.matrices += gated(h, c["intermediate_size"])
            result.append(layer)
            continue
        d = c.get("head_dim") or h // n
        bias = kind.startswith("qwen2") or c.get("attention_bias", False)
        grouped(layer, c, h, n, m, d, bias, bias and not kind.startswith("qwen2"))
        if kind.startswith("qwen3"):
            layer.vectors += 2 * d  # query and key norm, one gain for all heads
        if kind == "mistral" and c["sliding_window"]:
            windowed(layer, c["sliding_window"])
        if kind == "qwen2" and c["use_sliding_window"] and index >= c["max_window_layers"]:
            windowed(layer, c["sliding_window"])
        if kind == "gemma2":
            layer.vectors += 2 * h  # norms after attention and MLP too
            if index % 2 == 0:
                windowed(layer, c["sliding_window"])
        if kind == "mixtral":
            layer.router = (h, c["num_local_experts"])
            layer.expert = (c["num_local_experts"], c["num_experts_per_tok"], gated(h, c["intermediate_size"]))
        elif kind in ("qwen2_moe", "qwen3_moe") and (index + 1) % c["decoder_sparse_step"] == 0 and index not in c["mlp_only_layers"]:
            layer.router = (h, c["num_experts"])
            layer.expert = (c["num_experts"], c["num_experts_per_tok"], gated(h, c["moe_intermediate_size"]))
            if kind == "qwen2_moe":
                layer.matrices += gated(h, c["shared_expert_intermediate_size"]) + [("shared_gate", h, 1)]
        else:
            layer.matrices += gated(h, c["intermediate_size"])
            if c.get("mlp_bias"):
                layer.vectors += 2 * c["intermediate_size"] + h
        result.append(layer)
    return result


# ---- counting --------------------------------------------------------------------------------------------------------------------


def size(matrices):
    return sum(a * b for _, a, b in matrices)


def slots(capacity, length, rounding):
    exact = Fraction(capacity) * length
    whole = exact.numerator // exact.denominator
    rest = exact - whole
    if rounding == "ceil" and rest > 0 or rounding == "half-up" and rest >= Fraction(1, 2):
        whole += 1
    return min(length, whole)


def expected(case):
    c = case["config"]
    h = c.get("hidden_size") or c["n_embd"]
    vocab = c["vocab_size"]
    layers = layers_of(c)
    tied = c.get("tie_word_embeddings", True)
    gpt2 = c["model_type"] == "gpt2"
    every = case.get("mod_every", 0)
    routed = [every > 0 and index % every == every - 1 for index in range(len(layers))]

    total = vocab * h * (1 if tied else 2) + (c["n_positions"] * h if gpt2 else 0) + (2 * h if gpt2 else h)
    active = total
    for layer, takes_part in zip(layers, routed):
        own = size(layer.matrices) + layer.vectors + (h if takes_part else 0)  # a depth router has h weights
        chosen = 0
        if layer.expert:
            number, k, matrices = layer.expert
            own += layer.router[0] * layer.router[1]
            chosen = k * size(matrices)
            total += number * size(matrices)
        total += own
        active += own + chosen

    decode = case["phase"] == "decode"
    past = case.get("past", 0) if not decode else case["length"] - 1
    new = 1 if decode else case["length"]
    macs = 0
    again = 0   # multiply-adds of the forward pass that a training step does once more
    pairs_seen = 0   # over all layers, times the heads
    narrow = 0  # matrices inside the layers, routers apart
    for layer, takes_part in zip(layers, routed):
        rows = slots(case["capacity"], new, case["rounding"]) if takes_part else new
        if takes_part:
            macs += new * h  # every token is scored
        macs += rows * size(layer.matrices)
        if layer.expert:
            macs += rows * (layer.router[0] * layer.router[1] + layer.expert[1] * size(layer.expert[2]))
        pairs = 0
        if takes_part:
            # Which tokens are chosen is not known; without a window the pairs are the same for any of them.
            pairs = sum(1 for query in range(rows) for key in range(rows) if key <= query)
        else:
            pairs = sum(1 for query in range(past, past + new) for key in range(past + new) if layer.sees(query, key))
        macs += pairs * layer.heads * (layer.qk + layer.v)
        pairs_seen += pairs * layer.heads
        narrow += size([m for m in layer.matrices if m[0] != "shared_gate"]) + (layer.expert[0] * size(layer.expert[2]) if layer.expert else 0)
        names = case.get("recompute", [])
        if "attn/core" in names:
            again += pairs * layer.heads * (layer.qk + layer.v)
        if "attn/qkv" in names:
            again += rows * size([m for m in layer.matrices if m[0] in "qkv"])
        if "mlp/up" in names:
            again += rows * size([m for m in layer.matrices if m[0] == "up"])
    logits = {"all": new, "last": 1, "none": 0}[case.get("logits", "all" if case["phase"] == "train" else "last")]
    macs += logits * h * vocab
    flops = 2 * macs * case["batch"]
    if case["phase"] == "train":
        flops = 3 * flops + 2 * again * case["batch"]
    result = {"params_total": total, "params_active": active, "flops_matmul": flops}
    # Elements that one token adds to the cache, all layers, two bytes each.
    result["kv_bytes_per_token"] = 2 * sum(layer.cached for layer in layers)
    # Weights as stored: two bytes, one for the matrices inside the layers in f8. A head of its own is not there where no logits are asked for.
    stored = 2 * total - (narrow if case.get("weight_dtype") else 0)
    if not tied and case.get("logits") == "none":
        stored -= 2 * vocab * h
    result["weight_bytes"] = stored
    if case.get("unfused"):  # scores and probabilities, each written and read in two bytes
        result["unfused"] = 2 * 2 * 2 * pairs_seen * case["batch"]
    return result


def make_case(seed):
    rng = random.Random(seed)
    config = FAMILIES[seed % len(FAMILIES)](rng)
    case = {"seed": seed, "config": config, "batch": rng.randint(1, 4), "phase": rng.choice(["prefill", "prefill", "train", "decode"])}
    case["length"] = rng.randint(1, 40)
    if case["phase"] == "prefill":
        case["logits"] = rng.choice(["all", "last", "none"])
        case["past"] = rng.choice([0, 0, rng.randint(1, 30)])
    if rng.random() < 0.4 and case["phase"] != "decode":
        case["mod_every"] = rng.randint(1, min(4, config.get("num_hidden_layers") or config["n_layer"]))
        case["capacity"] = rng.choice(["1/8", "0.25", "1/3", "0.5", "0.9", "1", "0"])
        case["rounding"] = rng.choice(["floor", "half-up", "ceil"])
        case["past"] = 0
    add_features(case, any(layer.expert for layer in layers_of(config)))
    return case


def usable(case):
    """A window over a routed block acts on original positions: its pairs depend on the choice."""
    return not (case.get("mod_every") and any(layer.window is not None for layer in layers_of(case["config"])))


def cases(count, seed):
    found = []
    at = 0
    while len(found) < count:
        case = make_case(seed * 1000003 + at)
        at += 1
        if usable(case):
            case["expected"] = expected(case)
            found.append(case)
    return found


def arguments(case, path):
    args = ["count", path, "--phase", case["phase"], "--batch", str(case["batch"]), "--dtype", "bf16", "-o", "json", "-q"]
    args += ["--context" if case["phase"] == "decode" else "--seq", str(case["length"])]
    if case["phase"] == "prefill":
        args += ["--logits", case["logits"], "--past", str(case["past"])]
    if case.get("mod_every"):
        args += ["--mod-every", str(case["mod_every"]), "--capacity", case["capacity"], "--rounding", case["rounding"]]
    if "expert_skew" in case:
        args += ["--expert-skew", str(case["expert_skew"])]
    if "expert_loads" in case:
        args += ["--expert-loads", ",".join(str(load) for load in case["expert_loads"])]
    if "recompute" in case:
        args += ["--recompute", ",".join(case["recompute"])]
    if "weight_dtype" in case:
        args += ["--weight-dtype", case["weight_dtype"]]
    return args


def differences(case, fathom, folder):
    path = os.path.join(folder, "config.json")
    with open(path, "w") as file:
        json.dump(case["config"], file)
    run = subprocess.run([fathom] + arguments(case, path), capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        return [f"exit {run.returncode}: {run.stderr.strip()}"]
    counted = json.loads(run.stdout)
    totals = counted["totals"]
    if case.get("unfused"):
        apart = json.loads(subprocess.run([fathom] + arguments(case, path) + ["--fusion", "qkv"], capture_output=True, text=True, timeout=60).stdout)["totals"]
        totals["unfused"] = apart["bytes_read"] - totals["bytes_read"] + apart["bytes_written"] - totals["bytes_written"]
    wrong = [f"{key}: counted {totals.get(key)}, here {value}" for key, value in case["expected"].items() if totals.get(key) != value]
    seen = sorted(set(round(op["experts_expected"], 6) for op in counted["ops"] if "experts_expected" in op))
    here = distinct_experts(case, layers_of(case["config"]), slots)
    if len(seen) != len(here) or any(abs(a - b) > 2e-6 * max(1, b) for a, b in zip(seen, here)):
        wrong.append(f"distinct experts: counted {seen}, here {here}")
    return wrong


def run(about, count, noun, make, compare, name):
    """The command line of a calculation: its cases as JSON, or their differences from a program."""
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fathom", help="compare with this program instead of printing the cases")
    options = parser.parse_args()
    made = make(options.count, options.seed)
    if not options.fathom:
        print("[\n" + ",\n".join(json.dumps(case) for case in made) + "\n]")
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in made:
            for line in compare(case, options.fathom, folder):
                wrong += 1
                print(f"seed {case['seed']} {name(case)}: {line}")
    print(f"{len(made)} {noun}, {wrong} differences", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run(__doc__, 240, "configurations", cases, differences, lambda case: f"{case['config']['model_type']} {' '.join(arguments(case, 'config.json'))}"))
