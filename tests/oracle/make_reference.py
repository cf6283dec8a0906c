"""Independent reference values for the executed op list, by automatic differentiation (JAX on the CPU, in 64 bit).

Trains tiny models of reference_model.py for three AdamW steps, with weights and tokens from a formula, and writes the losses, some logits, and of
every parameter's gradient in every step its norm, its product with a fixed vector (every entry counts, in its place) and a few entries. Usage
(needs `pip install jax`):

    python3 tests/oracle/make_reference.py [CASE ...]

writes tests/oracle/data/*.txt. The weights are w[i] = offset + scale * sin(0.1 i^2 + phase), i the flat index, phase = number of the parameter in
the file; the comparing test reads them from the file's header lines, so nothing is stated twice. A case whose choice of rows or experts hangs
on less than 1e-4 is refused: single precision may choose otherwise.
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from reference_model import Model, shapes, trained, values
from reference_settings import BETA1, BETA2, CLIP, DECAY, DEFAULT, EPSILON, LEARNING_RATE, STEPS, header, summary, tokens_of

jax.config.update("jax_enable_x64", True)

EXPERTS = dict(experts=4, picks=2, expert_width=6)
LATENT = dict(kv_rank=5, nope=3, rope=4, value=6, heads=3, kv_heads=3, head_dim=7)
# Sizes that no block of a kernel divides, above one vector, tile or panel each.
ODD = dict(width=35, heads=6, kv_heads=3, head_dim=10, mlp=83, vocab=53, length=37, sequences=3, layers=2)
CASES = {
    "dense": {},
    "dense_swiglu_untied": dict(gated=1, activation="silu", tied=0, kv_heads=4),
    "dense_gpt2": dict(norm="layer", positions="learned", biases=1, kv_heads=4),
    "dense_window": dict(window=3, kv_heads=1),
    "dense_chunk_erf_head_bias": dict(chunk=4, activation="gelu_erf", head_bias=1, tied=0),
    "dense_parallel_relu2": dict(layout="parallel", activation="relu2", norm="layer"),
    "dense_sandwich_qk_norm": dict(layout="sandwich", qk_norm="shared", gated=1),
    "dense_post_norm_full": dict(layout="post", qk_norm="full", gated=1, activation="silu", tied=0),
    "dense_sinks_per_head": dict(sinks=1, qk_norm="per_head", window=5, activation="relu"),
    "dense_frozen_embedding": dict(freeze_embedding=1, tied=0, norm="layer"),
    "dense_odd": dict(ODD, norm="layer", biases=1, positions="learned", tied=1),
    "dense_odd_gqa": dict(ODD, gated=1, activation="silu", kv_heads=2, tied=0, width=67),
    "mod": dict(every=2, slots=3, aux=0.01),
    "mod_sigmoid_bias": dict(every=1, slots=4, gate="sigmoid", router_bias=1, aux=0.7),
    "mod_gpt2": dict(every=2, slots=2, norm="layer", positions="learned", biases=1, kv_heads=4, router_bias=1),
    "mod_swiglu_window": dict(every=2, slots=4, gated=1, activation="silu", window=4, tied=0, aux=0.1),
    "mod_predictor": dict(every=2, slots=4, aux=0.3, predictor=0, gate="tanh"),
    "mod_predictor_mlp_detached": dict(every=1, slots=3, aux=0.5, aux_detached=1, predictor=5, router_bias=1),
    "mod_detached_every_slot": dict(every=2, slots=9, aux=0.5, aux_detached=1),
    "mod_router_mlp": dict(every=2, slots=5, aux=0.2, router_hidden=6, router_bias=1, gate="scaled_sigmoid", predictor=3),
    "mod_router_mlp_no_loss": dict(every=1, slots=5, router_hidden=6, gate="sigmoid"),
    "mod_all_keys": dict(every=2, slots=4, all_keys=1, gate="sigmoid", aux=0.1, biases=1, norm="layer"),
    "mod_gate_whole": dict(every=2, slots=4, gate_on="whole", aux=0.1),
    "mod_gate_attention": dict(every=2, slots=4, gate_on="attention", gate="sigmoid", aux=0.1),
    "mod_gate_mlp": dict(every=2, slots=4, gate_on="mlp", gate="tanh"),
    "mod_part_attention": dict(every=2, slots=4, part="attention", aux=0.1),
    "mod_part_mlp": dict(every=2, slots=4, part="mlp", aux=0.1, gate="sigmoid"),
    "mod_odd": dict(ODD, every=2, slots=17, aux=0.05, gate="sigmoid", predictor=9, gated=1, activation="silu"),
    "mod_one_slot": dict(every=1, slots=1, aux=0.1, length=5),
    "moe": dict(EXPERTS),
    "moe_sigmoid_shared_gated": dict(EXPERTS, sigmoid=1, gated=1, activation="silu", expert_bias=1, shared=2, shared_width=3, shared_gate=1, correction=1),
    "moe_capacity_biases": dict(EXPERTS, experts=3, capacity_num=3, capacity_den=4, biases=1, shared=1, shared_width=5, norm="layer"),
    "moe_top1": dict(EXPERTS, picks=1, expert_bias=1, tied=0),
    "moe_odd": dict(ODD, sequences=1, length=23, experts=5, picks=3, expert_width=41, gated=1, activation="silu", shared=1, shared_width=19, capacity_num=9, capacity_den=10),
    "mode_staged": dict(EXPERTS, every=2, slots=5, aux=0.1, capacity_num=1),
    "mode_staged_shared": dict(EXPERTS, every=1, slots=4, gate="sigmoid", aux=0.1, shared=1, shared_width=4, predictor=3),
    "mode_integrated": dict(EXPERTS, experts=3, noops=2),
    "mode_integrated_sigmoid": dict(EXPERTS, noops=2, picks=3, sigmoid=1, shared=1, shared_width=4, gated=1, correction=1),
    "mode_both": dict(EXPERTS, noops=1, every=2, slots=5, aux=0.2, capacity_num=5, capacity_den=4),
    "latent": dict(LATENT),
    "latent_query_rank": dict(LATENT, query_rank=5, window=4, gated=1, activation="silu"),
    "latent_mod": dict(LATENT, every=2, slots=4, aux=0.1, query_rank=3),
    "latent_experts": dict(LATENT, **EXPERTS, sigmoid=1, shared=1, shared_width=4, layers=2, noops=1),
    "lora_qv": dict(lora=2, targets="q,v"),
    "lora_all": dict(lora=3, targets="q,k,v,o,up,gate,down", gated=1, biases=1),
    "lora_mod": dict(lora=2, targets="q,k,o,up", every=2, slots=4, aux=0.1),
    "lora_experts": dict(EXPERTS, lora=2, targets="v,up,down", shared=1, shared_width=4),
}
LEAST_MARGIN = 1e-4


def write(name, changes, folder):
    assert set(changes) <= set(DEFAULT), changes
    c = {**DEFAULT, **changes}
    lines = header(c)
    p, fixed = {}, {}
    for number, ((parameter, layer), (shape, fan)) in enumerate(shapes(c).items()):
        offset, scale, contents = values(parameter, shape, fan, number)
        (p if trained(c, parameter, layer) else fixed)[parameter, layer] = jnp.asarray(contents)
        lines.append(f"weight {parameter} {layer} {shape[0]} {shape[1]} {offset!r} {scale!r} {number}")
    tokens, targets = tokens_of(c)

    def objective(p):
        model = Model(c, {**p, **fixed})
        logits = model.logits(tokens)
        loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()
        return loss + model.auxiliary, (loss, model.auxiliary, logits, model.margin)

    evaluate = jax.jit(jax.value_and_grad(objective, has_aux=True))
    m = {key: jnp.zeros_like(w) for key, w in p.items()}
    v = {key: jnp.zeros_like(w) for key, w in p.items()}
    least = np.inf
    for step in range(1, STEPS + 1):
        (_, (loss, auxiliary, logits, margin)), g = evaluate(p)
        least = min(least, float(margin))
        lines += [f"loss {step} {loss:.13e}", f"auxiliary {step} {float(auxiliary):.13e}", f"margin {step} {float(margin):.3e}", f"logits {step} {summary(logits)}"]
        lines += [f"gradient {step} {parameter} {layer} {summary(d)}" for (parameter, layer), d in g.items()]
        total = jnp.sqrt(sum((d * d).sum() for d in g.values()))
        for key, d in g.items():
            d = d * jnp.minimum(1.0, CLIP / total)
            m[key] = BETA1 * m[key] + (1 - BETA1) * d
            v[key] = BETA2 * v[key] + (1 - BETA2) * d * d
            change = m[key] / (1 - BETA1**step) / (jnp.sqrt(v[key] / (1 - BETA2**step)) + EPSILON) + DECAY * p[key]
            p[key] = p[key] - LEARNING_RATE * change
    lines += [f"final {parameter} {layer} {summary(w)}" for (parameter, layer), w in {**p, **fixed}.items()]
    print(f"{name}: smallest margin of a choice {least:.1e}")
    if least < LEAST_MARGIN:
        raise SystemExit(f"{name}: a choice hangs on {least:.1e}; change its sizes or slots")
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    data = pathlib.Path(__file__).parent / "data"
    data.mkdir(exist_ok=True)
    for case in sys.argv[1:] or CASES:
        write(case, CASES[case], data)
