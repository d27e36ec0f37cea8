#!/usr/bin/env bash
# Runs a training step of a net on two backends side by side, or in two precisions (--precision bf16), each operation
# from the same inputs, and names the first that they disagree on; status 1 then. Builds benchmarks/lockstep, with CUDA
# where a backend needs it.
# usage: scripts/lockstep.sh --a openmp --b cuda [--net lenet] [--save DIR] [other options; see --help]
# GRADUS_BUILD=DIR takes the program that is in that build folder instead.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ -z "${GRADUS_BUILD:-}" ]; then
  preset=cpu-release
  for option in "$@"; do
    case $option in cuda | cudnn | --?=cuda | --?=cudnn) preset=cuda ;; esac
  done
  scripts/install_dependencies.sh build
  scripts/configure.sh "$preset" -DGRADUS_BUILD_TESTS=OFF -DGRADUS_BUILD_BENCHMARKS=ON > /dev/null
  cmake --build --preset "$preset" --target lockstep >&2
  GRADUS_BUILD=$PWD/build/$preset
fi
cd "$caller"  # where --save is meant
exec "$GRADUS_BUILD/benchmarks/lockstep" "$@"
