"""The nets of residual.cpp in PyTorch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import conv, conv_bn
from frame import classifier


def shortcut(width, out, stride):
    """Returns the way around a block: a 1x1 convolution if the block changes the shape, otherwise nothing."""
    return nn.Sequential() if stride == 1 and width == out else conv_bn(width, out, 1, stride, 1, "")


class ResidualBlock(nn.Module):
    def __init__(self, f, downsample):
        super().__init__()
        self.f, self.downsample = f, downsample

    def forward(self, x):
        return F.relu(self.f(x) + self.downsample(x))


def basic_block(width, out, stride):
    return ResidualBlock(nn.Sequential(conv_bn(width, out, 3, stride, 1, "relu"), conv_bn(out, out, 3, 1, 1, "")),
                         shortcut(width, out, stride))


def grouped_block(width, inner, out, stride):
    f = nn.Sequential(conv_bn(width, inner, 1, 1, 1, "relu"), conv_bn(inner, inner, 3, stride, 8, "relu"),
                      conv_bn(inner, out, 1, 1, 1, ""))
    return ResidualBlock(f, shortcut(width, out, stride))


class ResidualNet(nn.Module):
    """Convolutions, then a linear layer of the means of their channels."""

    def __init__(self, features, channels):
        super().__init__()
        self.features, self.fc = nn.Sequential(*features), nn.Linear(channels, 10)

    def forward(self, images):
        return self.fc(self.features(images).mean((2, 3)))


def resnet18():
    features, width = [conv_bn(3, 64, 3, 1, 1, "relu")], 64
    for out in (64, 128, 256, 512):
        features += [basic_block(width, out, 1 if out == width else 2), basic_block(out, out, 1)]
        width = out
    return ResidualNet(features, 512)


def resnext29():
    features, width = [conv_bn(3, 64, 3, 1, 1, "relu")], 64
    for inner in (64, 128, 256):
        for i in range(3):
            features.append(grouped_block(width, inner, 4 * inner, 2 if i == 0 and inner > 64 else 1))
            width = 4 * inner
    return ResidualNet(features, 1024)


class DenseLayer(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(width), conv(width, 4 * growth, 1)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), conv(4 * growth, growth, 3)

    def forward(self, x):
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y)))], 1)


def densenet_bc():
    growth = 12
    channels = 2 * growth
    features = [conv(3, channels, 3)]
    for block in range(3):
        if block > 0:
            features += [nn.BatchNorm2d(channels), nn.ReLU(), conv(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
        for _ in range(6):
            features.append(DenseLayer(channels, growth))
            channels += growth
    return ResidualNet([*features, nn.BatchNorm2d(channels), nn.ReLU()], channels)


class ChannelNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.dwconv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 1e-2))

    def forward(self, x):
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext():
    features, width = [], 3
    for channels, blocks in ((48, 2), (96, 2), (192, 6), (384, 2)):
        step = nn.Conv2d(width, channels, 2, 2)
        features += [step, ChannelNorm(channels)] if width == 3 else [ChannelNorm(width), step]
        features += [ConvNeXtBlock(channels) for _ in range(blocks)]
        width = channels
    return ResidualNet(features, 384)


NETS = {make.__name__: lambda make=make: classifier(make()) for make in (resnet18, resnext29, densenet_bc, convnext)}
