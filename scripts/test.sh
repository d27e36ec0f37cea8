#!/usr/bin/env bash
# Installs what is missing, builds everything, runs all tests and says what was skipped and why.
# usage: scripts/test.sh [PRESET] [options of ctest]      PRESET: cpu-release (default), cpu-debug, asan-ubsan, tsan, cuda
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
