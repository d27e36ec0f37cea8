#!/usr/bin/env python3
"""Exported models pass ONNX's checker, and onnxruntime computes with them what gradus computed, for batches of the size
that was recorded and of another. Needs a Python with onnx and onnxruntime (scripts/onnx_venv.sh makes one); says so
where there is none.

usage: onnx_test.py BUILD_DIR/tests/test_onnx      The Python with onnxruntime runs: onnx_test.py --check FOLDER
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHONS = (sys.executable, "/usr/bin/python3", ROOT / "build/onnx-venv/bin/python3")
TEST_ONNX = ""


def python_with_onnxruntime():
    for python in PYTHONS:
        if os.path.exists(python):
            if subprocess.run([python, "-c", "import onnx, onnxruntime"], capture_output=True).returncode == 0:
                return python
    return None


def check(folder):
    """Prints one line a model: its largest relative difference; exit status 1 where one is above 1e-5."""
    import numpy
    import onnx
    import onnxruntime

    wrong = 0
    for path in sorted(pathlib.Path(folder).glob("*.onnx")):
        onnx.checker.check_model(str(path), full_check=True)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        worst = 0.0
        for input_file in sorted(path.parent.glob(f"{path.stem}.[0-9]*.input.npy")):
            expected = numpy.load(str(input_file).replace(".input.", ".output."))
            (output,) = session.run(None, {"input": numpy.load(input_file)})
            assert output.shape == expected.shape, (path.stem, output.shape, expected.shape)
            worst = max(worst, float(numpy.abs(output - expected).max() / numpy.abs(expected).max()))
        print(f"{path.stem}: {worst:.1e}")
        wrong += not worst <= 1e-5
    return int(wrong > 0)


class Models(unittest.TestCase):
    def test_onnxruntime_computes_what_gradus_computed(self):
        python = python_with_onnxruntime()
        if not python:
            self.skipTest("for want of onnxruntime")
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "GRADUS_ONNX_FOLDER": folder}
            made = subprocess.run([TEST_ONNX, "models for onnxruntime"], capture_output=True, text=True,
                                  env=environment)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            done = subprocess.run([python, __file__, "--check", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertGreaterEqual(len(done.stdout.splitlines()), 15)


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        sys.exit(check(sys.argv[2]))
    TEST_ONNX = sys.argv.pop(1)
    unittest.main(verbosity=2)  # which names the skipped ones
