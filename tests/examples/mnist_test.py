#!/usr/bin/env python3
"""examples/mnist and scripts/report.py, run as a user runs them.

usage: mnist_test.py BUILD_DIR/examples
"""

import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree
import zlib

from tensorboard_events import read_events, read_message

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path()
KEYS = {
    "epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "lr", "seconds", "images_per_second",
    "data_wait_seconds", "test_seconds", "model", "device", "backend", "graph", "amp", "optimizer", "schedule",
    "batch_size", "seed", "data", "train_error", "test_error", "test_images", "class_accuracy", "augment",
    "device_data", "device_name", "libraries", "cudnn_small", "workers", "threads", "tf32", "fused",
    "forward_seconds", "backward_seconds", "optimizer_seconds", "total_seconds", "peak_allocated_bytes",
    "peak_reserved_bytes", "ranks", "comm",
    "data_parallel", "compress",
}  # fmt: skip


def write_images(folder, name, count, seed):
    """Files in MNIST's format: class k is a bright bar at a height of its own, with noise."""
    numbers = random.Random(seed)
    labels = bytes(numbers.randrange(10) for _ in range(count))
    images = bytearray()
    for label in labels:
        for row in range(28):
            bright = 200 if 2 * label + 3 <= row <= 2 * label + 5 else 0
            images += bytes(bright + numbers.randrange(50) for _ in range(28))
    (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 28, 28) + images)
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels)


class Mnist(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.data = cls.folder / "data"
        cls.data.mkdir()
        write_images(cls.data, "train", 330, 1)
        write_images(cls.data, "t10k", 100, 2)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_mnist(self, *options, out="run", data=True):
        command = [PROGRAMS / "mnist", "--out", self.folder / out, *options]
        if data:
            command += ["--data", self.data]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    def trained(self, *options, out="run"):
        """The log of a run that must succeed."""
        done = self.run_mnist(*options, out=out)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = (self.folder / out / "log.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def weights(self, out):
        return (self.folder / out / "model.safetensors").read_bytes()

    def test_a_run_learns_logs_and_saves(self):
        done = self.run_mnist("--model", "lenet", "--epochs", "4", "--batch-size", "32")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\r", done.stdout)  # no terminal: plain lines
        self.assertIn("model lenet, optimizer adam, schedule cosine, augment none, fused yes, data mnist\n",
                      done.stdout)
        self.assertIn("epoch 4/4  train loss", done.stdout)
        self.assertIn("accuracy by class", done.stdout)
        log = [json.loads(line) for line in (self.folder / "run" / "log.jsonl").read_text().splitlines()]
        self.assertEqual([line["epoch"] for line in log], [1, 2, 3, 4])
        for line in log:
            self.assertEqual(set(line), KEYS)
            parts = [line[f"{part}_seconds"] for part in ("data_wait", "forward", "backward", "optimizer")]
            self.assertGreater(min(parts), 0)
            self.assertLess(sum(parts), line["seconds"])
            self.assertLess(line["seconds"] + line["test_seconds"], line["total_seconds"])
            self.assertEqual((line["device_name"], line["libraries"]), ("CPU", ""))
            parameters = 4 * 3 * 61706  # float32: weights, and two of Adam for each
            self.assertLess(parameters, line["peak_allocated_bytes"])
            self.assertLess(line["peak_allocated_bytes"], line["peak_reserved_bytes"])
        self.assertLess(log[0]["total_seconds"], log[1]["total_seconds"])
        self.assertGreater(log[-1]["test_accuracy"], 0.9)
        self.assertGreater(log[0]["lr"], log[-1]["lr"])
        weights = self.weights("run")
        header = json.loads(weights[8 : 8 + struct.unpack("<Q", weights[:8])[0]])
        self.assertEqual(
            {name for name in header if name != "__metadata__"},
            {f"{layer}.{part}" for layer in ("c1", "c2", "f1", "f2", "f3") for part in ("weight", "bias")},
        )

    def test_a_step_is_explained(self):
        done = self.run_mnist("--model", "lenet", "--explain", out="explained")
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in ("conv2d_bias_relu: openmp/", "between kernels", "what would save memory:", "max_pool2d, main"):
            self.assertIn(part, done.stdout)
        page = (self.folder / "explained" / "explain.html").read_text()
        picture = xml.etree.ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
        self.assertIn("c1: conv2d_relu", [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")])
        self.assertEqual(os.listdir(self.folder / "explained"), ["explain.html"])  # nothing was trained
        done = self.run_mnist("--explain", "--data-parallel", "2")
        self.assertIn("--explain watches one thread", done.stderr)

    def test_a_step_becomes_a_page(self):
        page = self.folder / "lab.html"
        done = self.run_mnist("--model", "lenet", "--lab", str(page), out="lab")
        self.assertEqual(done.returncode, 0, done.stderr)
        data = json.loads(re.search('id="data">(.*)</script>', page.read_text())[1])
        self.assertIn("gradient of c1.weight", data["texts"])
        self.assertGreater(len(data["calls"]), 20)
        self.assertFalse((self.folder / "lab").exists())  # nothing was trained
        done = self.run_mnist("--lab", str(page), "--spawn", "2")
        self.assertIn("--lab watches one thread", done.stderr)

    def test_every_model_optimizer_and_schedule_runs(self):
        for model, optimizer, schedule in (
            ("pure_linear", "sgd", "none"),
            ("simple_conv", "adam", "none"),
            ("lenet", "sgd", "cosine"),
            ("conv2_c1", "adam", "none"),
            ("conv2_c32", "adam", "none"),
        ):
            with self.subTest(model=model):
                options = ["--model", model, "--optimizer", optimizer, "--schedule", schedule, "--epochs", "2"]
                log = self.trained(*options)
                self.assertLess(log[1]["train_loss"], log[0]["train_loss"])

    def test_results_do_not_depend_on_threads_or_workers(self):
        options = ["--epochs", "2", "--seed", "5"]
        self.trained(*options, "--threads", "1", "--workers", "0", out="a")
        self.trained(*options, "--threads", "2", "--workers", "1", out="b")
        self.trained(*options, "--threads", "2", "--workers", "4", out="c")
        self.assertEqual(self.weights("a"), self.weights("b"))
        self.assertEqual(self.weights("a"), self.weights("c"))
        self.trained("--epochs", "2", "--seed", "6", out="d")
        self.assertNotEqual(self.weights("a"), self.weights("d"))

    def test_images_on_the_device_are_the_loaders(self):
        options = ["--images", "300", "--seed", "5", "--schedule", "none"]
        loaded = self.trained(*options, "--epochs", "2", out="loaded")[-1]
        resident = self.trained(*options, "--epochs", "2", "--device-data", out="resident")[-1]
        for key in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
            self.assertAlmostEqual(loaded[key], resident[key], delta=1e-3)  # normalised by another formula
        checkpoint = ["--checkpoint", str(self.folder / "resident.safetensors"), "--device-data"]
        self.trained(*options, *checkpoint, "--epochs", "1", out="half")
        self.trained(*options, *checkpoint, "--epochs", "2", "--resume", out="half")
        self.assertEqual(self.weights("resident"), self.weights("half"))
        refused = self.run_mnist(*options, *checkpoint[:2], "--resume", out="half")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("loader", refused.stderr)

    def test_mixed_precision_learns_and_resumes(self):
        options = ["--model", "lenet", "--epochs", "2", "--batch-size", "32", "--seed", "7"]
        wide = self.trained(*options, out="wide")[-1]
        for amp in ("bf16", "fp16"):
            with self.subTest(amp=amp):
                half = self.trained(*options, "--amp", amp, out=amp)[-1]
                self.assertEqual((wide["amp"], half["amp"]), ("off", amp))
                self.assertAlmostEqual(wide["train_loss"], half["train_loss"], delta=0.05)
                self.assertNotEqual(self.weights("wide"), self.weights(amp))
                checkpoint = ["--checkpoint", str(self.folder / f"{amp}.safetensors"), "--amp", amp]
                self.trained(*options, *checkpoint, out="half")
                self.trained(*options, *checkpoint, "--resume", out="half")
                self.assertEqual(self.weights(amp), self.weights("half"))
                refused = self.run_mnist(*options, *checkpoint[:2], "--resume", out="half")
                self.assertEqual(refused.returncode, 1)
                self.assertIn("amp", refused.stderr)

    def test_naive_and_openmp_agree(self):
        options = ["--model", "lenet", "--epochs", "1", "--batch-size", "64"]
        naive = self.trained(*options, "--backend", "naive", out="naive")[-1]
        openmp = self.trained(*options, "--backend", "openmp", out="openmp")[-1]
        self.assertEqual((naive["backend"], openmp["backend"]), ("naive", "openmp"))
        self.assertAlmostEqual(naive["train_loss"], openmp["train_loss"], places=4)
        self.assertAlmostEqual(naive["test_accuracy"], openmp["test_accuracy"], delta=0.02)

    def test_images_are_the_first_of_the_training_set(self):
        done = self.run_mnist("--model", "pure_linear", "--epochs", "1", "--images", "70", out="few")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("; 70 images to train on", done.stdout)

    def test_fused_or_not_a_net_learns_the_same(self):
        options = ["--model", "conv2_c32", "--epochs", "1", "--images", "64", "--test-images", "10"]
        fused, unfused = self.trained(*options)[0], self.trained(*options, "--unfused")[0]
        self.assertEqual((fused["fused"], unfused["fused"]), ("yes", "no"))
        self.assertEqual(fused["test_images"], 10)
        self.assertAlmostEqual(fused["train_loss"], unfused["train_loss"], places=4)

    def test_quiet_prints_nothing(self):
        done = self.run_mnist("--model", "pure_linear", "--epochs", "1", "--quiet")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_wrong_options_are_one_line_and_exit_code_1(self):
        (self.folder / "empty").mkdir(exist_ok=True)
        (self.folder / "file").write_text("")
        for options, words in (
            (["--model", "vgg"], "--model"),
            (["--epochs", "0"], "--epochs"),
            (["--epochs", "three"], "--epochs"),
            (["--batch-size", "-1"], "--batch-size"),
            (["--lr", "-1"], "--lr"),
            (["--optimizer", "lion"], "--optimizer"),
            (["--augment", "mirror"], "--augment"),
            (["--colour"], "--colour"),
            (["--device", "toaster"], "toaster"),
            (["--backend", "abacus"], "abacus"),
            (["--device", "cpu", "--backend", "cuda"], "cuda"),
            (["--graph"], "--graph captures CUDA work"),
            (["--amp", "fp8"], "--amp"),
            (["--synthetic"], "leave out --data"),
            (["--device-data", "--augment", "affine"], "leave out --device-data"),
            (["--images", "-5"], "--images"),
            (["--resume"], "add --checkpoint FILE"),
            (["--checkpoint-every", "5"], "add --checkpoint FILE"),
        ):
            with self.subTest(options=options):
                done = self.run_mnist(*options)
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        done = self.run_mnist(out="file/run")
        self.assertEqual(done.returncode, 1)
        self.assertIn("file/run", done.stderr)
        done = self.run_mnist("--data", str(self.folder / "empty"), data=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--synthetic", done.stderr)

    def test_help(self):
        done = self.run_mnist("--help")
        self.assertEqual(done.returncode, 0)
        for option in (
            "model unfused device backend epochs batch-size lr optimizer schedule augment workers device-data threads "
            "seed data synthetic images test-images cudnn-small out checkpoint checkpoint-every resume tensorboard "
            "profile graph amp quiet spawn comm verify"
        ).split():
            self.assertIn(f"--{option}", done.stdout)

    def test_a_truncated_data_file_is_an_error_that_names_it(self):
        broken = self.folder / "broken"
        broken.mkdir()
        for file in self.data.iterdir():
            (broken / file.name).write_bytes(file.read_bytes()[:-1])
        done = self.run_mnist("--data", broken, data=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("train-images-idx3-ubyte", done.stderr)

    # ---- Interrupted runs ----

    LONG = ("--synthetic", "--images", "1000", "--model", "pure_linear", "--epochs", "3", "--batch-size", "8", "--seed",
            "4", "--augment", "affine")

    def start_long(self, out, *options):
        command = [PROGRAMS / "mnist", *self.LONG, "--out", self.folder / out, *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def results(self, out):
        """Weights and log of a run, without the times."""
        lines = [json.loads(line) for line in (self.folder / out / "log.jsonl").read_text().splitlines()]
        times = [key for key in KEYS if "second" in key or key.startswith("peak_")]
        return self.weights(out), [{key: line[key] for key in line if key not in times} for line in lines]

    def test_a_run_killed_again_and_again_ends_with_the_same_bits(self):
        whole = self.start_long("whole")
        self.assertEqual(whole.wait(timeout=120), 0)
        whole.communicate()
        checkpoint = self.folder / "killed.safetensors"
        numbers = random.Random(8)
        kills = 0
        for attempt in range(9):
            process = self.start_long("killed", "--checkpoint", checkpoint, "--checkpoint-every", "30", "--resume")
            # Killed at some moment around one of its saves; the first time before there is a checkpoint.
            last = checkpoint.stat().st_ino if checkpoint.exists() else None
            wanted = numbers.randrange(1, 3) if attempt else 0
            saves = 0
            while saves < wanted and process.poll() is None:
                now = checkpoint.stat().st_ino if checkpoint.exists() else None
                saves, last = saves + (now != last), now
            try:
                process.wait(timeout=numbers.uniform(0, 0.02) if attempt < 8 else 120)
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
            process.communicate()
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertEqual(process.returncode, 0)
        self.assertGreaterEqual(kills, 3)
        self.assertEqual(self.results("killed"), self.results("whole"))
        self.assertEqual([file.name for file in self.folder.glob("killed.safetensors*")], [checkpoint.name])

    def test_ctrl_c_saves_and_says_how_to_go_on(self):
        whole = self.start_long("whole2")
        self.assertEqual(whole.wait(timeout=120), 0)
        whole.communicate()
        checkpoint = self.folder / "stopped.safetensors"
        process = self.start_long("stopped", "--checkpoint", checkpoint, "--checkpoint-every", "60")
        while not checkpoint.exists():
            self.assertIsNone(process.poll())
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("finishing this step", errors)
        step = int(re.search(r"stopped after step (\d+) and saved; to go on:", output).group(1))
        self.assertGreaterEqual(step, 60)
        self.assertFalse((self.folder / "stopped" / "model.safetensors").exists())
        command = output.splitlines()[-1].split()
        self.assertEqual(command[-1], "--resume")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"after step {step}", done.stdout)
        self.assertEqual(self.results("stopped"), self.results("whole2"))

        done = subprocess.run(command, capture_output=True, text=True, timeout=120)  # there is nothing left to do
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("accuracy by class", done.stdout)
        self.assertEqual(self.results("stopped"), self.results("whole2"))
        for option, value in (("--batch-size", "16"), ("--model", "lenet"), ("--optimizer", "sgd")):
            other = command[:]
            if option in other:
                other[other.index(option) + 1] = value
            else:
                other += [option, value]
            done = subprocess.run(other, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("comes from another run", done.stderr)

    # ---- What a run shows of itself ----

    def test_export(self):
        file = self.folder / "net.onnx"
        done = self.run_mnist("--epochs", "1", "--images", "256", "--export", file, out="export")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"wrote {file}\n", done.stdout)
        model = file.read_bytes()  # tests/onnx runs such models
        for part in (b"Conv", b"MaxPool", b"Gemm", b"batch", b"c1.weight", b"f3.bias"):
            self.assertIn(part, model)

    def test_profile(self):
        done = self.run_mnist("--model", "simple_conv", "--epochs", "1", "--profile", out="profile")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("conv2d_bias_relu", "optimizer_step", "GFLOP/s", "\nc1 ", "peak memory"):
            self.assertIn(words, done.stdout)
        trace = json.loads((self.folder / "profile" / "trace.json").read_text())["traceEvents"]
        self.assertTrue(any(event["ph"] == "C" for event in trace))
        layers = {event["args"]["module"] for event in trace if event["ph"] == "X"}
        self.assertLessEqual({"c1", "f1", "f2"}, layers)

    def test_tensorboard(self):
        folder = self.folder / "curves"
        done = self.run_mnist("--model", "pure_linear", "--epochs", "2", "--tensorboard", folder, out="curves_run")
        self.assertEqual(done.returncode, 0, done.stderr)
        (file,) = folder.iterdir()
        self.assertRegex(file.name, r"^events\.out\.tfevents\.\d{10}\..+")
        scalars, histograms, pictures, texts = {}, {}, [], []
        for event in read_events(file.read_bytes()):
            step = event.get(2, [0])[0]
            for summary in event.get(5, []):
                value = read_message(read_message(summary)[1][0])
                tag = value[1][0].decode()
                if 2 in value:
                    scalars.setdefault(tag, []).append((step, struct.unpack("<f", value[2][0])[0]))
                if 4 in value:
                    pictures.append(read_message(value[4][0]))
                if 5 in value:
                    histograms.setdefault(tag, []).append(read_message(value[5][0]))
                if 8 in value:
                    texts.append(read_message(value[8][0])[8][0].decode())
        log = [json.loads(line) for line in (self.folder / "curves_run" / "log.jsonl").read_text().splitlines()]
        for tag, key in (("loss/train", "train_loss"), ("error/test", "test_error")):
            self.assertEqual([step for step, _ in scalars[tag]], [6, 12])
            for (_, value), line in zip(scalars[tag], log):
                self.assertAlmostEqual(value, line[key], places=5)
        self.assertEqual(set(histograms), {"f1.weight", "f1.bias", "f2.weight", "f2.bias"})
        for histogram in histograms["f1.weight"]:
            counts = struct.unpack(f"<{len(histogram[7][0]) // 8}d", histogram[7][0])
            self.assertEqual(sum(counts), 78400)
            self.assertEqual(len(histogram[6][0]), len(histogram[7][0]))
            least, greatest = (struct.unpack("<d", histogram[field][0])[0] for field in (1, 2))
            self.assertLess(least, 0)
            self.assertGreater(greatest, 0)
        self.assertIn("--tensorboard", texts[0])
        for picture in pictures:
            height, width, channels, data = (picture[field][0] for field in (1, 2, 3, 4))
            self.assertEqual((height, width % 28, channels), (28, 0, 1))
            self.assertEqual(struct.unpack(">4s2I", data[12:24]), (b"IHDR", width, height))
            length = struct.unpack(">I", data[33:37])[0]
            self.assertEqual(len(zlib.decompress(data[41 : 41 + length])), height * (width + 1))

    def report(self, *arguments, **environment):
        command = [sys.executable, ROOT / "scripts" / "report.py", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})

    def test_report(self):
        self.trained("--model", "pure_linear", "--epochs", "2", out="r1")
        self.trained("--model", "pure_linear", "--epochs", "3", "--seed", "2", out="r2")
        with self.subTest("without matplotlib"):
            fake = self.folder / "fake"
            fake.mkdir()
            (fake / "matplotlib.py").write_text("raise ImportError('no plots today')")
            done = self.report(self.folder / "r1", PYTHONPATH=str(fake))
            self.assertEqual(done.returncode, 1)
            self.assertIn("needs matplotlib", done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        with self.subTest("without a log"):
            done = self.report(self.folder / "nothing")
            self.assertEqual(done.returncode, 1)
            self.assertIn("nothing", done.stderr)
        with self.subTest("a log that is none"):
            (self.folder / "bad.jsonl").write_text('{"epoch": 1}\n')
            done = self.report(self.folder / "bad.jsonl")
            self.assertEqual(done.returncode, 1)
            self.assertIn("bad.jsonl:1", done.stderr)
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("for want of matplotlib")
        done = self.report(self.folder / "r1", self.folder / "r2", "--out", self.folder / "report")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "report" / "curves.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        page = (self.folder / "report" / "report.html").read_text()
        self.assertIn("data:image/png;base64,", page)
        self.assertIn("<th>best epoch</th>", page)
        self.assertIn("<h2>Settings that differ</h2>", page)
        settings = re.search(r"Settings that differ</h2>\s*<table><tr>(.*?)</tr>", page)[1]
        self.assertEqual(re.findall("<th>(.*?)</th>", settings), ["run", "seed"])
        test = json.loads((self.folder / "r2" / "test.json").read_text())
        self.assertEqual((len(test["confusion"]), sum(map(sum, test["confusion"]))), (10, 100))
        right = sum(row[at] for at, row in enumerate(test["confusion"]))
        self.assertAlmostEqual(test["accuracy"], right / 100)
        self.assertEqual(len(test["mistakes"]), min(16, 100 - right))
        losses = [one["loss"] for one in test["mistakes"]]
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertEqual(page.count("which class is taken for which"), 2)
        self.assertEqual(page.count("data:image/png"), 1 + page.count("The worst mistakes"))
        self.assertNotIn("http", page)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1))
    unittest.main(verbosity=2)  # which names the skipped ones
