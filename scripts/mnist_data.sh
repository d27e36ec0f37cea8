#!/usr/bin/env bash
# Prints the folder that holds the four MNIST files, plain or gzipped; downloads them to data/mnist where none does.
# usage: scripts/mnist_data.sh [--data DIR] [--mirror URL]
# Looks in DIR, $GRADUS_DATA, data/ and ../shared/data, each itself and its mnist/, MNIST/raw/, raw/, mnist/raw/ and
# MNIST/, for files with a dash before "idx" or a dot, as find_mnist does. Says on stderr what it does.
# Exit status 1: not here, and no mirror gave files with the right SHA-256 sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=(train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte)
declare -A sha256=(
  [train-images-idx3-ubyte]=440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
  [train-labels-idx1-ubyte]=3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
  [t10k-images-idx3-ubyte]=8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
  [t10k-labels-idx1-ubyte]=f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
)
mirrors=(https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist)
data=

say() { echo "mnist_data: $*" >&2; }

while [ $# -gt 0 ]; do
  case $1 in
    --data) data=${2:?--data needs a folder}; shift 2 ;;
    --mirror) mirrors=("${2:?--mirror needs a URL}"); shift 2 ;;
    *) say "unknown argument '$1'"; exit 2 ;;
  esac
done

holds_mnist() {
  local file dotted
  for file in "${files[@]}"; do
    dotted=${file/-idx/.idx}
    [ -f "$1/$file" ] || [ -f "$1/$file.gz" ] || [ -f "$1/$dotted" ] || [ -f "$1/$dotted.gz" ] || return 1
  done
}

for folder in "$data" "${GRADUS_DATA:-}" data ../shared/data; do
  for candidate in "$folder" "$folder"/{mnist,MNIST/raw,raw,mnist/raw,MNIST}; do
    if [ -n "$folder" ] && holds_mnist "$candidate"; then
      realpath "$candidate"
      exit 0
    fi
  done
  [ -z "$folder" ] || [ "$folder" != "$data" ] || say "no MNIST files in $data; looking elsewhere"
done

command -v curl > /dev/null || scripts/install_dependencies.sh download || true

# Everything is checked before anything is moved to data/mnist, so an interrupted download leaves nothing behind there.
mkdir -p data
part=$(mktemp -d data/mnist.part.XXXXXX)
trap 'rm -rf "$part"' EXIT
fetch_all() {
  local mirror=${1%/} file sum
  for file in "${files[@]}"; do
    if ! curl --fail --silent --show-error --location --connect-timeout 10 --max-time 600 --max-filesize 20000000 \
        --output "$part/$file.gz" "$mirror/$file.gz" 2> "$part/error"; then
      say "$mirror/$file.gz: $(tail -1 "$part/error")"
      return 1
    fi
    sum=$(sha256sum < "$part/$file.gz")
    sum=${sum%% *}
    if [ "$sum" != "${sha256[$file]}" ]; then
      say "$mirror/$file.gz is damaged or not MNIST: its SHA-256 is $sum, not ${sha256[$file]}"
      return 1
    fi
  done
}
for mirror in "${mirrors[@]}"; do
  say "downloading MNIST (11.6 MB) from $mirror"
  if fetch_all "$mirror"; then
    mkdir -p data/mnist
    mv "$part"/*.gz data/mnist/
    realpath data/mnist
    exit 0
  fi
done
say "MNIST is not on this machine and could not be downloaded"
exit 1
