#!/usr/bin/env bash
# Trains on MNIST, from nothing: installs what is missing, builds, finds or downloads the data, trains, plots.
# usage: scripts/mnist.sh [--data DIR] [--mirror URL] [--synthetic] [other options of examples/mnist; see --help]
# Data: mnist_data.sh says where it looks. Without data and network it trains on digits that the library draws itself.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=cpu-release
out=
synthetic=no
help=no
plot=yes
find_data=()
options=()
from_caller() { (cd "$caller" && realpath -m "$1"); }  # a path as it was meant where the script was called
while [ $# -gt 0 ]; do
  case $1 in
    --data=* | --mirror=* | --out=* | --device=* | --backend=* | --checkpoint=* | --tensorboard=* | --init=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
    --data | --mirror | --out | --device | --backend | --checkpoint | --tensorboard | --init) [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; } ;;
  esac
  case $1 in
    --data) find_data+=("$1" "$(from_caller "$2")"); shift 2 ;;
    --mirror) find_data+=("$1" "$2"); shift 2 ;;
    --out) out=$(from_caller "$2"); shift 2 ;;
    --checkpoint | --tensorboard | --init) options+=("$1" "$(from_caller "$2")"); shift 2 ;;
    --predict)
      options+=("$1")
      while [ $# -gt 1 ] && [[ $2 != -* ]]; do options+=("$(from_caller "$2")"); shift; done
      synthetic=yes plot=no; shift ;;  # no data are needed
    --evaluate) options+=("$1"); plot=no; shift ;;
    --device | --backend)
      case $2 in cuda* | cudnn) preset=cuda ;; esac
      options+=("$1" "$2"); shift 2 ;;
    --synthetic) synthetic=yes; shift ;;
    -h | --help) help=yes; shift ;;
    *) options+=("$1"); shift ;;
  esac
done

scripts/install_dependencies.sh build
scripts/install_dependencies.sh report || echo "The plot needs matplotlib; going on without it." >&2

echo "== configure and build (preset $preset)" >&2
scripts/configure.sh "$preset" -DGRADUS_BUILD_TESTS=OFF -DGRADUS_BUILD_EXAMPLES=ON > /dev/null
cmake --build --preset "$preset" --parallel "$(nproc)" --target mnist >&2  # more jobs than cores compete for caches

if [ "$help" = yes ]; then
  sed -n '2,4s/^# //p' scripts/mnist.sh
  exec "build/$preset/examples/mnist" --help
fi

if [ "$synthetic" = no ] && data=$(scripts/mnist_data.sh "${find_data[@]}"); then
  options+=(--data "$data")
else
  [ "$synthetic" = yes ] || echo "mnist.sh: training on synthetic digits instead (--synthetic)" >&2
  options+=(--synthetic)
fi

out=${out:-runs/mnist}
options+=(--out "$out")
echo "== train: mnist ${options[*]}" >&2
"build/$preset/examples/mnist" "${options[@]}"
[ "$plot" = yes ] || exit 0

# The packages' matplotlib belongs to the system's Python, which need not be the first on the PATH.
for python in python3 /usr/bin/python3; do
  if [ -f "$out/log.jsonl" ] && "$python" -c 'import matplotlib' 2> /dev/null; then
    "$python" scripts/report.py "$out"
    break
  fi
done
