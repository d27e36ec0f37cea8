#!/usr/bin/env python3
"""Writes small images to tests/fuzz/image_fuzz, and what Pillow reads from them to images.safetensors.

    tests/golden/make_images.py
"""
import os

import numpy as np
from PIL import Image

from make_golden import write_safetensors

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "../fuzz/image_fuzz")


def main():
    y, x = np.mgrid[0:13, 0:22]
    smooth = np.stack([10 * x + y, 255 - 9 * x - 3 * y, 4 * x + 12 * y], -1).clip(0, 255).astype(np.uint8)
    noise = np.random.default_rng(5).integers(0, 256, (9, 14, 4), dtype=np.uint8)
    files = {
        "rgb.png": (Image.fromarray(noise[..., :3]), {}),
        "alpha.png": (Image.fromarray(noise), {}),
        "gray.png": (Image.fromarray(noise[..., 0]), {}),
        "gray_alpha.png": (Image.fromarray(noise[..., :2], "LA"), {}),
        "palette.png": (Image.fromarray(noise[..., :3]).quantize(16), {}),
        "one_bit.png": (Image.fromarray(noise[..., 0] > 100), {}),
        "rgb.jpg": (Image.fromarray(smooth), {"quality": 95, "subsampling": 0}),
        "small_colors.jpg": (Image.fromarray(smooth), {"quality": 90, "subsampling": 2}),
        "progressive.jpeg": (Image.fromarray(smooth), {"quality": 90, "progressive": True, "subsampling": 0}),
        "gray.jpg": (Image.fromarray(smooth[..., 0]), {"quality": 90}),
    }
    expected = {}
    for name, (image, options) in files.items():
        path = os.path.join(FOLDER, name)
        image.save(path, **options)
        expected[name] = np.ascontiguousarray(np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1))
    write_safetensors(os.path.join(HERE, "images.safetensors"), expected)


main()
