#!/usr/bin/env python3
"""Models trained here load in PyTorch and give the same logits there. Needs a Python with torch; says so where there is
none.

usage: transfer_test.py BUILD_DIR/tests/test_transfer
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

MAKE_MODELS = pathlib.Path(__file__).resolve().with_name("make_models.py")
TEST_TRANSFER = ""


def python_with_torch():
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python):
            if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
                return python
    return None


class Transfer(unittest.TestCase):
    def test_pytorch_computes_what_gradus_computed(self):
        python = python_with_torch()
        if not python:
            self.skipTest("for want of PyTorch")
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "GRADUS_TRANSFER_FOLDER": folder}
            subprocess.run([TEST_TRANSFER, "models for PyTorch"], check=True, capture_output=True, env=environment)
            done = subprocess.run([python, MAKE_MODELS, "--check", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), 2)


if __name__ == "__main__":
    TEST_TRANSFER = sys.argv.pop(1)
    unittest.main(verbosity=2)  # which names the skipped ones
