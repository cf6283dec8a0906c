"""What a comparison with another program needs: workers that stay alive, alternating rounds, the file that gathers the samples, the report's frame."""

import argparse
import json
import statistics
import subprocess
import sys

# Follows a contender's own text, which defines work() and version: so many steps are timed as each line of stdin says.
LOOP = '''
import sys, time
print("ready", version, flush=True)
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        begin = time.perf_counter(); work(); times.append(time.perf_counter() - begin)
    print(*times, flush=True)
'''


class Worker:
    def __init__(self, python, text, *arguments):
        self.process = subprocess.Popen([python, "-c", text + LOOP, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        words = self.process.stdout.readline().split()
        if len(words) != 2 or words[0] != "ready":
            raise SystemExit(f"the worker {' '.join(arguments)} ended: its last lines on stderr say why")
        self.version = words[1]

    def times(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return [float(t) for t in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def fathom_step(command):
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode not in (0, 1):
        raise SystemExit(out.stderr)
    return json.loads(out.stdout)["totals"]["measured_s"]


def alternate(data, key, command, workers, steps, rounds):
    """Each round runs every worker, then fathom once. Samples go to data by key and contender; the workers' version is returned, they are closed."""
    samples = data.setdefault("samples", {}).setdefault(key, {})
    data.setdefault("commands", {})[key] = " ".join(["fathom", *command[1:]])
    for _ in range(rounds):
        for name, worker in workers.items():
            samples.setdefault(name, []).append(statistics.median(worker.times(steps)))
        samples.setdefault("fathom", []).append(fathom_step(command))
    for worker in workers.values():
        worker.close()
    return next(iter(workers.values())).version


def page(lines, data):
    return "\n".join([*lines, "", "Commands of fathom:", "", *(f"    {command}" for command in data["commands"].values())]) + "\n"


def machine():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags"))
    return f"{names[0]}, {len(names)} cores, " + ("AMX" if "amx_bf16" in flags else "AVX-512 with bf16, no AMX" if "avx512_bf16" in flags else "no bf16 instructions")


def options_of(doc, needs, threads, rounds, **own):
    """The options that both comparisons take, and a contender's own (name: default, required where None)."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--fathom", default="build/fathom")
    parser.add_argument("--python", default=sys.executable, help=f"an interpreter with {needs}")
    for name, default in own.items():
        parser.add_argument(f"--{name}", default=default, required=default is None)
    parser.add_argument("--dtype", default="f32,bf16")
    parser.add_argument("--threads", default=threads)
    parser.add_argument("--rounds", type=int, default=rounds, help="0: only write the report")
    parser.add_argument("--data", required=True, help="JSON file that gathers the samples of all calls")
    parser.add_argument("--report", help="Markdown file written from it")
    return parser.parse_args()


def gather(options, measure, report):
    """Measures into the data file, prints the medians, writes the report."""
    try:
        with open(options.data) as file:
            data = json.load(file)
    except FileNotFoundError:
        data = {}
    if options.rounds > 0:
        data["machine"] = machine()
        measure(options, data)
        with open(options.data, "w") as file:
            json.dump(data, file, indent=1)
    for key, samples in data["samples"].items():
        print(key, {k: round(statistics.median(v) * 1e3, 3) for k, v in samples.items()}, "ms")
    if options.report:
        with open(options.report, "w") as file:
            file.write(report(data))
