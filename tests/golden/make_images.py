#!/usr/bin/env python3
"""Writes small images to tests/fuzz/image_fuzz, and what Pillow reads from them to images.safetensors.

    tests/golden/make_images.py

Chroma of other sizes than Pillow writes is written by cjpeg (Debian: libjpeg-turbo-progs).
"""
import io
import os
import subprocess

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
    # Luma samples for one of chroma, and widths and heights that leave half a chroma sample over.
    colors = np.stack([11 * x % 256, 255 - (9 * x + 7 * y) % 256, (40 * (x // 3) + 12 * y) % 256], -1).astype(np.uint8)
    for name, width, height in [("2x1", 22, 13), ("2x1", 21, 13), ("2x1", 2, 3), ("2x1", 1, 1), ("2x2", 21, 12),
                                ("2x2", 22, 13), ("1x2", 22, 13), ("1x2", 21, 12), ("4x1", 22, 13), ("4x1", 21, 13),
                                ("4x2", 19, 11)]:
        files[f"chroma_{name}_{width}x{height}.jpg"] = (Image.fromarray(colors[:height, :width]), name)
    files["cmyk.jpg"] = (Image.fromarray(np.dstack([smooth, (5 * x + 3 * y).astype(np.uint8)]), "CMYK"), {"quality": 95})
    expected = {}
    for name, (image, options) in files.items():
        path = os.path.join(FOLDER, name)
        if isinstance(options, str):
            bitmap = io.BytesIO()
            image.save(bitmap, "ppm")
            with open(path, "wb") as file:
                subprocess.run(["cjpeg", "-quality", "95", "-sample", options], input=bitmap.getvalue(), stdout=file,
                               check=True)
        else:
            image.save(path, **options)
        expected[name] = np.ascontiguousarray(np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1))
    write_safetensors(os.path.join(HERE, "images.safetensors"), expected)


main()
