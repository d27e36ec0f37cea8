#!/usr/bin/env bash
# Runs an experiment: trains or measures on real data, adds a JSON line for each run to benchmarks/experiments/NAME.jsonl, and
# draws the page benchmarks/experiments/NAME.html and its pictures NAME_*.png from all runs in the file.
# usage: scripts/experiment.sh E9 [--help and other options of scripts/experiments/e9.py]
#        scripts/experiment.sh E9 --render      only draws the page; builds and runs nothing
# Builds with CUDA if there are nvcc and a GPU. GRADUS_BUILD=DIR takes the programs of that build folder instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=${1:-}
program=scripts/experiments/$(tr '[:upper:]' '[:lower:]' <<< "$name").py
if [ -z "$name" ] || [ ! -f "$program" ]; then
  echo "usage: scripts/experiment.sh NAME [OPTIONS]; there are: $(cd scripts/experiments && LC_ALL=C ls e*.py | tr '\n' ' ' | sed 's/\.py//g; s/e/E/g')" >&2
  exit 2
fi
shift

if [ -z "${GRADUS_BUILD:-}" ] && [[ " $* " == *" --render "* ]]; then
  scripts/install_dependencies.sh report
elif [ -z "${GRADUS_BUILD:-}" ]; then
  scripts/install_dependencies.sh build report
  preset=cpu-release
  if { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } > /dev/null && nvidia-smi > /dev/null 2>&1; then preset=cuda; fi
  scripts/configure.sh "$preset" -DGRADUS_BUILD_TESTS=OFF -DGRADUS_BUILD_EXAMPLES=ON -DGRADUS_BUILD_BENCHMARKS=ON > /dev/null
  targets=(mnist cifar10 stl10 gradus-run pool_loop grayscale train_step dynamic_net)
  [ "$name" != E10 ] || targets=(memory)
  [ "$name" != E12 ] || targets=(gradus-run sharding)
  [ "$name" != E13 ] || targets=(gradus-run job_loss)
  [ "$name" != E14 ] || targets=(byte_order)
  [ "$name" != E1 ] || [ "$preset" != cuda ] || targets=(conv2d_cuda)
  cmake --build --preset "$preset" --target "${targets[@]}" >&2
  export GRADUS_BUILD=$PWD/build/$preset
fi
for python in python3 /usr/bin/python3; do  # the packages' matplotlib belongs to the system's Python
  if "$python" -c 'import matplotlib' 2> /dev/null; then
    exec "$python" "$program" "$@"
  fi
done
echo "experiment.sh: no Python with matplotlib" >&2
exit 1
