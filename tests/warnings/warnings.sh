#!/usr/bin/env bash
# Compiles program.cpp with many warnings as errors, gradus's headers among what is looked at: users include them with
# flags of their own. What g++ says of uninitialised numbers depends on what it inlines, so it compiles at two levels;
# clang says all without.
# usage: tests/warnings/warnings.sh [COMPILER...]      default: g++
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

include=$(mktemp -d)
trap 'rm -rf "$include"' EXIT
ln -s "$PWD" "$include/gradus"
flags=(-std=c++20 -I "$include" -Werror -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wpedantic)

[ $# -gt 0 ] || set -- g++
for compiler in "$@"; do
  ways=("-O1 -S" "-O2 -S")
  [[ $("$compiler" --version) != *clang* ]] || ways=(-fsyntax-only)
  # shellcheck disable=SC2086  # words
  for way in "${ways[@]}"; do "$compiler" "${flags[@]}" $way tests/warnings/program.cpp -o /dev/null; done
done
