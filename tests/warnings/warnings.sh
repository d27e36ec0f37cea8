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
  "$compiler" "${flags[@]}" -fsyntax-only tests/warnings/program.cpp
  [[ $("$compiler" --version) != *clang* ]] || continue
  for level in -O1 -O2; do "$compiler" "${flags[@]}" "$level" -c tests/warnings/program.cpp -o /dev/null; done
done
