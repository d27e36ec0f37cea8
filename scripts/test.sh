#!/usr/bin/env bash
# Installs what is missing, builds everything, runs all tests and says what was skipped and why.
# usage: scripts/test.sh [PRESET] [options of ctest]      PRESET: cpu-release (default), cpu-debug, asan-ubsan, tsan, cuda
# cuda-75, cuda-80, cuda-86 and cuda-89 run the tests on a newer GPU as a card of compute capability 7.5, 8.0, 8.6 or 8.9 would.
# Tests on real MNIST run where $GRADUS_DATA or ../shared/data has it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=cpu-release
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
  preset=$1
  shift
fi
if [ -z "${GRADUS_DATA:-}" ] && [ -d ../shared/data ]; then
  GRADUS_DATA=$(realpath ../shared/data)
  export GRADUS_DATA
fi

if [[ $preset =~ ^cuda-([0-9]+)$ ]]; then
  export GRADUS_CUDA_MAX_CAPABILITY=${BASH_REMATCH[1]}
  preset=cuda-$((GRADUS_CUDA_MAX_CAPABILITY < 80 ? 75 : 80))  # whose code runs on such a card in a build for all cards
fi

scripts/install_dependencies.sh build test download
[[ $preset != *san* ]] || scripts/install_dependencies.sh sanitizers
scripts/install_dependencies.sh mpi || echo "The tests of the backend 'mpi' need Open MPI; going on without it." >&2
[[ $preset == *san* ]] || scripts/onnx_venv.sh || echo "Without onnxruntime exported models are not run; going on." >&2
scripts/configure.sh "$preset" -DGRADUS_BUILD_TESTS=ON -DGRADUS_BUILD_EXAMPLES=ON
cmake --build --preset "$preset"
status=0
ctest --preset "$preset" "$@" || status=$?
scripts/test_summary.py "build/$preset" || status=1
exit $status
