#!/usr/bin/env bash
# Makes build/onnx-venv, a Python with onnx and onnxruntime from PyPI (200 MB), which tests/onnx/onnx_test.py looks for.
# usage: scripts/onnx_venv.sh      Does nothing where it is there. Needs Python's venv (Debian: python3-venv).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=build/onnx-venv
"$venv/bin/python3" -c 'import onnx, onnxruntime' 2> /dev/null && exit 0
rm -rf "$venv"
python3 -m venv "$venv" >&2
"$venv/bin/python3" -m pip install --quiet --disable-pip-version-check 'onnx>=1.15' 'onnxruntime>=1.17' numpy >&2
