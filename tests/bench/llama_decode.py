"""A decode step of gpt2-124m by fathom beside llama.cpp's on the same machine, alternating, medians and spread.

    llama_decode.py --fathom build/fathom --python PYTHON --work DIR --data FILE.json [--dtype f32,bf16] [--threads 1,2] [--rounds 5] [--report FILE.md]

PYTHON is an interpreter that has the packages llama-cpp-python, gguf and numpy. DIR takes the models, GGUF files of GPT-2's shape with random weights: f32; bf16 and f16,
where norms and biases stay f32 as its converter leaves them. Both programs compute one token at a context of 512 of one sequence, greedy choice included: llama.cpp fills 511
positions by one batch, then decodes a token and takes it back, again and again, its cache of keys and values in the dtype of the weights. f32 is compared with f32; bf16
with the faster of llama.cpp's bf16 and f16. Each round runs every contender once: fathom as a process of its own, llama.cpp in a worker that stays alive and is warmed before.
"""

import os
import statistics

from contenders import Worker, alternate, gather, options_of, page

WORKER = r'''
import ctypes, os, sys
import numpy as np
kind, threads, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
H, LAYERS, HEADS, V, S, CONTEXT = 768, 12, 12, 50257, 1024, 512

def write():
    import gguf
    kinds = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16}
    random = np.random.default_rng(1)
    w = gguf.GGUFWriter(path + ".part", "gpt2")
    w.add_context_length(S); w.add_embedding_length(H); w.add_feed_forward_length(4 * H); w.add_block_count(LAYERS)
    w.add_head_count(HEADS); w.add_layer_norm_eps(1e-5); w.add_vocab_size(V); w.add_tokenizer_model("no_vocab")
    def matrix(name, *shape):
        data = random.normal(0, 0.02, shape).astype(np.float32)
        w.add_tensor(name, gguf.quants.quantize(data, kinds[kind]), raw_dtype=kinds[kind])
    def vector(name, n, value): w.add_tensor(name, np.full(n, value, np.float32))
    def norm(name): vector(name + ".weight", H, 1), vector(name + ".bias", H, 0)
    def linear(name, out, into): matrix(name + ".weight", out, into), vector(name + ".bias", out, 0)
    matrix("token_embd.weight", V, H); norm("output_norm")
    w.add_tensor("position_embd.weight", random.normal(0, 0.02, (S, H)).astype(np.float32))
    for i in range(LAYERS):
        b = f"blk.{i}."
        norm(b + "attn_norm"); linear(b + "attn_qkv", 3 * H, H); linear(b + "attn_output", H, H)
        norm(b + "ffn_norm"); linear(b + "ffn_up", 4 * H, H); linear(b + "ffn_down", H, 4 * H)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
    os.rename(path + ".part", path)

if not os.path.exists(path): write()
import llama_cpp
from llama_cpp import llama_cpp as L
quiet = L.llama_log_callback(lambda level, text, data: None)
L.llama_log_set(quiet, None)
L.llama_backend_init()
model = L.llama_model_load_from_file(path.encode(), L.llama_model_default_params())
p = L.llama_context_default_params()
p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = S, CONTEXT, CONTEXT, threads, threads
p.type_k = p.type_v = {"f32": 0, "f16": 1, "bf16": 30}[kind]
context = L.llama_init_from_model(model, p)
memory = L.llama_get_memory(context)
def decode(tokens):
    array = (L.llama_token * len(tokens))(*tokens)
    if L.llama_decode(context, L.llama_batch_get_one(array, len(tokens))) != 0: raise SystemExit("llama_decode failed")
decode([1 + i for i in range(CONTEXT - 1)])
def work():
    decode([7])
    token = int(np.ctypeslib.as_array(L.llama_get_logits_ith(context, -1), (V,)).argmax())
    L.llama_memory_seq_rm(memory, 0, CONTEXT - 1, -1)
    return token
for _ in range(20): work()
version = llama_cpp.__version__
'''
KINDS = {"f32": ["f32"], "bf16": ["bf16", "f16"]}
STEPS = 60


def fathom_command(fathom, dtype, threads):
    return [fathom, "run", "gpt2-124m", "--phase", "decode", "--batch", "1", "--context", "512", "--dtype", dtype, "--threads", str(threads), "--rounds", "20", "-o", "json"]


def measure(options, data):
    os.makedirs(options.work, exist_ok=True)
    for dtype in options.dtype.split(","):
        for threads in map(int, options.threads.split(",")):
            workers = {f"llama.cpp {kind}": Worker(options.python, WORKER, kind, str(threads), os.path.join(options.work, f"gpt2-{kind}.gguf")) for kind in KINDS[dtype]}
            data["version"] = alternate(data, f"{dtype} {threads}", fathom_command(options.fathom, dtype, threads), workers, STEPS, options.rounds)


def report(data):
    lines = ["# A decode step of gpt2-124m by fathom and by llama.cpp", "",
             f"Written by `tests/bench/llama_decode.py` (its first lines say what each contender does); llama.cpp of llama-cpp-python {data['version']}, built for this machine. {data['machine']}.",
             "Milliseconds per token; contenders alternate; medians of the rounds, from the lowest to the highest in brackets. Ratio: llama.cpp's faster variant over fathom.", "",
             "| dtype | threads | fathom | llama.cpp | llama.cpp, f16 | ratio | rounds |", "|---|---|---|---|---|---|---|"]
    for key, samples in data["samples"].items():
        dtype, threads = key.split()
        cell = lambda v: f"{statistics.median(v) * 1e3:.2f} ({min(v) * 1e3:.2f} .. {max(v) * 1e3:.2f})" if v else "-"
        best = min(statistics.median(v) for k, v in samples.items() if k != "fathom")
        lines.append(f"| {dtype} | {threads} | {cell(samples['fathom'])} | {cell(samples[f'llama.cpp {dtype}'])} | {cell(samples.get('llama.cpp f16'))} | "
                     f"{best / statistics.median(samples['fathom']):.2f} | {len(samples['fathom'])} |")
    return page(lines, data)


if __name__ == "__main__":
    gather(options_of(__doc__, "llama-cpp-python, gguf and numpy", "1,2", 5, work=None), measure, report)  # work: folder for the models (1 GB)
