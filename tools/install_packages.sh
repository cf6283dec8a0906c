#!/usr/bin/env bash
# Installs the Debian packages that fathom is built from. Only what is missing is installed; when nothing is, nothing is
# run, so the script needs neither root nor a network on a machine that is set up already.
#
#   tools/install_packages.sh          everything needed to build, test and run
#   tools/install_packages.sh --list   print the package names and exit
set -euo pipefail

required=(
  cmake ninja-build g++                  # build
  libfmt-dev libcli11-dev                # text, command line
  libboost-program-options-dev           # INI files
  nlohmann-json3-dev                     # JSON
  libdnnl-dev                            # oneDNN: the CPU backend's matrix products
  librandom123-dev libxxhash-dev         # counter-based random numbers, fingerprints
  catch2 librapidcheck-dev               # tests
  python3 python3-jsonschema jq          # tests of the command line, the style, the JSON schema and the pages
)
optional=(
  ccache                                 # faster rebuilds
  libboost-context-dev                   # fibers of the CUDA emulator
  gnuplot-nox                            # plots
  dpkg-dev file                          # .deb packages: what the program needs of others
)

case "${1:-}" in
  "") ;;
  --list) printf '%s\n' "${required[@]}" "${optional[@]}"; exit 0 ;;
  *) echo "usage: tools/install_packages.sh [--list]" >&2; exit 2 ;;
esac

say() { echo "packages: $*" >&2; }

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  say "this machine has no apt, so nothing can be installed here. fathom needs the equivalents of these Debian packages:"
  say "  ${required[*]}"
  say "With them in place, build by hand: cmake --preset release && cmake --build --preset release"
  exit 4
fi

missing=() wished=()
for package in "${required[@]}"; do is_installed "$package" || missing+=("$package"); done
for package in "${optional[@]}"; do is_installed "$package" || wished+=("$package"); done
if [ ${#missing[@]} -eq 0 ] && [ ${#wished[@]} -eq 0 ]; then
  say "all $((${#required[@]} + ${#optional[@]})) are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  # With a terminal sudo may ask for the password; without one it must not wait for it.
  if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=(sudo)
  elif [ ${#missing[@]} -eq 0 ]; then
    say "optional, not installed (needs root): ${wished[*]}"
    exit 0
  else
    say "missing: ${missing[*]}"
    say "Installing them needs root and sudo is not usable here. As root, run: apt-get install ${missing[*]}"
    exit 4
  fi
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# apt-get without questions and with its chatter kept for the case that it fails. A second try bridges a lock held by an
# unattended upgrade or a passing network fault.
apt() {
  local attempt
  for attempt in 1 2; do
    if ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@" \
        >"$log" 2>&1 </dev/null; then
      return 0
    fi
    if [ "$attempt" = 1 ]; then sleep 3; fi
  done
  return 1
}
install() { apt install --no-install-recommends "$@"; }

# Package lists are fetched once, and only when the names cannot be resolved from what is there.
updated=no
update_once() {
  [ "$updated" = no ] || return 0
  updated=yes
  say "fetching the package lists"
  apt update || { say "apt-get update failed:"; tail -n 5 "$log" >&2; }
}

if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  apt-cache show --no-all-versions "${missing[@]}" >/dev/null 2>&1 || update_once
  if ! install "${missing[@]}"; then
    update_once   # lists that are there but too old name files the mirror no longer has
    if ! install "${missing[@]}"; then
      say "apt-get install failed:"
      tail -n 15 "$log" >&2
      say "Is this Debian 12 (or newer) with a reachable mirror?"
      exit 4
    fi
  fi
fi
for package in ${wished[@]+"${wished[@]}"}; do
  say "installing $package (optional)"
  apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || update_once
  install "$package" || say "$package could not be installed; going on without it"
done
say "done"
