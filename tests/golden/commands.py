"""Whole outputs of commands against stored ones: no clock, no machine, every byte.

Times come from the fake backend, which takes what was predicted for a made-up CPU with round figures, so the outputs are the same everywhere.
After a wanted change: python3 tests/golden/commands.py --fathom build/fathom --source . --update, and read the diff.
"""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys

MACHINE = "tests/golden/data/machine.ini"
TIMED = ["--backend", "fake", "--on", MACHINE, "--rounds", "5", "--threads", "2"]
CASES = {
    "count_table": ["count", "gpt2-124m", "--seq", "1024", "--width", "120"],
    "count_ops": ["count", "mod-tiny", "--ops", "--width", "120"],
    "count_csv": ["count", "mod-60m", "dense-60m", "-o", "csv"],
    "count_train_md": ["count", "mod-tiny", "--phase", "train", "-o", "md"],
    "count_json": ["count", "mod-tiny", "-o", "json"],
    "count_decode": ["count", "mod-tiny", "--phase", "decode", "--context", "100", "--batch", "1,4", "--width", "120"],
    "predict_table": ["predict", "mod-60m", "--on", MACHINE, "--threads", "2", "--width", "120", "--ops"],
    "predict_narrow": ["predict", "mod-60m", "--on", MACHINE, "--threads", "2", "--width", "40"],
    "run_table": ["run", "mod-tiny", "--backend", "fake", "--rounds", "5", "--width", "120", "--ops"],
    "compare_table": ["compare", "mod-60m", "dense-60m", "--width", "140", "--ops"] + TIMED,
    "compare_md": ["compare", "mod-tiny", "-o", "md"] + TIMED,
    "compare_relative": ["compare", "mod-60m", "dense-60m", "mod-tiny", "--seq", "128", "--width", "120"] + TIMED,
    "compare_columns": ["compare", "mod-tiny", "--ops", "--columns", "path,measured_s,p95_s,dram_ratio", "-o", "md"] + TIMED,
    "compare_csv": ["compare", "mod-60m", "dense-60m", "-o", "csv", "--ops"] + TIMED,
    "compare_json": ["compare", "mod-tiny", "-o", "json"] + TIMED,
    "profile_counters": ["compare", "mod-tiny", "--dtype", "bf16", "--profile", "counters", "--ops", "--width", "160"] + TIMED,
    "profile_fallen": ["compare", "mod-60m", "dense-60m", "--profile", "counters", "--fake-profiler", "counters=35", "--width", "140"] + TIMED,
    "profile_json": ["compare", "mod-tiny", "--profile", "counters", "-o", "json"] + TIMED,
    "profile_require": ["compare", "mod-tiny", "--profile", "require", "--fake-profiler", "subscribe=39"] + TIMED,
    "profile_cpu": ["run", "mod-tiny", "--backend", "cpu", "--profile", "counters"],
    "check_reference": ["check", "select", "gather_rows", "attention", "--backend", "reference", "--width", "120", "--quiet"],
    "explain_kind": ["explain", "gemm", "--width", "100"],
    "explain_op": ["explain", "attn/core", "llama-3-8b", "--seq", "4096", "--width", "100"],
    "explain_column": ["explain", "realised", "--width", "100"],
    "list_models": ["list", "models", "--width", "100"],
    "error_model": ["count", "gpt2-124"],
    "error_flag": ["count", "gpt2-124m", "--capcity", "0.5"],
    "error_capacity": ["count", "gpt2-124m", "--capacity", "1.5"],
}
# What depends on the moment or the build is replaced by a mark before comparing; nothing else is.
VOLATILE = [
    (re.compile(r",\d+\.\d+\.\d+( \([0-9a-f]{12}\+?\))?,(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"), ",version,time"),
    (re.compile(r'"(started|predicted_at)": "[^"]*"'), r'"\1": "..."'),
    (re.compile(r'"version": "[^"]*"'), '"version": "..."'),
    (re.compile(r"\bfathom \d+\.\d+\.\d+( \([0-9a-f]{12}\+?\))?"), "fathom ..."),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "..."),
]


def run(fathom, source, arguments):
    done = subprocess.run([fathom, *arguments], cwd=source, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"})
    text = f"exit {done.returncode}\n{done.stdout}"
    if done.stderr:
        text += f"--- stderr\n{done.stderr}"
    for pattern, mark in VOLATILE:
        text = pattern.sub(mark, text)
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fathom", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--update", action="store_true")
    options, _ = parser.parse_known_args()
    folder = pathlib.Path(options.source) / "tests/golden/data"
    failed = 0
    for name, arguments in CASES.items():
        actual = run(str(pathlib.Path(options.fathom).resolve()), options.source, arguments)
        file = folder / f"{name}.txt"
        if options.update:
            file.write_text(actual)
            continue
        expected = file.read_text() if file.exists() else ""
        if actual != expected:
            failed += 1
            print(f"--- {name}: fathom {' '.join(arguments)}")
            sys.stdout.writelines(list(difflib.unified_diff(expected.splitlines(True), actual.splitlines(True), "stored", "now"))[:40])
    stored = {file.stem for file in folder.glob("*.txt")}
    if stale := stored - set(CASES):
        failed += 1
        print(f"stored outputs without a case: {sorted(stale)}")
    print(f"{len(CASES)} outputs, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
