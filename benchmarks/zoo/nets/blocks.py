"""Blocks that nets of several families use, as in blocks.h."""

import torch.nn as nn

ACTIVATIONS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "silu": nn.SiLU, "hardswish": nn.Hardswish}


def conv(width, out, kernel, stride=1, groups=1):
    """Returns a convolution without bias whose padding keeps the size of images, apart from the stride."""
    return nn.Conv2d(width, out, kernel, stride, kernel // 2, groups=groups, bias=False)


def conv_bn(width, out, kernel, stride, groups, activation):
    """Returns the convolution conv(…), batch norm, and an activation if it has a name."""
    last = [ACTIVATIONS[activation]()] if activation else []
    return nn.Sequential(conv(width, out, kernel, stride, groups), nn.BatchNorm2d(out), *last)


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, *f):
        super().__init__()
        self.f = nn.Sequential(*f)

    def forward(self, x):
        return x + self.f(x)
