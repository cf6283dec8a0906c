"""Configurations per second of `fathom sweep` beside a Python loop over the same closed form, alternating, medians.

    sweep_peer.py --fathom build/fathom [--rounds 5] [--rows 200000] [--llm-analysis PYTHON]

A 24-layer model (width 1024, heads 16, MLP 4096, vocabulary 32000, tied head), prefill with logits at every position, lengths x batches; once dense, once with every
second block routed. The peer knows only matmul FLOPs and parameters, by the formula of one such model: the least that could be called the same answer. Both write
one CSV row per configuration to /dev/null, single-threaded; the process's start is part of the time. Their FLOPs are compared on a sample before timing.
--llm-analysis names a Python that has the package llm-analysis (0.2.2): the dense model's forward FLOPs and parameters by that tool, in its own convention.
"""

import argparse
import csv
import io
import statistics
import subprocess
import sys
import tempfile
import time

LAYERS, WIDTH, HEADS, MLP, VOCAB = 24, 1024, 16, 4096, 32000
PEER = f'''
import sys
def flops(seq, batch, routed):
    h, f = {WIDTH}, {MLP}
    def block(n):
        return 2 * n * (4 * h * h + 2 * h * f) * batch + 4 * h * (n * (n + 1) // 2) * batch
    half = {LAYERS} // 2
    total = half * block(seq)
    total += half * ((block(seq // 8) + 2 * seq * h * batch) if routed else block(seq))
    return total + 2 * seq * batch * h * {VOCAB}
def main(routed, lengths, batches):
    params = {VOCAB} * {WIDTH} + {LAYERS} * (4 * {WIDTH} ** 2 + 2 * {WIDTH} * {MLP} + 2 * {WIDTH}) + {WIDTH} + ({LAYERS} // 2 * {WIDTH} if routed else 0)
    write = sys.stdout.write
    write("seq,batch,params_total,flops_matmul\\n")
    for seq in range(1, lengths + 1):
        for batch in range(1, batches + 1):
            write(f"{{8 * seq}},{{batch}},{{params}},{{flops(8 * seq, batch, routed)}}\\n")
main(sys.argv[1] == "mod", int(sys.argv[2]), int(sys.argv[3]))
'''
LLM_ANALYSIS = f'''
import logging, sys
logging.disable(logging.CRITICAL)
from llm_analysis.analysis import LLMAnalysis
from llm_analysis.config import ModelConfig, get_gpu_config_by_name
model = ModelConfig(name="x", num_layers={LAYERS}, n_head={HEADS}, hidden_dim={WIDTH}, vocab_size={VOCAB}, max_seq_len=1 << 30, ffn_embed_dim={MLP})
analysis = LLMAnalysis(model, get_gpu_config_by_name("a100-sxm-40gb"))
write = sys.stdout.write
for seq in range(1, int(sys.argv[2]) + 1):
    for batch in range(1, int(sys.argv[3]) + 1):
        write(f"{{8 * seq}},{{batch}},{{analysis.get_num_params_total()}},{{analysis.get_num_flops_fwd_total(batch, 8 * seq)}}\\n")
'''
MODEL = f"[network]\nwidth = {WIDTH}\nvocab = {VOCAB}\nlayers = {LAYERS}\nheads = {HEADS}\nmlp = {MLP}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fathom", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200000)
    parser.add_argument("--llm-analysis", metavar="PYTHON")
    options = parser.parse_args()
    temporary = lambda suffix: tempfile.NamedTemporaryFile("w", suffix=suffix)
    with temporary(".ini") as model, temporary(".py") as peer, temporary(".py") as analysis:
        model.write(MODEL), model.flush()
        analysis.write(LLM_ANALYSIS), analysis.flush()
        peer.write(PEER), peer.flush()

        def commands(kind, lengths, batches):
            twin = ["--mod-every", "2", "--capacity", "1/8"] if kind == "mod" else []
            fathom = [options.fathom, "sweep", model.name, *twin, "--seq", f"8:{8 * lengths}:8", "--batch", f"1:{batches}", "--logits", "all", "--jobs", "1", "--no-defaults", "-q"]
            return {"fathom": fathom, "python": [sys.executable, peer.name, kind, str(lengths), str(batches)]}

        for kind in ("dense", "mod"):
            tables = [list(csv.DictReader(io.StringIO(subprocess.run(c, capture_output=True, encoding="utf-8", check=True).stdout))) for c in commands(kind, 20, 10).values()]
            for ours, theirs in zip(*tables, strict=True):
                for key in ("seq", "batch", "params_total", "flops_matmul"):
                    assert ours[key] == theirs[key], (ours, theirs)
            lengths = max(1, options.rows // 200)
            contenders = commands(kind, lengths, 200)
            if options.llm_analysis and kind == "dense":
                contenders["llm-analysis"] = [options.llm_analysis, analysis.name, kind, str(lengths), "200"]
            times = {name: [] for name in contenders}
            for _ in range(options.rounds):
                for name, command in contenders.items():
                    start = time.perf_counter()
                    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
                    times[name].append(time.perf_counter() - start)
            rows = lengths * 200
            for name, seconds in times.items():
                rates = sorted(rows / s for s in seconds)
                print(f"{kind:6} {name:12} {statistics.median(rates):12.0f} configurations/s  (min {rates[0]:.0f}, max {rates[-1]:.0f}, {rows} rows, {options.rounds} rounds)")


if __name__ == "__main__":
    main()
