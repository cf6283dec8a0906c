"""Random networks and scenarios for independent_networks.py, by seed."""

import random
from fractions import Fraction


def attention(rng):
    kv = rng.choice([1, 2, 3])
    layer = {"heads": kv * rng.choice([1, 2, 3]), "kv_heads": kv, "head_dim": 2 * rng.randint(1, 9)}
    for key in ("qkv_bias", "out_bias", "qk_norm", "sinks"):
        if rng.random() < 0.2:
            layer[key] = True
    if rng.random() < 0.2:
        layer["window"] = rng.choice([1, 2, 5, 9])
    return layer


def experts(rng):
    e = {"experts": rng.randint(2, 7), "expert_width": rng.randint(1, 40)}
    if rng.random() < 0.4:
        e["noops"] = rng.randint(1, 3)
    e["picks"] = rng.randint(1, min(3, e["experts"]))
    if "noops" in e:  # picks are distinct: not more of them are no-ops than there are
        e["noop_share"] = rng.choice([share for share in ("1/2", "0.25", "7/8", "1/3", "0") if Fraction(share) * e["picks"] <= min(e["picks"], e["noops"])])
    if rng.random() < 0.3:
        e["expert_capacity"] = rng.choice(["1", "1.25", "1/2", "2"])
        e["expert_rounding"] = rng.choice(["floor", "half-up", "ceil"])
    if rng.random() < 0.3:
        e["shared_experts"] = rng.randint(1, 2)
        if rng.random() < 0.5:
            e["shared_width"] = rng.randint(1, 50)
        if rng.random() < 0.3:
            e["shared_gate"] = True
    return e


def route(rng, layer):
    r = {}
    if rng.random() < 0.15:
        r["slots"] = rng.randint(0, 8)
    else:
        r["capacity"] = rng.choice(["1/8", "0.25", "1/3", "0.5", "0.9", "2/3", "1", "0"])
    r["rounding"] = rng.choice(["floor", "half-up", "ceil"])
    if rng.random() < 0.15 and "slots" not in r:
        r["min_slots"] = rng.randint(0, 3)
    if rng.random() < 0.25:
        r["router_hidden"] = rng.randint(1, 12)
    if rng.random() < 0.25:
        r["router_bias"] = True
    r["gate"] = rng.choice(["raw", "raw", "sigmoid", "none"])
    if rng.random() < 0.3:
        r["aux_lambda"] = "0"
    elif rng.random() < 0.3 and "router_hidden" not in r:
        r["aux_detached"] = True
    r["part"] = rng.choice(["block", "block", "block", "attention", "mlp"])
    if r["part"] == "block" and rng.random() < 0.3:
        r["kv"] = "all"
    if rng.random() < 0.25:
        r["predictor"] = rng.choice(["linear", 3, 8])
    if rng.random() < 0.2:
        r["adapter"] = rng.randint(1, 9)
    return r


def layer_of(rng, width, moe):
    layer = attention(rng)
    if moe:
        layer["moe"] = experts(rng)
    else:
        layer["mlp"] = rng.randint(1, 120)
    if rng.random() < 0.15:
        layer["mlp_bias"] = True
    return layer


def make_case(seed):
    rng = random.Random(seed)
    width = 2 * rng.randint(2, 30)
    network = {"width": width, "vocab": rng.randint(5, 400), "tied": rng.random() < 0.5, "gated": rng.random() < 0.5}
    if rng.random() < 0.2:
        network["padded_vocab"] = network["vocab"] + rng.randint(0, 9)
    if rng.random() < 0.1:
        network["final_norm"] = False
    sort = rng.choice(["mod", "mod", "schedule", "exit", "recursion", "staged", "integrated", "mixed"])
    count = rng.randint(1, 6)
    layers = []
    if sort in ("mod", "staged", "integrated"):
        full = layer_of(rng, width, sort == "integrated")
        routed = layer_of(rng, width, sort != "mod")
        if sort != "integrated":
            routed["route"] = route(rng, routed)
        layers = [routed if index % 2 else full for index in range(count)]
    elif sort in ("schedule", "exit"):
        plain = layer_of(rng, width, rng.random() < 0.3)
        shares = [rng.choice(["1/8", "1/4", "1/2", "3/4", "1"]) for _ in range(count)]
        if sort == "exit":
            shares.sort(key=lambda text: -eval_share(text))
        common = route(rng, plain)
        common.pop("slots", None)
        if sort == "exit":
            common["part"], common["kv"] = "block", rng.choice(["selected", "all"])
        layers = [dict(plain, route=dict(common, capacity=share)) if rng.random() < 0.8 else plain for share in shares]
    elif sort == "recursion":
        inner = layer_of(rng, width, rng.random() < 0.3)
        common = route(rng, inner)
        common.pop("slots", None)
        passes = rng.randint(2, 4)
        layers = [layer_of(rng, width, False)] + [dict(inner, route=dict(common, capacity=share)) for share in ["1", "2/3", "1/3", "1/8"][:passes]] + [layer_of(rng, width, False)]
        network["weights"] = [0] + [1] * passes + [2]
    else:
        for _ in range(count):
            layer = layer_of(rng, width, rng.random() < 0.4)
            if rng.random() < 0.15 and "moe" not in layer:
                layer = {"attention": False, "mlp": layer["mlp"]}
            if rng.random() < 0.5:
                layer["route"] = route(rng, layer)
                if not layer.get("attention", True):
                    layer["route"]["part"] = rng.choice(["block", "mlp"])
                    layer["route"].pop("kv", None)
            layers.append(layer)
    network["layers"] = layers
    case = {"seed": seed, "sort": sort, "network": network, "phase": rng.choice(["prefill", "prefill", "train", "train", "decode", "decode"]), "batch": rng.randint(1, 3), "length": rng.randint(1, 24)}
    routes = [layer["route"] for layer in layers if "route" in layer]
    if case["phase"] == "train":
        if rng.random() < 0.3:
            network["lora"] = {"rank": rng.randint(1, 5), "targets": rng.sample(["q", "k", "v", "o", "up", "down"], rng.randint(1, 4))}
        elif rng.random() < 0.25:
            network["freeze_embedding"] = True
        elif rng.random() < 0.3:
            case["recompute"] = "full"
    else:
        case["logits"] = rng.choice(["all", "last", "none"])
        if rng.random() < 0.3:
            case["kv_page"] = rng.choice([4, 16])
    if case["phase"] == "prefill":
        if rng.random() < 0.3:
            case["past"] = rng.randint(1, 20)
        if routes and rng.random() < 0.5:
            case["routing"] = "predictor" if all("predictor" in each for each in routes) and rng.random() < 0.6 else "threshold"
    elif case["phase"] == "decode" and routes and all("predictor" in each for each in routes) and rng.random() < 0.6:
        case["routing"] = "predictor"
    if routes and case["phase"] == "decode" and rng.random() < 0.3 or case.get("routing") in ("threshold", "predictor") and rng.random() < 0.3:
        case["participation"] = rng.choice(["0.3", "1/8", "1", "0", "3/5"])
    if rng.random() < 0.15 and "route" not in layers[-1] and "lora" not in network and "freeze_embedding" not in network and "weights" not in network:
        network["mtp"] = rng.randint(1, 2)
    return case


def eval_share(text):
    top, _, bottom = text.partition("/")
    return int(top) / int(bottom or 1)
