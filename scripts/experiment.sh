#!/usr/bin/env bash
# Runs an experiment: trains on real data, adds a JSON line a run to results/NAME.jsonl, and draws results/NAME.html and
# NAME_*.png of all the runs that the file holds.
# usage: scripts/experiment.sh E9 [--help and other options of scripts/experiments/e9.py]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=${1:-}
program=scripts/experiments/$(tr '[:upper:]' '[:lower:]' <<< "$name").py
if [ -z "$name" ] || [ ! -f "$program" ]; then
  echo "usage: scripts/experiment.sh NAME [OPTIONS]; there are: $(cd scripts/experiments && ls e*.py | tr '\n' ' ' | sed 's/\.py//g; s/e/E/g')" >&2
  exit 2
fi
shift

scripts/install_dependencies.sh build report
cmake --preset cpu-release -DGRADUS_BUILD_TESTS=OFF -DGRADUS_BUILD_EXAMPLES=ON -DGRADUS_BUILD_BENCHMARKS=ON > /dev/null
cmake --build --preset cpu-release --target mnist pool_loop >&2
for python in python3 /usr/bin/python3; do  # the packages' matplotlib belongs to the system's Python
  if "$python" -c 'import matplotlib' 2> /dev/null; then
    exec "$python" "$program" "$@"
  fi
done
echo "experiment.sh: no Python with matplotlib" >&2
exit 1
