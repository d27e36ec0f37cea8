#!/usr/bin/env python3
"""The numbered examples, run as a reader runs them.

usage: lessons_test.py BUILD_DIR/examples
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path()


class Lessons(unittest.TestCase):
    """The numbered programs, which say what they found."""

    def says(self, program, *arguments):
        done = subprocess.run([PROGRAMS / program, *arguments], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_every_lesson_is_tested(self):
        lessons = {path.stem for path in (ROOT / "examples").glob("[0-9]*.cpp")}
        tests = " ".join(name for name in dir(self) if re.match(r"test_\d", name))
        self.assertEqual(lessons, {name.removeprefix("test_") for name in tests.split()})

    def test_01_tensors(self):
        said = self.says("01_tensors")
        self.assertIn(" 11  22  33\n 14  25  36\n", said)
        self.assertIn("[add] shapes (2, 3) and (4,) do not broadcast", said)
        self.assertRegex(said, r"\(at 01_tensors.cpp:\d+\)")

    def test_02_autograd_by_hand(self):
        said = self.says("02_autograd_by_hand")
        gradient = "-0.5767\n 1.1534\n-0.2883\n"
        self.assertIn(f"by hand:\n{gradient}", said)
        self.assertIn(f"by the engine:\n{gradient}", said)
        self.assertIn("gradcheck: they agree", said)

    def test_03_first_net(self):
        words = self.says("03_first_net").partition("larger logit")[2].split()
        self.assertEqual([word for word in words if word in "01"], ["0", "1", "1", "0"])

    def test_04_your_own_data_set(self):
        last = self.says("04_your_own_data_set").splitlines()[-1]
        self.assertGreater(float(last.split()[-2]), 90, last)

    def test_05_your_own_operator(self):
        said = self.says("05_your_own_operator")
        self.assertIn("first and second derivatives agree", said)
        self.assertIn("a wrong one: gradcheck: input 0", said)
        self.assertLess(float(said.split()[-1]), 0.01)

    def test_06_pytorch_weights(self):
        said = self.says("06_pytorch_weights", ROOT / "tests" / "transfer")
        difference = float(said.partition("largest difference of all: ")[2].split()[0])
        self.assertLess(difference, 1e-4)
        self.assertIn("keeps its fresh weights: fc.weight", said)
        file = pathlib.Path(said.split()[-1])
        self.assertGreater(file.stat().st_size, 100000)
        file.unlink()

    def test_07_autoencoder(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = pathlib.Path(folder) / "digits.png"
            said = self.says("07_autoencoder", picture)
            self.assertEqual(picture.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        error, of_the_mean = (float(said.partition(what)[2].split()[0]) for what in ("not seen before: ", "each: "))
        self.assertLess(error, of_the_mean / 3)

    def test_08_gan(self):
        before, _, invented = self.says("08_gan").splitlines()
        self.assertLess(float(before.split()[2]), 0.5)
        self.assertAlmostEqual(float(invented.split()[2]), 1, delta=0.15)
        self.assertGreaterEqual(int(invented.partition(", ")[2].split()[0]), 10)

    def test_09_sequences(self):
        said = self.says("09_sequences")
        self.assertGreater(float(said.split()[-2]), 85, said)

    def test_10_tables(self):
        error, of_the_mean = (float(self.says("10_tables").partition(what)[2].split()[0].rstrip(";"))
                              for what in ("square): ", "mean price "))
        self.assertLess(error, of_the_mean / 4)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1))
    unittest.main()
