#!/usr/bin/env python3
"""Exported models pass ONNX's checker, and onnxruntime computes the same results as gradus, for batches of the recorded
size and of another one. Needs a Python with onnx and onnxruntime, which scripts/onnx_venv.sh makes. Otherwise the tests
are skipped.

usage: onnx_test.py BUILD_DIR/tests/test_onnx      The Python with onnxruntime runs: onnx_test.py --check FOLDER
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHONS = (sys.executable, "/usr/bin/python3", ROOT / "build/onnx-venv/bin/python3")
TEST_ONNX = ""
TOLERANCES = {"float16": 1e-2, "float32": 3e-5, "float64": 1e-7}  # relative to the largest; attributes are float32
# Cases with NaN, infinities and other extreme values, for which ONNX's operators are defined differently or not at all.
DIFFERING = ("avg_pool2d.special", "max_pool2d.special", "remainder.special", "remainder.corner_pairs", "sign.special",
             "sign.corners", "atan2.corner_pairs", "div.floor_special", "sort.special", "median.special")


def python_with_onnxruntime():
    for python in PYTHONS:
        if os.path.exists(python):
            if subprocess.run([python, "-c", "import onnx, onnxruntime"], capture_output=True).returncode == 0:
                return python
    return None


def difference(numpy, output, expected):
    """The largest difference relative to the largest number. 0 for equal arrays, infinite if shapes or types differ."""
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return float("inf")
    if output.size == 0 or numpy.array_equal(output, expected):
        return 0.0
    if expected.dtype.kind != "f":
        return float("inf")
    output, expected = output.astype("float64"), expected.astype("float64")
    finite = numpy.isfinite(expected)
    if not numpy.array_equal(output[~finite], expected[~finite], equal_nan=True):
        return float("inf")
    if not numpy.isfinite(output[finite]).all():
        return float("inf")
    largest = numpy.abs(expected[finite]).max(initial=1e-30)
    return float(numpy.abs(output - expected)[finite].max(initial=0) / largest)


def check(folder):
    """Prints a line for each model: its largest difference, or what onnxruntime lacks. Returns 1 if one is wrong."""
    import numpy
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    wrong = 0
    for path in sorted(pathlib.Path(folder).glob("*.onnx")):
        onnx.checker.check_model(str(path), full_check=True)
        worst = 0.0
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            arrays = path.with_suffix("")
            for run in sorted({file.name.split(".")[0] for file in arrays.iterdir()}):
                def load(port):
                    return numpy.load(arrays / f"{run}.{port.name}.npy")

                outputs = session.run(None, {port.name: load(port) for port in session.get_inputs()})
                for port, output in zip(session.get_outputs(), outputs):
                    expected = load(port)
                    worst = max(worst, difference(numpy, output, expected) / TOLERANCES.get(str(expected.dtype), 1))
        except Exception as error:  # onnxruntime has exception classes of its own
            if "NOT_IMPLEMENTED" not in str(error) and "is not supported" not in str(error):
                raise
            print(f"{path.stem}: not run: {str(error).splitlines()[0]}")
            continue
        print(f"{path.stem}: {worst:.1e} of the tolerance")
        if not worst <= 1 and not path.stem.startswith(DIFFERING):
            wrong += 1
            print(f"{path.stem}: WRONG")
    return int(wrong > 0)


class Models(unittest.TestCase):
    def run_models(self, case):
        """The lines that check() prints for the models that a case of test_onnx writes."""
        python = python_with_onnxruntime()
        if not python:
            self.skipTest("for want of onnxruntime")
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "GRADUS_ONNX_FOLDER": folder}
            made = subprocess.run([TEST_ONNX, case], capture_output=True, text=True, env=environment, cwd=ROOT)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            done = subprocess.run([python, __file__, "--check", folder], capture_output=True, text=True)
            wrong = "\n".join(re.findall(r".*WRONG", done.stdout))
            self.assertEqual(done.returncode, 0, wrong + done.stderr)
            return done.stdout.splitlines()

    def test_nets(self):
        self.assertGreaterEqual(len(self.run_models("models for onnxruntime")), 15)

    def test_layers(self):
        lines = self.run_models("each layer for onnxruntime")
        self.assertGreaterEqual(len(lines), 150)
        self.assertEqual([line for line in lines if "not run" in line], [])

    def test_op_cases(self):
        lines = self.run_models("op cases for onnxruntime")
        self.assertGreaterEqual(len(lines), 3000)
        self.assertLess(sum("not run" in line for line in lines), len(lines) / 20)


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        sys.exit(check(sys.argv[2]))
    TEST_ONNX = sys.argv.pop(1)
    unittest.main(verbosity=2)  # so that skipped tests are named
