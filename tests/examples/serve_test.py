#!/usr/bin/env python3
"""examples/serve, as a user runs it.

usage: serve_test.py BUILD_DIR/examples
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = pathlib.Path()


def run(program, *options):
    return subprocess.run([PROGRAMS / program, *options], capture_output=True, text=True, timeout=300)


class Serve(unittest.TestCase):
    def rows_of(self, *options):
        """The table, and what is said beneath it: the share of right answers, and how far those of batches are off."""
        done = run("serve", "--threads", "1", *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = [list(map(float, line.split())) for line in done.stdout.splitlines() if re.fullmatch(r"[\d. ]+", line)]
        last = re.search(r"right: ([\d.]+) %.*one by one: ([\d.e+-]+)$", done.stdout)
        return rows, float(last[1]), float(last[2])

    def test_requests_become_batches_and_answers_stay_the_same(self):
        options = ("--clients", "8", "--requests", "25", "--patience", "50", "--batch", "1", "4", "8")
        rows, _, difference = self.rows_of(*options)
        self.assertEqual([row[0] for row in rows], [1, 4, 8])
        self.assertEqual(rows[0][1], 1)
        # The server waits until so many of the eight clients ask, but for the last requests of all.
        self.assertTrue(all(limit / 2 < size <= limit for limit, size in ((row[0], row[1]) for row in rows[1:])), rows)
        for row in rows:
            self.assertGreater(row[2], 0)
            self.assertTrue(0 < row[3] <= row[4], row)
        self.assertLess(difference, 1e-5)

    def test_a_net_that_mnist_has_trained(self):
        with tempfile.TemporaryDirectory() as folder:
            for model in ("lenet", "pure_linear"):
                done = run("mnist", "--synthetic", "--images", "3000", "--epochs", "1", "--model", model, "--quiet",
                           "--out", f"{folder}/{model}")
                self.assertEqual(done.returncode, 0, done.stderr)
            options = ("--clients", "4", "--requests", "50", "--batch", "4")
            _, right, difference = self.rows_of("--init", f"{folder}/lenet/model.safetensors", *options)
            self.assertGreater(right, 60)  # random weights: about 10
            self.assertLess(difference, 1e-4)
            done = run("serve", "--init", f"{folder}/pure_linear/model.safetensors")
            self.assertEqual(done.returncode, 1)
            self.assertIn("does not fit this net", done.stderr)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
