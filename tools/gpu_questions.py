#!/usr/bin/env python3
"""What a first run on a GPU was asked, answered from the files that tools/gpu_report.sh wrote. Markdown to stdout.

    python3 tools/gpu_questions.py FOLDER

Python's own library only: the machine may be bare. A question whose record is missing is answered by saying so.
"""
import json
import pathlib
import re
import statistics
import sys

FOLDER = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__.strip().splitlines()[2].strip())


def records(name):
    """Every record of a file: one object, or one per line; unreadable ones are left out."""
    try:
        text = (FOLDER / name).read_text()
    except OSError:
        return []
    found = []
    for part in [text] if not name.endswith(".jsonl") else text.splitlines():
        try:
            found.append(json.loads(part))
        except ValueError:
            continue
    return found


def results(name):
    return [result for record in records(name) for result in record.get("results", [record] if "totals" in record else [])]


def totals(name):
    return [(r["model"], r["scenario"], r["totals"]) for r in results(name) if "totals" in r]


def ops(name):
    return [op for r in results(name) for op in r.get("ops", [])]


def middle(values, form):
    values = sorted(v for v in values if v is not None)
    return f"{form(statistics.median(values))} (of {len(values)}: {form(values[0])} to {form(values[-1])})" if values else None


def percent(x):
    return f"{100 * x:.1f} %"


def ratio(x):
    return f"{x:.3f}"


WRAPPERS = ("mma_16816", "ldmatrix_x4", "ldmatrix_x4_trans", "cp_async16", "shuffles", "votes", "atomics", "pack_bf16", "functions", "self-test")


def wrappers():
    """The first table of `fathom check`, in the terminal's form."""
    try:
        lines = (FOLDER / "check.txt").read_text().splitlines()
    except OSError:
        return None
    rows = [re.match(r"\W*(\S+)\s.*?\b(ok|\d+ wrong.*?)\W*$", line) for line in lines]
    rows = [(row[1], row[2]) for row in rows if row and row[1] in WRAPPERS]
    wrong = [f"{name}: {status}" for name, status in rows if status != "ok"]
    return "; ".join(wrong) if wrong else f"all {len(rows)}" if rows else None


def chip():
    for record in records("counters.json"):
        environment = record.get("environment", {})
        if "chip" in environment:
            return f"{environment['chip']}; one math_op is {environment.get('flops_per_math_op', 'an unknown number of')} FLOP"
    return None


def streams():
    """DRAM bytes counted over needed, for ops of at least 256 MB that multiply nothing."""
    return middle([op.get("dram_ratio") for op in ops("counters.json") if op.get("needed_bytes", 0) >= 256e6 and op.get("needed_flops", 1) == 0], ratio)


def products():
    return middle([op.get("counter_flops_ratio") for op in ops("counters.json") if op.get("kind") == "gemm" and op.get("needed_flops", 0) >= 1e9], ratio)


def small_ops():
    """An event pair around an op of a few microseconds, less its kernels' own time."""
    off = [op["measured_s"] - op["kernel_s"] for op in ops("counters.json") if 0 < op.get("kernel_s", 0) <= 5e-6 and "measured_s" in op]
    return middle(off, lambda s: f"{1e6 * s:.2f} us")


def attention(kind):
    rows = [(op["shape"], op["achieved_flops_per_s"]) for op in ops("timing.json") if op.get("kind") == kind and "achieved_flops_per_s" in op]
    best = {}
    for shape, rate in rows:
        best[shape] = max(rate, best.get(shape, 0))
    return "; ".join(f"{shape}: {rate * 1e-12:.0f} TFLOP/s" for shape, rate in sorted(best.items())) or None


def launches():
    """Decode steps as one graph, as graphs by row count, and op by op: the same step, three times."""
    steps = {}
    for record in records("compare.jsonl"):
        how = re.search(r"--launch (\w+)", record.get("arguments", ""))
        for result in record.get("results", [record] if "totals" in record else []):
            if how and "measured_s" in result.get("totals", {}):
                steps.setdefault(result["scenario"]["batch"], {})[how[1]] = result["totals"]["measured_s"]
    return "; ".join(f"batch {b}: " + ", ".join(f"{how} {1e3 * s:.3f} ms" for how, s in each.items()) for b, each in sorted(steps.items())) or None


def implementations():
    chosen = sorted({op["implementation"] for op in ops("timing.json") if op.get("kind") == "gemm" and "implementation" in op})
    return f"{len(chosen)} choices, such as {chosen[0]}" if chosen else None


QUESTIONS = [
    ("does every wrapper of device code mean what the kernels take it for", wrappers, "check.txt"),
    ("chip as CUPTI names it, FLOP per math_op", chip, "counters.json"),
    ("DRAM bytes over needed bytes of large streams (1: nothing is counted twice)", streams, "counters.json"),
    ("tensor operations over counted FLOPs of large products (above 1: padded tiles)", products, "counters.json"),
    ("tracing: how much longer a traced step is", lambda: middle([t.get("profile_overhead") for _, _, t in totals("counters.json")], percent), "counters.json"),
    ("what an event pair adds to an op whose kernels take at most 5 us", small_ops, "counters.json"),
    ("attention forward, useful FLOPs", lambda: attention("attention"), "timing.json"),
    ("attention backward, useful FLOPs", lambda: attention("attention_backward"), "timing.json"),
    ("algorithms that cuBLASLt chose", implementations, "timing.json"),
    ("decode step: one graph, graphs by row count, op by op", launches, "compare.jsonl"),
    ("DRAM bytes of whole steps over needed bytes", lambda: middle([t.get("dram_ratio") for _, _, t in totals("counters.json")], ratio), "counters.json"),
    ("fraction of the saving that the pairs realise", lambda: middle([t.get("realised") for _, _, t in totals("compare.jsonl") if isinstance(t.get("realised"), float)], percent), "compare.jsonl"),
]


def main():
    print("| question | answer | from |\n|---|---|---|")
    for question, answer, where in QUESTIONS:
        print(f"| {question} | {answer() or 'not told by this run'} | {where} |")
    print("\nLaunch costs, top-k latencies, bandwidth by size and product rates by rows stand under Calibration.")


main()
