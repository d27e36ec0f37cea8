#!/usr/bin/env bash
# Measures how long a translation unit with <gradus/gradus.h> and a small net takes to compile (the goal is 2 s).
# usage: tests/compile_time/compile_time.sh [COMPILER...]      default: g++
# Figures are seconds of processor time, which other work on the machine hardly changes. What no machine changes is
# checked: how many lines the headers are to the compiler. It fails above 69,000 for gradus.h and 84,000 for torch.h;
# 59,000 and 73,000 of them are the standard library's. Dear are <chrono> (core/runtime/clock.h has what interfaces need
# of it), <cmath>, <algorithm>, <thread> and <condition_variable>: in .cpp files programs do not pay.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

include=$(mktemp -d)
trap 'rm -rf "$include"' EXIT
ln -s "$PWD" "$include/gradus"

# Milliseconds of user and system time that a command took.
TIMEFORMAT='%3U %3S'
processor_time() {
  local user system
  { time "$@" 2> "$include/errors"; } 2> "$include/time" || { cat "$include/errors" >&2; return 1; }
  read -r user system < "$include/time"
  echo $((10#${user/./} + 10#${system/./}))
}

[ $# -gt 0 ] || set -- g++
status=0
for compiler in "$@"; do
  for budget in gradus.h:69000 torch.h:84000; do
    header=${budget%:*} most=${budget#*:}
    lines=$("$compiler" -std=c++20 -I "$include" -E -x c++ - <<< "#include <gradus/$header>" | grep -v '^#' | grep -c .)
    echo "lines: $compiler $header $lines (at most $most)"
    [ "$lines" -le "$most" ] || status=1
  done
  for level in -O0 -O2; do
    taken=$(processor_time "$compiler" -std=c++20 "$level" -I "$include" -c tests/compile_time/net.cpp \
              -o "$include/net.o")
    verdict=within
    [ "$taken" -le 2000 ] || verdict=OVER
    printf 'compile time: %s %s %d.%02d s (%s the goal of 2 s)\n' "$compiler" "$level" $((taken / 1000)) \
      $((taken % 1000 / 10)) "$verdict"
  done
done
exit $status
