"""Reference values of random models by PyTorch's autograd and AdamW in 64 bit: a second independent implementation beside make_reference.py.

Nothing is gathered here: a routed block computes every row and keeps the selected ones by masks, and rotates by complex products, so a mistake in
compact positions or in the way back shows. Settings that reference_model.py has not: shares with their rounding, bypass adapters, shared weights,
micro-steps, partial rotation, norms without gains or biases, an embedding norm, no final norm, a padded vocabulary. Usage (needs torch):

    python3 tests/oracle/torch_reference.py [SEED ...]

writes tests/oracle/data/torch_SEED.txt in the format of make_reference.py. SEEDS together use every value of every setting.
"""
import math
import pathlib
import random
import sys
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F

import reference_settings
from reference_settings import BETA1, BETA2, CLIP, DECAY, EPSILON, LEARNING_RATE, NORM_EPSILON, STEPS, header, summary, tokens_of

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

DEFAULT = dict(
    reference_settings.DEFAULT,
    depth_num=-1, depth_den=1, rounding="floor", min_slots=0, accumulation=1, rope_dim=0, rope_base=10000.0, norm_gain=1, norm_bias=1, embedding_norm=0,
    final_norm=1, parallel_norms=2, adapter=0, weights="", padded_vocab=0, gate_alpha=1.0, gate_beta=0.0)

def is_routed(c, l): return c["every"] > 0 and l % c["every"] == c["every"] - 1
def slots(c):
    if c["depth_num"] < 0: return c["slots"]
    x = Fraction(c["depth_num"], c["depth_den"]) * c["length"]
    n = {"floor": math.floor(x), "ceil": math.ceil(x), "half-up": math.floor(x + Fraction(1, 2))}[c["rounding"]]
    return min(c["length"], max(c["min_slots"], n))
def wset(c, l): return int(c["weights"].split(",")[l]) if c["weights"] else l

class Net:
    def __init__(self, c, rng=None):
        self.c = c; self.p = {}; self.order = []; self.n = 0; self.lines = []
        h, V = c["width"], c["vocab"]
        self.mk("embed/table", -1, c["padded_vocab"] or V, h, h)
        if c["positions"] == "learned": self.mk("embed/positions", -1, c["length"], h, h)
        if c["embedding_norm"]: self.mknorm("embed/norm", -1)
        for l in range(c["layers"]):
            if wset(c, l) == l: self.mklayer(l)
        if c["final_norm"]: self.mknorm("head/norm", -1)
        if not c["tied"]: self.mk("head/logits/weight", -1, h, c["padded_vocab"] or V, h)
        if c["head_bias"]: self.mk("head/logits/bias", -1, 1, c["padded_vocab"] or V, 1)
    def mk(self, name, l, r, k, fan):
        off = 1.0 if name.endswith("/gain") else 0.0
        sc = 0.1 if fan == 1 else fan ** -0.5
        w = off + sc * np.sin(0.1 * np.arange(r * k) ** 2 + self.n)
        self.lines.append(f"weight {name} {l} {r} {k} {off!r} {sc!r} {self.n}")
        self.n += 1
        self.p[name, l] = torch.tensor(w.reshape(r, k), requires_grad=True)
    def mknorm(self, name, l, width=None, rms=False):
        w = width or self.c["width"]
        if self.c["norm_gain"] or rms: self.mk(name + "/gain", l, 1, w, 1)
        if self.c["norm"] == "layer" and self.c["norm_bias"] and self.c["norm_gain"] and not rms: self.mk(name + "/bias", l, 1, w, 1)
    def mklin(self, name, l, a, b, bias=False, copies=1):
        self.mk(name + "/weight", l, copies * a, b, a)
        if bias: self.mk(name + "/bias", l, copies, b, 1)
    def mkffn(self, l, pre, f, copies=1):
        c = self.c
        if c["gated"]: self.mklin(pre + "gate", l, c["width"], f, c["biases"], copies)
        self.mklin(pre + "up", l, c["width"], f, c["biases"], copies)
        self.mklin(pre + "down", l, f, c["width"], c["biases"], copies)
    def mklayer(self, l):
        c = self.c; h, n, m, d = c["width"], c["heads"], c["kv_heads"], c["head_dim"]
        if is_routed(c, l):
            if c["router_hidden"]: self.mklin("route/hidden", l, h, c["router_hidden"], c["router_bias"])
            w = c["router_hidden"] or h
            self.mk("route/score/weight", l, 1, w, w)
            if c["router_bias"]: self.mk("route/score/bias", l, 1, 1, 1)
            if c["predictor"] > 0: self.mklin("predict/hidden", l, h, c["predictor"])
            if c["predictor"] >= 0: self.mk("predict/score/weight", l, 1, c["predictor"] or h, c["predictor"] or h)
            if c["adapter"]: self.mklin("adapter/down", l, h, c["adapter"]); self.mklin("adapter/up", l, c["adapter"], h)
        if c["layout"] != "post": self.mknorm("norm1", l)
        if c["all_keys"] and is_routed(c, l):
            self.mklin("attn/q", l, h, n * d, c["biases"]); self.mklin("attn/kv", l, h, 2 * m * d, c["biases"])
        else: self.mklin("attn/qkv", l, h, (n + 2 * m) * d, c["biases"])
        if c["qk_norm"] not in ("none", "no_gain"):
            for nm, cnt in (("q", n), ("k", m)):
                r, k = {"shared": (1, d), "per_head": (cnt, d), "full": (1, cnt * d)}[c["qk_norm"]]
                self.mk(f"attn/{nm}_norm/gain", l, r, k, 1)
        if c["sinks"]: self.mk("attn/sinks", l, 1, n, 1)
        self.mklin("attn/out", l, n * d, h, c["biases"])
        if c["layout"] in ("post", "sandwich"): self.mknorm("attn/post_norm", l)
        if c["layout"] in ("pre", "sandwich") or (c["layout"] == "parallel" and c["parallel_norms"] == 2): self.mknorm("norm2", l)
        if c["experts"]:
            self.mklin("moe/router", l, h, c["experts"] + c["noops"], c["expert_bias"])
            if c["correction"]: self.mk("moe/correction", l, 1, c["experts"], 1)
            self.mkffn(l, "moe/", c["expert_width"], c["experts"])
            if c["shared"]:
                self.mkffn(l, "moe/shared/", c["shared"] * c["shared_width"])
                if c["shared_gate"]: self.mklin("moe/shared/score", l, h, 1)
        else: self.mkffn(l, "mlp/", c["mlp"])
        if c["layout"] in ("post", "sandwich"): self.mknorm("mlp/post_norm", l)

    # ---- evaluation; x [B,S,h] always full; sel [B,S] bool = rows that count in this block
    def W(self, name, l): return self.p[name, wset(self.c, l) if l >= 0 else -1]
    def has(self, name, l): return (name, wset(self.c, l) if l >= 0 else -1) in self.p
    def norm(self, name, l, x):
        c = self.c; h = (c["width"],)
        g = self.W(name + "/gain", l)[0] if self.has(name + "/gain", l) else None
        if c["norm"] == "rms": return F.rms_norm(x, h, g, NORM_EPSILON)
        b = self.W(name + "/bias", l)[0] if self.has(name + "/bias", l) else None
        return F.layer_norm(x, h, g, b, NORM_EPSILON)
    def lin(self, name, l, x):
        b = self.W(name + "/bias", l)[0] if self.has(name + "/bias", l) else None
        return F.linear(x, self.W(name + "/weight", l).T, b)
    def act(self, t):
        a = self.c["activation"]
        return {"gelu_tanh": lambda: F.gelu(t, approximate="tanh"), "gelu_erf": lambda: F.gelu(t), "silu": lambda: F.silu(t), "relu": lambda: F.relu(t), "relu2": lambda: F.relu(t).square()}[a]()
    def rotate(self, x):  # [B,S,n,d], absolute positions, complex multiplication
        c = self.c; r = c["rope_dim"] or c["head_dim"]
        S = x.shape[1]
        ang = torch.arange(S)[:, None] * c["rope_base"] ** (-2.0 * torch.arange(r // 2) / r)
        z = torch.complex(x[..., : r // 2].contiguous(), x[..., r // 2 : r].contiguous()) * torch.polar(torch.ones_like(ang), ang)[None, :, None, :]
        return torch.cat([z.real, z.imag, x[..., r:]], -1)
    def attn(self, l, x, sel, everyone=None):
        c = self.c; B, S, _ = x.shape; n, m, d = c["heads"], c["kv_heads"], c["head_dim"]
        if everyone is None:
            q, k, v = self.lin("attn/qkv", l, x).split([n * d, m * d, m * d], -1); keyok = sel
        else:
            q = self.lin("attn/q", l, x); k, v = self.lin("attn/kv", l, everyone).split([m * d, m * d], -1); keyok = torch.ones_like(sel)
        if c["qk_norm"] == "full":
            q = F.rms_norm(q, (n * d,), self.W("attn/q_norm/gain", l)[0], NORM_EPSILON); k = F.rms_norm(k, (m * d,), self.W("attn/k_norm/gain", l)[0], NORM_EPSILON)
        q, k, v = q.view(B, S, n, d), k.view(B, S, m, d), v.view(B, S, m, d)
        if c["qk_norm"] in ("shared", "per_head", "no_gain"):
            q, k = F.rms_norm(q, (d,), None, NORM_EPSILON), F.rms_norm(k, (d,), None, NORM_EPSILON)
            if c["qk_norm"] != "no_gain": q, k = q * self.W("attn/q_norm/gain", l), k * self.W("attn/k_norm/gain", l)
        if c["positions"] == "rope": q, k = self.rotate(q), self.rotate(k)
        i = torch.arange(S)
        ok = i[:, None] >= i[None, :]
        if c["window"]: ok = ok & (i[:, None] - i[None, :] < c["window"])
        if c["chunk"]: ok = ok & (i[:, None] // c["chunk"] == i[None, :] // c["chunk"])
        ok = ok[None] & keyok[:, None, :]
        ok = ok | (~ok.any(-1, keepdim=True))  # rows without keys are unused
        g = n // m
        s = torch.einsum("bqmgd,bkmd->bmgqk", q.view(B, S, m, g, d), k) / math.sqrt(d)
        s = s.masked_fill(~ok[:, None, None], float("-inf"))
        if c["sinks"]:
            sk = self.W("attn/sinks", l)[0].view(1, m, g, 1)
            lse = torch.logaddexp(torch.logsumexp(s, -1), sk)
        else: lse = torch.logsumexp(s, -1)
        w = torch.exp(s - lse[..., None])
        o = torch.einsum("bmgqk,bkmd->bqmgd", w, v).reshape(B, S, n * d)
        return self.lin("attn/out", l, o)
    def ffn(self, pre, l, x):
        u = self.lin(pre + "up", l, x)
        return self.lin(pre + "down", l, self.act(self.lin(pre + "gate", l, x)) * u if self.c["gated"] else self.act(u))
    def expert(self, l, e, x):
        c = self.c; h, f = c["width"], c["expert_width"]
        def lin(nm, a, b, t):
            y = t @ self.W(f"moe/{nm}/weight", l)[e * a:(e + 1) * a]
            return y + self.W(f"moe/{nm}/bias", l)[e] if self.has(f"moe/{nm}/bias", l) else y
        u = lin("up", h, f, x)
        return lin("down", f, h, self.act(lin("gate", h, f, x)) * u if c["gated"] else self.act(u))
    def moe(self, l, x, sel):
        """real dispatch with a python loop over the rows that count, in stream order"""
        c = self.c; B, S, h = x.shape
        at = [(b, s) for b in range(B) for s in range(S) if sel[b, s]]
        X = torch.stack([x[b, s] for b, s in at])
        logits = self.lin("moe/router", l, X)
        probs = torch.sigmoid(logits) if c["sigmoid"] else torch.softmax(logits, -1)
        keys = (probs if c["sigmoid"] else logits).detach().clone()
        if c["correction"]: keys[:, :c["experts"]] += self.W("moe/correction", l)[0].detach()
        room = None
        if c["capacity_num"]:
            room = max(1, min(len(at), math.floor(Fraction(c["capacity_num"], c["capacity_den"]) * len(at) * c["picks"] / c["experts"])))
        used = [0] * (c["experts"] + c["noops"]); rows = []
        for t in range(len(at)):
            top = torch.topk(keys[t], min(c["picks"] + 1, keys.shape[1]))
            if len(top.values) > c["picks"]: self.margin = min(self.margin, float(top.values[c["picks"] - 1] - top.values[c["picks"]]))
            pick = top.indices[:c["picks"]].tolist()
            tot = sum(probs[t, e] for e in pick); y = torch.zeros(h)
            for e in pick:
                if e >= c["experts"]: self.nooped += 1; continue
                if room is not None and used[e] >= room: self.dropped += 1; continue
                used[e] += 1
                y = y + probs[t, e] / tot * self.expert(l, e, X[t])
            if c["shared"]:
                s = self.ffn("moe/shared/", l, X[t])
                y = y + (torch.sigmoid(self.lin("moe/shared/score", l, X[t])) * s if c["shared_gate"] else s)
            rows.append(y)
        out = torch.zeros(B * S, h).index_copy(0, torch.tensor([b * S + s for b, s in at]), torch.stack(rows))
        return out.view(B, S, h)
    def A(self, l, x, sel, everyone=None):
        c = self.c
        if c["layout"] == "post": return self.norm("attn/post_norm", l, self.attn(l, x, sel, everyone))
        y = self.attn(l, self.norm("norm1", l, x), sel, None if everyone is None else self.norm("norm1", l, everyone))
        return self.norm("attn/post_norm", l, y) if c["layout"] == "sandwich" else y
    def M(self, l, x, sel):
        c = self.c
        if c["layout"] == "post": t = x
        elif c["layout"] == "parallel" and c["parallel_norms"] == 1: t = self.norm("norm1", l, x)
        else: t = self.norm("norm2", l, x)
        y = self.moe(l, t, sel) if c["experts"] else self.ffn("mlp/", l, t)
        return self.norm("mlp/post_norm", l, y) if c["layout"] in ("post", "sandwich") else y
    def Fblock(self, l, x, sel, everyone=None):
        a = self.A(l, x, sel, everyone)
        return a + self.M(l, x if self.c["layout"] == "parallel" else x + a, sel)
    def score(self, l, x):
        if self.c["router_hidden"]: x = F.gelu(self.lin("route/hidden", l, x), approximate="tanh")
        r = (x * self.W("route/score/weight", l)[0]).sum(-1)
        return r + self.W("route/score/bias", l)[0, 0] if self.has("route/score/bias", l) else r
    def decide(self, l, x):
        c = self.c; r = self.score(l, x); C = slots(c); B, S = r.shape
        sel = torch.zeros(B, S, dtype=torch.bool)
        for b in range(B):
            order = sorted(range(S), key=lambda i: (-float(r[b, i]), i))
            for i in order[:C]: sel[b, i] = True
            if 0 < C < S: self.margin = min(self.margin, float(r[b, order[C - 1]] - r[b, order[C]]))
        z = sel.double()
        if c["aux"]:
            ra = self.score(l, x.detach()) if c["aux_detached"] else r
            self.aux = self.aux + c["aux"] * F.binary_cross_entropy_with_logits(ra, z)
        if c["predictor"] >= 0:
            t = x.detach()
            if c["predictor"] > 0: t = F.gelu(self.lin("predict/hidden", l, t), approximate="tanh")
            self.aux = self.aux + F.binary_cross_entropy_with_logits((t * self.W("predict/score/weight", l)[0]).sum(-1), z)
        g = {"raw": lambda: r, "sigmoid": lambda: torch.sigmoid(r), "scaled_sigmoid": lambda: 0.1 * torch.sigmoid(r), "tanh": lambda: 0.2 * torch.tanh(r) + 1, "none": lambda: torch.ones_like(r)}[c["gate"]]()
        return g[..., None], sel
    def routed(self, l, x):
        c = self.c; all_ = torch.ones(x.shape[:2], dtype=torch.bool)
        if c["part"] == "mlp": x = x + self.A(l, x, all_)
        g, sel = self.decide(l, x); k = sel[..., None]
        ev = x if c["all_keys"] else None
        rest = 0.0
        if c["adapter"]: rest = torch.where(k, torch.zeros(()), self.lin("adapter/up", l, F.gelu(self.lin("adapter/down", l, x), approximate="tanh")))
        if not sel.any(): # an empty block
            y = x + rest
            return y + self.M(l, y, all_) if c["part"] == "attention" else y
        if c["part"] == "mlp": return torch.where(k, x + g * self.M(l, x, sel), x) + rest
        if c["part"] == "attention":
            x = torch.where(k, x + g * self.A(l, x, sel, ev), x) + rest
            return x + self.M(l, x, all_)
        if c["gate_on"] == "whole": return torch.where(k, g * (x + self.Fblock(l, x, sel, ev)), x) + rest
        if c["gate_on"] == "delta": return torch.where(k, x + g * self.Fblock(l, x, sel, ev), x) + rest
        one = torch.ones_like(g); ga, gm = (g, one) if c["gate_on"] == "attention" else (one, g)
        u = torch.where(k, x + ga * self.A(l, x, sel, ev), x) + rest
        return torch.where(k, u + gm * self.M(l, u, sel), u)
    def forward(self, tokens):
        c = self.c; self.aux = torch.zeros(()); self.nooped = self.dropped = 0
        B, S = tokens.shape
        x = F.embedding(tokens, self.p["embed/table", -1])
        if c["positions"] == "learned": x = x + self.p["embed/positions", -1][:S]
        if c["embedding_norm"]: x = self.norm("embed/norm", -1, x)
        all_ = torch.ones(B, S, dtype=torch.bool)
        for l in range(c["layers"]):
            x = self.routed(l, x) if is_routed(c, l) else x + self.Fblock(l, x, all_)
        if c["final_norm"]: x = self.norm("head/norm", -1, x)
        y = x @ (self.p["embed/table", -1].T if c["tied"] else self.p["head/logits/weight", -1])
        return y + self.p["head/logits/bias", -1][0] if c["head_bias"] else y

def make(name, ch, folder, least=2e-4):
    assert set(ch) <= set(DEFAULT), set(ch) - set(DEFAULT)
    c = {**DEFAULT, **ch}; net = Net(c); net.margin = math.inf
    out = header(c) + net.lines
    tok, tgt = map(torch.tensor, tokens_of(c))
    train = {k: w for k, w in net.p.items() if k[0] != "moe/correction"}
    opt = torch.optim.AdamW(train.values(), lr=LEARNING_RATE, betas=(BETA1, BETA2), eps=EPSILON, weight_decay=DECAY)
    worst = math.inf
    for step in range(1, STEPS + 1):
        net.margin = math.inf
        opt.zero_grad()
        for _ in range(c["accumulation"]):  # micro-steps of the same tokens
            logits = net.forward(tok)
            loss = F.cross_entropy(logits[..., :c["vocab"]].flatten(0, 1), tgt.flatten())
            ((loss + net.aux) / c["accumulation"]).backward()
        if c["every"] and c["gate"] == "none" and not c["aux"]: train = {k: w for k, w in train.items() if not k[0].startswith("route/")}
        for w in train.values():
            if w.grad is None: w.grad = torch.zeros_like(w)
        worst = min(worst, net.margin)
        out += [f"loss {step} {float(loss.detach()):.13e}", f"auxiliary {step} {float(net.aux.detach()):.13e}", f"margin {step} {net.margin:.3e}", f"logits {step} {summary(logits.detach(), -1)}"]
        out += [f"gradient {step} {k} {l} {summary(w.grad.detach(), -1)}" for (k, l), w in train.items()]
        tot = math.sqrt(sum(float((w.grad ** 2).sum()) for w in train.values()))
        for w in train.values(): w.grad.mul_(min(1.0, CLIP / tot))
        opt.step()
    out += [f"final {k} {l} {summary(w.detach(), -1)}" for (k, l), w in net.p.items()]
    if worst < least: return f"refused margin {worst:.1e}"
    (folder / f"{name}.txt").write_text("\n".join(out) + "\n")
    return f"ok margin {worst:.1e} noop {net.nooped} dropped {net.dropped} slots {slots(c) if c['every'] else '-'}"

def pick(rng):
    R = rng.choice
    ch = dict(width=R([6, 8, 12, 17, 20, 33]), layers=R([1, 2, 3, 4, 5]), length=R([1, 2, 3, 5, 7, 13, 17, 19, 31]), sequences=R([1, 1, 2, 3, 5]), vocab=R([7, 19, 33, 50]))
    n = R([1, 2, 3, 4, 6]); m = R([x for x in range(1, n + 1) if n % x == 0]); ch.update(heads=n, kv_heads=m, head_dim=R([2, 4, 6, 8, 10, 16]), mlp=R([5, 12, 24, 41]))
    ch.update(positions=R(["rope", "rope", "learned"]), norm=R(["rms", "layer"]), biases=R([0, 0, 1]), gated=R([0, 1]), activation=R(["gelu_tanh", "gelu_erf", "silu", "relu2"]), tied=R([0, 1]))
    ch.update(window=R([0, 0, 0, 1, 3, 5]), qk_norm=R(["none"] * 4 + ["shared", "per_head", "full", "no_gain"]), sinks=R([0, 0, 0, 1]), head_bias=R([0, 0, 1]))
    if not ch["window"] : ch["chunk"] = R([0, 0, 0, 0, 4])
    ch["layout"] = R(["pre"] * 5 + ["sandwich", "post", "parallel"])
    if ch["layout"] == "parallel": ch["parallel_norms"] = R([1, 2])
    ch["embedding_norm"] = R([0, 0, 0, 1]); ch["final_norm"] = R([1, 1, 1, 0])
    if ch["positions"] == "rope": ch["rope_base"] = R([10000.0, 500.0]); ch["rope_dim"] = R([0, 0, 2])
    if ch["norm"] == "layer": ch["norm_bias"] = R([1, 1, 0])
    if R([0] * 7 + [1]): ch["norm_gain"] = 0; ch["norm_bias"] = 0
    if R([0] * 4 + [1]): ch["padded_vocab"] = ch["vocab"] + R([1, 5])
    if R([0, 1, 1, 1]):
        ch["every"] = R([1, 2, 2, 3]); ch["layers"] = max(ch["layers"], ch["every"])
        if R([0, 1]): ch["slots"] = rng.randint(0, ch["length"])
        else:
            ch.update(depth_num=R([1, 1, 1, 3]), rounding=R(["floor", "ceil", "half-up"]), min_slots=R([0, 0, 1, 2]))
            ch["depth_den"] = R([2, 3, 4, 8] if ch["depth_num"] == 1 else [3, 4, 7])
        ch["gate"] = R(["raw", "raw", "sigmoid", "scaled_sigmoid", "tanh", "none"])
        if ch["layout"] == "parallel": ch["gate_on"] = R(["delta", "whole"])
        else:
            ch["part"] = R(["block"] * 4 + ["mlp", "attention"])
            ch["gate_on"] = R(["delta", "delta", "whole", "attention", "mlp"]) if ch["part"] == "block" else "delta"
            if ch["part"] != "mlp" and R([0, 0, 0, 1]) and ch["qk_norm"] in ("none",): ch["all_keys"] = 1
        ch["router_bias"] = R([0, 1]); ch["router_hidden"] = R([0, 0, 0, 5]); ch["aux"] = R([0.0, 0.01, 0.3, 1.0])
        ch["aux_detached"] = R([0, 0, 1]) if ch["aux"] and not ch["router_hidden"] else 0
        ch["predictor"] = R([-1, -1, 0, 4, 9]); ch["adapter"] = R([0, 0, 0, 3])
    if R([0, 1]):
        E = R([2, 3, 5, 8]); ch.update(experts=E, picks=R([x for x in (1, 2, 2, 3) if x <= E]), expert_width=R([3, 8, 19]), shared=R([0, 0, 1, 2]), sigmoid=R([0, 1]), expert_bias=R([0, 1]), noops=R([0, 0, 1, 3]))
        ch["shared_gate"] = R([0, 1]) if ch["shared"] else 0; ch["shared_width"] = R([3, 7]) if ch["shared"] else 0; ch["correction"] = R([0, 0, 1])
        if R([0, 0, 1]): ch.update(capacity_num=R([1, 3, 5]), capacity_den=R([2, 4]))
    ch["accumulation"] = R([1, 1, 1, 2, 3])
    if R([0] * 5 + [1]) and ch["layers"] >= 4 and ch["every"] in (0, 1, 2):
        ch["weights"] = ",".join(str(x if x < 2 else x - 2 if x < 4 else x) for x in range(ch["layers"]))
    return ch

SEEDS = (6, 18, 25, 59, 62, 81, 122, 146, 165, 169)

if __name__ == "__main__":
    for seed in map(int, sys.argv[1:] or SEEDS):
        ch = pick(random.Random(seed))
        print(seed, make(f"torch_{seed:03d}", ch, pathlib.Path(__file__).parent / "data"), {k: v for k, v in ch.items() if v != DEFAULT[k]}, flush=True)
