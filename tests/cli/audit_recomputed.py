"""`fathom audit`, every figure of its 31 rows worked out again here from a model's dimensions, for five models, one of them with a capacity per layer: nothing of the program is used. The
formula stands beside each; h width, L layers, n query heads, m key/value heads, d head size, f MLP width, g matrices of it, V vocabulary, S tokens, C slots, rho = C/S, q routed share of
the blocks, p declared capacity."""

import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
from fractions import Fraction as F

fathom = sys.argv[sys.argv.index("--fathom") + 1]

VERDICTS = "holds " * 11 + "conditional " * 2 + "no " + "conditional " * 3 + "no " + "conditional " * 3 + "no " + "conditional " * 2 + "no conditional holds holds no no no"


def mean(values):
    values = list(values)
    return sum(values) / len(values)


class Model:
    """`capacities`: by routed layer; none: 1/8 in every second."""

    def __init__(self, h, L, n, m, d, f, g, V, S=2048, capacities=None, rounding=math.floor, tied=True):
        self.h, self.L, self.n, self.m, self.d, self.f, self.g, self.V, self.S, self.tied = h, L, n, m, d, f, g, V, S, tied
        self.capacities = capacities or self.every(2, F(1, 8))
        self.rounding = rounding

    def rows(self):  # FLOP per row of a block: projections and MLP
        return 2 * self.h * self.n * self.d + 4 * self.h * self.m * self.d + 2 * self.n * self.d * self.h + 2 * self.g * self.h * self.f

    def forward(self, mode, capacities, S, rounding):
        """One sequence: A whole square and 3 per softmax element, B with logits, full: square and logits, exact: causal and logits. C = rho S, rounded."""
        pair = 4 * self.n * self.d + (3 * self.n if mode in "AB" else 0)
        pairs = (lambda t: t * (t + 1) // 2) if mode == "exact" else (lambda t: t * t)
        block = lambda t: t * self.rows() + pair * pairs(t)  # noqa: E731
        routed = sum(block(rounding(c * S)) + 2 * S * self.h for c in capacities.values())
        return (self.L - len(capacities)) * block(S) + routed + (0 if mode == "A" else 2 * self.h * self.V * S)

    def ratio(self, mode, capacities=None, S=None):
        S, rounding = S or self.S, math.floor if capacities else self.rounding
        return F(self.forward(mode, capacities or self.capacities, S, rounding), self.forward(mode, {}, S, rounding))

    def every(self, k, capacity):
        return {l: capacity for l in range(self.L) if l % k == k - 1}

    def slots(self):  # of every routed block
        return [self.rounding(c * self.S) for c in self.capacities.values()]

    def parameters(self):  # RMS norms with a gain, no biases, one table or two
        per_layer = self.h * self.n * self.d * 2 + 2 * self.h * self.m * self.d + self.g * self.h * self.f + 2 * self.h
        return self.L * per_layer + self.V * self.h * (1 if self.tied else 2) + self.h

    def decode_gain(self, B, T):
        """Dense time over MoD time of a decode step: max of bytes at 4 TB/s and FLOPs at 600 TFLOP/s per block, rows of a routed block binomial (bf16)."""
        w, beta, peak = 2, 4.0e12, 6.0e14
        W = self.h * (self.n + 2 * self.m) * self.d + self.n * self.d * self.h + self.g * self.h * self.f
        kappa = 2 * self.m * self.d
        full = max(w * (W + B * T * kappa) / beta, (2 * B * W + 4 * B * T * self.n * self.d) / peak)
        head = max(w * self.V * self.h / beta, 2 * B * self.V * self.h / peak)
        routed = 0.0
        for p in map(float, self.capacities.values()):
            for k in range(1, B + 1):
                chance = math.exp(math.lgamma(B + 1) - math.lgamma(k + 1) - math.lgamma(B - k + 1) + k * math.log(p) + (B - k) * math.log1p(-p)) if 0 < p < 1 else 0.0
                routed += chance * max(w * (W + k * p * T * kappa) / beta, (2 * k * W + 4 * k * p * T * self.n * self.d) / peak)
        return (self.L * full + head) / ((self.L - len(self.capacities)) * full + routed + head)


def binomial(n, p):
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def quantile(n, p, level):
    total = 0.0
    for k, chance in enumerate(binomial(n, p)):
        total += chance
        if total >= level:
            return k
    return n


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def figures(M):
    h, L, S, n, d = M.h, M.L, M.S, M.n, M.d
    rhos, q = [F(C, S) for C in M.slots()], F(len(M.capacities), L)
    skipped = sum(1 - rho for rho in rhos) / L       # q (1 - rho) where blocks are alike
    tri = lambda t: t * (t + 1)  # noqa: E731
    for C in dict.fromkeys(M.slots()):               # one figure per kind of block
        yield 1, F(tri(C), tri(S))
    yield 1, F(tri(6), tri(12))                      # 42/156
    yield 2, 1 - skipped
    yield 2, 1 - sum(1 - rho * rho for rho in rhos) / L
    yield 2, 1 - sum(1 - F(tri(C), tri(S)) for C in M.slots()) / L
    for mode in ("A", "B", "exact"):
        yield 2, M.ratio(mode)
    yield 3, 1 / 1.66
    yield 3, 1 - 1 / 1.66
    yield 3, 1 - 1 / 1.6
    rs = [float(rho) for rho in rhos]
    yield 4, mean(max(r, 1 - r) for r in rs)
    yield 4, mean(r * r + (1 - r) ** 2 for r in rs)  # guesses "take it" at the base rate
    for e in (.03, .02, .01):                        # 1 - accuracy
        yield 5, mean(max(0, r - e) for r in rs)
        yield 5, mean(min(1, r + e) for r in rs)
    for e in (.03, .02, .01):
        yield 6, mean(max(0, 1 - e / r) for r in rs)  # every error a missed token
        yield 6, sum(min(1, r + e) for r in rs) / sum(rs) - 1  # every error a token more, each of the same work
    scores = [f32(i / 128) for i in range(-4096, 4097)]
    yield 7, sum((f32(1 / f32(1 + f32(math.exp(-x)))) > .5) != (x > 0) for x in scores)
    yield 7, 1                                       # f32: exp(-1e-9) = 1, sigma = 1/2
    yield 8, 1                                       # .9 is the largest of .9 .1 .2 .3 .1 .2 .3 .1
    yield 8, 0                                       # 1.0 and 1.1 are larger
    yield 9, 2
    yield 9, 5                                       # .9 and .8
    yield 9, .6 + .25 * (.8 - .6)                    # rank .75 * 7 = 5.25 of .05 .1 .2 .3 .4 .6 .8 .9
    yield 10, 256000 * 2048
    llama3 = Model(4096, 32, 32, 8, 128, 14336, 3, 128256)
    llama2 = Model(4096, 32, 32, 32, 128, 11008, 3, 32000)
    for model, B, T in ((M, 1, 0), (llama3, 1, 0), (llama2, 1, 0), (M, 16, 0), (M, 128, 0), (M, 128, 2048)):
        yield 12, model.decode_gain(B, T) - 1
    saved = lambda k, c, mode: 1 - M.ratio(mode, M.every(k, c))  # noqa: E731
    half, eighth = F(1, 2), F(1, 8)
    for k, c in ((1, half), (2, half), (2, eighth)):
        yield 13, saved(k, c, "B")
        yield 13, saved(k, c, "A")
    yield 14, saved(2, half, "B")
    yield 14, saved(2, eighth, "B")
    yield 15, 2 * h
    yield 15, 0                                      # none of these models has a predictor
    yield 15, S * h * 2
    yield 16, 1                                      # floor(12/8)
    yield 16, 2                                      # 1.5 upwards
    ps = [float(c) for c in M.capacities.values()]   # a decode step knows no length: each token is taken with that chance
    yield 17, mean(32 * p for p in ps)
    yield 17, mean(quantile(32, p, .99) for p in ps)
    yield 17, mean(sum(c * (0 if k == 0 else 2 ** (k - 1).bit_length()) for k, c in enumerate(binomial(32, p))) for p in ps)
    yield 17, mean(sum(c * 8 * -(-k // 8) for k, c in enumerate(binomial(32, p))) for p in ps)
    yield 18, skipped
    yield 18, F(L // 2, L)                           # 1 - rho < 1
    yield 18, 1 - F(S // 4, S)                       # every block at 1/4
    block = F(S * M.rows() + 4 * n * d * S * S)
    for nu in (half, F(7, 8)):
        yield 18, nu * S * 2 * M.g * h * M.f / block
    for c in (half, F(1, 4), eighth):
        t = int(c * S)
        yield 18, 1 - (t * M.rows() + 4 * n * d * t * t) / block
    yield 19, 2 * int(eighth * S) * h * 2            # two all-reduces of C h elements of two bytes
    yield 19, 2 * S * h * 2
    yield 19, 4 * S
    kv = lambda capacities: sum(1 - c for c in capacities.values()) / F(L)  # noqa: E731  the share itself: a growing cache knows no length to round at
    yield 20, kv(M.capacities)
    for c in (eighth, F(1, 5), F(1, 4), half):
        yield 20, kv(M.every(2, c))
    for c in (half, eighth):
        yield 20, kv(M.every(1, c))
    yield 20, 0
    yield 20, 8 / (512 / 8)                          # half a page of 16 rows on T/8 of them
    yield 20, 8 / (2048 / 8)
    for capacities in (M.capacities, M.every(2, eighth), M.every(2, half), M.every(1, half)):
        yield 21, 1 / (1 - kv(capacities))
    yield 22, mean(min(1, p + .03) for p in ps)
    yield 22, mean(math.sqrt(128 * p * (1 - p)) for p in ps)
    yield 22, mean(quantile(128, p, .99) for p in ps)
    full = F(M.rows() + 4 * n * d * S)               # per token of a full block
    yield 23, 2 * h / full
    yield 23, next(w for w in range(1, 200) if 2 * w * 1000 < 24 * w * w)
    plain = lambda w, t: 24 * w * w * t + 4 * w * t * t  # noqa: E731  multi-head, two matrices of 4 w
    for w in (896, 512, 128):
        yield 23, F(2 * S * w, plain(w, int(eighth * S)))
    u = h // 2
    yield 23, 2 * (h * u + u) / full
    t = int(eighth * S)
    yield 23, F(2 * S * (h * u + u)) / (t * M.rows() + 4 * n * d * t * t)
    yield 23, 2 * (h * 512 + 512) / full
    yield 24, 1 - 6 / 12 - .001
    for k, c in ((1, half), (2, half), (1, eighth)):
        yield 24, saved(k, c, "B")
        yield 24, saved(k, c, "A")
    kv_flops, router = 4 * h * M.m * d, 2 * h * S
    all_keys = (t * (M.rows() - kv_flops) + S * kv_flops + 4 * n * d * t * S + router) / block
    selected = (t * M.rows() + 4 * n * d * t * t + router) / block
    yield 25, all_keys
    yield 25, selected
    yield 25, (1 + all_keys) / 2
    yield 25, (1 + selected) / 2
    yield 26, M.ratio("B")
    yield 26, M.ratio("B", M.every(2, half))
    yield 27, len(M.capacities) * h
    yield 27, F(len(M.capacities) * h, M.parameters())
    # Mixtral 8x7B: 32 layers, width 4096, 32 and 8 heads of 128, 2 of 8 experts of 14336, 32000 tokens, untied.
    expert, others = 3 * 4096 * 14336, 4096 * 4096 * 2 + 2 * 4096 * 1024 + 4096 * 8 + 2 * 4096
    mixtral = [32 * (others + k * expert) + 2 * 32000 * 4096 + 4096 for k in (2, 8)]
    yield 28, F(mixtral[0], mixtral[1])
    yield 28, 2 * mixtral[1]
    yield 29, skipped
    yield 29, q
    paper = Model(896, 18, 14, 14, 64, 3584, 2, 32000)
    gpt2 = Model(768, 12, 12, 12, 64, 3072, 2, 50257)
    realised = lambda predicted, measured: (1 - 1 / measured) / (1 - 1 / predicted)  # noqa: E731
    yield 31, 1 / M.ratio("B")
    yield 31, 1 / paper.ratio("B")
    yield 31, realised(float(1 / paper.ratio("B")), 1.66)
    nano = 1 / gpt2.ratio("full", gpt2.every(2, half), 1024)
    yield 31, nano
    yield 31, realised(float(nano), 24 / 21)
    yield 31, (1 - .777) / (1 - .556)


MODELS = {
    ("dense-220m",): Model(896, 18, 14, 14, 64, 3584, 2, 32000),
    ("mod-820m",): Model(1536, 25, 12, 12, 128, 6144, 2, 32000),                                  # odd number of layers: 12 of 25 routed
    ("llama-3-8b", "--seq", "8192"): Model(4096, 32, 32, 8, 128, 14336, 3, 128256, 8192, tied=False),  # grouped queries, gated
    ("dense-60m", "--seq", "300"): Model(576, 9, 9, 9, 64, 2304, 2, 32000, 300),                  # 37.5 slots are 37
    ("mod-schedule", "--seq", "302"): Model(256, 8, 4, 4, 64, 1024, 2, 4096, 302, dict(zip(range(1, 7), map(F, "3/4 1/2 1/4 1/4 1/2 3/4".split()))), math.ceil),  # 226.5 are 227
}
for arguments, model in MODELS.items():
    tables = json.loads(subprocess.run([fathom, "audit", *arguments, "-o", "json"], capture_output=True, text=True, timeout=120, check=True).stdout)["tables"]
    seen = [(row["number"], row["figure"], row["exact_value"]) for row in tables["figures"]]
    here = list(figures(model))
    wrong = [f"{len(seen)} figures, here {len(here)}"] if len(seen) != len(here) else []
    for (number, name, value), (row, expected) in zip(seen, here):
        if number != row or abs(value - float(expected)) > 1e-9 * max(1.0, abs(float(expected))):
            wrong.append(f"row {number} '{name}': {value}, here row {row}: {float(expected)}")
    assert not wrong, (arguments, wrong)
    if arguments == ("dense-220m",):
        verdicts = [claim["verdict"].replace("does not hold", "no") for claim in tables["claims"]]
        assert verdicts == VERDICTS.split(), verdicts
        # Numbers that the documents print, read off the specification and not off the formulas above.
        exact = {(number, name): value for number, name, value in seen}
        for (number, name), printed, digits in (
            ((2, "model forward, layers only"), .5473, 4), ((2, "model forward, with logits"), .5956, 4), ((2, "model forward, exact"), .6082, 4),
            ((21, "every second block at 1/8"), 1.778, 3), ((25, "routed block of a full one, all-token K/V, 1/8"), .231, 3), ((31, "realised there, measured 1.66 x"), .98, 2),
        ):
            assert round(exact[number, name], digits) == printed, (name, exact[number, name])

# Blocks that differ in what is routed and in their MLPs: 64 wide, 4 heads of 16; queries, keys, values and output 8192 FLOP each per token. A: attention alone at a half; B: a gated MLP of 96
# (3 x 2 x 64 x 96 = 36864) and attention at a quarter, behind a window; C: a plain MLP of 256 (65536) at 98 %, where keys and values are those of all tokens.
FILE = """[network]
width = 64
vocab = 100
heads = 4
mlp = 256
pattern = full A B C A

[block.full]
[block.A]
capacity = 1/2
part = attention
[block.B]
capacity = 1/4
mlp = 96
gated = yes
window = 8
[block.C]
capacity = 49/50
kv = all
"""
SHARES, WORK = [.5, .25, .98, .5], [4 * 8192, 4 * 8192 + 36864, 2 * 8192 + 65536, 4 * 8192]  # of a token that takes the routed part
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "parts.ini"
    path.write_text(FILE)
    rows = json.loads(subprocess.run([fathom, "audit", str(path), "--seq", "400", "-o", "json"], capture_output=True, text=True, timeout=120, check=True).stdout)["tables"]["figures"]
expected = {
    5: [value for e in (.03, .02, .01) for value in (mean(max(0, p - e) for p in SHARES), mean(min(1, p + e) for p in SHARES))],
    6: [value for e in (.03, .02, .01) for value in (mean(max(0, 1 - e / p) for p in SHARES), sum(min(1, p + e) * w for p, w in zip(SHARES, WORK)) / sum(p * w for p, w in zip(SHARES, WORK)) - 1)],
    17: [32 * mean(SHARES), mean(quantile(32, p, .99) for p in SHARES), mean(sum(c * (0 if k == 0 else min(32, 2 ** (k - 1).bit_length())) for k, c in enumerate(binomial(32, p))) for p in SHARES),
         mean(sum(c * 8 * -(-k // 8) for k, c in enumerate(binomial(32, p))) for p in SHARES)],
    22: [mean(min(1, p + .03) for p in SHARES), mean(math.sqrt(128 * p * (1 - p)) for p in SHARES), mean(quantile(128, p, .99) for p in SHARES)],
}
for number, values in expected.items():
    seen = [row["exact_value"] for row in rows if row["number"] == number]
    assert len(seen) == len(values) and all(abs(a - b) <= 1e-9 * max(1, abs(b)) for a, b in zip(seen, values)), (number, seen, values)
