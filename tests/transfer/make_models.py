#!/usr/bin/env python3
"""Models that travel between PyTorch and gradus, with what they make of the same images.

    tests/transfer/make_models.py                   writes lenet.safetensors, resnet18.safetensors and their *_results
    tests/transfer/make_models.py --check FOLDER    loads the models that test_transfer wrote to FOLDER

A ResNet-18 of the paper's width has 11 million parameters. This one is six channels wide instead of 64, everything else
is the same: layers, names, strides, shortcuts, batch norm with running statistics.
"""
import argparse
import json
import pathlib
import struct
import sys

import numpy as np
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))
from make_golden import write_safetensors  # noqa: E402

DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
WIDTH = 6


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv1(x).relu(), 2)
        x = nn.functional.max_pool2d(self.conv2(x).relu(), 2)
        return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (self.downsample(x) if self.downsample else x)).relu()


class ResNet18(nn.Module):
    """torchvision's, but for the first convolution and the pooling after it, which small images do without."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for number, outputs in enumerate((width, 2 * width, 4 * width, 8 * width), 1):
            blocks = BasicBlock(inputs, outputs, 1 if number == 1 else 2), BasicBlock(outputs, outputs, 1)
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
            inputs = outputs
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


MODELS = {"lenet": (LeNet, (8, 1, 28, 28)), "resnet18": (ResNet18, (8, 3, 32, 32))}


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        numbers = np.frombuffer(data[begin:end], dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
        found[name] = torch.tensor(numbers)
    return found


def numpy_of(tensors):
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def make(name):
    model_type, shape = MODELS[name]
    torch.manual_seed(1)
    model = model_type()
    # As after training: batches were seen, so running statistics, scales and shifts are no longer 0 and 1.
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        images, labels = torch.randn(16, *shape[1:]) + 0.5, torch.randint(10, (16,))
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    write_safetensors(HERE / f"{name}.safetensors", numpy_of(model.state_dict()))

    images = torch.randn(*shape)
    model.eval()
    logits = model(images)
    model.train()
    results = {"images": images, "logits": logits, "logits_in_training": model(images)}
    write_safetensors(HERE / f"{name}_results.safetensors", numpy_of(results))


def check(name, folder):
    """The model that gradus wrote gives the logits that gradus computed."""
    model = MODELS[name][0]()
    model.load_state_dict(read_safetensors(folder / f"{name}.safetensors"))  # strict: every name, and no other
    results = read_safetensors(folder / f"{name}_results.safetensors")
    model.eval()
    difference = (model(results["images"]) - results["logits"]).abs().max().item()
    scale = results["logits"].abs().max().item()
    print(f"{name}: logits up to {scale:.3g}, largest difference {difference:.3g}")
    return difference < 1e-5 * scale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.check:
        for name in MODELS:
            make(name)
    elif not all([check(name, options.check) for name in MODELS]):
        sys.exit("PyTorch computes something else")


if __name__ == "__main__":
    main()
