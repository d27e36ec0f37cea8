#!/usr/bin/env python3
"""examples/cifar10 and examples/stl10, run as a user runs them.

usage: colour_images_test.py BUILD_DIR/examples
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = pathlib.Path()


class ColourImages(unittest.TestCase):
    """cifar10 and stl10 on a few images in the formats of the real files: class k is a grey of its own, with noise."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        numbers = random.Random(5)

        def image(label, size):
            return bytes(20 * label + value % 32 for value in numbers.randbytes(3 * size * size))

        cifar = cls.folder / "cifar-10-batches-bin"
        cifar.mkdir()
        for name, count in (("data_batch_1", 100), ("test_batch", 30)):
            records = (bytes([k % 10]) + image(k % 10, 32) for k in range(count))
            (cifar / f"{name}.bin").write_bytes(b"".join(records))
        stl = cls.folder / "stl10_binary"
        stl.mkdir()
        for name, count in (("train", 40), ("test", 20)):
            (stl / f"{name}_X.bin").write_bytes(b"".join(image(k % 10, 96) for k in range(count)))
            (stl / f"{name}_y.bin").write_bytes(bytes(k % 10 + 1 for k in range(count)))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_program(self, program, *options, out="run", data=None):
        command = [PROGRAMS / program, "--data", data or self.folder, "--out", self.folder / out, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    def log_of(self, out):
        return [json.loads(line) for line in (self.folder / out / "log.jsonl").read_text().splitlines()]

    def trained(self, program, *options, out="run"):
        done = self.run_program(program, *options, out=out)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.log_of(out)

    def weights(self, out):
        return (self.folder / out / "model.safetensors").read_bytes()

    def test_cifar10_learns(self):
        log = self.trained("cifar10", "--width", "4", "--epochs", "6", "--batch-size", "10", "--augment", "none")
        self.assertEqual([line["epoch"] for line in log], [1, 2, 3, 4, 5, 6])
        self.assertLess(log[-1]["train_loss"], log[0]["train_loss"])
        self.assertGreater(log[-1]["test_accuracy"], 0.2)
        self.assertEqual(log[-1]["test_images"], 30)
        self.assertLess(log[-1]["lr"], log[0]["lr"])

    def test_cifar10_has_a_switch_for_each_regulariser(self):
        small = ("--width", "2", "--epochs", "1", "--images", "20", "--batch-size", "10")
        self.trained("cifar10", *small, out="plain")
        for number, switch in enumerate(
            (
                ["--dropout", "0.5"],
                ["--weight-decay", "0.1"],
                ["--no-batch-norm"],
                ["--augment", "none"],
                ["--label-smoothing", "0.2"],
            )
        ):
            with self.subTest(switch=switch):
                self.trained("cifar10", *small, *switch, out=f"switch{number}")
                self.assertNotEqual(self.weights("plain"), self.weights(f"switch{number}"))

    def test_cifar10_stops_early_with_the_best_weights(self):
        options = ("--width", "2", "--epochs", "50", "--lr", "0", "--early-stopping", "2", "--batch-size", "50")
        checkpoint = ("--checkpoint", self.folder / "early.safetensors", "--resume")
        for run in ("from the beginning", "again, when there is nothing left to do"):
            with self.subTest(run):
                done = self.run_program("cifar10", *options, *checkpoint, "--no-batch-norm", out="early")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("back to the weights of epoch 1", done.stdout)
                self.assertEqual(len(self.log_of("early")), 3)

    def test_a_resumed_run_ends_with_the_same_bits(self):
        options = ["--width", "2", "--images", "30", "--batch-size", "10", "--epochs", "3", "--device-data"]
        self.trained("cifar10", *options, out="whole")
        checkpoint = ["--checkpoint", str(self.folder / "run.safetensors")]
        self.trained("cifar10", *options, *checkpoint, out="saved")
        resumed = self.run_program("cifar10", *options, *checkpoint, "--resume", out="saved")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(self.weights("whole"), self.weights("saved"))
        refused = self.run_program("cifar10", *options, *checkpoint, "--resume", "--dropout", "0.5", out="saved")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("dropout", refused.stderr)

    def test_data_parallel_learns_what_one_device_does(self):
        options = ("--width", "2", "--images", "27", "--batch-size", "10", "--epochs", "2", "--augment", "none",
                   "--no-batch-norm")
        alone = self.trained("cifar10", *options, out="alone")
        shared = self.trained("cifar10", *options, "--data-parallel", "3", out="shared")
        self.assertEqual([line["data_parallel"] for line in (alone[0], shared[0])], [1, 3])
        for line, expected in zip(shared, alone):
            for key in ("train_loss", "test_loss"):
                self.assertAlmostEqual(line[key], expected[key], delta=1e-4)

    def test_stl10_has_a_residual_net_and_a_switch_for_all_that_helps_it(self):
        small = ("--width", "2", "--epochs", "1", "--images", "10", "--batch-size", "5", "--test-images", "5",
                 "--lr", "0.1")
        self.trained("stl10", *small, "--model", "resnet", out="plain")
        for number, switch in enumerate(
            (
                ["--optimizer", "sgd"],
                ["--schedule", "cosine"],
                ["--schedule", "one-cycle"],
                ["--weight-decay", "0.1"],
                ["--label-smoothing", "0.2"],
                ["--augment", "crop+flip"],
                ["--augment", "crop+flip+cutout"],
                ["--augment", "crop+flip+cutout", "--device-data"],
                ["--model", "plain"],
            )
        ):
            with self.subTest(switch=switch):
                out = f"stl10_switch{number}"
                model = [] if "--model" in switch else ["--model", "resnet"]
                self.trained("stl10", *small, *model, *switch, out=out)
                self.assertNotEqual(self.weights("plain"), self.weights(out))

    def test_stl10_learns_and_shows_where_the_time_goes(self):
        done = self.run_program("stl10", "--epochs", "2", "--images", "20", "--batch-size", "5", "--profile", out="stl")
        self.assertEqual(done.returncode, 0, done.stderr)
        log = self.log_of("stl")
        self.assertLess(log[1]["train_loss"], log[0]["train_loss"])
        self.assertIn("accuracy by class", done.stdout)
        self.assertIn("airplane", done.stdout)
        self.assertIn("conv2d", done.stdout)
        json.loads((self.folder / "stl" / "trace.json").read_text())

    def test_an_experiment_records_one_process_and_two(self):
        script = pathlib.Path(__file__).resolve().parents[2] / "scripts/experiments/e5.py"
        rows = ["one CPU process", "two CPU processes, gradus-run", "two CPU processes, spawn"]
        command = [sys.executable, script, "--record", "--out", self.folder / "results", "--rows", *rows,
                   "--seeds", "1", "--epochs", "1", "--images", "10", "--test-images", "5", "--batch-size", "10",
                   "--data", self.folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300,
                              env={**os.environ, "GRADUS_BUILD": str(PROGRAMS.parent)})
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = [json.loads(line) for line in (self.folder / "results/E5.jsonl").read_text().splitlines()]
        self.assertEqual([run["row"] for run in runs], rows)
        self.assertEqual([run.get("skipped") for run in runs], [None] * 3)
        self.assertEqual([run["epochs"][0]["ranks"] for run in runs], [1, 2, 2])
        self.assertEqual([run["epochs"][0]["test_images"] for run in runs], [5] * 3)
        self.assertEqual(runs[1]["epochs"][0]["train_loss"], runs[2]["epochs"][0]["train_loss"])

    def test_wrong_options_are_one_line_and_exit_code_1(self):
        for program, options, words in (
            ("cifar10", ["--augment", "everything"], "--augment"),
            ("cifar10", ["--dropout", "2"], "--dropout"),
            ("cifar10", ["--resume"], "--checkpoint FILE"),
            ("cifar10", ["--device-data", "--early-stopping", "2"], "leave out --device-data"),
            ("cifar10", ["--device", "toaster"], "toaster"),
            ("stl10", ["--backend", "abacus"], "abacus"),
            ("stl10", ["--batch-size", "0"], "--batch-size"),
        ):
            with self.subTest(program=program, options=options):
                done = self.run_program(program, *options)
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for program in ("cifar10", "stl10"):
            done = self.run_program(program, data=self.folder / "run")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"scripts/{program}_data.sh", done.stderr)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1))
    unittest.main()
