#!/usr/bin/env bash
# Builds and runs the tests.
#
#   tools/test.sh         installs what is missing, builds, runs every test
#   tools/test.sh --all   also checks a build without the CPU backend, and runs the tests again under the address and
#                         undefined-behaviour sanitizers (without those labelled slow, static or toolkit)
#
# FATHOM_BUDGET=SECONDS with --all: where the release build shows that the whole would take longer, the two additions are left out, and that is said.
#
# ctest's summary is the last thing printed; the exit status is 0 only when everything passed.
set -euo pipefail
all=no
case "${1:-}" in
  "") stage_count=3 ;;
  --all) all=yes stage_count=6 ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0"; [ "$1" = --help ] || [ "$1" = -h ] || exit 2; exit 0 ;;
esac
. "$(dirname "${BASH_SOURCE[0]}")/build_stages.sh"
trap failed ERR

run_ctest() { ctest --test-dir "$1" --output-on-failure --no-tests=error -j "$jobs" "${@:2}"; }

stage "packages"
tools/install_packages.sh
stage "release build in build/"
began=$SECONDS
build release
# Measured on two cores with nothing cached: all stages together take 4 times as long as the release build.
if [ "$all" = yes ] && [ -n "${FATHOM_BUDGET:-}" ] && [ $(((SECONDS - began) * 4)) -gt "$FATHOM_BUDGET" ]; then
  echo "== left out: sanitizers and the build without the CPU backend; after a release build of $((SECONDS - began)) s they would not end within $FATHOM_BUDGET s (tools/test.sh --all runs them)" >&2
  all=no stage_count=3
fi
if [ "$all" = yes ]; then
  stage "build without the CPU backend in build-no-cpu/"
  build no-cpu fathom
  stage "sanitizer build in build-asan/"
  build asan
fi
stage "tests, release build"
trap - ERR   # ctest says itself what failed, and its summary is to stay last
run_ctest build
if [ "$all" = yes ]; then
  stage "tests, sanitizer build"
  run_ctest build-asan -LE '^(slow|static|toolkit)$'
fi
