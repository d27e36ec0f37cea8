#!/usr/bin/env python3
"""Writes image_ops.safetensors: what PyTorch makes of small images, for data/images/image_ops.h. Affine maps are products of
matrices here, inverted by numpy, and pixels are found by grid_sample; colours are Python's colorsys.

    tests/golden/make_image_ops.py
"""
import colorsys
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

from make_golden import write_safetensors

random = np.random.default_rng(20)
IMAGE = random.random((3, 7, 10), dtype=np.float32)


def turn(angle):
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])


def move(x, y):
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1.0]])


def forward_map(angle, translate, scale, shear, center):
    shear_x = np.array([[1, -math.tan(math.radians(shear[0])), 0], [0, 1, 0], [0, 0, 1]])
    shear_y = np.array([[1, 0, 0], [-math.tan(math.radians(shear[1])), 1, 0], [0, 0, 1]])
    there = move(center[0] + translate[0], center[1] + translate[1])
    return there @ turn(angle) @ np.diag([scale, scale, 1]) @ shear_y @ shear_x @ move(-center[0], -center[1])


def sample(matrix, size, mode, fill):
    """Output pixels at size (height, width), by the inverse of `matrix`; both images have their middle at 0."""
    inverse = np.linalg.inv(matrix)
    height, width = size
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    points = np.stack([x + 0.5 - width / 2, y + 0.5 - height / 2, np.ones_like(x)], -1) @ inverse.T
    grid = points[..., :2] / np.array([IMAGE.shape[2] / 2, IMAGE.shape[1] / 2])
    fill = torch.tensor(fill, dtype=torch.float64).reshape(-1, 1, 1)
    image = torch.from_numpy(IMAGE).double() - fill
    found = F.grid_sample(image[None], torch.from_numpy(grid)[None], mode, "zeros", align_corners=False)[0]
    return (found + fill).numpy()


def affine(angle, translate, scale, shear, mode="bilinear", fill=0.0, center=None):
    height, width = IMAGE.shape[1:]
    center = (0, 0) if center is None else (center[0] - width / 2, center[1] - height / 2)
    return sample(forward_map(angle, translate, scale, shear, center), (height, width), mode, fill)


def resize(size, mode, antialias):
    options = {} if mode == "nearest" else {"align_corners": False, "antialias": antialias}
    return F.interpolate(torch.from_numpy(IMAGE)[None].double(), size, mode=mode, **options)[0].numpy()


def pad(mode):
    return np.pad(IMAGE, ((0, 0), (3, 2), (1, 4)), mode)


def hue(turn_by):
    out = np.empty(IMAGE.shape)
    for y in range(IMAGE.shape[1]):
        for x in range(IMAGE.shape[2]):
            h, s, v = colorsys.rgb_to_hsv(*IMAGE[:, y, x].astype(float))
            out[:, y, x] = colorsys.hsv_to_rgb((h + turn_by) % 1, s, v)
    return out


GRAY = np.tensordot([0.2989, 0.587, 0.114], IMAGE.astype(np.float64), 1)


def blend(other, factor):
    return np.clip(factor * IMAGE + (1 - factor) * other, 0, 1)


def main():
    cases = {
        "image": IMAGE,
        "affine": affine(23, (1.5, -2), 1.2, (7, -4)),
        "affine_nearest": affine(23, (1, -2), 1.2, (7, -4), "nearest"),
        "affine_fill": affine(-50, (0, 1), 0.7, (0, 0), fill=[0.25, 0.5, 1.0]),
        "affine_nearest_fill": affine(-50, (0, 1), 0.7, (0, 0), "nearest", [0.25, 0.5, 1.0]),
        "affine_center": affine(40, (0, 0), 1.0, (0, 0), center=(2, 3)),
        "rotate": affine(-31, (0, 0), 1.0, (0, 0)),
        "rotate_quarter": np.rot90(IMAGE, axes=(1, 2)),
        # Turned by 30 degrees, 10x7 pixels are 10 cos 30 + 7 sin 30 = 12.2 wide and 10 sin 30 + 7 cos 30 = 11.1 high.
        "rotate_expand": sample(turn(-30), (12, 13), "bilinear", 0.0),
        "resize_up": resize((16, 13), "bilinear", False),
        "resize_down": resize((3, 4), "bilinear", False),
        "resize_antialias": resize((3, 4), "bilinear", True),
        "resize_mixed": resize((13, 3), "bilinear", True),
        "resize_nearest": resize((5, 17), "nearest", False),
        "pad_edge": pad("edge"),
        "pad_reflect": pad("reflect"),
        "pad_symmetric": pad("symmetric"),
        "gray": GRAY[None],
        "brightness": np.clip(1.4 * IMAGE, 0, 1),
        "contrast": blend(GRAY.mean(), 1.7),
        "saturation": blend(GRAY, 0.3),
        "saturation_more": blend(GRAY, 2.5),
        "hue": hue(0.2),
        "hue_back": hue(-0.45),
    }
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "image_ops.safetensors")
    write_safetensors(path, {name: np.ascontiguousarray(x, dtype=np.float32) for name, x in cases.items()})
    print(f"{len(cases)} images, {os.path.getsize(path)} bytes: {path}")


main()
