"""Parameters, FLOPs (declared and expected), cache and weight bytes of random networks in INI form, counted apart from the project: routing in depth of a block or a
part of it, per-layer capacities, early exits, shared weights, mixtures of depths and experts with no-ops and limits per expert, bypass adapters, predictors,
prediction modules, low-rank adapters and frozen parts.

Nothing of the project is imported. A model is walked layer by layer; every matrix product is noted with its rows, what it trains and whether its input needs a gradient, and
attention is counted by looking at every (query, key) pair of one sequence with the chance that both take part. 1 multiply-add = 2 FLOP.

    python3 independent_networks.py --count 300 > data/independent_networks.json   # cases with what is expected of them
    python3 independent_networks.py --count 2000 --seed 7 --fathom build/fathom     # compares; prints what differs

tests/cli/independent_networks.py does both.
"""

import json
import math
import os
import subprocess
import sys
from fractions import Fraction as F

from independent_random import make_case


def rounded(exact, mode):
    whole = exact.numerator // exact.denominator
    rest = exact - whole
    return whole + (1 if mode == "ceil" and rest > 0 or mode == "half-up" and rest >= F(1, 2) else 0)


def slots(route, length):
    wanted = route["slots"] if "slots" in route else rounded(F(route["capacity"]) * length, route.get("rounding", "floor"))
    return min(length, max(route.get("min_slots", 0), wanted))


class Rows:
    """Rows an op may have, how many it has in expectation, and of those of one sequence which take part (for pairs)."""

    def __init__(self, declared, expected):
        self.declared, self.expected = declared, F(expected)


class Count:
    def __init__(self, case):
        self.case = case
        self.training = case["phase"] == "train"
        self.declared = self.expected = F(0)
        self.params = 0
        self.inactive = 0       # parameters of experts that a token does not visit
        self.narrow = 0         # parameters stored narrower: matrices inside the layers
        self.again = None       # forward multiply-adds of the block being recomputed
        self.recomputed = F(0)
        self.recomputed_expected = F(0)

    # A product of `rows` with an a x b matrix: forward, gradient of the input where one is needed, gradient of the weight where it is trained.
    def product(self, rows, size, up, trained, times_train=None, repeats=True):
        passes = 1
        if self.training:
            passes += (1 if up else 0) + (1 if trained else 0)
        self.declared += rows.declared * size * passes
        self.expected += rows.expected * size * passes
        if self.training and repeats and self.case.get("recompute") == "full":
            self.declared += rows.declared * size
            self.expected += rows.expected * size

    def macs(self, declared, expected, passes=1):
        self.declared += F(declared) * passes
        self.expected += F(expected) * passes


def sees(layer, query, key):
    return key <= query and (not layer.get("window") or query - key < layer["window"])


def pairs_of(case, layer, route, chosen, share, length, past, everyone):
    """Declared and expected pairs of one sequence. `chosen`: slots of a ranked selection, or None where each token takes part with chance `share`."""
    every = sum(1 for q in range(past, past + length) for k in range(past + length) if sees(layer, q, k))
    if not route:
        return every, F(every)
    if route.get("kv") == "all":
        part = F(chosen, length) if chosen is not None else share
        declared = -((-every * chosen) // length) if chosen is not None else every
        return declared, every * part
    count = chosen if chosen is not None else length
    # Declared: what that many rows in a row would see.
    declared = sum(1 for q in range(past, past + count) for k in range(past + count) if sees(layer, q, k))
    one = F(chosen, length) if chosen is not None else share
    two = (F(chosen * (chosen - 1), length * (length - 1)) if length > 1 else F(0)) if chosen is not None else share * share
    held = everyone  # share of the past that the cache of this block holds
    expected = F(0)
    for q in range(past, past + length):
        for k in range(past + length):
            if sees(layer, q, k):
                expected += one if q == k else two if k >= past else one * held
    return declared, expected


def walk(case):
    n = case["network"]
    c = Count(case)
    h, vocab, stored_vocab = n["width"], n["vocab"], n.get("padded_vocab") or n["vocab"]
    lora = n.get("lora")
    base = not lora                     # the base is trained
    embedding = base and not n.get("freeze_embedding")
    tied = n.get("tied", True)
    decode, train = case["phase"] == "decode", case["phase"] == "train"
    length = 1 if decode else case["length"]
    past = case["length"] - 1 if decode else case.get("past", 0)
    batch = case["batch"]
    gated = n.get("gated", False)
    g = 3 if gated else 2
    routing = case.get("routing") or ("threshold" if decode else "topk")
    everything = Rows(batch * length, batch * length)
    targets = lora["targets"] if lora else []

    def linear(rows, a, b, up, target=None, experts=1, bias=False, trained=base, repeats=True, narrow=True, inactive=0):
        """Returns whether the result needs a gradient."""
        c.product(rows, a * b, up, trained, repeats=repeats)
        needs = up or trained
        c.params += experts * (a * b + (b if bias else 0))
        c.inactive += inactive * (a * b + (b if bias else 0))
        if narrow:
            c.narrow += experts * a * b
        if target in targets:
            r = lora["rank"]
            c.product(rows, a * r, up, True, repeats=repeats)
            c.product(rows, r * b, True, True, repeats=repeats)
            c.params += experts * r * (a + b)
            c.inactive += inactive * r * (a + b)
            needs = True
        return needs

    def norm(width, up):
        """Gain of an RMS norm; frozen with a frozen embedding that alone feeds it."""
        c.params += width
        return up or (base and not (n.get("freeze_embedding") and not up))

    def experts_of(layer, rows, up):
        e = layer["moe"]
        number, noops, width = e["experts"], e.get("noops", 0), e["expert_width"]
        nu = F(e.get("noop_share", "0"))
        picks = min(e["picks"], number)
        linear(rows, h, number + noops, up, narrow=False)
        taken = rows.expected / rows.declared if rows.declared else F(0)
        if "expert_capacity" in e:
            limit = max(1 if rows.declared else 0, rounded(F(e["expert_capacity"]) * rows.declared * e["picks"] / number, e.get("expert_rounding", "floor")))
            p = float(F(picks, number) * (1 - nu) * taken)
            kept = 0.0
            for k in range(rows.declared + 1):
                kept += math.comb(rows.declared, k) * p**k * (1 - p) ** (rows.declared - k) * min(k, limit)
            assigned = Rows(number * limit, F(number * kept))
        else:
            assigned = Rows(rows.declared * picks, rows.expected * picks * (1 - nu))
        bias = layer.get("mlp_bias", False)
        outside = number - picks
        inner = linear(assigned, h, width, up, "up", number, bias, inactive=outside)
        if gated:
            inner = linear(assigned, h, width, up, "gate", number, bias, inactive=outside) or inner
        needs = linear(assigned, width, h, inner, "down", number, bias, inactive=outside)
        if e.get("shared_experts"):
            f = e["shared_experts"] * e.get("shared_width", width)
            inside = [linear(rows, h, f, up, None, 1, bias) for _ in range(g - 1)]
            needs = linear(rows, f, h, any(inside), None, 1, bias) or needs
            if e.get("shared_gate"):
                linear(rows, h, 1, up, narrow=False)
        return needs or up or base

    def mlp_of(layer, rows, up):
        up = norm(h, up)
        if layer.get("moe"):
            return experts_of(layer, rows, up)
        f, bias = layer["mlp"], layer.get("mlp_bias", False)
        inner = linear(rows, h, f, up, "up", bias=bias)
        if gated:
            inner = linear(rows, h, f, up, "gate", bias=bias) or inner
        return linear(rows, f, h, inner, "down", bias=bias)

    def attention_of(layer, rows, up, route, chosen, share):
        up = norm(h, up)
        heads, kv, d = layer["heads"], layer["kv_heads"], layer["head_dim"]
        bias = layer.get("qkv_bias", False)
        keys = everything if route and route.get("kv") == "all" else rows
        needs = [linear(rows, h, heads * d, up, "q", bias=bias), linear(keys, h, kv * d, up, "k", bias=bias), linear(keys, h, kv * d, up, "v", bias=bias)]
        if layer.get("qk_norm"):
            c.params += 2 * d
            needs.append(base)
        if layer.get("sinks"):
            c.params += heads
            needs.append(base)
        held = share if route and past > 0 and route.get("kv") != "all" else F(1)
        declared, expected = pairs_of(case, layer, route, chosen, share, length, past, held)
        if not rows.declared:
            declared, expected = 0, F(0)
        passes = 1 + (2 if train and any(needs) else 0) + (1 if train and case.get("recompute") == "full" else 0)
        c.macs(batch * declared * heads * 2 * d, batch * expected * heads * 2 * d, passes)
        return linear(rows, heads * d, h, any(needs), "o", bias=layer.get("out_bias", False))

    def router(route, up, chosen):
        """Scores of every token, and what they learn from."""
        learns = route.get("gate", "raw") != "none"
        aux = F(str(route.get("aux_lambda", "0.01"))) > 0
        trained = base and (aux or learns)
        hidden = route.get("router_hidden", 0)
        selected = Rows(batch * chosen, batch * chosen) if chosen is not None else everything
        if hidden and not aux:
            # Scores that no loss but the language's reaches: forward on every token, backward on the selected ones.
            for a, b in ((h, hidden), (hidden, 1)):
                linear(everything, a, b, False, bias=route.get("router_bias", False), trained=False, repeats=False, narrow=False)
            if train and learns:
                each = (h * hidden + hidden if trained else 0) + (hidden if up or trained else 0) + (h * hidden if up else 0)
                c.macs(selected.declared * each, selected.expected * each)
            return
        if hidden:
            linear(everything, h, hidden, up and (aux or learns), bias=route.get("router_bias", False), trained=trained, repeats=False, narrow=False)
            linear(everything, hidden, 1, (up or trained) and (aux or learns), bias=route.get("router_bias", False), trained=trained, repeats=False, narrow=False)
            return
        c.params += h + (1 if route.get("router_bias") else 0)
        c.macs(everything.declared * h, everything.declared * h)
        if not train or not (aux or learns):
            return
        language = selected.declared if learns else 0
        if trained:
            c.macs(*[h * (everything.declared if aux else language)] * 2)
        if up:
            c.macs(*[h * (everything.declared if aux and not route.get("aux_detached") else language)] * 2)

    def predictor(route):
        u = route["predictor"]
        c.params += h if u == "linear" else h * u + u
        size = h if u == "linear" else h * u + u
        if train:
            c.macs(*[everything.declared * ((2 * size + (0 if u == "linear" else u)) if base else size)] * 2)
        elif routing == "predictor":
            c.macs(*[everything.declared * size] * 2)

    def block(layer, up):
        """One layer; returns whether the stream behind it needs a gradient."""
        route = layer.get("route")
        if not route:
            if layer.get("attention", True):
                up = attention_of(layer, everything, up, None, None, F(1)) or up
            return mlp_of(layer, everything, up) or up if layer.get("mlp") or layer.get("moe") else up
        ranked = routing in ("topk", "random") and not decode
        total = past + length
        share = F(case["participation"]) if "participation" in case else F(route["capacity"]) if "capacity" in route else F(slots(route, total), total)
        everyone, nobody = not ranked and share == 1, not ranked and share == 0
        chosen = slots(route, length) if ranked else length if everyone else 0 if nobody else None
        rows = Rows(batch * chosen, batch * chosen) if chosen is not None else Rows(batch * length, batch * length * share)
        rest = Rows(batch * (length - chosen), batch * (length - chosen)) if chosen is not None else Rows(batch * length, batch * length * (1 - share))
        part = route.get("part", "block")
        if part == "mlp" and layer.get("attention", True):
            up = attention_of(layer, everything, up, None, None, F(1)) or up
        router(route, up, chosen)
        if "predictor" in route:
            predictor(route)
        scored = base and route.get("gate", "raw") != "none"
        inside = up
        if part != "mlp" and layer.get("attention", True):
            inside = attention_of(layer, rows, up, route, chosen, share) or inside
        if part == "attention":
            behind = bypass(route, rest, up) if route.get("adapter") else False
            up = inside or up or scored or behind
            return mlp_of(layer, everything, up) or up
        if layer.get("mlp") or layer.get("moe"):
            inside = mlp_of(layer, rows, inside) or inside
        if route.get("adapter"):
            bypass(route, rest, up)
            inside = inside or base
        return inside or up or scored

    def bypass(route, rest, up):
        a = route["adapter"]
        needs = linear(rest, h, a, up, narrow=True)
        return linear(rest, a, h, needs, narrow=True) or up

    # Embedding, layers, head. Layers of one weight set hold their parameters once.
    c.params += stored_vocab * h
    up = embedding
    held = set()
    for index, layer in enumerate(n["layers"]):
        before, inactive, narrow = c.params, c.inactive, c.narrow
        up = block(layer, up)
        weights = n["weights"][index] if "weights" in n else index
        if weights in held:
            c.params, c.inactive, c.narrow = before, inactive, narrow
        held.add(weights)
    logits = case.get("logits") or ("all" if train else "last")
    out = Rows(*[batch * {"all": length, "last": 1, "none": 0}[logits]] * 2)
    head = base and (embedding or not tied)
    for _ in range(n.get("mtp", 0)):
        norm(h, True), norm(h, True)
        linear(everything, h, h, True, repeats=False)
        linear(everything, h, h, True, repeats=False)
        policy = case.pop("recompute", None)  # recomputation is of the layers
        block(n["layers"][-1], True)
        if policy:
            case["recompute"] = policy
        norm(h, True)
        c.product(out, h * stored_vocab, True, head, repeats=False)
    if n.get("final_norm", True):
        up = norm(h, up)
    c.product(out, h * stored_vocab, up, head, repeats=False)
    if not tied:
        c.params += stored_vocab * h
    result = {"params_total": c.params, "params_active": c.params - c.inactive}
    assert c.declared.denominator == 1
    result["flops_matmul"] = 2 * c.declared.numerator
    result["flops_expected"] = float(2 * c.expected)
    # The cache: keys and values of the tokens that are stored, in whole pages.
    page, kv_bytes, width = case.get("kv_page", 1), 0, 0
    for layer in n["layers"] + n["layers"][-1:] * n.get("mtp", 0):  # a prediction module is one more of the last layer's kind
        if not layer.get("attention", True):
            continue
        route = layer.get("route")
        own = route and route.get("kv") != "all" and route.get("part", "block") != "mlp"
        tokens = slots(route, past + length) if own else past + length
        if own and "participation" in case and (decode or routing not in ("topk", "random")):  # rows that chance takes
            tokens = rounded(F(case["participation"]) * (past + length), route.get("rounding", "floor"))
        tokens = min(tokens, layer.get("window") or tokens)
        kv_bytes += -(-tokens // page) * page * 2 * layer["kv_heads"] * layer["head_dim"] * 2
        width += 2 * layer["kv_heads"] * layer["head_dim"] * 2
    if not train:
        result["kv_bytes"] = kv_bytes * batch
    result["kv_bytes_per_token"] = width
    return result


def ini(network):
    """The network as fathom reads it: one [block.NAME] per layer that differs."""
    lines = ["[network]"] + [f"{key} = {word(network[key])}" for key in ("width", "vocab", "padded_vocab", "tied", "final_norm", "gated", "freeze_embedding", "mtp") if key in network]
    names, texts = [], {}
    for layer in network["layers"]:
        text = []
        for key, value in layer.items():
            if key in ("moe", "route"):
                text += [f"{inner} = {word(each)}" for inner, each in value.items()]
                if key == "route" and "router_hidden" in value:
                    text.append("router = mlp")
            elif key == "qk_norm":
                text.append(f"qk_norm = {'head' if value else 'none'}")
            else:
                text.append(f"{key} = {word(value)}")
        body = "\n".join(text)
        texts.setdefault(body, f"b{len(texts)}")
        names.append(texts[body])
    lines.append("pattern = " + " ".join(names))
    if "weights" in network:
        lines.append("weights = " + " ".join(str(each) for each in network["weights"]))
    if "lora" in network:
        lines += ["[lora]", f"rank = {network['lora']['rank']}", "targets = " + ", ".join(network["lora"]["targets"])]
    for body, name in texts.items():
        lines += [f"[block.{name}]", body]
    return "\n".join(lines) + "\n"


def word(value):
    return {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value


def arguments(case, path):
    args = ["count", path, "--phase", case["phase"], "--batch", str(case["batch"]), "--dtype", "bf16", "-o", "json", "-q"]
    args += ["--context" if case["phase"] == "decode" else "--seq", str(case["length"])]
    for key in ("logits", "past", "routing", "participation", "recompute"):
        if key in case:
            args += [f"--{key}", str(case[key])]
    if "kv_page" in case:
        args += ["--kv-page", str(case["kv_page"])]
    return args


def differences(case, fathom, folder):
    path = os.path.join(folder, "network.ini")
    with open(path, "w") as file:
        file.write(ini(case["network"]))
    run = subprocess.run([fathom] + arguments(case, path), capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        return [f"exit {run.returncode}: {run.stderr.strip()}"]
    totals = json.loads(run.stdout)["totals"]
    wrong = []
    for key, value in case["expected"].items():
        seen = totals.get(key, totals["flops_matmul"] if key == "flops_expected" else None)
        if seen != value and not (isinstance(value, float) and isinstance(seen, (int, float)) and abs(seen - value) <= 2e-8 * max(1, value)):
            wrong.append(f"{key}: counted {seen}, here {value}")
    return wrong


def cases(count, seed):
    made = [make_case(seed * 1000003 + at) for at in range(count)]
    for case in made:
        case["expected"] = walk(case)
    return made


if __name__ == "__main__":
    from independent_counts import run

    sys.exit(run(__doc__, 300, "networks", cases, differences, lambda case: " ".join(arguments(case, "network.ini"))))
