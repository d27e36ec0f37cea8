#!/usr/bin/env python3
"""examples/language, in one process and over several ranks, as a user runs it.

usage: language_test.py BUILD_DIR/examples
"""

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAMS = pathlib.Path()
SMALL = ("--width", "16", "--heads", "4", "--blocks", "2", "--context", "24", "--batch-size", "12", "--threads", "1")


class Language(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_language(self, *options, out="run", code=0):
        command = [PROGRAMS / "language", *options, "--out", self.folder / out]
        if "--nproc" in options:
            place = options.index("--nproc")
            others = [*options[:place], *options[place + 2 :]]
            command = [PROGRAMS.parent / "gradus-run", "--nproc", options[place + 1], PROGRAMS / "language", *others,
                       "--out", self.folder / out]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def log_of(self, out="run"):
        return [json.loads(line) for line in (self.folder / out / "log.jsonl").read_text().splitlines()]

    def assert_same_losses(self, out, expected, delta=2e-4):
        self.assertEqual([line["step"] for line in self.log_of(out)], [line["step"] for line in self.log_of(expected)])
        for line, other in zip(self.log_of(out), self.log_of(expected)):
            for key in ("train_loss", "test_loss"):
                self.assertAlmostEqual(line[key], other[key], delta=delta)

    def test_the_loss_falls_towards_the_entropy(self):
        self.run_language("--steps", "200", "--test-every", "100")
        first, last = self.log_of()
        self.assertEqual((first["step"], last["step"]), (100, 200))
        self.assertGreater(first["train_loss"], last["train_loss"])
        # Of characters alone the entropy is 2.95 nats, behind a known one 1.40.
        self.assertTrue(last["entropy"] < last["test_loss"] < 1.2, last)

    def test_the_seed_decides_what_is_generated(self):
        options = (*SMALL[:-2], "--steps", "5", "--generate", "80")
        said = [self.run_language(*options, "--threads", threads, "--seed", seed).stdout.split("\n\n", 1)[1]
                for threads, seed in (("2", "1"), ("1", "1"), ("1", "2"))]
        self.assertEqual(said[0], said[1])
        self.assertNotEqual(said[0], said[2])
        self.assertEqual(len(said[0]), len("t") + 80 + len("\n"))

    def test_temperature_and_top_k(self):
        def said(*options):
            return self.run_language(*SMALL, "--steps", "20", "--generate", "120", *options).stdout.split("\n\n", 1)[1]

        likeliest = said("--temperature", "0")
        self.assertEqual(said("--temperature", "1e-5"), likeliest)
        self.assertEqual(said("--temperature", "100", "--top-k", "1"), likeliest)
        self.assertNotEqual(said(), likeliest)
        letters = [len(set(said("--temperature", "100", *options))) for options in ((), ("--top-k", "2"))]
        self.assertGreater(letters[0], 20)  # nearly all of them alike
        self.assertLess(letters[1], letters[0])
        for line in self.log_of():
            self.assertAlmostEqual(line["bits_per_character"], line["test_loss"] / math.log(2))

    def test_ranks_make_the_steps_of_one_process(self):
        options = (*SMALL, "--steps", "30", "--test-every", "10", "--generate", "20")
        text = self.run_language(*options, out="one").stdout.split("\n\n", 1)[1]
        for parallel, ranks, more in (("ddp", "2", []), ("zero1", "3", []), ("zero2", "2", ["--comm", "tcp"]),
                                      ("zero3", "4", []), ("tensor", "2", []), ("tensor", "4", ["--comm", "tcp"])):
            with self.subTest(parallel=parallel, ranks=ranks):
                start = "--nproc" if parallel == "zero2" else "--spawn"
                done = self.run_language(*options, start, ranks, "--parallel", parallel, *more, out=parallel)
                self.assert_same_losses(parallel, "one")
                self.assertEqual({(line["parallel"], line["ranks"]) for line in self.log_of(parallel)},
                                 {(parallel, int(ranks))})
                if start == "--spawn":
                    self.assertEqual(done.stdout.split("\n\n", 1)[1], text)

    def interrupted(self, *options, checkpoint, out):
        """Ctrl-C once the first checkpoint is there."""
        command = [PROGRAMS / "language", *options, "--checkpoint", checkpoint, "--out", self.folder / out]
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
        while not checkpoint.exists():
            self.assertIsNone(process.poll())
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, errors)

    def test_an_interrupted_run_goes_on(self):
        options = (*SMALL, "--steps", "400", "--test-every", "100", "--generate", "0", "--quiet")
        self.run_language(*options, out="whole")
        for parallel, ranks, others in (("none", "1", "1"), ("zero1", "2", "3"), ("zero2", "2", "3"),
                                        ("zero3", "3", "2"), ("tensor", "2", "2")):
            with self.subTest(parallel=parallel):
                out, saved = f"half_{parallel}", self.folder / f"saved_{parallel}"
                self.interrupted(*options, "--parallel", parallel, "--spawn", ranks, checkpoint=saved, out=out)
                resume = ("--checkpoint", saved, "--resume", "--spawn", others)
                self.run_language(*options, "--parallel", parallel, *resume, out=out)
                log, whole = self.log_of(out), self.log_of("whole")
                self.assertEqual([line["step"] for line in log], [100, 200, 300, 400])
                for line, other in zip(log, whole):
                    self.assertAlmostEqual(line["test_loss"], other["test_loss"], delta=0 if parallel == "none" else 0.02)
        wrong = ("--parallel", "tensor", "--spawn", "4", "--checkpoint", self.folder / "saved_tensor", "--resume")
        self.assertIn("'ranks' is 2 in the file, 4 in this run", self.run_language(*options, *wrong, code=1).stderr)

    def test_a_text_of_ones_own(self):
        (self.folder / "text").write_text("to be, or not to be. " * 40)
        options = ("--text", self.folder / "text", *SMALL, "--steps", "100", "--prompt", "or ", "--generate", "30")
        said = self.run_language(*options).stdout.split("\n\n", 1)[1]
        self.assertTrue(said.startswith("or "), said)
        self.assertTrue(set(said) <= set("to be, or not to be. \n?"), said)
        self.assertIsNone(self.log_of()[-1]["entropy"])
        self.assertLess(self.log_of()[-1]["test_loss"], 1.5)

    def test_wrong_options(self):
        for options, words in (
            (["--parallel", "zero3"], "'zero3' is no way for 1 process to train"),
            (["--spawn", "2"], "'none' is no way for 2 ranks to train"),
            (["--spawn", "2", "--parallel", "ddp", "--batch-size", "3"], "cannot be shared equally by 2 ranks"),
            (["--spawn", "3", "--parallel", "tensor"], "3"),
            (["--prompt", "1984"], "the text has no '1'"),
            (["--text", self.folder / "short", "--context", "5"], "a text of 40 characters is too short"),
            (["--resume"], "--checkpoint FILE"),
        ):
            with self.subTest(options=options):
                (self.folder / "short").write_text("a" * 40)
                self.assertIn(words, self.run_language(*options, "--steps", "1", code=1).stderr)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
