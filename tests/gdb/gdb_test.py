#!/usr/bin/env python3
"""The printers of scripts/gdb/gradus.py show the variables of a program that is stopped.

usage: gdb_test.py PROGRAM      tests/gdb/values.cpp, compiled with -g
"""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

PRINTERS = pathlib.Path(__file__).resolve().parents[2] / "scripts/gdb/gradus.py"
PROGRAM = sys.argv.pop()

# (expression, what gdb prints)
EXPECTED = [
    ("shape", "(2, 3)"),
    ("no_dimensions", "()"),
    ("cpu", "cpu"),
    ("second_gpu", "cuda:1"),
    ("dtype", "bfloat16"),
    ("half", "1.5"),
    ("bfloat16", "-0.25"),
    ("undefined", "undefined"),
    ("scalar", "float32 () cpu 2.5"),
    ("matrix", "float32 (2, 3) cpu [[0, 1, 2], [3, 4, 5]]"),
    ("transposed", "float32 (3, 2) cpu strides (1, 3) [[0, 3], [1, 4], [2, 5]]"),
    ("row", "float32 (3,) cpu offset 3 [3, 4, 5]"),
    ("empty", "float32 (0, 3) cpu []"),
    ("integers", "int64 (2, 3) cpu [[0, 1, 2], [3, 4, 5]]"),
    ("bits", "bool (2, 3) cpu [[false, false, false], [true, true, true]]"),
    ("halves", "float16 (2, 3) cpu [[0, 0.5, 1], [1.5, 2, 2.5]]"),
    ("bfloat16s", "bfloat16 (2, 3) cpu [[0, 0.5, 1], [1.5, 2, 2.5]]"),
    ("doubles", "float64 (2, 3) cpu [[0, 0.1, 0.2], [0.3, 0.4, 0.5]]"),
    ("many", "int64 (1000,) cpu [0, 1, 2, 3, ...]"),
    ("leaf", "float32 (2,) cpu [0, 0] requires_grad"),
    ("result", "float32 (2,) cpu [0, 0] has grad_fn"),
    ("array", "float32 (2, 3) cpu [[0, 1, 2], [3, 4, 5]]"),
    ("*not_made", "<not initialised>"),
]


@unittest.skipUnless(shutil.which("gdb"), "for want of gdb")
class Printers(unittest.TestCase):
    def test_each_value_is_printed(self):
        commands = [f"source {PRINTERS}", "break all_values_are_made", "run", "up"]
        for expression, _ in EXPECTED:
            commands += [f"set print elements {4 if expression == 'many' else 6}", f"print {expression}"]
        arguments = [argument for command in commands for argument in ("-ex", command)]
        result = subprocess.run(["gdb", "-nx", "-batch", *arguments, PROGRAM], capture_output=True, text=True,
                                timeout=120)
        printed = re.findall(r"^\$\d+ = (.*)$", result.stdout, re.M)
        self.assertEqual(len(printed), len(EXPECTED), result.stdout + result.stderr)
        for (expression, expected), text in zip(EXPECTED, printed):
            with self.subTest(expression=expression):
                self.assertEqual(text, expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # which names the skipped ones
