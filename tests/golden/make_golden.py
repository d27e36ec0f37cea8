#!/usr/bin/env python3
"""Writes op_cases/FAMILY.safetensors: what PyTorch computes for every case of tests/op_cases that names its call in
Python.

    tests/golden/make_golden.py build/cpu-release/tests/test_ops [FAMILY...]

The test executable lists the cases with their inputs. Floating cases run in float64 and also give gradients g of
sum(y * dy), and the gradients h, hdy (with respect to x and dy) of sum(g * v); integer and boolean types give results
alone. Keys are "<case>/<what><number>", "<case>@<type>/…" for the other types.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import torch
import torch.nn.functional as F

TYPES = {"float64": torch.float64, "float32": torch.float32, "int64": torch.int64, "int32": torch.int32,
         "uint8": torch.uint8, "bool": torch.bool}
SAFETENSORS_NAMES = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}


def list_cases(executable):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([executable, "list the op cases"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "GRADUS_OP_CASE_LIST": file.name})
        return json.load(open(file.name))


def numbers_like(x, random):
    """Odd multiples of 1/128 below 2: exact in every floating type."""
    return torch.tensor(random.randint(-128, 128, size=tuple(x.shape)) * 2 + 1, dtype=torch.float64).to(x.dtype) / 128


def outputs_of(case, x):
    y = eval(case["torch"], {"torch": torch, "F": F, "x": x})
    return [y] if isinstance(y, torch.Tensor) else list(y)


def results(case, run):
    """Tensors of one case in one type, by the last part of their key."""
    x = [torch.tensor(i["values"], dtype=torch.float64).reshape(i["shape"]).to(TYPES[i["dtype"]]) for i in run]
    differentiable = [i for i, t in enumerate(x) if t.is_floating_point()] if case["order"] else []
    for i in differentiable:
        x[i].requires_grad_()
    y = outputs_of(case, x)
    found = {f"x{i}": t for i, t in enumerate(x)} | {f"y{i}": t for i, t in enumerate(y)}
    tracked = [i for i, t in enumerate(y) if t.requires_grad]
    if not tracked:
        return found

    random = np.random.RandomState(zlib.crc32(case["name"].encode()))
    dy = {i: numbers_like(y[i], random).requires_grad_() for i in tracked}
    wanted = [x[i] for i in differentiable]
    g = torch.autograd.grad([y[i] for i in tracked], wanted, list(dy.values()), create_graph=case["order"] > 1,
                            allow_unused=True)
    g = [torch.zeros_like(t) if d is None else d for t, d in zip(wanted, g)]
    found |= {f"dy{i}": t for i, t in dy.items()} | {f"g{i}": t for i, t in zip(differentiable, g)}
    if case["order"] < 2:
        return found

    v = [numbers_like(t, random) for t in g]
    found |= {f"v{i}": t for i, t in zip(differentiable, v)}
    product = sum(((d * w).sum() for d, w in zip(g, v) if d.requires_grad), torch.zeros(()))
    keys = [f"h{i}" for i in differentiable] + [f"hdy{i}" for i in tracked]
    wanted = wanted + list(dy.values())
    h = torch.autograd.grad(product, wanted, allow_unused=True) if product.requires_grad else [None] * len(wanted)
    # A gradient that is zero by rule may come without memory: adding it to zeros gives it some.
    return found | {k: torch.zeros_like(t) if d is None else torch.zeros_like(t) + d
                    for k, t, d in zip(keys, wanted, h)}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, array in sorted(tensors.items()):
        raw = array.astype(array.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": SAFETENSORS_NAMES[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    families = {}
    for case in list_cases(sys.argv[1]):
        families.setdefault(case["family"], []).append(case)
    for family in sys.argv[2:] or families:
        tensors = {}
        for case in families[family]:
            for dtype, run in case["inputs"].items():
                key = case["name"] if dtype == "float64" else f"{case['name']}@{dtype}"
                try:
                    found = results(case, run)
                except Exception as error:
                    sys.exit(f"{key}: {case['torch']}: {error}")
                tensors |= {f"{key}/{part}": t.detach().contiguous().numpy() for part, t in found.items()}
            tensors[f"{case['name']}/torch"] = np.frombuffer(case["torch"].encode(), dtype=np.uint8)
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "op_cases", f"{family}.safetensors")
        write_safetensors(path, tensors)
        print(f"{len(tensors)} tensors, {os.path.getsize(path)} bytes: {path}")


if __name__ == "__main__":
    main()
