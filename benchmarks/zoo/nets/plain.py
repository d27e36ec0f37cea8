"""The nets of plain.cpp in PyTorch."""

from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import conv_bn
from frame import classifier


def conv_relu(width, out, kernel):
    """Returns a convolution with bias, whose padding keeps the size of images, and ReLU."""
    return [nn.Conv2d(width, out, kernel, padding=kernel // 2), nn.ReLU()]


def max_pool_3x3():
    return nn.MaxPool2d(3, 2, ceil_mode=True)


def vgg11_bn():
    features, width = [], 3
    for out in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if out == 0:
            features.append(nn.MaxPool2d(2))
            continue
        features += [nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        width = out
    classifier = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 512), nn.ReLU(),
                               nn.Dropout(0.5), nn.Linear(512, 10))
    return nn.Sequential(OrderedDict(features=nn.Sequential(*features), flatten=nn.Flatten(), classifier=classifier))


def network_in_network():
    return nn.Sequential(
        *conv_relu(3, 192, 5), *conv_relu(192, 160, 1), *conv_relu(160, 96, 1), max_pool_3x3(), nn.Dropout(0.5),
        *conv_relu(96, 192, 5), *conv_relu(192, 192, 1), *conv_relu(192, 192, 1), nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Dropout(0.5), *conv_relu(192, 192, 3), *conv_relu(192, 192, 1), *conv_relu(192, 10, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Fire(nn.Module):
    def __init__(self, width, squeezed, expanded):
        super().__init__()
        self.squeeze = nn.Conv2d(width, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.expand1x1(y)), F.relu(self.expand3x3(y))], 1)


def squeezenet():
    features = nn.Sequential(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), max_pool_3x3(), Fire(64, 16, 64), Fire(128, 16, 64),
                             max_pool_3x3(), Fire(128, 32, 128), Fire(256, 32, 128), max_pool_3x3(),
                             Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256))
    classifier = nn.Sequential(nn.Dropout(0.5), nn.Conv2d(512, 100, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(OrderedDict(features=features, classifier=classifier, flatten=nn.Flatten()))


class Inception(nn.Module):
    def __init__(self, width, of_1x1, before_3x3, of_3x3, before_5x5, of_5x5, after_pool):
        super().__init__()
        self.branch1 = conv_bn(width, of_1x1, 1, 1, 1, "relu")
        self.branch2 = nn.Sequential(conv_bn(width, before_3x3, 1, 1, 1, "relu"),
                                     conv_bn(before_3x3, of_3x3, 3, 1, 1, "relu"))
        self.branch3 = nn.Sequential(conv_bn(width, before_5x5, 1, 1, 1, "relu"),
                                     conv_bn(before_5x5, of_5x5, 5, 1, 1, "relu"))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_bn(width, after_pool, 1, 1, 1, "relu"))

    def forward(self, x):
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


def inception():
    return nn.Sequential(
        conv_bn(3, 64, 3, 1, 1, "relu"), Inception(64, 32, 48, 64, 8, 16, 16), Inception(128, 64, 64, 96, 16, 48, 32),
        max_pool_3x3(), Inception(240, 96, 48, 104, 8, 24, 32), Inception(256, 80, 56, 112, 12, 32, 32),
        max_pool_3x3(), Inception(256, 128, 80, 160, 16, 64, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(416, 10))


def dilated_context():
    width = 24
    layers = conv_relu(3, width, 3)
    for dilation in (1, 1, 2, 4, 8, 16, 1):
        layers += [nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(width, 21, 1))


def m5_audio():
    layers = []
    for width, out in ((1, 128), (128, 128), (128, 256), (256, 512)):
        step = nn.Conv1d(1, out, 80, 4) if width == 1 else nn.Conv1d(width, out, 3)
        layers += [step, nn.BatchNorm1d(out), nn.ReLU(), nn.MaxPool1d(4)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(512, 35))


NETS = {make.__name__: lambda make=make: classifier(make())
        for make in (vgg11_bn, network_in_network, squeezenet, inception, dilated_context, m5_audio)}
