#!/usr/bin/env bash
# From a fresh clone to the first report: installs what is missing, builds, and compares the predicted with the measured
# time of a Mixture-of-Depths model and its dense twin on this machine's CPU.
#
#   tools/quickstart.sh
#
# The table goes to the terminal; the same comparison is written to reports/out/ as Markdown, CSV and JSON.
set -euo pipefail
if [ $# -gt 0 ]; then sed -n '2,7s/^# \{0,1\}//p' "$0"; [ "$1" = --help ] || [ "$1" = -h ] || exit 2; exit 0; fi
stage_count=3
. "$(dirname "${BASH_SOURCE[0]}")/build_stages.sh"
trap failed ERR

stage "packages"
tools/install_packages.sh

stage "release build in build/"
build release fathom

stage "compare mod-60m with dense-60m"
mkdir -p reports/out
build/fathom compare mod-60m dense-60m --backend cpu \
  --save reports/out/compare.md --save reports/out/compare.csv --save reports/out/compare.json
echo "== written: reports/out/compare.md, compare.csv, compare.json" >&2
