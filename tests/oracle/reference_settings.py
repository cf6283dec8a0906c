"""What the independent implementations (make_reference.py in JAX, torch_reference.py in PyTorch) and their comparing test agree on: settings, the optimizer's
constants, tokens, and the form of a file of reference values. No arithmetic of a model is here."""

import numpy as np

DEFAULT = dict(
    width=8, layers=3, heads=4, kv_heads=2, head_dim=4, mlp=12, vocab=11, sequences=2, length=9,
    positions="rope", norm="rms", biases=0, gated=0, activation="gelu_tanh", tied=1, window=0,
    # routed blocks: every `every`-th, `slots` per sequence; router_hidden > 0: an MLP router; predictor: -1 none, 0 linear, else its width
    every=0, slots=0, gate="raw", gate_on="delta", part="block", all_keys=0, router_bias=0, router_hidden=0, aux=0.0, aux_detached=0, predictor=-1,
    # experts in place of every MLP; capacity_num / capacity_den: capacity factor (0: no token is dropped)
    experts=0, picks=0, expert_width=0, shared=0, shared_width=0, shared_gate=0, sigmoid=0, expert_bias=0, correction=0, noops=0,
    capacity_num=0, capacity_den=1,
    # latent attention, where kv_rank > 0
    query_rank=0, kv_rank=0, nope=0, rope=0, value=0,
    # low-rank adapters of rank `lora` on the named matrices; everything else is frozen
    lora=0, targets="",
    qk_norm="none", sinks=0, layout="pre", chunk=0, head_bias=0, freeze_embedding=0)
NORM_EPSILON = 1e-5
STEPS, LEARNING_RATE, BETA1, BETA2, EPSILON, DECAY, CLIP = 3, 1e-2, 0.9, 0.95, 1e-5, 0.1, 0.5


def header(c):
    """First lines of a file: the settings that are not empty, and the optimizer's."""
    return [f"{key} {value}" for key, value in c.items() if value != ""] + [
        f"learning_rate {LEARNING_RATE}", f"beta1 {BETA1}", f"beta2 {BETA2}", f"epsilon {EPSILON}", f"weight_decay {DECAY}", f"clip {CLIP}",
        f"norm_epsilon {NORM_EPSILON}"]


def tokens_of(c):
    """Tokens and targets, [sequences, length]."""
    index = np.arange(c["sequences"] * c["length"])
    shape = (c["sequences"], c["length"])
    return ((index * 7 + 3) % c["vocab"]).reshape(shape), ((index * 5 + 1) % c["vocab"]).reshape(shape)


def summary(values, *entries):
    """Norm, product with sin(0.3 i^2 + 1), and some entries: the first, the middle one and those asked for."""
    flat = np.asarray(values).reshape(-1)
    at = sorted({0, len(flat) // 2, *(entry % len(flat) for entry in entries)})
    mark = np.sin(0.3 * np.arange(len(flat)) ** 2 + 1)
    return f"{np.sqrt((flat * flat).sum()):.13e} {(flat * mark).sum():.13e} " + " ".join(f"{i} {flat[i]:.13e}" for i in at)
