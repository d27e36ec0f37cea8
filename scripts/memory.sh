#!/usr/bin/env bash
# Plans the memory of a training step of a net: prints the table, and draws what lives when.
# usage: scripts/memory.sh [--out DIR] OPTIONS of benchmarks/memory.cpp, such as
#   scripts/memory.sh --net resnet18 --batch 32 --optimizer adamw --recompute full
#   scripts/memory.sh --net stl10_net --fits 8589934592              # which batch fits in 8 GiB
#   scripts/memory.sh --device cuda --net resnet18 --batch 32        # on a GPU
# Writes DIR/memory.png and DIR/memory.html (default: runs/memory). GRADUS_BUILD=DIR takes the program of that build folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=runs/memory
if [ "${1:-}" = --out ]; then
  out=$2
  shift 2
fi
if [ -z "${GRADUS_BUILD:-}" ]; then
  preset=cpu-release
  for option in "$@"; do
    case $option in cuda | --device=cuda) preset=cuda ;; esac
  done
  scripts/install_dependencies.sh build report
  scripts/configure.sh "$preset" -DGRADUS_BUILD_TESTS=OFF -DGRADUS_BUILD_BENCHMARKS=ON > /dev/null
  cmake --build --preset "$preset" --target memory >&2
  GRADUS_BUILD=$PWD/build/$preset
fi
mkdir -p "$out"
rm -f "$out/timeline.jsonl"
"$GRADUS_BUILD/benchmarks/memory" --timeline "$out/timeline.jsonl" "$@"
[ -f "$out/timeline.jsonl" ] || exit 0  # --fits and --help have none
for python in python3 /usr/bin/python3; do  # the packages' matplotlib belongs to the system's Python
  if "$python" -c 'import matplotlib' 2> /dev/null; then
    exec "$python" scripts/experiments/memory_timeline.py "$out/timeline.jsonl" --out "$out"
  fi
done
echo "memory.sh: no Python with matplotlib" >&2
exit 1
