#!/usr/bin/env bash
# Configures a preset; one with CUDA for this machine's GPU alone, where there is one: a third of the time to compile. The
# code of cuda-75 and cuda-80 is compiled for this GPU too, so that it need not be compiled when programs start.
# usage: scripts/configure.sh PRESET [options of cmake]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

options=()
if [[ $1 = cuda* ]] && capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null); then
  capability=$(head -1 <<< "$capability" | tr -d '. ')
  if [ "$1" = cuda ]; then options+=("-DCMAKE_CUDA_ARCHITECTURES=$capability")
  else options+=("-DGRADUS_CUDA_COMPILE_PTX_FOR=$capability"); fi
fi
cmake --preset "$1" "${options[@]}" "${@:2}"
