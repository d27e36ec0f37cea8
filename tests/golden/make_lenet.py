#!/usr/bin/env python3
"""Writes lenet.safetensors: the losses of LeNet's first 50 steps of SGD in PyTorch, in float64 and float32, and the
sums of the parameters' squares after them. Weights and images are formulas that tests/lenet computes alike, bit for
bit.

    tests/golden/make_lenet.py
"""
import os

import numpy as np
import torch
import torch.nn.functional as F

from make_golden import write_safetensors

STEPS, BATCH, LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 50, 16, 0.05, 0.9, 1e-4
SHAPES = {"conv1.weight": (6, 1, 5, 5), "conv1.bias": (6,), "conv2.weight": (16, 6, 5, 5), "conv2.bias": (16,),
          "fc1.weight": (120, 400), "fc1.bias": (120,), "fc2.weight": (84, 120), "fc2.bias": (84,),
          "fc3.weight": (10, 84), "fc3.bias": (10,)}


def uniform(stream, count):
    """`count` numbers in [0, 1): the upper 24 bits of splitmix64 started at `stream`."""
    with np.errstate(over="ignore"):
        z = np.uint64(stream) * np.uint64(0x9E3779B97F4A7C15) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
            0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) * 2.0**-24


def parameters():
    """PyTorch's default range, uniform in +-1 / sqrt(fan in)."""
    fan_in = {name: int(np.prod(shape[1:])) for name, shape in SHAPES.items() if len(shape) > 1}
    found = {}
    for stream, (name, shape) in enumerate(SHAPES.items()):
        bound = 1.0 / np.sqrt(float(fan_in[name.replace("bias", "weight")]))
        found[name] = ((2.0 * uniform(stream, int(np.prod(shape))) - 1.0) * bound).reshape(shape)
    return found


def batch(step):
    """Two round spots on a noisy ground; the class decides where they are."""
    labels = np.array([(7 * step + 3 * n) % 10 for n in range(BATCH)], dtype=np.int64)
    images = np.empty((BATCH, 1, 28, 28))
    row, column = np.mgrid[0:28, 0:28].astype(np.float64)
    for n, label in enumerate(labels):
        random = uniform(1000 + step * BATCH + n, 784 + 2)
        top, left = 4.0 + 2.0 * label + 3.0 * random[784], 6.0 + 3.0 * random[785]
        spot = 1.0 - ((row - top) ** 2 + (column - left) ** 2) / 20.0
        other = 1.0 - ((row - left) ** 2 + (column - (24.0 - label)) ** 2) / 30.0
        images[n, 0] = 2.0 * np.maximum(np.maximum(spot, other), 0.0) + random[:784].reshape(28, 28) - 0.75
    return images, labels


def train(dtype):
    p = {name: torch.tensor(numbers, dtype=dtype, requires_grad=True) for name, numbers in parameters().items()}
    optimizer = torch.optim.SGD(p.values(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    losses = []
    for step in range(STEPS):
        images, labels = batch(step)
        x = torch.tensor(images, dtype=dtype)
        x = F.max_pool2d(F.relu(F.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=2)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, p["conv2.weight"], p["conv2.bias"])), 2).flatten(1)
        x = F.relu(F.linear(x, p["fc1.weight"], p["fc1.bias"]))
        x = F.relu(F.linear(x, p["fc2.weight"], p["fc2.bias"]))
        loss = F.cross_entropy(F.linear(x, p["fc3.weight"], p["fc3.bias"]), torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [(t.double() ** 2).sum().item() for t in p.values()]


def main():
    torch.set_num_threads(1)
    tensors = {}
    for name, dtype in {"float64": torch.float64, "float32": torch.float32}.items():
        losses, squares = train(dtype)
        tensors[f"losses.{name}"] = np.array(losses)
        tensors[f"squares.{name}"] = np.array(squares)
        print(name, *(f"{loss:.4f}" for loss in losses[:3]), "…", *(f"{loss:.4f}" for loss in losses[-3:]))
    off = np.abs(tensors["losses.float64"] - tensors["losses.float32"])
    print("largest difference between the two:", off.max())
    write_safetensors(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lenet.safetensors"), tensors)


if __name__ == "__main__":
    main()
