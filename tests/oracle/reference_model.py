"""Transformers with Mixture-of-Depths and mixtures of experts in JAX, straight from the definitions, for make_reference.py.

A model is a dictionary of settings (DEFAULT: every switch off) and a dictionary of parameters by (name, layer); embedding and head have layer -1.
Nothing here is fast or shared with the op list: attention is a loop over sequences with a full score matrix, and every expert runs on every
token, its output weighted by zero where the token did not choose it. Rows are stored as [rows, width]; matrices multiply from the right.
"""

import jax
import jax.numpy as jnp
import numpy as np

from reference_settings import NORM_EPSILON

GATES = {
    "raw": lambda r: r,
    "sigmoid": jax.nn.sigmoid,
    "scaled_sigmoid": lambda r: 0.1 * jax.nn.sigmoid(r),
    "tanh": lambda r: 0.2 * jnp.tanh(r) + 1,
    "none": jnp.ones_like,
}
ACTIVATIONS = {
    "gelu_tanh": lambda t: jax.nn.gelu(t, approximate=True),
    "gelu_erf": lambda t: jax.nn.gelu(t, approximate=False),
    "silu": jax.nn.silu,
    "relu": jax.nn.relu,
    "relu2": lambda t: jax.nn.relu(t) ** 2,
}


def routed(c, layer):
    return c["every"] > 0 and layer % c["every"] == c["every"] - 1


def shapes(c):
    """(shape, fan-in) of every parameter by (name, layer), in the order in which they are numbered. Experts' matrices are stacked."""
    out = {}
    targets = c["targets"].split(",") if c["lora"] else []

    def put(name, layer, rows, cols, fan):
        out[name, layer] = ((rows, cols), fan)

    def norm(name, layer):
        put(name + "/gain", layer, 1, c["width"], 1)
        if c["norm"] == "layer":
            put(name + "/bias", layer, 1, c["width"], 1)

    def linear(name, layer, a, b, bias=False, copies=1, target=""):
        put(name + "/weight", layer, copies * a, b, a)
        if bias:
            put(name + "/bias", layer, copies, b, 1)
        if target in targets:
            put(name + "/lora_a/weight", layer, copies * a, c["lora"], a)
            put(name + "/lora_b/weight", layer, copies * c["lora"], b, c["lora"])

    def adapters(layer, pieces):
        for target, name, a, b in pieces:
            if target in targets:
                put(name + "/lora_a/weight", layer, a, c["lora"], a)
                put(name + "/lora_b/weight", layer, c["lora"], b, c["lora"])

    def ffn(layer, prefix, width, copies=1, adapted=True):
        for name, a, b in (("gate", c["width"], width), ("up", c["width"], width), ("down", width, c["width"])):
            if name != "gate" or c["gated"]:
                linear(prefix + name, layer, a, b, c["biases"], copies, name if adapted else "")

    def attention(layer):
        h, n, m, d = c["width"], c["heads"], c["kv_heads"], c["head_dim"]
        if c["kv_rank"]:
            qk = c["nope"] + c["rope"]
            if c["query_rank"]:
                linear("attn/q_down", layer, h, c["query_rank"])
                put("attn/q_norm/gain", layer, 1, c["query_rank"], 1)
                linear("attn/q_up", layer, c["query_rank"], n * qk)
            else:
                linear("attn/q", layer, h, n * qk)
            linear("attn/kv_down", layer, h, c["kv_rank"] + c["rope"])
            put("attn/kv_norm/gain", layer, 1, c["kv_rank"], 1)
            linear("attn/kv_up", layer, c["kv_rank"], n * (c["nope"] + c["value"]))
            linear("attn/out", layer, n * c["value"], h)
            return
        if c["all_keys"] and routed(c, layer):
            linear("attn/q", layer, h, n * d, c["biases"])
            linear("attn/kv", layer, h, 2 * m * d, c["biases"])
        else:
            linear("attn/qkv", layer, h, (n + 2 * m) * d, c["biases"])
        adapters(layer, [("q", "attn/q", h, n * d), ("k", "attn/k", h, m * d), ("v", "attn/v", h, m * d)])
        if c["qk_norm"] != "none":
            for name, count in (("q", n), ("k", m)):
                rows, cols = {"shared": (1, d), "per_head": (count, d), "full": (1, count * d)}[c["qk_norm"]]
                put(f"attn/{name}_norm/gain", layer, rows, cols, 1)
        if c["sinks"]:
            put("attn/sinks", layer, 1, n, 1)
        linear("attn/out", layer, n * d, h, c["biases"], target="o")

    put("embed/table", -1, c["vocab"], c["width"], c["width"])
    if c["positions"] == "learned":
        put("embed/positions", -1, c["length"], c["width"], c["width"])
    for layer in range(c["layers"]):
        if routed(c, layer):
            if c["router_hidden"]:
                linear("route/hidden", layer, c["width"], c["router_hidden"], c["router_bias"])
            put("route/score/weight", layer, 1, c["router_hidden"] or c["width"], c["router_hidden"] or c["width"])
            if c["router_bias"]:
                put("route/score/bias", layer, 1, 1, 1)
            if c["predictor"] > 0:
                linear("predict/hidden", layer, c["width"], c["predictor"])
            if c["predictor"] >= 0:
                put("predict/score/weight", layer, 1, c["predictor"] or c["width"], c["predictor"] or c["width"])
        if c["layout"] != "post":
            norm("norm1", layer)
        attention(layer)
        if c["layout"] in ("post", "sandwich"):
            norm("attn/post_norm", layer)
        if c["layout"] in ("pre", "sandwich", "parallel"):
            norm("norm2", layer)
        if c["experts"]:
            linear("moe/router", layer, c["width"], c["experts"] + c["noops"], c["expert_bias"])
            if c["correction"]:
                put("moe/correction", layer, 1, c["experts"], 1)
            ffn(layer, "moe/", c["expert_width"], c["experts"])
            if c["shared"]:
                ffn(layer, "moe/shared/", c["shared"] * c["shared_width"], adapted=False)
                if c["shared_gate"]:
                    linear("moe/shared/score", layer, c["width"], 1)
        else:
            ffn(layer, "mlp/", c["mlp"])
        if c["layout"] in ("post", "sandwich"):
            norm("mlp/post_norm", layer)
    norm("head/norm", -1)
    if not c["tied"]:
        linear("head/logits", -1, c["width"], c["vocab"])
    if c["head_bias"]:
        put("head/logits/bias", -1, 1, c["vocab"], 1)
    return out


def trained(c, name, layer):
    """A score correction is moved by hand, adapters leave their base frozen, a frozen token table only itself and the norms that it alone feeds."""
    if c["lora"]:
        return "/lora_" in name
    if c["freeze_embedding"] and (name == "embed/table" or (name.startswith("norm1/") and layer == 0 and c["positions"] != "learned")):
        return False
    return name != "moe/correction"


class Model:
    """One evaluation: collects the routers' losses and the smallest distance between a chosen score and one that was passed over."""

    def __init__(self, c, p):
        self.c, self.p = c, p
        self.auxiliary, self.margin = jnp.zeros(()), jnp.asarray(jnp.inf)

    def norm(self, name, layer, x):
        c, p = self.c, self.p
        if c["norm"] == "layer":
            x = x - x.mean(-1, keepdims=True)
        x = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + NORM_EPSILON) * p[name + "/gain", layer][0]
        return x + p[name + "/bias", layer][0] if c["norm"] == "layer" else x

    @staticmethod
    def rms(x, gain):
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + NORM_EPSILON) * gain

    def adapter(self, name, layer, x, expert=None):
        p = self.p
        if (name + "/lora_a/weight", layer) not in p:
            return 0.0
        a, b = p[name + "/lora_a/weight", layer], p[name + "/lora_b/weight", layer]
        if expert is not None:
            a, b = (jnp.split(w, self.c["experts"])[expert] for w in (a, b))
        return (x @ a) @ b

    def linear(self, name, layer, x, expert=None):
        p = self.p
        w = p[name + "/weight", layer]
        if expert is not None:
            w = jnp.split(w, self.c["experts"])[expert]
        y = x @ w + self.adapter(name, layer, x, expert)
        if (name + "/bias", layer) in p:
            y = y + p[name + "/bias", layer][0 if expert is None else expert]
        return y

    def margin_of(self, keys, count):
        """keys [..., candidates] of which the `count` largest are taken."""
        if 0 < count < keys.shape[-1]:
            ordered = jnp.sort(keys, axis=-1)[..., ::-1]
            self.margin = jnp.minimum(self.margin, (ordered[..., count - 1] - ordered[..., count]).min())

    @staticmethod
    def rotate(x, positions):
        """x [rows, heads, d], pairs (i, i + d/2)."""
        half = x.shape[-1] // 2
        angle = positions[:, None] * 10000.0 ** (-jnp.arange(half) / half)
        cos, sin = jnp.cos(angle)[:, None, :], jnp.sin(angle)[:, None, :]
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def core(self, layer, q, k, v, at_q, at_k):
        """q [queries, heads, d], k and v [keys, groups, d] at original positions."""
        c = self.c
        k, v = (jnp.repeat(t, q.shape[1] // t.shape[1], axis=1) for t in (k, v))
        scores = jnp.einsum("qhd,khd->hqk", q, k) / jnp.sqrt(q.shape[-1])
        distance = at_q[:, None] - at_k[None, :]
        visible = distance >= 0
        if c["window"]:
            visible &= distance < c["window"]
        if c["chunk"]:
            visible &= at_q[:, None] // c["chunk"] == at_k[None, :] // c["chunk"]
        scores = jnp.where(visible, scores, -jnp.inf)
        if c["sinks"]:
            sink = jnp.broadcast_to(self.p["attn/sinks", layer][0][:, None, None], scores.shape[:2] + (1,))
            weights = jax.nn.softmax(jnp.concatenate([scores, sink], -1), axis=-1)[..., :-1]
        else:
            weights = jax.nn.softmax(scores, axis=-1)
        return jnp.einsum("hqk,khd->qhd", weights, v).reshape(q.shape[0], -1)

    def latent(self, layer, x, at):
        c, p = self.c, self.p
        n = c["heads"]
        if c["query_rank"]:
            q = self.linear("attn/q_up", layer, self.rms(self.linear("attn/q_down", layer, x), p["attn/q_norm/gain", layer][0]))
        else:
            q = self.linear("attn/q", layer, x)
        q = q.reshape(-1, n, c["nope"] + c["rope"])
        low = self.linear("attn/kv_down", layer, x)
        compressed = self.rms(low[:, : c["kv_rank"]], p["attn/kv_norm/gain", layer][0])
        shared = low[:, c["kv_rank"] :][:, None, :]
        kv = self.linear("attn/kv_up", layer, compressed).reshape(-1, n, c["nope"] + c["value"])
        q = jnp.concatenate([q[..., : c["nope"]], self.rotate(q[..., c["nope"] :], at)], -1)
        k = jnp.concatenate([kv[..., : c["nope"]], jnp.repeat(self.rotate(shared, at), n, axis=1)], -1)
        return self.linear("attn/out", layer, self.core(layer, q, k, kv[..., c["nope"] :], at, at))

    def attention(self, layer, x, at, everyone=None):
        """Rows of one sequence at positions `at`. everyone: rows of all its tokens, where all of them supply keys and values."""
        c, p = self.c, self.p
        if c["kv_rank"]:
            return self.latent(layer, x, at)
        n, m, d = c["heads"], c["kv_heads"], c["head_dim"]
        if everyone is None:
            qkv = self.linear("attn/qkv", layer, x)
            q, k, v = qkv[:, : n * d], qkv[:, n * d : (n + m) * d], qkv[:, (n + m) * d :]
            source, at_k = x, at
        else:
            q, kv = self.linear("attn/q", layer, x), self.linear("attn/kv", layer, everyone)
            k, v = kv[:, : m * d], kv[:, m * d :]
            source, at_k = everyone, jnp.arange(everyone.shape[0])
        if everyone is None or not c["lora"]:
            q = q + self.adapter("attn/q", layer, x)
        k, v = k + self.adapter("attn/k", layer, source), v + self.adapter("attn/v", layer, source)
        if c["qk_norm"] == "full":
            q, k = self.rms(q, p["attn/q_norm/gain", layer][0]), self.rms(k, p["attn/k_norm/gain", layer][0])
        q, k, v = q.reshape(-1, n, d), k.reshape(-1, m, d), v.reshape(-1, m, d)
        if c["qk_norm"] in ("shared", "per_head"):
            q, k = self.rms(q, p["attn/q_norm/gain", layer]), self.rms(k, p["attn/k_norm/gain", layer])
        if c["positions"] == "rope":
            q, k = self.rotate(q, at), self.rotate(k, at_k)
        return self.linear("attn/out", layer, self.core(layer, q, k, v, at, at_k))

    def ffn(self, prefix, layer, x, expert=None):
        act = ACTIVATIONS[self.c["activation"]]
        up = self.linear(prefix + "up", layer, x, expert)
        inner = act(self.linear(prefix + "gate", layer, x, expert)) * up if self.c["gated"] else act(up)
        return self.linear(prefix + "down", layer, inner, expert)

    def experts(self, layer, x):
        """Token choice: weights of a token's picks sum to 1; no-ops take picks and give nothing; a full expert drops its later tokens."""
        c, p = self.c, self.p
        logits = self.linear("moe/router", layer, x)
        scores = jax.nn.sigmoid(logits) if c["sigmoid"] else jnp.exp(logits - logits.max(-1, keepdims=True))
        keys = scores if c["sigmoid"] else logits
        if c["correction"]:
            keys = keys + jnp.pad(p["moe/correction", layer][0], (0, c["noops"]))
        self.margin_of(keys, c["picks"])
        picked = jnp.argsort(jnp.argsort(-keys, axis=-1, stable=True), axis=-1) < c["picks"]
        weights = jnp.where(picked, scores, 0.0)
        weights = weights / weights.sum(-1, keepdims=True)
        kept = picked[:, : c["experts"]]
        if c["capacity_num"]:
            room = max(1, min(x.shape[0], c["capacity_num"] * x.shape[0] * c["picks"] // (c["capacity_den"] * c["experts"])))
            kept &= jnp.cumsum(kept, axis=0) <= room
        y = jnp.zeros_like(x)
        for e in range(c["experts"]):
            y = y + jnp.where(kept[:, e], weights[:, e], 0.0)[:, None] * self.ffn("moe/", layer, x, e)
        if c["shared"]:
            shared = self.ffn("moe/shared/", layer, x)
            y = y + (jax.nn.sigmoid(self.linear("moe/shared/score", layer, x)) * shared if c["shared_gate"] else shared)
        return y

    def attention_update(self, layer, x, at, everyone=None):
        """What attention adds to x [sequences, rows, width]; at [sequences, rows]."""
        c = self.c
        normed, keys = x, everyone
        if c["layout"] != "post":
            normed = self.norm("norm1", layer, x)
            keys = None if everyone is None else self.norm("norm1", layer, everyone)
        a = jnp.stack([self.attention(layer, normed[s], at[s], None if keys is None else keys[s]) for s in range(x.shape[0])])
        return self.norm("attn/post_norm", layer, a) if c["layout"] in ("post", "sandwich") else a

    def mlp_update(self, layer, x):
        c = self.c
        normed = (x if c["layout"] == "post" else self.norm("norm2", layer, x)).reshape(-1, c["width"])
        m = (self.experts(layer, normed) if c["experts"] else self.ffn("mlp/", layer, normed)).reshape(x.shape)
        return self.norm("mlp/post_norm", layer, m) if c["layout"] in ("post", "sandwich") else m

    def update(self, layer, x, at, everyone=None):
        a = self.attention_update(layer, x, at, everyone)
        return a + self.mlp_update(layer, x if self.c["layout"] == "parallel" else x + a)

    def binary_loss(self, logits, chosen):
        """Binary cross entropy against "was chosen", mean over all tokens."""
        target = jnp.stack([jnp.zeros(logits.shape[1]).at[i].set(1.0) for i in chosen])
        return (jnp.logaddexp(0.0, logits) - logits * target).mean()

    def decide(self, layer, x):
        """Scores [sequences, length] and the chosen positions [sequences, slots], ascending."""
        c, p = self.c, self.p

        def score(rows):
            if c["router_hidden"]:
                rows = jax.nn.gelu(self.linear("route/hidden", layer, rows), approximate=True)
            r = rows @ p["route/score/weight", layer][0]
            return r + p["route/score/bias", layer][0, 0] if c["router_bias"] else r

        r = score(x)
        self.margin_of(r, c["slots"])
        chosen = jnp.sort(jnp.argsort(-r, axis=-1, stable=True)[:, : c["slots"]], axis=-1)
        if c["aux"]:
            self.auxiliary += c["aux"] * self.binary_loss(score(jax.lax.stop_gradient(x)) if c["aux_detached"] else r, chosen)
        if c["predictor"] >= 0:
            rows = jax.lax.stop_gradient(x)
            if c["predictor"] > 0:
                rows = jax.nn.gelu(self.linear("predict/hidden", layer, rows), approximate=True)
            self.auxiliary += self.binary_loss(rows @ p["predict/score/weight", layer][0], chosen)
        return r, chosen

    def routed_block(self, layer, x, at):
        c = self.c
        take = lambda t, chosen: jnp.stack([row[i] for row, i in zip(t, chosen)])
        put = lambda t, chosen, rows: jnp.stack([row.at[i].set(new) for row, i, new in zip(t, chosen, rows)])
        if c["part"] == "mlp":
            x = x + self.attention_update(layer, x, at)
        r, chosen = self.decide(layer, x)
        gate = GATES[c["gate"]](take(r, chosen))[..., None]
        rows, everyone = take(x, chosen), x if c["all_keys"] else None
        if c["part"] == "mlp":
            return put(x, chosen, rows + gate * self.mlp_update(layer, rows))
        if c["part"] == "attention":
            x = put(x, chosen, rows + gate * self.attention_update(layer, rows, chosen, everyone))
            return x + self.mlp_update(layer, x)
        if c["gate_on"] == "whole":
            return put(x, chosen, gate * (rows + self.update(layer, rows, chosen, everyone)))
        if c["gate_on"] == "delta":
            return put(x, chosen, rows + gate * self.update(layer, rows, chosen, everyone))
        on_attention, on_mlp = (gate, 1.0) if c["gate_on"] == "attention" else (1.0, gate)
        u = rows + on_attention * self.attention_update(layer, rows, chosen, everyone)
        return put(x, chosen, u + on_mlp * self.mlp_update(layer, u))

    def logits(self, tokens):
        """Of tokens [sequences, length]."""
        c, p = self.c, self.p
        at = jnp.broadcast_to(jnp.arange(c["length"]), tokens.shape)
        x = p["embed/table", -1][tokens]
        if c["positions"] == "learned":
            x = x + p["embed/positions", -1][at]
        for layer in range(c["layers"]):
            x = self.routed_block(layer, x, at) if routed(c, layer) else x + self.update(layer, x, at)
        x = self.norm("head/norm", -1, x)
        y = x @ (p["embed/table", -1].T if c["tied"] else p["head/logits/weight", -1])
        return y + p["head/logits/bias", -1][0] if c["head_bias"] else y


def values(name, shape, fan, number):
    """Offset, scale and contents of a parameter: offset + scale * sin(0.1 i^2 + number)."""
    gain = name.endswith("/gain")
    offset, scale = (1.0 if gain else 0.0), (0.1 if fan == 1 else fan**-0.5)
    return offset, scale, (offset + scale * np.sin(0.1 * np.arange(shape[0] * shape[1]) ** 2 + number)).reshape(shape)
