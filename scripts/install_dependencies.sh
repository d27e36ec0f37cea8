#!/usr/bin/env bash
# Installs the Debian 12 / Ubuntu 24.04 packages that are missing. This is the one place that knows their names. What is
# found on the PATH, CPATH or CMAKE_PREFIX_PATH is not missing, so a machine without a registry can bring its own.
# usage: scripts/install_dependencies.sh [build] [test] [benchmark] [download] [report] [mpi] [s390x] [reference] [browser] [ci]      (default: build test)
# Needs root or a sudo that asks for no password; otherwise prints the one command to run and exits with status 1.
set -euo pipefail

packages_of() {
  case $1 in
    build) echo g++ cmake ninja-build zlib1g-dev libssl-dev libcli11-dev nlohmann-json3-dev libstb-dev ;;
    test) echo catch2 python3 ;;
    benchmark) echo libbenchmark-dev ;;
    download) echo curl ca-certificates ;;
    report) echo python3 python3-matplotlib ;;
    mpi) echo libopenmpi-dev openmpi-bin ;;
    s390x) echo g++-s390x-linux-gnu qemu-user-static dpkg ;;
    sanitizers) echo clang-14 lld-14 libclang-rt-14-dev libomp-14-dev ;;
    reference) echo doxygen ;;
    browser) echo chromium ;;
    ci) echo ccache libbenchmark-dev g++-aarch64-linux-gnu clang-14 clang-format-14 clang-tidy-14 gdb curl ca-certificates ;;
    *) echo "install_dependencies.sh: no group '$1'; there are build test benchmark download report mpi s390x reference browser sanitizers ci" >&2; return 1 ;;
  esac
}

# Whether one of these headers is where compiler and CMake look.
has_header() {
  local folder header
  while read -r folder; do
    for header in "$@"; do
      [ -z "$folder" ] || [ ! -f "$folder/$header" ] || return 0
    done
  done < <(tr ':;' '\n' <<< "${CPATH:-}"; tr ':;' '\n' <<< "/usr:/usr/local:${CMAKE_PREFIX_PATH:-}" | sed 's,.$,&/include,')
  return 1
}

# A tool on the PATH and a header count, however they came there; everything else is asked of dpkg.
is_installed() {
  case $1 in
    g++ | cmake | ccache | curl | python3 | clang-14 | lld-14 | clang-format-14 | clang-tidy-14 | doxygen | chromium | gdb)
      command -v "$1" > /dev/null && return ;;
    libopenmpi-dev) command -v mpicxx > /dev/null && return ;;
    openmpi-bin) command -v mpirun > /dev/null && return ;;
    ninja-build) command -v ninja > /dev/null && return ;;
    zlib1g-dev) has_header zlib.h && return ;;
    libssl-dev) has_header openssl/evp.h && return ;;
    libcli11-dev) has_header CLI/CLI.hpp && return ;;
    nlohmann-json3-dev) has_header nlohmann/json.hpp && return ;;
    libstb-dev) has_header stb/stb_image.h stb_image.h && return ;;
    catch2) has_header catch2/catch_all.hpp catch2/catch.hpp && return ;;
    libbenchmark-dev) has_header benchmark/benchmark.h && return ;;
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
