#!/usr/bin/env python3
"""Writes trajectories.safetensors: the steps of PyTorch's optimizers and schedules for two small parameters.

usage: make_golden.py   (PyTorch 1.13 made the committed file)

  weight (3, 4), bias (5)             initial values of the parameters
  weight_grad (20, 3, 4), bias_grad   the gradient of each step
  <case>.<dtype>.weight (20, 3, 4)    the parameter after each step, likewise bias
  schedule.<name> (26, 4)             the learning rates, then the momenta, of two groups before each call of step()
                                      and after the last
  clip.<p>.<size>.norm, .weight, .bias  the norm of the first gradients, and the gradients clipped to 0.5 or 1000
  lbfgs.<name>.weight (8, 3, 4), .bias, .calls (8)   the parameters after each step of LBFGS that minimizes convex_loss,
                                      and the number of calls of the closure so far
  lbfgs.<loss>.<lr>.weight, .bias, .calls   the same for line searches on WOLFE_LOSSES that begin with WOLFE_LRS
  metrics (25)                        the metrics that ReduceLROnPlateau gets
"""

import json
import math
import pathlib
import struct

import torch

STEPS = 20
# In "late" cases the bias has no gradient in these steps.
MISSING = {0, 1, 7}

OPTIM = torch.optim


class FormulaOptimizer(OPTIM.Optimizer):
    """Base of optimizers that PyTorch 1.13 lacks. `update` changes p by its gradient g, with the formula in float64."""

    def __init__(self, params, **options):
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(t=0, product=1.0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                g = -p.grad if group.get("maximize") else p.grad
                if group.get("decoupled_weight_decay"):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                else:
                    g = g + group.get("weight_decay", 0) * p
                self.update(p, g, state, **group)


class Lion(FormulaOptimizer):
    """Chen et al. 2023, algorithm 2."""

    def update(self, p, g, state, lr, betas=(0.9, 0.99), **_):
        beta1, beta2 = betas
        p.sub_(lr * torch.sign(beta1 * state["m"] + (1 - beta1) * g))
        state["m"] = beta2 * state["m"] + (1 - beta2) * g


class NAdam(FormulaOptimizer):
    """torch.optim.NAdam as documented and as in PyTorch 2; PyTorch 1.13 multiplies mu_t twice into the last product."""

    def update(self, p, g, state, lr, betas=(0.9, 0.999), eps=1e-8, momentum_decay=4e-3, **_):
        beta1, beta2 = betas
        t = state["t"]
        mu = beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))
        mu_next = beta1 * (1 - 0.5 * 0.96 ** ((t + 1) * momentum_decay))
        state["product"] *= mu
        state["m"] = beta1 * state["m"] + (1 - beta1) * g
        state["v"] = beta2 * state["v"] + (1 - beta2) * g * g
        denominator = (state["v"] / (1 - beta2**t)).sqrt() + eps
        p.sub_(lr * (1 - mu) / (1 - state["product"]) * g / denominator)
        p.sub_(lr * mu_next / (1 - state["product"] * mu_next) * state["m"] / denominator)


class RAdamOfPyTorch2(FormulaOptimizer):
    """torch.optim.RAdam with the options that PyTorch 1.13 lacks."""

    def update(self, p, g, state, lr, betas=(0.9, 0.999), eps=1e-8, **_):
        beta1, beta2 = betas
        t = state["t"]
        state["m"] = beta1 * state["m"] + (1 - beta1) * g
        state["v"] = beta2 * state["v"] + (1 - beta2) * g * g
        rho_inf = 2 / (1 - beta2) - 1
        rho = rho_inf - 2 * t * beta2**t / (1 - beta2**t)
        update = state["m"] / (1 - beta1**t)
        if rho > 5:
            r = math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
            update = update * r * math.sqrt(1 - beta2**t) / (state["v"].sqrt() + eps)
        p.sub_(lr * update)


# Class and options of the optimizer. If there is a third entry, the bias is in a second group with these options.
CASES = {
    "sgd": (OPTIM.SGD, dict(lr=0.1)),
    "sgd_weight_decay": (OPTIM.SGD, dict(lr=0.1, weight_decay=0.05)),
    "sgd_momentum": (OPTIM.SGD, dict(lr=0.05, momentum=0.9)),
    "sgd_dampening": (OPTIM.SGD, dict(lr=0.05, momentum=0.9, dampening=0.3)),
    "sgd_nesterov": (OPTIM.SGD, dict(lr=0.05, momentum=0.9, nesterov=True)),
    "sgd_everything": (OPTIM.SGD, dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.02, maximize=True)),
    "sgd_late": (OPTIM.SGD, dict(lr=0.05, momentum=0.9)),
    "sgd_groups": (OPTIM.SGD, dict(lr=0.1), dict(lr=0.05, momentum=0.5, weight_decay=0.1)),
    "adam": (OPTIM.Adam, dict()),
    "adam_weight_decay": (OPTIM.Adam, dict(lr=0.01, weight_decay=0.1)),
    "adam_betas": (OPTIM.Adam, dict(lr=0.02, betas=(0.8, 0.99), eps=1e-6)),
    "adam_amsgrad": (OPTIM.Adam, dict(lr=0.01, betas=(0.9, 0.7), amsgrad=True, weight_decay=0.1)),
    "adam_maximize": (OPTIM.Adam, dict(lr=0.01, weight_decay=0.1, maximize=True)),
    "adam_late": (OPTIM.Adam, dict(lr=0.01)),
    "adam_groups": (OPTIM.Adam, dict(lr=0.01), dict(lr=0.1, betas=(0.5, 0.9), amsgrad=True)),
    "adamw": (OPTIM.AdamW, dict()),
    "adamw_everything": (OPTIM.AdamW,
                         dict(lr=0.02, betas=(0.8, 0.7), eps=1e-6, weight_decay=0.2, amsgrad=True, maximize=True)),
    "adamw_late": (OPTIM.AdamW, dict(lr=0.01, weight_decay=0.1)),
    "adamw_groups": (OPTIM.AdamW, dict(lr=0.01), dict(lr=0.1, weight_decay=0.0)),
    "rmsprop": (OPTIM.RMSprop, dict()),
    "rmsprop_momentum": (OPTIM.RMSprop, dict(lr=0.005, alpha=0.9, momentum=0.9, weight_decay=0.1)),
    "rmsprop_centered": (OPTIM.RMSprop, dict(lr=0.01, alpha=0.8, eps=1e-4, centered=True)),
    "rmsprop_everything": (OPTIM.RMSprop, dict(lr=0.01, alpha=0.8, eps=1e-4, centered=True, momentum=0.7,
                                               weight_decay=0.1, maximize=True)),
    "rmsprop_late": (OPTIM.RMSprop, dict(lr=0.01, momentum=0.5)),
    "rmsprop_groups": (OPTIM.RMSprop, dict(lr=0.01), dict(lr=0.02, eps=1e-4, centered=True)),
    "adagrad": (OPTIM.Adagrad, dict()),
    "adagrad_everything": (OPTIM.Adagrad, dict(lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5,
                                               eps=1e-6, maximize=True)),
    "adagrad_late": (OPTIM.Adagrad, dict(lr=0.1, lr_decay=0.1)),
    "adagrad_groups": (OPTIM.Adagrad, dict(lr=0.1), dict(lr=0.01, lr_decay=0.5)),
    "nadam": (NAdam, dict(lr=2e-3)),
    "nadam_everything": (NAdam, dict(lr=0.02, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1, momentum_decay=0.1)),
    "nadam_decoupled": (NAdam, dict(lr=0.02, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    "nadam_late": (NAdam, dict(lr=0.01)),
    "nadam_groups": (NAdam, dict(lr=0.01), dict(lr=0.02, momentum_decay=0.2)),
    "radam": (OPTIM.RAdam, dict()),
    "radam_everything": (OPTIM.RAdam, dict(lr=0.02, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1)),
    "radam_decoupled": (RAdamOfPyTorch2, dict(lr=0.02, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    "radam_late": (OPTIM.RAdam, dict(lr=0.01)),
    "radam_groups": (OPTIM.RAdam, dict(lr=0.01), dict(lr=0.02, betas=(0.5, 0.7))),
    "lion": (Lion, dict(lr=1e-4)),
    "lion_everything": (Lion,
                        dict(lr=0.01, betas=(0.7, 0.8), weight_decay=0.3, decoupled_weight_decay=True, maximize=True)),
    "lion_late": (Lion, dict(lr=0.01)),
    "lion_groups": (Lion, dict(lr=0.01), dict(lr=0.02, betas=(0.5, 0.7))),
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


def trajectory(kind, options, bias_options, start, gradients, dtype, late):
    parameters = {name: torch.nn.Parameter(value.to(dtype, copy=True)) for name, value in start.items()}
    if bias_options is None:
        optimizer = kind(parameters.values(), **options)
    else:
        groups = [dict(params=[parameters["weight"]]), dict(params=[parameters["bias"]], **bias_options)]
        optimizer = kind(groups, **options)
    after = {name: [] for name in parameters}
    for step in range(STEPS):
        for name, parameter in parameters.items():
            missing = late and name == "bias" and step in MISSING
            parameter.grad = None if missing else gradients[name][step].to(dtype)
        optimizer.step()
        for name, parameter in parameters.items():
            after[name].append(parameter.detach().clone())
    return {name: torch.stack(values) for name, values in after.items()}


LBFGS_CASES = {
    "plain": dict(lr=0.3, max_iter=4),
    "short_history": dict(lr=0.3, max_iter=5, history_size=2),
    "strong_wolfe": dict(max_iter=5, line_search_fn="strong_wolfe"),
    "strong_wolfe_far": dict(lr=30.0, max_iter=3, max_eval=9, line_search_fn="strong_wolfe"),
}
WOLFE_LRS = {"short": 0.003, "near": 0.3, "far": 10.0, "very_far": 300.0}


def convex_loss(weight, bias):
    scaled = weight * torch.arange(1, 13, dtype=weight.dtype).reshape(3, 4)
    return (scaled**2).sum() / 2 + (weight**4).sum() / 10 + ((bias - weight.sum()) ** 2 + 1).sqrt().sum()


def valley(weight, bias):
    """The function of Rosenbrock, which is curved, for each pair of neighbours."""
    x = torch.cat([weight.reshape(-1), bias])
    return (10 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def waves(weight, bias):
    x = torch.cat([weight.reshape(-1), bias])
    return (x**2 / 10 + 1 - torch.cos(3 * x)).sum()


def steep(weight, bias):
    x = torch.cat([weight.reshape(-1), bias])
    return (torch.exp(x) + torch.exp(-3 * x)).sum()


def flat(weight, bias):
    x = torch.cat([weight.reshape(-1), bias])
    return (1 + 100 * x**2).sqrt().sum() + (x[0] * x[1]) ** 2


WOLFE_LOSSES = {"valley": valley, "waves": waves, "steep": steep, "flat": flat}


def lbfgs(options, start, loss_of=convex_loss):
    parameters = {name: torch.nn.Parameter(value.double()) for name, value in start.items()}
    optimizer = OPTIM.LBFGS(parameters.values(), **options)
    after = {name: [] for name in (*parameters, "calls")}
    calls = 0

    def closure():
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = loss_of(**parameters)
        loss.backward()
        return loss

    for _ in range(8):
        optimizer.step(closure)
        after["calls"].append(torch.tensor(float(calls)))
        for name, parameter in parameters.items():
            after[name].append(parameter.detach().clone())
    return {name: torch.stack(values) for name, values in after.items()}


SCHEDULERS = torch.optim.lr_scheduler
STEPLR, MULTISTEP, EXPONENTIAL = SCHEDULERS.StepLR, SCHEDULERS.MultiStepLR, SCHEDULERS.ExponentialLR
CONSTANT, LINEAR, COSINE = SCHEDULERS.ConstantLR, SCHEDULERS.LinearLR, SCHEDULERS.CosineAnnealingLR
LAMBDA, SEQUENTIAL, ONE_CYCLE = SCHEDULERS.LambdaLR, SCHEDULERS.SequentialLR, SCHEDULERS.OneCycleLR
SCHEDULES = {
    "step": lambda o: STEPLR(o, step_size=3, gamma=0.5),
    "multi_step": lambda o: MULTISTEP(o, milestones=[2, 7, 7, 11], gamma=0.3),
    "exponential": lambda o: EXPONENTIAL(o, gamma=0.8),
    "constant": lambda o: CONSTANT(o),
    "constant_long": lambda o: CONSTANT(o, factor=0.1, total_iters=9),
    "linear": lambda o: LINEAR(o),
    "linear_down": lambda o: LINEAR(o, start_factor=1.0, end_factor=0.0, total_iters=12),
    "cosine": lambda o: COSINE(o, T_max=10, eta_min=0.01),
    "lambda": lambda o: LAMBDA(o, lambda n: 1 / (1 + n)),
    "lambdas": lambda o: LAMBDA(o, [lambda n: 0.9**n, lambda n: 1.0 if n < 4 else 0.1]),
    "warm_up_cosine": lambda o: SEQUENTIAL(o, [LINEAR(o, 0.1, total_iters=5), COSINE(o, T_max=20)], milestones=[5]),
    "sequence": lambda o: SEQUENTIAL(
        o, [CONSTANT(o, 0.1, total_iters=2), EXPONENTIAL(o, 0.9), STEPLR(o, 2, 0.5)], milestones=[4, 11]),
    "one_cycle": lambda o: ONE_CYCLE(o, max_lr=1.0, total_steps=25),
    "one_cycle_linear": lambda o: ONE_CYCLE(
        o, max_lr=[0.5, 0.25], total_steps=30, anneal_strategy="linear", pct_start=0.45, div_factor=10.0,
        final_div_factor=100.0, base_momentum=0.7, max_momentum=[0.9, 0.8]),
    "one_cycle_three": lambda o: ONE_CYCLE(o, max_lr=1.0, total_steps=26, three_phase=True),
    "one_cycle_three_linear": lambda o: ONE_CYCLE(
        o, max_lr=1.0, total_steps=40, three_phase=True, anneal_strategy="linear", cycle_momentum=False),
}
METRICS = [5.0, 4.0, 4.0, 3.9999, 4.5, 4.2, 4.2, 4.1, 3.0, 3.1, float("nan"), 3.2, 3.3, 2.9, 3.0, 3.0, 3.0, 3.0, 3.0,
           3.0, 3.0, 3.0, 3.0, 3.0, 3.0]  # fmt: skip
PLATEAUS = {
    "plateau": dict(patience=2, factor=0.5),
    "plateau_max": dict(mode="max", patience=1, factor=0.3, threshold=0.05, cooldown=3),
    "plateau_abs": dict(patience=0, factor=0.5, threshold=0.15, threshold_mode="abs", min_lr=[0.1, 0.01]),
    "plateau_max_abs": dict(mode="max", threshold_mode="abs", patience=3, cooldown=1, eps=0.01),
}


def schedule(make, metrics=False):
    """The learning rates, then the momenta, of two groups before each of 25 calls of step() and after the last."""
    groups = [dict(params=[torch.nn.Parameter(torch.zeros(1))], lr=lr) for lr in (0.5, 0.2)]
    optimizer = OPTIM.SGD(groups, lr=1.0, momentum=0.6)
    scheduler = make(optimizer)

    def now():
        return [group[name] for name in ("lr", "momentum") for group in optimizer.param_groups]

    rows = [now()]
    for n in range(25):
        optimizer.step()
        scheduler.step(*([METRICS[n]] if metrics else []))
        rows.append(now())
    return torch.tensor(rows, dtype=torch.float64)


def clipped(gradients, max_norm, norm_type):
    """The gradients of the first step after clip_grad_norm_, and the norm that it returns."""
    parameters = {name: torch.nn.Parameter(torch.zeros_like(value[0], dtype=torch.float64))
                  for name, value in gradients.items()}  # fmt: skip
    for name, parameter in parameters.items():
        parameter.grad = gradients[name][0].to(torch.float64)
    norm = torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm, norm_type)
    return {"norm": norm, **{name: parameter.grad for name, parameter in parameters.items()}}


def main():
    torch.manual_seed(0)
    # The numbers are float32, so that the runs in both dtypes start from the same values.
    start = {"weight": torch.randn(3, 4), "bias": torch.randn(5)}
    gradients = {name: torch.randn(STEPS, *value.shape) for name, value in start.items()}
    tensors = {**start, **{name + "_grad": value for name, value in gradients.items()}}
    for case, (kind, options, *rest) in CASES.items():
        bias_options = rest[0] if rest else None
        for dtype, suffix in ((torch.float32, "f32"), (torch.float64, "f64")):
            result = trajectory(kind, options, bias_options, start, gradients, dtype, case.endswith("late"))
            for name, value in result.items():
                tensors[f"{case}.{suffix}.{name}"] = value
    for name, options in LBFGS_CASES.items():
        for part, value in lbfgs(options, start).items():
            tensors[f"lbfgs.{name}.{part}"] = value
    for loss, loss_of in WOLFE_LOSSES.items():
        for distance, lr in WOLFE_LRS.items():
            options = dict(lr=lr, max_iter=4, line_search_fn="strong_wolfe")
            for part, value in lbfgs(options, start, loss_of).items():
                tensors[f"lbfgs.{loss}.{distance}.{part}"] = value
    for name, make in SCHEDULES.items():
        tensors["schedule." + name] = schedule(make)
    for name, options in PLATEAUS.items():
        tensors["schedule." + name] = schedule(lambda o: SCHEDULERS.ReduceLROnPlateau(o, **options), True)
    for name, norm_type in {"1": 1.0, "2": 2.0, "3": 3.0, "half": 0.5, "inf": math.inf}.items():
        for size, max_norm in {"small": 0.5, "large": 1000.0}.items():
            for part, value in clipped(gradients, max_norm, norm_type).items():
                tensors[f"clip.{name}.{size}.{part}"] = value
    tensors["metrics"] = torch.tensor(METRICS, dtype=torch.float64)
    write_safetensors(pathlib.Path(__file__).parent / "trajectories.safetensors", tensors)


if __name__ == "__main__":
    main()
