"""The nets of benchmarks/nets.h in PyTorch."""

from typing import Callable, NamedTuple

import torch.nn as nn
import torch.nn.functional as F


class Workload(NamedTuple):
    """A net with logits of 10 classes, the shape of its input for a batch size, and the batch sizes to measure; the
    larger sizes are only for GPUs."""

    name: str
    input: Callable
    batches: list
    make: Callable
    larger_batches: list = []


def images(channels, height, width):
    return lambda batch: (batch, channels, height, width)


def sequences(length, features):
    return lambda batch: (length, batch, features)


def pure_linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


def conv_net(depth, channels):
    layers = []
    for i in range(depth):
        layers += [nn.Conv2d(1 if i == 0 else channels, channels, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * 28 * 28, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


def stl10_net():
    layers, width = [], 3
    for out in (32, 64, 128):
        layers += [nn.Conv2d(width, out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        width = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 12 * 12, 512), nn.Dropout(0.5), nn.Linear(512, 10))


class BasicBlock(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = nn.Identity()
        if stride != 1 or width != out:
            self.downsample = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        f = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(f + self.downsample(x))


def resnet18():
    """ResNet for images of 32x32: the first convolution is 3x3, and no pooling follows it."""
    layers, width = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(width, out, stride), BasicBlock(out, out, 1)]
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class LstmNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(128, 128)
        self.fc = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][-1])


class AttentionNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(128, 4)
        self.fc = nn.Linear(128, 10)

    def forward(self, x):
        return self.fc(self.encoder(x).mean(0))


WORKLOADS = [
    Workload("pure_linear", images(1, 28, 28), [128], pure_linear),
    Workload("conv2_c1", images(1, 28, 28), [128], lambda: conv_net(2, 1)),
    Workload("conv10_c1", images(1, 28, 28), [128], lambda: conv_net(10, 1)),
    Workload("conv2_c32", images(1, 28, 28), [128], lambda: conv_net(2, 32)),
    Workload("conv10_c32", images(1, 28, 28), [128], lambda: conv_net(10, 32)),
    Workload("lenet", images(1, 28, 28), [64, 1024], lenet),
    Workload("stl10_net", images(3, 96, 96), [32, 128], stl10_net, [512]),
    Workload("resnet18", images(3, 32, 32), [32], resnet18, [128]),
    Workload("lstm", sequences(64, 128), [32], LstmNet),
    Workload("attention", sequences(64, 128), [16], AttentionNet),
]
