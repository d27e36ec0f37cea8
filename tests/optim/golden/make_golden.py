#!/usr/bin/env python3
"""Writes trajectories.safetensors: what PyTorch's optimizers and schedules do to two small parameters.

usage: make_golden.py   (PyTorch 1.13 made the committed file)

  weight (3, 4), bias (5)             where the parameters start
  weight_grad (20, 3, 4), bias_grad   the gradient of each step
  <case>.<dtype>.weight (20, 3, 4)    the parameter after each step, likewise bias
  schedule.<name> (26)                the learning rate before each call of step() and after the last
"""

import json
import pathlib
import struct

import torch

STEPS = 20
# In "late" cases the bias has no gradient in these steps.
MISSING = {0, 1, 7}

SGD, ADAM = torch.optim.SGD, torch.optim.Adam
CASES = {
    "sgd": (SGD, dict(lr=0.1)),
    "sgd_weight_decay": (SGD, dict(lr=0.1, weight_decay=0.05)),
    "sgd_momentum": (SGD, dict(lr=0.05, momentum=0.9)),
    "sgd_dampening": (SGD, dict(lr=0.05, momentum=0.9, dampening=0.3)),
    "sgd_nesterov": (SGD, dict(lr=0.05, momentum=0.9, nesterov=True)),
    "sgd_everything": (SGD, dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.02)),
    "sgd_late": (SGD, dict(lr=0.05, momentum=0.9)),
    "adam": (ADAM, dict(lr=0.01)),
    "adam_weight_decay": (ADAM, dict(lr=0.01, weight_decay=0.1)),
    "adam_betas": (ADAM, dict(lr=0.02, betas=(0.8, 0.99), eps=1e-6)),
    "adam_late": (ADAM, dict(lr=0.01)),
}


def write_safetensors(path, tensors):
    header, blob = {}, b""
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        data = tensor.numpy().tobytes()
        header[name] = {
            "dtype": {torch.float32: "F32", torch.float64: "F64"}[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(blob), len(blob) + len(data)],
        }
        blob += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


def trajectory(kind, options, start, gradients, dtype, late):
    parameters = {name: torch.nn.Parameter(value.to(dtype, copy=True)) for name, value in start.items()}
    optimizer = kind(parameters.values(), **options)
    after = {name: [] for name in parameters}
    for step in range(STEPS):
        for name, parameter in parameters.items():
            missing = late and name == "bias" and step in MISSING
            parameter.grad = None if missing else gradients[name][step].to(dtype)
        optimizer.step()
        for name, parameter in parameters.items():
            after[name].append(parameter.detach().clone())
    return {name: torch.stack(values) for name, values in after.items()}


def schedule(make):
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    scheduler = make(optimizer)
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(25):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return torch.tensor(rates, dtype=torch.float64)


def main():
    torch.manual_seed(0)
    # float32 numbers, so that both dtypes start from the same.
    start = {"weight": torch.randn(3, 4), "bias": torch.randn(5)}
    gradients = {name: torch.randn(STEPS, *value.shape) for name, value in start.items()}
    tensors = {**start, **{name + "_grad": value for name, value in gradients.items()}}
    for case, (kind, options) in CASES.items():
        for dtype, suffix in ((torch.float32, "f32"), (torch.float64, "f64")):
            result = trajectory(kind, options, start, gradients, dtype, case.endswith("late"))
            for name, value in result.items():
                tensors[f"{case}.{suffix}.{name}"] = value
    schedulers = torch.optim.lr_scheduler
    tensors["schedule.cosine"] = schedule(lambda o: schedulers.CosineAnnealingLR(o, T_max=10, eta_min=0.01))
    tensors["schedule.step"] = schedule(lambda o: schedulers.StepLR(o, step_size=3, gamma=0.5))
    write_safetensors(pathlib.Path(__file__).parent / "trajectories.safetensors", tensors)


if __name__ == "__main__":
    main()
