#!/usr/bin/env python3
"""examples/transfer with nets that PyTorch made: the small one of tests/transfer, and where there is PyTorch one with
torchvision's first layers.

usage: transfer_test.py BUILD_DIR/examples
"""

import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

from trained_nets_test import write_png

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path()
SIZE = 48
KINDS = {"flat": lambda x, y: 0, "across": lambda x, y: y // 4 % 2, "down": lambda x, y: x // 4 % 2,
         "squares": lambda x, y: (x // 8 + y // 8) % 2}


class Transfer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        chance = random.Random(1)
        cls.images = {}  # (class, grey values)
        for label, (name, kind) in enumerate(sorted(KINDS.items())):
            (cls.folder / "images" / name).mkdir(parents=True)
            for number in range(20):
                base, contrast = chance.randint(60, 120), chance.randint(30, 90)
                pixels = [[base + contrast * kind(x, y) + chance.randint(-20, 20) for x in range(SIZE)]
                          for y in range(SIZE)]
                write_png(cls.folder / "images" / name / f"{number}.png", SIZE, SIZE, lambda x, y: pixels[y][x])
                cls.images[name, number] = (label, pixels)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_transfer(self, *options, code=0):
        done = subprocess.run([PROGRAMS / "transfer", "--out", self.folder / "out", *options], capture_output=True,
                              text=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def learns(self, weights):
        """Learns the folder from these weights; how many images the net names rightly, of those to train and to test."""
        said = self.run_transfer("--weights", weights, "--folder", self.folder / "images", "--size", str(SIZE),
                                 "--epochs", "200", "--lr", "0.03").stdout
        self.assertIn(f"4 classes; 64 images of {SIZE} x {SIZE} to train on, 16 to test with", said)
        return [int(number) for number in re.search(r"right: (\d+) of 64 .* (\d+) of 16 ", said).groups()]

    def test_a_new_last_layer_learns_new_classes(self):
        train, test = self.learns(ROOT / "tests/transfer/resnet18.safetensors")
        self.assertGreater(train, 48)  # by chance: 16
        self.assertGreater(test, 8)    # by chance: 4

    def test_pytorch_gives_the_same_answers(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch")
        sys.path.insert(0, str(ROOT / "tests/transfer"))
        import make_models

        class TorchvisionsResNet18(make_models.ResNet18):
            def __init__(self, classes):
                super().__init__(8)
                self.conv1 = torch.nn.Conv2d(3, 8, 7, 2, 3, bias=False)
                self.fc = torch.nn.Linear(64, classes)

            def forward(self, x):
                x = self.bn1(self.conv1(x)).relu()
                x = torch.nn.functional.max_pool2d(x, 3, 2, 1)
                return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))

        labels = torch.tensor([label for label, _ in self.images.values()])
        pixels = torch.tensor([grey for _, grey in self.images.values()]) / 255
        mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        images = (pixels[:, None] - mean[:, None, None]) / deviation[:, None, None]
        torch.manual_seed(2)
        torch.set_num_threads(1)
        net = TorchvisionsResNet18(3)  # that tells how much of a picture is bright
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        brightness = (images.mean((1, 2, 3)) * 5).long() % 3
        for _ in range(5):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images), brightness).backward()
            optimizer.step()
        weights = self.folder / "torch.safetensors"
        make_models.write_safetensors(weights, make_models.numpy_of(net.state_dict()))

        right = sum(self.learns(weights))
        self.assertGreater(right, 40)  # by chance: 20
        other = TorchvisionsResNet18(4)
        other.load_state_dict(make_models.read_safetensors(self.folder / "out" / "model.safetensors"))
        other.eval()
        for name, value in net.state_dict().items():
            if not name.startswith("fc."):
                self.assertTrue(torch.equal(value, other.state_dict()[name]), name)
        logits = other(images)
        best = logits.topk(2, 1).values
        close = (best[:, 0] - best[:, 1] < 1e-3).sum().item()  # may fall either way
        self.assertAlmostEqual((logits.argmax(1) == labels).sum().item(), right, delta=close)

    def test_wrong_calls(self):
        said = self.run_transfer(code=1).stderr
        self.assertIn('torchvision.models.resnet18(weights="DEFAULT")', said)
        self.assertIn("save_file(net.state_dict()", said)
        header = json.dumps({"conv1.weight": {"dtype": "F32", "shape": [6, 3, 3, 3], "data_offsets": [0, 648]}})
        (self.folder / "stem.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(648))
        for file, words in (
            (self.folder / "stem.safetensors", "stem.safetensors' has no 'bn1.weight', which a ResNet-18 has"),
            (ROOT / "tests/transfer/lenet.safetensors", "'conv1.weight': the state has (6, 1, 5, 5)"),
            (ROOT / "tests/transfer/lenet_results.safetensors", "is it a ResNet-18 with torchvision's names?"),
        ):
            said = self.run_transfer("--weights", file, "--folder", self.folder / "images", code=1).stderr
            self.assertIn(words, said)
        self.assertIn("nothing.safetensors", self.run_transfer("--weights", "nothing.safetensors", code=1).stderr)


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
