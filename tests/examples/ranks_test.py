#!/usr/bin/env python3
"""The image examples over several ranks, as a user runs them: gradus-run, --spawn, torchrun's variables.

usage: ranks_test.py BUILD_DIR/examples
"""

import json
import math
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAMS = pathlib.Path()


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.launcher = PROGRAMS.parent / "gradus-run"
        numbers = random.Random(5)
        cifar = cls.folder / "cifar-10-batches-bin"
        cifar.mkdir()
        for name, count in (("data_batch_1", 100), ("test_batch", 31)):
            greys = (bytes(20 * (k % 10) + value % 32 for value in numbers.randbytes(3072)) for k in range(count))
            (cifar / f"{name}.bin").write_bytes(b"".join(bytes([k % 10]) + grey for k, grey in enumerate(greys)))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def command(self, program, *options, out):
        data = ["--synthetic"] if program == "mnist" else ["--data", self.folder]
        return [PROGRAMS / program, *data, *options, "--out", self.folder / out]

    def start(self, command, **more):
        """In a session of its own, so that a signal to its group is a Ctrl-C at its terminal."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, start_new_session=True, **pipes, **more)

    def run_command(self, command, code=0):
        process = self.start(command)
        output, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, errors)
        self.assert_ended(process)
        return output, errors

    def assert_ended(self, process):
        with self.assertRaises(ProcessLookupError):
            os.killpg(process.pid, 0)

    def log_of(self, out):
        return [json.loads(line) for line in (self.folder / out / "log.jsonl").read_text().splitlines()]

    def weights(self, out):
        file = (self.folder / out / "model.safetensors").read_bytes()
        return file[8 + int.from_bytes(file[:8], "little"):]  # not what the file says of the run

    def assert_same_run(self, out, expected, exact=("epoch", "lr", "batch_size", "test_images")):
        log, other = self.log_of(out), self.log_of(expected)
        self.assertEqual(len(log), len(other))
        for line, line_expected in zip(log, other):
            for key in exact:
                self.assertEqual(line[key], line_expected[key], key)
            for key in ("train_loss", "test_loss"):
                self.assertAlmostEqual(line[key], line_expected[key], delta=1e-3)

    # 3 batches of 203 images and one of a single image, of which only rank 0 gets any.
    DIGITS = ("--images", "610", "--model", "lenet", "--epochs", "2", "--batch-size", "203", "--seed", "3")

    def test_ranks_make_the_steps_of_one_process(self):
        self.run_command(self.command("mnist", *self.DIGITS, out="one"))
        self.assertEqual((self.log_of("one")[0]["ranks"], self.log_of("one")[0]["comm"]), (1, "none"))
        counts = ("epoch", "lr", "test_images", "test_accuracy", "class_accuracy", "train_accuracy")
        curves = self.folder / "curves"
        for launcher, options, ranks, comm in (
            ([self.launcher, "--nproc", "2"], ["--tensorboard", curves], 2, "shm"),
            ([self.launcher, "--nproc", "2"], ["--comm", "tcp", "--workers", "2"], 2, "tcp"),
            ([], ["--spawn", "3"], 3, "shm"),
        ):
            with self.subTest(ranks=ranks, comm=comm):
                output, _ = self.run_command([*launcher, *self.command("mnist", *self.DIGITS, *options, out="many")])
                self.assert_same_run("many", "one", exact=counts)
                self.assertEqual({(line["ranks"], line["comm"]) for line in self.log_of("many")}, {(ranks, comm)})
                self.assertEqual(output.count("accuracy by class"), 1)
                if launcher:
                    self.assertEqual({line[:3] for line in output.splitlines()}, {"[0]"})
                else:
                    self.assertEqual(self.log_of("many")[0]["threads"], max(1, len(os.sched_getaffinity(0)) // 3))
        self.assertEqual(len(list(curves.iterdir())), 1)

    def test_compressed_gradients(self):
        digits = [*self.DIGITS, "--spawn", "2"]
        self.run_command(self.command("mnist", *digits, out="full"))
        for half in ("bf16", "fp16"):
            self.run_command(self.command("mnist", *digits, "--compress", half, out=half))
            self.assertEqual(self.log_of(half)[-1]["compress"], half)
            self.assertNotEqual(self.weights(half), self.weights("full"))
            for line, full in zip(self.log_of(half), self.log_of("full")):
                self.assertAlmostEqual(line["train_loss"], full["train_loss"], delta=0.05)

    def test_images_on_the_device(self):
        self.run_command(self.command("mnist", *self.DIGITS, "--device-data", out="resident"))
        self.run_command(self.command("mnist", *self.DIGITS, "--device-data", "--spawn", "3", out="residents"))
        self.assert_same_run("residents", "resident")

    def test_variables_of_torchrun(self):
        self.run_command(self.command("mnist", *self.DIGITS, out="alone"))
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        command = self.command("mnist", *self.DIGITS, out="torchrun")
        job = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        environments = ({**os.environ, **job, "RANK": rank, "LOCAL_RANK": rank} for rank in "01")
        processes = [self.start(command, env=environment) for environment in environments]
        for process in processes:
            output, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(output, "")  # rank 1's
        self.assert_same_run("torchrun", "alone")

    def test_batch_norm_and_early_stopping(self):
        # Synchronised, ranks agree until steps have magnified the rounding of the first ones, where Adam divides
        # gradients of almost 0 by their size. With this seed the two steps, the second with a single image, differ by
        # 2e-7 with any instruction set, with others by up to 4e-3.
        small = ("--batch-size", "33", "--augment", "none", "--seed", "8")
        long = ("--width", "2", "--images", "100", "--epochs", "2")
        short = ("--width", "8", "--images", "34", "--epochs", "1")
        for options in (["--no-batch-norm", *long], ["--sync-batch-norm", *short]):
            for ranks in ("1", "3"):
                self.run_command(self.command("cifar10", *small, *options, "--spawn", ranks, out=f"cifar{ranks}"))
            self.assert_same_run("cifar3", "cifar1")
        # Otherwise statistics are a rank's own; of the last image, which the others do not have, those of rank 0.
        self.run_command(self.command("cifar10", *small, *long, "--spawn", "3", out="norm"))
        for line in self.log_of("norm"):
            self.assertTrue(math.isfinite(line["train_loss"]) and math.isfinite(line["test_loss"]))
        stopping = ("--images", "50", "--lr", "1", "--epochs", "40", "--early-stopping", "1", "--spawn", "3")
        command = self.command("cifar10", "--width", "2", "--no-batch-norm", *stopping, out="stopped_early")
        output, _ = self.run_command(command)
        self.assertIn("back to the weights of epoch", output)
        self.assertLess(len(self.log_of("stopped_early")), 40)

    def alike(self, images, out, *options):
        """Trains on images of which all are the same, in batches of an image for each of the ranks."""
        data = self.folder / "alike" / "cifar-10-batches-bin"
        if not data.exists():
            data.mkdir(parents=True)
            for name in ("data_batch_1", "test_batch"):
                (data / f"{name}.bin").write_bytes((b"\0" + bytes(range(256)) * 12) * 10)
        small = ("--width", "2", "--no-batch-norm", "--augment", "none", "--images", images)
        command = [PROGRAMS / "cifar10", "--data", data.parent, *small, *options, "--out", self.folder / out]
        self.run_command(command)

    def test_ranks_agree_when_to_stop(self):
        # Of the validation set's single image rank 0 has a loss, which falls; what rank 1 has, nothing, gets no better.
        stopping = ("--early-stopping", "1", "--batch-size", "3", "--lr", "0.01", "--epochs", "4")
        self.alike("10", "patient", *stopping, "--spawn", "2")
        self.assertEqual(len(self.log_of("patient")), 4)

    def test_dropout_is_a_ranks_own(self):
        # Two ranks with the same image and the same masks would make the steps of one, bit for bit.
        for dropout, same in (("0", True), ("0.5", False)):
            options = ("--dropout", dropout, "--epochs", "2", "--seed", "4")
            self.alike("5", "one", *options, "--batch-size", "1")
            for out in ("two", "two_again"):
                self.alike("10", out, *options, "--batch-size", "2", "--spawn", "2")
            self.assertEqual(self.weights("two") == self.weights("one"), same)
            self.assertEqual(self.weights("two_again"), self.weights("two"))

    def test_verify(self):
        digits = self.command("mnist", *self.DIGITS, "--verify", "6", "--augment", "affine", out="verified")
        for command in ([*digits, "--spawn", "3"], [self.launcher, "--nproc", "2", *digits, "--comm", "tcp"]):
            output, _ = self.run_command(command)
            self.assertIn("They make the same steps", output)
            self.assertRegex(output, r"   1 .* gradient '\w+\.(weight|bias)'\n")
        images = self.command("cifar10", "--width", "2", "--verify", "2", "--images", "66", "--batch-size", "33",
                              out="verified")
        self.assertIn("They make the same steps",
                      self.run_command([*images, "--sync-batch-norm", "--lr", "0", "--spawn", "2"])[0])
        for options, cause in (
            (["--augment", "none"], "batch norm 'bn1' uses the statistics of each rank's part alone"),
            (["--no-batch-norm", "--dropout", "0.5"], "dropout 'dropout' draws different numbers on each rank"),
            (["--no-batch-norm", "--device-data"], "each rank draws different random numbers in the step"),
        ):
            with self.subTest(options=options):
                for command in ([*images, "--spawn", "2"], [self.launcher, "--nproc", "2", *images]):
                    output, _ = self.run_command([*command, *options], code=1)
                    self.assertRegex(output, f"They differ: in step 1, .*{cause}")
        self.assertFalse((self.folder / "verified").exists())

    # ---- Interrupted runs ----

    LONG = ("--images", "1000", "--model", "pure_linear", "--epochs", "3", "--batch-size", "9", "--augment", "affine")

    def interrupted(self, command, checkpoint, whole_group):
        """Ctrl-C once the first checkpoint is there."""
        process = self.start([*command, "--checkpoint", checkpoint, "--checkpoint-every", "20"])
        while not checkpoint.exists():
            self.assertIsNone(process.poll())
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGINT) if whole_group else process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("and saved; to go on, with any number of ranks:", output)
        self.assert_ended(process)

    def test_ctrl_c_saves_and_any_number_of_ranks_goes_on(self):
        self.run_command(self.command("mnist", *self.LONG, out="whole"))
        for launcher, options in (([self.launcher, "--nproc", "2"], []), ([], ["--spawn", "3"])):
            checkpoint = self.folder / f"stopped{len(options)}.safetensors"
            command = [*launcher, *self.command("mnist", *self.LONG, *options, out="stopped")]
            self.interrupted(command, checkpoint, whole_group=not launcher)
            for ranks in ("1", "2", "3"):
                with self.subTest(launcher=launcher, ranks=ranks):
                    copy = shutil.copy(checkpoint, self.folder / "copy.safetensors")
                    shutil.copytree(self.folder / "stopped", self.folder / "resumed", dirs_exist_ok=True)
                    resume = ("--checkpoint", copy, "--resume", "--spawn", ranks)
                    output, _ = self.run_command(self.command("mnist", *self.LONG, *resume, out="resumed"))
                    self.assertIn("going on from", output)
                    self.assert_same_run("resumed", "whole")

    def test_the_same_number_of_ranks_goes_on_to_the_same_bits(self):
        options = ("--width", "2", "--dropout", "0.5", "--images", "60", "--batch-size", "11", "--spawn", "2")
        self.run_command(self.command("cifar10", *options, out="unbroken"))
        checkpoint = self.folder / "dropout.safetensors"
        self.interrupted(self.command("cifar10", *options, out="broken"), checkpoint, whole_group=True)
        self.run_command(self.command("cifar10", *options, "--checkpoint", checkpoint, "--resume", out="broken"))
        self.assertEqual(self.weights("broken"), self.weights("unbroken"))

    def process_of(self, rank, mark):
        """The process of a rank of the job whose environment has the variable MARK=`mark`."""
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                if {b"RANK=%d" % rank, b"MARK=%s" % mark.encode()} <= set(environment):
                    return int(folder.name)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                pass  # it has ended meanwhile
        return self.fail(f"no rank {rank}")

    def test_a_rank_is_killed_and_the_restarted_job_ends_with_the_bits_of_an_unbroken_one(self):
        options = ("--comm", "tcp", "--threads", "1")
        job = [self.launcher, "--nproc", "2"]
        self.run_command([*job, *self.command("mnist", *self.LONG, *options, out="never_killed")])
        for victim in (0, 1):
            with self.subTest(victim=victim):
                checkpoint, mark = self.folder / f"killed{victim}.safetensors", f"{os.getpid()}-{victim}"
                save = ("--checkpoint", checkpoint, "--checkpoint-every", "20", "--resume")
                command = self.command("mnist", *self.LONG, *options, *save, out="killed")
                process = self.start([*job, "--max-restarts", "1", *command], env={**os.environ, "MARK": mark})
                while not checkpoint.exists():
                    self.assertIsNone(process.poll())
                    time.sleep(0.005)
                os.kill(self.process_of(victim, mark), signal.SIGKILL)
                output, errors = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 0, errors)
                self.assertIn("restart 1 of 1", errors)
                self.assertIn("going on from", output)
                self.assert_ended(process)
                self.assertEqual(self.weights("killed"), self.weights("never_killed"))

    # ---- What goes wrong ----

    def test_wrong_options(self):
        for launcher, options, words in (
            ([], ["--comm", "pigeon"], "--comm"),
            ([], ["--spawn", "0"], "--spawn"),
            ([], ["--verify", "3"], "--verify compares several ranks with one process"),
            ([], ["--spawn", "2", "--comm", "nccl"], "--comm nccl sums up what is on GPUs"),
            ([self.launcher, "--nproc", "2"], ["--spawn", "2"], "leave out --spawn"),
        ):
            with self.subTest(options=options):
                _, errors = self.run_command([*launcher, *self.command("mnist", *options, out="wrong")], code=1)
                self.assertIn(words, errors)

    def test_a_rank_that_fails_ends_the_others(self):
        (self.folder / "file").write_text("")
        _, errors = self.run_command(self.command("mnist", *self.DIGITS, "--spawn", "2", out="file/run"), code=1)
        self.assertIn("rank 0", errors)
        self.assertIn("file/run", errors)
        command = self.command("cifar10", "--spawn", "2", "--data", self.folder / "nowhere", out="wrong")
        del command[1:3]
        _, errors = self.run_command(command, code=1)
        self.assertIn("no CIFAR-10 in", errors)
        self.assertEqual(len(errors.splitlines()), 1)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
