#!/usr/bin/env bash
# Builds and checks an exercise of examples/exercises and says what is wrong; without a number, shows how far you are.
# usage: scripts/exercise.sh [NUMBER]
# The first call makes answer.h, the solution with its holes, which is yours to edit; git leaves it alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

exercises=examples/exercises
solved=build/exercises  # a file for each exercise whose check has passed

if [ $# = 0 ]; then
  for folder in "$exercises"/[0-9][0-9]_*/; do
    name=$(basename "$folder")
    state=' '
    [ ! -f "$folder/answer.h" ] || state='begun'
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

if [ ! -f "$folder/answer.h" ]; then
  awk -f "$exercises/common/hole.awk" "$folder/solution.h" > "$folder/answer.h"
  echo "Yours to edit: $folder/answer.h; the page is $folder/README.md"
fi
scripts/install_dependencies.sh build
log=$(mktemp)
trap 'rm -f "$log"' EXIT
scripts/configure.sh cpu-release -DGRADUS_BUILD_TESTS=OFF -DGRADUS_BUILD_EXAMPLES=ON > "$log"
if ! cmake --build --preset cpu-release --target "exercise_$number" > "$log"; then
  grep -E 'error|answer\.h' "$log" | head -n 20
  echo "Not yet: it does not compile."
  exit 1
fi
if "build/cpu-release/examples/exercises/exercise_$number"; then
  mkdir -p "$solved"
  touch "$solved/$(basename "$folder")"
else
  exit 1
fi
