"""Blocks that nets of several families use, as in blocks.h."""

import torch.nn as nn

ACTIVATIONS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "silu": nn.SiLU, "hardswish": nn.Hardswish}


def conv(width, out, kernel, stride=1, groups=1):
    """Returns a convolution without bias whose padding keeps the size of images, apart from the stride."""
    return nn.Conv2d(width, out, kernel, stride, kernel // 2, groups=groups, bias=False)


def conv_3x3(width, out, stride=1):
    """Returns a 3x3 convolution with bias, which keeps the size of images, apart from the stride."""
    return nn.Conv2d(width, out, 3, stride, 1)


def conv_bn(width, out, kernel, stride, groups, activation):
    """Returns the convolution conv(…), batch norm, and an activation if it has a name."""
    last = [ACTIVATIONS[activation]()] if activation else []
    return nn.Sequential(conv(width, out, kernel, stride, groups), nn.BatchNorm2d(out), *last)


def small_embedding(rows, width, deviation):
    """Returns an embedding whose numbers are drawn with a small deviation, because logits are products with it."""
    table = nn.Embedding(rows, width)
    nn.init.normal_(table.weight, 0, deviation)
    return table


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, *f):
        super().__init__()
        self.f = nn.Sequential(*f)

    def forward(self, x):
        return x + self.f(x)
