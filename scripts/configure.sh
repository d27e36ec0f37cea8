#!/usr/bin/env bash
# Configures a preset; one with CUDA for this machine's GPU alone, where there is one: a third of the time to compile.
# usage: scripts/configure.sh PRESET [options of cmake]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

options=()
if [ "$1" = cuda ] && capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null); then
  options+=("-DCMAKE_CUDA_ARCHITECTURES=$(head -1 <<< "$capability" | tr -d '. ')")
fi
cmake --preset "$1" "${options[@]}" "${@:2}"
