#!/usr/bin/env python3
"""What can be done with a net that an image example has trained: test it, classify photographs, begin with it, train it
longer, ask what a file is. On small images in MNIST's and STL-10's formats.

usage: trained_nets_test.py BUILD_DIR/examples
"""

import base64
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

from mnist_test import write_images

PROGRAMS = pathlib.Path()


def first_image(folder, label):
    """The first of the test images that is of that class, 28 x 28 bytes."""
    labels = (folder / "t10k-labels-idx1-ubyte").read_bytes()[8:]
    begin = 16 + 784 * labels.index(label)
    return (folder / "t10k-images-idx3-ubyte").read_bytes()[begin:begin + 784]


def write_png(path, width, height, grey):
    """A grey PNG of grey(x, y) from 0 to 255."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(grey(x, y) for x in range(width)) for y in range(height))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def grey_pixels(png):
    """The rows of a grey PNG."""
    at, data = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">2I2B", body[:10])
            assert (depth, colour) == (8, 0)
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    data, rows, above = zlib.decompress(data), [], [0] * width
    for y in range(height):
        filtered, row = data[y * (width + 1):(y + 1) * (width + 1)], []
        for x in range(width):
            a, b, c = row[x - 1] if x else 0, above[x], above[x - 1] if x else 0
            paeth = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            row.append((filtered[x + 1] + [0, a, b, (a + b) // 2, paeth][filtered[0]]) % 256)
        rows.append(row)
        above = row
    return rows


class TrainedNets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        write_images(cls.folder, "train", 330, 1)
        write_images(cls.folder, "t10k", 100, 2)
        done = cls.run_program("mnist", "--model", "simple_conv", "--epochs", "4", "--batch-size", "32", out="trained")
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def run_program(cls, program, *options, out):
        command = [PROGRAMS / program, "--data", cls.folder, "--out", cls.folder / out, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    def says(self, program, *options, out="trained"):
        done = self.run_program(program, *options, out=out)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refuses(self, program, *options, out="trained"):
        done = self.run_program(program, *options, out=out)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        return done.stderr

    def log_of(self, out):
        return [json.loads(line) for line in (self.folder / out / "log.jsonl").read_text().splitlines()]

    def test_evaluate_says_what_the_last_epoch_said(self):
        said = self.says("mnist", "--evaluate")  # which net it is, the file knows
        last = self.log_of("trained")[-1]
        self.assertIn(f"test loss {last['test_loss']:.4f}", said)
        self.assertIn(f"{100 * last['test_accuracy']:.2f} % of all", said)

    def test_predict_names_the_class_and_shows_what_the_net_saw(self):
        images = {label: first_image(self.folder, label) for label in (2, 7)}
        for label, image in images.items():
            write_png(self.folder / f"{label}.png", 28, 28, lambda x, y: image[28 * y + x])  # noqa: B023, called at once
        said = self.says("mnist", "--predict", self.folder / "2.png", self.folder / "7.png").splitlines()
        for line, label in zip(said, images):
            self.assertRegex(line, rf"/{label}\.png: {label} \d+\.\d %, ")
            self.assertAlmostEqual(sum(map(float, re.findall(r"([\d.]+) %", line))), 100, delta=10)
        page = (self.folder / "trained" / "predictions.html").read_text()
        pictures = [grey_pixels(base64.b64decode(text)) for text in re.findall(r"base64,([^']*)", page)]
        self.assertEqual([bytes(sum(picture, [])) for picture in pictures], list(images.values()))

    def test_a_photographed_digit_is_made_one_of_mnists(self):
        def paper(x, y):  # a stroke of dark ink, above and left of the middle; the light comes from the right
            return 40 if 60 <= x < 70 and 30 <= y < 110 else 190 + x // 20

        for name, grey in (("paper", paper), ("slate", lambda x, y: 255 - paper(x, y))):
            write_png(self.folder / f"{name}.png", 400, 300, grey)
            self.says("mnist", "--predict", self.folder / f"{name}.png")
            page = (self.folder / "trained" / "predictions.html").read_text()
            rows = grey_pixels(base64.b64decode(re.search(r"base64,([^']*)", page)[1]))
            self.assertEqual((len(rows), len(rows[0])), (28, 28))
            ink = [(x, y) for y, row in enumerate(rows) for x, value in enumerate(row) if value > 100]
            self.assertEqual(max(y for _, y in ink) - min(y for _, y in ink) + 1, 20)
            for at in (0, 1):
                self.assertAlmostEqual(sum(place[at] for place in ink) / len(ink), 13.5, delta=0.6)
        write_png(self.folder / "nothing.png", 50, 50, lambda x, y: 200)
        self.assertIn("there is no digit", self.refuses("mnist", "--predict", self.folder / "nothing.png"))

    def test_training_begins_with_the_weights_of_a_file(self):
        file = self.folder / "trained" / "model.safetensors"
        self.says("mnist", "--init", file, "--epochs", "1", "--lr", "1e-9", out="begun")
        self.assertAlmostEqual(self.log_of("begun")[0]["test_loss"], self.log_of("trained")[-1]["test_loss"], delta=1e-4)
        self.assertIn("--model lenet: ", self.refuses("mnist", "--init", file, "--model", "lenet"))
        self.assertIn("leave out --model", self.refuses("mnist", "--evaluate", "--model", "lenet"))
        self.assertIn("there is no model", self.refuses("mnist", "--evaluate", out="nowhere"))
        self.assertIn("--init", self.refuses("mnist", "--init", self.folder / "2.safetensors"))
        strange = self.folder / "strange.safetensors"
        strange.write_bytes(file.read_bytes().replace(b"simple_conv", b"simple_comb"))
        self.assertIn("simple_comb not in", self.refuses("mnist", "--init", strange))
        self.assertIn("trains nothing", self.refuses("mnist", "--evaluate", "--checkpoint", self.folder / "c"))

    def test_a_model_is_kept_every_so_many_epochs(self):
        self.says("mnist", "--epochs", "5", "--save-every", "2", "--model", "pure_linear", out="kept")
        names = {path.name for path in (self.folder / "kept").glob("*.safetensors")}
        self.assertEqual(names, {"model.safetensors", "model_2.safetensors", "model_4.safetensors"})
        said = self.says("mnist", "--evaluate", "--init", self.folder / "kept" / "model_2.safetensors", out="kept")
        self.assertIn(f"test loss {self.log_of('kept')[1]['test_loss']:.4f}", said)

    def test_a_finished_run_is_trained_longer(self):
        checkpoint = ["--checkpoint", self.folder / "longer.checkpoint", "--model", "pure_linear"]
        self.says("mnist", *checkpoint, "--epochs", "2", out="longer")
        self.says("mnist", *checkpoint, "--epochs", "4", "--resume", out="longer")
        log = self.log_of("longer")
        self.assertEqual([line["epoch"] for line in log], [1, 2, 3, 4])
        # The cosine now ends with epoch 4: half of its way is behind it.
        self.assertAlmostEqual(log[2]["lr"], log[0]["lr"] / 2, delta=1e-12)
        self.assertLess(log[3]["lr"], log[2]["lr"])
        self.assertLess(log[3]["train_loss"], log[1]["train_loss"])

    def test_a_file_tells_what_it_is(self):
        def info(*paths):
            return subprocess.run([PROGRAMS.parent / "gradus-info", *paths], capture_output=True, text=True, timeout=60)

        said = info(self.folder / "trained" / "model.safetensors").stdout
        for line in ("a net trained by mnist", "simple_conv", '["0","1"', "0.1307", "float32 (10, 64)",
                     "in 6 tensors"):
            self.assertIn(line, said)
        self.says("mnist", "--model", "pure_linear", "--epochs", "1", "--checkpoint", self.folder / "a.checkpoint", out="c")
        self.assertIn("a checkpoint of a run", info(self.folder / "a.checkpoint").stdout)
        for wrong, message in (("nothing", "there is no"), (".", "not a checkpoint"), ("2.png", "safetensors")):
            write_png(self.folder / "2.png", 4, 4, lambda x, y: 0)
            done = info(self.folder / wrong)
            self.assertEqual(done.returncode, 1)
            self.assertIn(message, done.stderr)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
