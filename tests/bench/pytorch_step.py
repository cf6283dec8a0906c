"""A training step and a decode step of gpt2-124m by fathom beside PyTorch eager on the same machine, alternating, medians and spread.

    pytorch_step.py --fathom build/fathom --python PYTHON --data FILE.json [--phase train,decode] [--dtype f32,bf16] [--threads 1,2] [--rounds 3] [--report FILE.md]

PYTHON is an interpreter that has the package torch. Training: batch 1, 1024 tokens: forward, cross entropy, backward, gradient clipping, AdamW. PyTorch: the
usual module (embedding, LayerNorm, Linear, scaled_dot_product_attention with is_causal, GELU by tanh, tied head), AdamW(fused=True), gradients set to none;
bf16 twice: parameters in f32 under autocast, which like fathom keeps f32 master weights, and pure, parameters and moments in bf16. Decode: one token at
a context of 512 from a preallocated cache of keys and values, greedy choice included, under inference_mode; bf16 parameters are bf16. PyTorch's best of its variants counts.
Each round runs every contender once: fathom as a process of its own, PyTorch in a worker that stays alive and is warmed before.
"""

import statistics

from contenders import Worker, alternate, gather, options_of, page

WORKER = r'''
import sys, torch, torch.nn as nn, torch.nn.functional as F
phase, kind, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(threads)
torch.manual_seed(1)
H, L, N, V, S, CONTEXT = 768, 12, 12, 50257, 1024, 512

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(H), nn.LayerNorm(H)
        self.qkv, self.out = nn.Linear(H, 3 * H), nn.Linear(H, H)
        self.up, self.down = nn.Linear(H, 4 * H), nn.Linear(4 * H, H)
    def mlp(self, x):
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))
    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, N, H // N).transpose(1, 2) for t in self.qkv(self.n1(x)).split(H, dim=-1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.mlp(x + self.out(a.transpose(1, 2).reshape(b, s, H)))
    def step(self, x, keys, values, at):
        q, k, v = (t.view(1, 1, N, H // N).transpose(1, 2) for t in self.qkv(self.n1(x)).split(H, dim=-1))
        keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
        a = F.scaled_dot_product_attention(q, keys[:, :, : at + 1], values[:, :, : at + 1])
        return self.mlp(x + self.out(a.transpose(1, 2).reshape(1, 1, H)))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, H), nn.Embedding(S, H)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(L)), nn.LayerNorm(H)
        for p in self.parameters():
            nn.init.normal_(p, std=0.02) if p.dim() > 1 else None
    def forward(self, t):
        x = self.tokens(t) + self.positions.weight[: t.shape[1]]
        for block in self.blocks: x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)
    def step(self, t, at, cache):
        x = self.tokens(t) + self.positions.weight[at]
        for block, (k, v) in zip(self.blocks, cache): x = block.step(x, k, v, at)
        return F.linear(self.norm(x), self.tokens.weight).argmax(-1)

dtype = torch.float32 if kind in ("f32", "autocast") else torch.bfloat16
model = Model().to(dtype)
if phase == "train":
    tokens, targets = torch.randint(V, (1, S)), torch.randint(V, (1, S))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    def work():
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            loss = F.cross_entropy(model(tokens).view(-1, V), targets.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss
else:
    cache = [tuple(torch.randn(1, N, CONTEXT, H // N, dtype=dtype) for _ in "kv") for _ in range(L)]
    token = torch.zeros(1, 1, dtype=torch.long)
    def work():
        with torch.inference_mode():
            return model.step(token, CONTEXT - 1, cache)
work(); work()
version = torch.__version__
'''
KINDS = {("train", "f32"): ["f32"], ("train", "bf16"): ["autocast", "pure"], ("decode", "f32"): ["f32"], ("decode", "bf16"): ["pure"]}
STEPS = {"train": 1, "decode": 40}
FATHOM_ROUNDS = {"train": 1, "decode": 10}


def fathom_command(fathom, phase, dtype, threads):
    sizes = ["--batch", "1", "--seq", "1024"] if phase == "train" else ["--batch", "1", "--context", "512"]
    return [fathom, "run", "gpt2-124m", "--phase", phase, *sizes, "--dtype", dtype, "--threads", str(threads), "--rounds", str(FATHOM_ROUNDS[phase]), "-o", "json"]


def measure(options, data):
    for phase in options.phase.split(","):
        for dtype in options.dtype.split(","):
            for threads in map(int, options.threads.split(",")):
                workers = {f"PyTorch {kind}": Worker(options.python, WORKER, phase, kind, str(threads)) for kind in KINDS[phase, dtype]}
                command = fathom_command(options.fathom, phase, dtype, threads)
                data["torch"] = alternate(data, f"{phase} {dtype} {threads}", command, workers, STEPS[phase], options.rounds)


def report(data):
    lines = ["# A step of gpt2-124m by fathom and by PyTorch", "",
             f"Written by `tests/bench/pytorch_step.py` (its first lines say what each contender does); PyTorch {data['torch']} eager. {data['machine']}.",
             "Contenders alternate; medians of the rounds, from the lowest to the highest in brackets. Ratio: PyTorch's faster variant over fathom.", "",
             "| phase | dtype | threads | fathom | " + " | ".join(["PyTorch", "PyTorch, pure bf16"]) + " | ratio | rounds |", "|---|---|---|---|---|---|---|---|"]
    for key, samples in data["samples"].items():
        phase, dtype, threads = key.split()
        unit, scale = ("s", 1) if phase == "train" else ("ms", 1e3)
        cell = lambda v: f"{statistics.median(v) * scale:.3g} {unit} ({min(v) * scale:.3g} .. {max(v) * scale:.3g})" if v else "-"
        pure, main = samples.get("PyTorch pure"), samples.get("PyTorch f32") or samples.get("PyTorch autocast")
        best = min(statistics.median(v) for k, v in samples.items() if k != "fathom")
        lines.append(f"| {phase} | {dtype} | {threads} | {cell(samples['fathom'])} | {cell(main)} | {cell(pure)} | {best / statistics.median(samples['fathom']):.2f} | {len(samples['fathom'])} |")
    return page(lines, data)


if __name__ == "__main__":
    gather(options_of(__doc__, "torch", "2", 3, phase="train,decode"), measure, report)
