#!/usr/bin/env bash
# Draws the pictures in docs/pictures (docs/pictures/pictures.cpp); with --check it says which of them have changed.
# usage: scripts/pictures.sh [--check]
# GRADUS_BUILD=DIR takes the program that is in that build folder instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ -z "${GRADUS_BUILD:-}" ]; then
  scripts/install_dependencies.sh build test
  scripts/configure.sh cpu-release > /dev/null
  cmake --build --preset cpu-release --target pictures >&2
  GRADUS_BUILD=$PWD/build/cpu-release
fi
exec "$GRADUS_BUILD/tests/docs/pictures" docs/pictures "$@"
