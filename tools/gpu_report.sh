#!/usr/bin/env bash
# What one GPU machine has to tell, in at most 480 seconds: correctness, times against peak, counters against counts, calibration, predicted
# against measured for three pairs, decode latency against batch size. The machine may be offline and bare; at most 8 files are written.
#
#   tools/gpu_report.sh --prepare      on a build machine: builds build-gpu/fathom and build-gpu/libfathom_cuda.so to take along
#   tools/gpu_report.sh [FOLDER]       on the GPU machine: writes to FOLDER, else $OUT, else gpu_results
#   tools/gpu_report.sh --dry-run [FOLDER]   the same stages on the fake backend, which takes the times that are predicted
#
# Every stage has a time limit of its own, is saved as it ends, and does not stop the next. Clocks, power, MIG and persistence are left alone.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export LC_ALL=C.UTF-8
total_limit=480

usage() {
  sed -n '5,7s/^# *//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

dry=no
out=
while [ $# -gt 0 ]; do
  case $1 in
    --prepare)
      cmake -S "$root" -B "$root/build-gpu" -DCMAKE_BUILD_TYPE=Release -DFATHOM_CPU=OFF -DFATHOM_PORTABLE=ON -DFATHOM_CUDA=ON -DBUILD_TESTING=OFF
      cmake --build "$root/build-gpu" -j "${FATHOM_JOBS:-$(nproc)}" --target fathom fathom_cuda
      strip --strip-debug "$root/build-gpu/fathom"
      du -ch "$root/build-gpu/fathom" "$root/build-gpu/libfathom_cuda.so" >&2
      exit 0
      ;;
    --dry-run) dry=yes ;;
    -*) usage ;;
    *) [ -z "$out" ] || usage; out=$1 ;;
  esac
  shift
done
out=${out:-${OUT:-gpu_results}}
mkdir -p "$out"
out=$(cd "$out" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME=$scratch/cache XDG_CONFIG_HOME=$scratch/config
: >"$out/run.log"
: >"$out/compare.jsonl"

failed=

say() { printf '%s\n' "$*" | tee -a "$out/run.log" >&2; }

# stage LIMIT NAME COMMAND...: stdout to $scratch/NAME.txt, stderr to run.log; returns the command's code. No stage outlives the whole.
stage() {
  local limit=$1 name=$2 code=0 begin=$SECONDS
  shift 2
  if [ $((total_limit - SECONDS)) -lt "$limit" ]; then limit=$((total_limit - SECONDS)); fi
  if [ "$limit" -lt 2 ]; then
    say "stage $name: skipped, the $total_limit s are used up"
    return 1
  fi
  printf '$ %s\n' "$*" >>"$out/run.log"
  timeout --kill-after=5 "$limit" "$@" >"$scratch/$name.txt" 2>>"$out/run.log" || code=$?
  if [ $code -ne 0 ]; then failed="$failed $name"; fi
  say "stage $name: rc $code, $((SECONDS - begin)) s of $limit$([ $code -ne 124 ] || printf ', out of time')"
  return $code
}

# section TITLE FILE: puts a stage's text into the report.
section() {
  { printf '\n## %s\n\n' "$1"; if [ -s "$2" ]; then cat "$2"; else printf 'Nothing: see run.log.\n'; fi; } >>"$out/report.md"
}

# ---- program and module ----
fathom=
for candidate in "${FATHOM:-}" "$root/build-gpu/fathom" "$root/build/fathom"; do
  if [ -n "$candidate" ] && [ -x "$candidate" ] && "$candidate" --version >/dev/null 2>&1; then
    fathom=$candidate
    break
  fi
done
if [ -z "$fathom" ]; then
  say "no fathom program that runs here: run 'tools/gpu_report.sh --prepare' on a build machine and take build-gpu/ along, or set FATHOM"
  exit 4
fi
# The toolkit's libraries may lie elsewhere than where the module was linked.
for folder in "${CUDA_HOME:-}/lib64" /usr/local/cuda/lib64 /usr/local/cuda-13*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib /opt/cuda/lib64; do
  if compgen -G "$folder/libcublasLt.so.13*" >/dev/null; then
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
    break
  fi
done
# Why the module that was taken along is of no use here; empty where it is, or where something else than the module is missing.
module_trouble() { "$fathom" list backends --width 400 2>&1 | grep -o -E 'the CUDA module (was not found|cannot be loaded).*|belongs to another build of fathom.*|is no CUDA module.*' | head -n 1 || true; }
trouble=
if [ $dry = no ] && [ -z "${FATHOM_CUDA_MODULE:-}" ]; then trouble=$(module_trouble); fi
if [ -n "$trouble" ]; then
  say "module: $trouble"
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ' || true)
  # shellcheck disable=SC2016
  stage 70 build bash -c 'cmake -S "$1" -B "$2" -DFATHOM_MODULE_ONLY=ON -DFATHOM_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$3-real" -DCMAKE_BUILD_TYPE=Release && cmake --build "$2" -j 16' \
    build "$root" "$scratch/module" "${arch:-90}" || true
  export FATHOM_CUDA_MODULE=$scratch/module/libfathom_cuda.so
fi

# ---- the machine ----
backend=cuda
if [ $dry = yes ]; then
  backend=fake
  gpu="no GPU (dry run)"
  machine=h200
else
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)
  gpu=${gpu:-no GPU found}
  case $gpu in
    *H200*) machine=h200 ;;
    *H100*) machine=h100 ;;
    *A100*) machine=a100 ;;
    *B200*) machine=b200 ;;
    *L40S*) machine=l40s ;;
    *) machine= ;;
  esac
fi
printf '# fathom on %s\n' "$gpu" >"$out/report.md"
say "machine: $gpu; program: $("$fathom" --version | head -n 1)"
# shellcheck disable=SC2016
stage 10 machine bash -c '
  nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,clocks_throttle_reasons.active,ecc.mode.current,mig.mode.current --format=csv 2>/dev/null
  uname -sr; grep -m 1 "model name" /proc/cpuinfo
  grep -E "RmProfilingAdminOnly|RestrictProfilingToAdminUsers" /proc/driver/nvidia/params 2>/dev/null
  grep CapEff /proc/self/status
  "$1" list backends --width 200' machine "$fathom" || true
section "The machine" "$scratch/machine.txt"

# has COMMAND OPTION: whether this program knows both.
has() {
  local page
  page=$("$fathom" "$1" --help-all 2>/dev/null) || return 1
  grep -q "^Usage: fathom $1" <<<"$page" && grep -q -e "$2" <<<"$page"
}

# ---- correctness first ----
if [ $dry = yes ]; then
  echo "a dry run checks nothing: the fake backend computes nothing" >"$scratch/check.txt"
  say "stage check: skipped in a dry run"
elif has check --backend; then
  stage 70 check "$fathom" check --backend "$backend" || true
else
  echo "this fathom has no check command" >"$scratch/check.txt"
  say "stage check: skipped, this fathom has no check command"
fi
{ echo "# $gpu"; cat "$scratch/check.txt" 2>/dev/null || true; } >"$out/check.txt"
section "Correctness" "$scratch/check.txt"

# ---- calibration ----
if [ $dry = no ] && has calibrate --backend; then
  stage 40 calibrate "$fathom" calibrate --backend cuda --time 15 --folds 0 --save "$scratch/machine.ini" -o md || true
  section "Calibration" "$scratch/calibrate.txt"
else
  say "stage calibrate: skipped, $([ $dry = yes ] && echo 'a dry run has no device' || echo 'this fathom calibrates no GPU by running')"
fi
{ echo "# $gpu"; cat "$scratch/machine.ini" 2>/dev/null || echo "# not calibrated"; } >"$out/machine.ini"
if [ -z "$machine" ]; then
  if [ -s "$scratch/machine.ini" ]; then machine=$scratch/machine.ini; else machine=h200; say "no machine file for '$gpu': predictions are those of an h200"; fi
fi
on=(--backend "$backend" --on "$machine")

# ---- predicted, measured, counted ----
# compare LIMIT NAME TITLE SECONDS ARGUMENTS...: one comparison; its record to $scratch/NAME.json, its table to the report.
compare() {
  local limit=$1 name=$2 title=$3 seconds=$4
  shift 4
  local time=(--time "$seconds")
  if [ $dry = yes ]; then time=(--rounds 3); fi
  stage "$limit" "$name" "$fathom" compare "$@" "${on[@]}" "${time[@]}" -o md --save "$scratch/$name.json" || true
  section "$title" "$scratch/$name.txt"
}

# Routed twins as files, so that a pair is measured in one call, pass by pass: every second block at capacity 1/8. The 8B shape is two
# blocks of Llama 3 8B (the second routed) with a small vocabulary, so that the blocks are what is timed.
twin() { cat "$1"; printf '\n[route]\nevery = 2\ncapacity = 1/8\n'; }
named() { sed -e "s/^name = .*/name = $1/" -e '/^summary = /d'; }
networks=$root/models/networks
twin "$networks/gpt2-124m.ini" | named mod-gpt2-124m >"$scratch/mod-gpt2-124m.ini"
sed -e 's/^layers = .*/layers = 2/' -e 's/^vocab = .*/vocab = 1024/' "$networks/llama-3-8b.ini" | named dense-8b-blocks >"$scratch/dense-8b-blocks.ini"
twin "$scratch/dense-8b-blocks.ini" | named mod-8b-blocks >"$scratch/mod-8b-blocks.ini"

compare 60 timing "Times and fractions of peak" 40 mod-220m dense-220m --phase prefill --phase train --batch 8 --ops
if [ -e "$scratch/timing.json" ]; then cp "$scratch/timing.json" "$out/timing.json"; fi
compare 55 counters "Counters against counts" 15 mod-220m dense-220m --phase train --batch 8 --ops --profile counters
if [ -e "$scratch/counters.json" ]; then cp "$scratch/counters.json" "$out/counters.json"; fi
compare 25 pair_220m "Pair: 220M, training" 15 mod-220m dense-220m --phase train --batch 16
compare 25 pair_gpt2 "Pair: GPT-2 124M, training" 15 "$scratch/mod-gpt2-124m.ini" gpt2-124m --phase train --seq 1024 --batch 16
compare 25 pair_8b "Pair: two blocks of 8B shape, training" 15 "$scratch/mod-8b-blocks.ini" "$scratch/dense-8b-blocks.ini" --phase train --seq 4096 --batch 1
for name in pair_220m pair_gpt2 pair_8b; do
  if [ -e "$scratch/$name.json" ]; then { tr -d '\n' <"$scratch/$name.json"; echo; } >>"$out/compare.jsonl"; fi
done
compare 35 decode "Decode latency against batch" 20 mod-220m dense-220m --phase decode --context 2048 --batch 1:64:x4
if [ -e "$scratch/decode.json" ]; then cp "$scratch/decode.json" "$out/decode.json"; fi

# The same decode step as one graph that reads its row counts on the device, as graphs by row count with blocks that nobody took skipped, and op by op.
launch() {
  local how=$1 time=(--time 3)
  if [ $dry = yes ]; then time=(--rounds 3); fi
  stage 12 "launch_$how" "$fathom" compare mod-220m --phase decode --context 2048 --batch 1,16 --launch "$how" "${on[@]}" "${time[@]}" -o md --save "$scratch/launch_$how.json" || true
  section "Decode steps launched as: $how" "$scratch/launch_$how.txt"
  if [ -e "$scratch/launch_$how.json" ]; then { tr -d '\n' <"$scratch/launch_$how.json"; echo; } >>"$out/compare.jsonl"; fi
}
for how in graph buckets eager; do launch $how; done

# ---- the toolkit's race detector, where it is, over the kernels that exchange through shared memory ----
sanitizer=$(command -v compute-sanitizer || compgen -G '/usr/local/cuda*/bin/compute-sanitizer' | head -n 1 || true)
if [ $dry = no ] && [ -n "$sanitizer" ]; then
  stage 24 sanitizer "$sanitizer" --tool racecheck --error-exitcode 9 "$fathom" check select attention attention_backward --dtype bf16 --backend cuda || true
  { printf '\n# %s --tool racecheck\n' "${sanitizer##*/}"; cat "$scratch/sanitizer.txt"; } >>"$out/check.txt"
else
  say "stage sanitizer: skipped, $([ $dry = yes ] && echo 'a dry run has no device' || echo 'no compute-sanitizer here')"
fi

# ---- what the first run on a chip is asked ----
if command -v python3 >/dev/null; then
  stage 5 questions python3 "$root/tools/gpu_questions.py" "$out" || true
  section "Questions" "$scratch/questions.txt"
else
  say "stage questions: skipped, no python3 here"
fi

say "all: $SECONDS s of $total_limit; $(find "$out" -maxdepth 1 -type f | wc -l) files in $out"
cat "$out/report.md"
if [ -n "$failed" ]; then
  say "stages that failed:$failed"
  exit 1
fi
