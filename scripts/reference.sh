#!/usr/bin/env bash
# The reference of the public headers: scripts/reference.sh [FOLDER]
# FOLDER is build/reference; open its html/index.html.
# Fails where a comment refers to what is not there, and where more types and functions have no comment than
# docs/undocumented.txt allows: its numbers may only fall.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/install_dependencies.sh reference
export REFERENCE_OUTPUT=${1:-build/reference}
mkdir -p "$REFERENCE_OUTPUT"
rm -rf "${REFERENCE_OUTPUT:?}"/{headers,html,warnings.txt}
scripts/reference.py headers "$REFERENCE_OUTPUT"
doxygen docs/Doxyfile
# Of what is shown without a comment doxygen says nothing, so it is asked again.
printf '%s\n' '@INCLUDE = docs/Doxyfile' 'EXTRACT_ALL = NO' 'GENERATE_HTML = NO' \
  'WARN_LOGFILE = $(REFERENCE_OUTPUT)/undocumented.txt' | doxygen - 2> /dev/null
scripts/reference.py check "$REFERENCE_OUTPUT"
