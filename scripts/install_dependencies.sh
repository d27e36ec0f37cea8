#!/usr/bin/env bash
# Installs the Debian 12 / Ubuntu 24.04 packages that are missing. This is the one place that knows their names.
# usage: scripts/install_dependencies.sh [build] [test] [benchmark] [download] [report] [s390x] [ci]      (default: build test)
# Needs root or a sudo that asks for no password; otherwise prints the one command to run and exits with status 1.
set -euo pipefail

packages_of() {
  case $1 in
    build) echo g++ cmake ninja-build zlib1g-dev libssl-dev libcli11-dev nlohmann-json3-dev libstb-dev ;;
    test) echo catch2 python3 ;;
    benchmark) echo libbenchmark-dev ;;
    download) echo curl ca-certificates ;;
    report) echo python3 python3-matplotlib ;;
    s390x) echo g++-s390x-linux-gnu qemu-user-static dpkg ;;
    ci) echo ccache libbenchmark-dev g++-aarch64-linux-gnu clang-14 clang-format-14 libclang-rt-14-dev curl ca-certificates ;;
    *) echo "install_dependencies.sh: no group '$1'; there are build test benchmark download report s390x ci" >&2; return 1 ;;
  esac
}

# A tool on the PATH counts, however it came there; everything else is asked of dpkg.
is_installed() {
  case $1 in
    g++ | cmake | ccache | curl | python3 | clang-14 | clang-format-14) command -v "$1" > /dev/null && return ;;
    ninja-build) command -v ninja > /dev/null && return ;;
  esac
  dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null | grep -qx installed
}

[ $# -gt 0 ] || set -- build test
wanted=()
for group in "$@"; do
  names=$(packages_of "$group")
  read -ra names <<< "$names"
  wanted+=("${names[@]}")
done

if ! command -v apt-get > /dev/null; then
  echo "This is neither Debian nor Ubuntu; gradus needs what they call: ${wanted[*]}" >&2
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  is_installed "$package" || [[ " ${missing[*]-} " == *" $package "* ]] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo > /dev/null && sudo -n true 2> /dev/null; then
    as_root=(sudo -n)
  else
    echo "Some packages are missing. Run this once, then try again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
    exit 1
  fi
fi

echo "== install ${missing[*]}" >&2
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
}
# The package lists of a fresh machine are often empty or old.
install || { "${as_root[@]}" apt-get update -q >&2 && install; }
