#!/usr/bin/env bash
# Builds and checks an exercise of examples/exercises and says what is wrong; without a number, shows how far you are.
# usage: scripts/exercise.sh [NUMBER]
# The first call makes answer.h (answer.cuh, where it is CUDA), the solution with its holes, which is yours to edit; git
# leaves it alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

exercises=examples/exercises
solved=build/exercises  # a file for each exercise whose check has passed

if [ $# = 0 ]; then
  for folder in "$exercises"/[0-9][0-9]_*/; do
    name=$(basename "$folder")
    state=' '
    ! compgen -G "$folder/answer.*" > /dev/null || state='begun'
    [ ! -f "$solved/$name" ] || state='solved'
    printf '%-8s%s  %s\n' "$state" "${name%%_*}" "$(sed -n '1s/^# [0-9]*\. //p' "$folder/README.md")"
  done
  echo "scripts/exercise.sh NUMBER builds and checks one; its page is $exercises/NUMBER_…/README.md"
  exit 0
fi

number=$1
[[ $number != ? ]] || number=0$number
folders=("$exercises/$number"_*/)
if [ ! -d "${folders[0]}" ]; then
  echo "exercise.sh: there is no exercise '$1'; scripts/exercise.sh lists them" >&2
  exit 2
fi
folder=${folders[0]%/}
preset=cpu-release answer=$folder/answer.h
if [ -f "$folder/solution.cuh" ]; then
  preset=cuda answer=$folder/answer.cuh
  if ! PATH=$PATH:/usr/local/cuda/bin:/opt/cuda/bin command -v "${CUDACXX:-nvcc}" > /dev/null; then
    echo "exercise.sh: this exercise is CUDA and needs a GPU and nvcc, which is not here: install the CUDA toolkit and put" \
      "nvcc on the PATH" >&2
    exit 2
  fi
fi

if [ ! -f "$answer" ]; then
  awk -f "$exercises/common/hole.awk" "$folder"/solution.* > "$answer"
  echo "Yours to edit: $answer; the page is $folder/README.md"
fi
scripts/install_dependencies.sh build
log=$(mktemp)
trap 'rm -f "$log"' EXIT
scripts/configure.sh "$preset" -DGRADUS_BUILD_TESTS=OFF -DGRADUS_BUILD_EXAMPLES=ON > "$log"
if ! cmake --build --preset "$preset" --target "exercise_$number" > "$log"; then
  grep -E 'error|answer\.' "$log" | head -n 20
  echo "Not yet: it does not compile."
  exit 1
fi
if "build/$preset/examples/exercises/exercise_$number"; then
  mkdir -p "$solved"
  touch "$solved/$(basename "$folder")"
else
  exit 1
fi
