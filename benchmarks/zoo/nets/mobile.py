"""The nets of mobile.cpp in PyTorch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import conv_bn
from frame import classifier


class MobileNet(nn.Module):
    """Convolutions, then a classifier of the means of their channels."""

    def __init__(self, features, classifier):
        super().__init__()
        self.features, self.classifier = features, classifier

    def forward(self, images):
        return self.classifier(self.features(images).mean((2, 3)))


def mobilenet_v1():
    features, width = [conv_bn(3, 32, 3, 2, 1, "relu")], 32
    steps = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for out, stride in steps:
        features += [conv_bn(width, width, 3, stride, width, "relu"), conv_bn(width, out, 1, 1, 1, "relu")]
        width = out
    return MobileNet(nn.Sequential(*features), nn.Sequential(nn.Linear(1024, 100)))


class SqueezeExcitation(nn.Module):
    def __init__(self, channels, squeezed, hard):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.hard = hard

    def forward(self, x):
        means = F.adaptive_avg_pool2d(x, 1)
        if self.hard:
            return x * F.hardsigmoid(self.fc2(F.relu(self.fc1(means))))
        return x * torch.sigmoid(self.fc2(F.silu(self.fc1(means))))


class InvertedResidual(nn.Module):
    def __init__(self, width, expanded, out, kernel, stride, activation, squeezed=0):
        super().__init__()
        self.is_residual = stride == 1 and width == out
        layers = [conv_bn(width, expanded, 1, 1, 1, activation)] if expanded != width else []
        layers.append(conv_bn(expanded, expanded, kernel, stride, expanded, activation))
        if squeezed:
            layers.append(SqueezeExcitation(expanded, squeezed, activation != "silu"))
        self.block = nn.Sequential(*layers, conv_bn(expanded, out, 1, 1, 1, ""))

    def forward(self, x):
        return x + self.block(x) if self.is_residual else self.block(x)


def mobilenet_v2():
    features, width = [conv_bn(3, 32, 3, 2, 1, "relu6")], 32
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for factor, out, blocks, stride in stages:
        for i in range(blocks):
            features.append(InvertedResidual(width, width * factor, out, 3, 1 if i else stride, "relu6"))
            width = out
    features.append(conv_bn(width, 1280, 1, 1, 1, "relu6"))
    return MobileNet(nn.Sequential(*features), nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 100)))


def mobilenet_v3_small():
    blocks = [(16, 16, 16, 3, 2, "relu", 8), (16, 72, 24, 3, 2, "relu"), (24, 88, 24, 3, 1, "relu"),
              (24, 96, 40, 5, 2, "hardswish", 24), (40, 240, 40, 5, 1, "hardswish", 64),
              (40, 240, 40, 5, 1, "hardswish", 64), (40, 120, 48, 5, 1, "hardswish", 32),
              (48, 144, 48, 5, 1, "hardswish", 40), (48, 288, 96, 5, 2, "hardswish", 72),
              (96, 576, 96, 5, 1, "hardswish", 144), (96, 576, 96, 5, 1, "hardswish", 144)]
    features = nn.Sequential(conv_bn(3, 16, 3, 2, 1, "hardswish"), *(InvertedResidual(*block) for block in blocks),
                             conv_bn(96, 576, 1, 1, 1, "hardswish"))
    return MobileNet(features, nn.Sequential(nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2),
                                             nn.Linear(1024, 100)))


def efficientnet_b0():
    features, width = [conv_bn(3, 32, 3, 2, 1, "silu")], 32
    stages = [(1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1),
              (6, 5, 192, 4, 2), (6, 3, 320, 1, 1)]
    for factor, kernel, out, blocks, stride in stages:
        for i in range(blocks):
            features.append(InvertedResidual(width, width * factor, out, kernel, 1 if i else stride, "silu",
                                             width // 4))
            width = out
    features.append(conv_bn(width, 1280, 1, 1, 1, "silu"))
    return MobileNet(nn.Sequential(*features), nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 100)))


def channel_shuffle(x):
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class ShuffleUnit(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.stride, half = stride, out // 2
        self.branch1 = nn.Sequential()
        if stride == 2:
            self.branch1 = nn.Sequential(conv_bn(width, width, 3, 2, width, ""), conv_bn(width, half, 1, 1, 1, "relu"))
        self.branch2 = nn.Sequential(conv_bn(width if stride == 2 else half, half, 1, 1, 1, "relu"),
                                     conv_bn(half, half, 3, stride, half, ""), conv_bn(half, half, 1, 1, 1, "relu"))

    def forward(self, x):
        if self.stride == 2:
            return channel_shuffle(torch.cat([self.branch1(x), self.branch2(x)], 1))
        kept, changed = x.chunk(2, 1)
        return channel_shuffle(torch.cat([kept, self.branch2(changed)], 1))


def shufflenet_v2():
    features, width = [conv_bn(3, 24, 3, 2, 1, "relu"), nn.MaxPool2d(3, 2, 1)], 24
    for out, units in ((116, 4), (232, 8), (464, 4)):
        for i in range(units):
            features.append(ShuffleUnit(width, out, 1 if i else 2))
            width = out
    features.append(conv_bn(width, 1024, 1, 1, 1, "relu"))
    return MobileNet(nn.Sequential(*features), nn.Sequential(nn.Linear(1024, 100)))


NETS = {make.__name__: lambda make=make: classifier(make())
        for make in (mobilenet_v1, mobilenet_v2, mobilenet_v3_small, efficientnet_b0, shufflenet_v2)}
