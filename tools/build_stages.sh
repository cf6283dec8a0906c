# What quickstart.sh and test.sh share; sourced, not run. Talk goes to stderr, so that stdout stays the table or ctest's lines.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export LC_ALL=C.UTF-8
jobs=${FATHOM_JOBS:-$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)}
stage_number=0
stage_name=start

# stage NAME: announces the next of `stage_count` stages with the time since the start.
stage() {
  stage_number=$((stage_number + 1))
  stage_name=$1
  printf '== [%d/%d] %s (%d:%02d)\n' "$stage_number" "$stage_count" "$1" $((SECONDS / 60)) $((SECONDS % 60)) >&2
}

failed() {
  echo "== failed in stage '$stage_name'; see the lines above" >&2
}

# build PRESET [TARGET...]: configures and builds. A first release build compiles eight files at a time, which halves its time; a build folder that
# is there keeps its own setting (-DCMAKE_UNITY_BUILD=OFF suits work on the code: one file changed is then one file compiled). On a terminal ninja's progress line is left visible; elsewhere a line
# passes every 20 seconds, and of a step that fails the whole log is shown.
build() {
  local preset=$1 log
  shift
  log=$(mktemp)
  local first=()
  if [ "$preset" = release ] && [ ! -f build/CMakeCache.txt ]; then first=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=8); fi
  if ! cmake --preset "$preset" ${first[@]+"${first[@]}"} >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  grep '^-- fathom' "$log" >&2 || true
  local command=(cmake --build --preset "$preset" -j "$jobs" ${@:+--target "$@"})
  if [ -t 2 ]; then
    rm -f "$log"
    "${command[@]}" >&2
  elif ! "${command[@]}" 2>&1 | tee "$log" | every_20_seconds >&2; then
    grep -v '^\[[0-9]*/[0-9]*\]' "$log" | tail -n 100 >&2 || true
    rm -f "$log"
    return 1
  else
    tail -n 1 "$log" >&2
    rm -f "$log"
  fi
}

every_20_seconds() {
  local line last=$SECONDS
  while IFS= read -r line; do
    if [ $((SECONDS - last)) -ge 20 ]; then
      last=$SECONDS
      printf '%s\n' "$line"
    fi
  done
}
