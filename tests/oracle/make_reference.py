"""Independent reference values for the executed op list, by automatic differentiation (JAX on the CPU, in 64 bit).

Builds tiny dense and Mixture-of-Depths models straight from the definitions, with weights and tokens from a formula, and writes the losses, some
logits, and for every parameter the gradient's norm and a few entries. Three AdamW steps follow. Usage (needs `pip install jax`):

    python3 tests/oracle/make_reference.py

writes tests/oracle/data/*.txt. The weights are w[i] = offset + scale * sin(0.1 i^2 + phase), i the flat index, phase = number of the parameter in
the file; the comparing test reads them from the file's header lines, so nothing is stated twice.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

DEFAULT = dict(width=8, layers=3, heads=4, kv_heads=2, head_dim=4, mlp=12, vocab=11, positions="rope", norm="rms", biases=0, gated=0,
               activation="gelu_tanh", tied=1, window=0, every=0, slots=0, gate="raw", router_bias=0, aux=0.0, sequences=2, length=9)
CASES = {
    "dense": {},
    "dense_swiglu_untied": dict(gated=1, activation="silu", tied=0, kv_heads=4),
    "dense_gpt2": dict(norm="layer", positions="learned", biases=1, kv_heads=4),
    "dense_window": dict(window=3, kv_heads=1),
    "mod": dict(every=2, slots=3, aux=0.01),
    "mod_sigmoid_bias": dict(every=1, slots=4, gate="sigmoid", router_bias=1, aux=0.7),
    "mod_gpt2": dict(every=2, slots=2, norm="layer", positions="learned", biases=1, kv_heads=4, router_bias=1),
    "mod_swiglu_window": dict(every=2, slots=4, gated=1, activation="silu", window=4, tied=0, aux=0.1),
}
STEPS, LEARNING_RATE, BETA1, BETA2, EPSILON, DECAY, CLIP, NORM_EPSILON = 3, 1e-2, 0.9, 0.95, 1e-5, 0.1, 0.5, 1e-5


def routed(c, layer):
    return c["every"] > 0 and layer % c["every"] == c["every"] - 1


def shapes(c):
    """Parameter shapes by (name, layer), in the order in which the phases are numbered."""
    out = {("embed/table", -1): (c["vocab"], c["width"])}
    if c["positions"] == "learned":
        out["embed/positions", -1] = (c["length"], c["width"])
    for layer in range(c["layers"]):
        def norm(name):
            out[name + "/gain", layer] = (1, c["width"])
            if c["norm"] == "layer":
                out[name + "/bias", layer] = (1, c["width"])

        def linear(name, a, b):
            out[name + "/weight", layer] = (a, b)
            if c["biases"]:
                out[name + "/bias", layer] = (1, b)

        if routed(c, layer):
            out["route/score/weight", layer] = (1, c["width"])
            if c["router_bias"]:
                out["route/score/bias", layer] = (1, 1)
        norm("norm1")
        linear("attn/qkv", c["width"], (c["heads"] + 2 * c["kv_heads"]) * c["head_dim"])
        linear("attn/out", c["heads"] * c["head_dim"], c["width"])
        norm("norm2")
        if c["gated"]:
            linear("mlp/gate", c["width"], c["mlp"])
        linear("mlp/up", c["width"], c["mlp"])
        linear("mlp/down", c["mlp"], c["width"])
    out["head/norm/gain", -1] = (1, c["width"])
    if c["norm"] == "layer":
        out["head/norm/bias", -1] = (1, c["width"])
    if not c["tied"]:
        out["head/logits/weight", -1] = (c["width"], c["vocab"])
    return out


def formula(name, shape, number):
    gain, bias = name.endswith("/gain"), name.endswith("/bias")
    fan_in = shape[1] if name.startswith("embed/") or shape[0] == 1 else shape[0]
    offset, scale = (1.0 if gain else 0.0), (0.1 if gain or bias else fan_in ** -0.5)
    return offset, scale, (offset + scale * np.sin(0.1 * np.arange(shape[0] * shape[1]) ** 2 + number)).reshape(shape)


def norm(c, p, name, layer, x):
    if c["norm"] == "layer":
        x = x - x.mean(-1, keepdims=True)
    x = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + NORM_EPSILON) * p[name + "/gain", layer]
    return x + p[name + "/bias", layer] if c["norm"] == "layer" else x


def linear(p, name, layer, x):
    y = x @ p[name + "/weight", layer]
    return y + p[name + "/bias", layer] if (name + "/bias", layer) in p else y


def rotate(x, positions):
    half = x.shape[-1] // 2
    angle = positions[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None, :], jnp.sin(angle)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def update(c, p, layer, x, positions):
    """What a block adds to its rows."""
    heads, groups, d = c["heads"], c["kv_heads"], c["head_dim"]
    qkv = linear(p, "attn/qkv", layer, norm(c, p, "norm1", layer, x))
    q = qkv[:, : heads * d].reshape(-1, heads, d)
    k = qkv[:, heads * d : (heads + groups) * d].reshape(-1, groups, d)
    v = qkv[:, (heads + groups) * d :].reshape(-1, groups, d)
    if c["positions"] == "rope":
        q, k = rotate(q, positions), rotate(k, positions)
    k, v = (jnp.repeat(t, heads // groups, axis=1) for t in (k, v))
    scores = jnp.einsum("qhd,khd->hqk", q, k) / jnp.sqrt(d)
    distance = positions[:, None] - positions[None, :]
    visible = (distance >= 0) & ((distance < c["window"]) if c["window"] else True)
    weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    a = linear(p, "attn/out", layer, jnp.einsum("hqk,khd->qhd", weights, v).reshape(-1, heads * d))
    act = {"gelu_tanh": lambda t: jax.nn.gelu(t, approximate=True), "silu": jax.nn.silu}[c["activation"]]
    n = norm(c, p, "norm2", layer, x + a)
    inner = act(linear(p, "mlp/gate", layer, n)) * linear(p, "mlp/up", layer, n) if c["gated"] else act(linear(p, "mlp/up", layer, n))
    return a + linear(p, "mlp/down", layer, inner)


def forward(c, p, tokens):
    """Logits of [sequences, length] tokens and the sum of the routers' losses."""
    logits, auxiliary = [], 0.0
    positions = jnp.arange(c["length"])
    for row in tokens:
        x = p["embed/table", -1][row]
        if c["positions"] == "learned":
            x = x + p["embed/positions", -1][positions]
        for layer in range(c["layers"]):
            if not routed(c, layer):
                x = x + update(c, p, layer, x, positions)
                continue
            r = x @ p["route/score/weight", layer][0]
            if c["router_bias"]:
                r = r + p["route/score/bias", layer][0, 0]
            chosen = jnp.sort(jnp.argsort(-r, stable=True)[: c["slots"]])
            gate = r[chosen] if c["gate"] == "raw" else jax.nn.sigmoid(r[chosen])
            if c["aux"] > 0:
                target = jnp.zeros(c["length"]).at[chosen].set(1.0)
                loss = jnp.logaddexp(0.0, r) - r * target
                auxiliary = auxiliary + c["aux"] * loss.sum() / (c["sequences"] * c["length"])
            x = x.at[chosen].add(gate[:, None] * update(c, p, layer, x[chosen], chosen))
        x = norm(c, p, "head/norm", -1, x)
        logits.append(x @ (p["embed/table", -1].T if c["tied"] else p["head/logits/weight", -1]))
    return jnp.stack(logits), auxiliary


def write(name, changes, folder):
    c = {**DEFAULT, **changes}
    lines = [f"{key} {value}" for key, value in c.items()]
    lines += [f"learning_rate {LEARNING_RATE}", f"beta1 {BETA1}", f"beta2 {BETA2}", f"epsilon {EPSILON}", f"weight_decay {DECAY}", f"clip {CLIP}",
              f"norm_epsilon {NORM_EPSILON}"]
    p = {}
    for number, ((parameter, layer), shape) in enumerate(shapes(c).items()):
        offset, scale, values = formula(parameter, shape, number)
        p[parameter, layer] = jnp.asarray(values)
        lines.append(f"weight {parameter} {layer} {shape[0]} {shape[1]} {offset!r} {scale!r} {number}")
    index = np.arange(c["sequences"] * c["length"])
    tokens, targets = (index * 7 + 3) % c["vocab"], (index * 5 + 1) % c["vocab"]
    shape = (c["sequences"], c["length"])

    def objective(p):
        logits, auxiliary = forward(c, p, tokens.reshape(shape))
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets.reshape(shape)[..., None], -1)
        return -picked.mean() + auxiliary, (-picked.mean(), auxiliary, logits)

    evaluate = jax.jit(jax.value_and_grad(objective, has_aux=True))
    m = {key: jnp.zeros_like(w) for key, w in p.items()}
    v = {key: jnp.zeros_like(w) for key, w in p.items()}

    def entries(values):
        flat = np.asarray(values).reshape(-1)
        at = sorted({0, len(flat) // 3, len(flat) // 2, len(flat) - 1})
        return " ".join(f"{i} {flat[i]:.17e}" for i in at)

    for step in range(1, STEPS + 1):
        (_, (loss, auxiliary, logits)), g = evaluate(p)
        lines += [f"loss {step} {loss:.17e}", f"auxiliary {step} {float(auxiliary):.17e}", f"logits {step} {entries(logits)}"]
        for (parameter, layer), d in g.items():
            lines.append(f"gradient {step} {parameter} {layer} {jnp.sqrt((d * d).sum()):.17e} {entries(d)}")
        total = jnp.sqrt(sum((d * d).sum() for d in g.values()))
        for key, d in g.items():
            d = d * jnp.minimum(1.0, CLIP / total)
            m[key] = BETA1 * m[key] + (1 - BETA1) * d
            v[key] = BETA2 * v[key] + (1 - BETA2) * d * d
            change = m[key] / (1 - BETA1**step) / (jnp.sqrt(v[key] / (1 - BETA2**step)) + EPSILON) + DECAY * p[key]
            p[key] = p[key] - LEARNING_RATE * change
    for (parameter, layer), w in p.items():
        lines.append(f"final {parameter} {layer} {entries(w)}")
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    data = pathlib.Path(__file__).parent / "data"
    data.mkdir(exist_ok=True)
    for case, difference in CASES.items():
        write(case, difference, data)
