"""The nets of detectors.cpp in PyTorch."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import conv_3x3, conv_bn
from frame import one_phase

CLASSES = 20
SHAPES = 3
CHANNELS = (128, 256, 256)


def make_anchors():
    """Returns the anchors of all positions of all maps: (A, 4), three shapes at each position."""
    return torch.tensor([[(x + 0.5) / side, (y + 0.5) / side, width / side, height / side]
                         for side in (16, 8, 4) for y in range(side) for x in range(side)
                         for width, height in ((2, 2), (3, 1.5), (1.5, 3))])


def corners(boxes):
    centre, size = boxes.split(2, -1)
    return centre - size / 2, centre + size / 2


def overlaps(boxes, anchors):
    """Returns the intersection over union of each of boxes (N, G, 4) with each anchor: (N, G, A)."""
    (a_low, a_high), (b_low, b_high) = corners(boxes.unsqueeze(2)), corners(anchors)
    common = (torch.minimum(a_high, b_high) - torch.maximum(a_low, b_low)).clamp_min(0).prod(-1)
    return common / ((a_high - a_low).prod(-1) + (b_high - b_low).prod(-1) - common)


def targets_of(random, classes, anchors):
    """Returns for each anchor if there is an object, its class, and its box relative to the anchor."""
    boxes = torch.cat([random[..., :2], 0.1 + random[..., 2:] / 2], 2)
    overlap, best = overlaps(boxes, anchors).max(1)
    centre, size = boxes.gather(1, best.unsqueeze(2).expand(-1, -1, 4)).split(2, 2)
    anchor_centre, anchor_size = anchors.split(2, 1)
    offsets = torch.cat([(centre - anchor_centre) / anchor_size / 0.1, torch.log(size / anchor_size) / 0.2], 2)
    return overlap > 0.5, classes.gather(1, best), offsets


def by_anchor(x, values):
    return x.permute(0, 2, 3, 1).reshape(len(x), -1, values)


def box_loss(offsets, targets, is_object):
    return (F.smooth_l1_loss(offsets, targets, reduction="none").sum(2) * is_object).sum()


def halving_stage(width, out):
    return nn.Sequential(conv_bn(width, out, 3, 2, 1, "relu"), conv_bn(out, out, 3, 1, 1, "relu"))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 32, 3, 2, 1, "relu"), conv_bn(32, 64, 3, 2, 1, "relu"))
        self.stages = nn.ModuleList([halving_stage(width, out) for width, out in zip((64, *CHANNELS), CHANNELS)])

    def forward(self, images):
        x, maps = self.stem(images), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


class Ssd(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.class_heads = nn.ModuleList([conv_3x3(channels, SHAPES * (1 + CLASSES)) for channels in CHANNELS])
        self.box_heads = nn.ModuleList([conv_3x3(channels, SHAPES * 4) for channels in CHANNELS])
        self.register_buffer("anchors", make_anchors())

    def loss(self, images, random, classes):
        is_object, classes, box_targets = targets_of(random, classes, self.anchors)
        maps = self.backbone(images)
        logits = torch.cat([by_anchor(head(x), 1 + CLASSES) for head, x in zip(self.class_heads, maps)], 1)
        offsets = torch.cat([by_anchor(head(x), 4) for head, x in zip(self.box_heads, maps)], 1)
        losses = F.cross_entropy(logits.transpose(1, 2), is_object * (1 + classes), reduction="none")
        objects = is_object.sum(1, True)
        rank = losses.detach().masked_fill(is_object, -1).argsort(1, True).argsort(1)
        counts = is_object | (rank < 3 * objects)
        return ((losses * counts).sum() + box_loss(offsets, box_targets, is_object)) / objects.sum().clamp_min(1)


def pyramid_head(width, out):
    return nn.Sequential(conv_3x3(width, width), nn.ReLU(), conv_3x3(width, width), nn.ReLU(), conv_3x3(width, out))


class RetinaNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.laterals = Backbone(), nn.ModuleList([nn.Conv2d(channels, 128, 1) for channels in CHANNELS])
        self.class_head, self.box_head = pyramid_head(128, SHAPES * CLASSES), pyramid_head(128, SHAPES * 4)
        nn.init.constant_(self.class_head[4].bias, -math.log(99))  # each class has probability 0.01
        self.register_buffer("anchors", make_anchors())

    def pyramid(self, images):
        fine, middle, coarse = (lateral(x) for lateral, x in zip(self.laterals, self.backbone(images)))
        middle = middle + F.interpolate(coarse, scale_factor=2, mode="nearest")
        return fine + F.interpolate(middle, scale_factor=2, mode="nearest"), middle, coarse

    def loss(self, images, random, classes):
        is_object, classes, box_targets = targets_of(random, classes, self.anchors)
        maps = self.pyramid(images)
        logits = torch.cat([by_anchor(self.class_head(x), CLASSES) for x in maps], 1)
        offsets = torch.cat([by_anchor(self.box_head(x), 4) for x in maps], 1)
        p = torch.sigmoid(logits)
        is_class = F.one_hot(classes, CLASSES).bool() & is_object.unsqueeze(2)
        focus = torch.where(is_class, 0.25 * (1 - p).square(), 0.75 * p.square())
        losses = focus * F.binary_cross_entropy_with_logits(logits, is_class.to(logits.dtype), reduction="none")
        return (losses.sum() + box_loss(offsets, box_targets, is_object)) / is_object.sum().clamp_min(1)


NETS = {"ssd": lambda: one_phase(Ssd()), "retinanet": lambda: one_phase(RetinaNet())}
