#!/usr/bin/env python3
"""Writes autocast_cpu.safetensors or autocast_cuda.safetensors: what PyTorch's operators make of their inputs under
autocast, in which type and with which gradients. tests/autocast computes the same.

    tests/golden/make_autocast.py cpu|cuda [FOLDER]

Keys: "in/<name>" are the inputs, exact in every floating type. "<case>/<variant>" is the result of a case whose inputs
c(…) are float32 or in the half type (variant "half"), "<case>/type/<variant>" the name of its type, "<case>/grad" the
gradient of its sum with respect to the first input, c(…) being float32. A call that PyTorch refuses has no result.
"""
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import write_safetensors

HALF = {"cpu": torch.bfloat16, "cuda": torch.float16}
SHAPES = {"a": (3, 4), "b": (4, 5), "v": (4,), "u": (4,), "m": (3, 5), "d": (3,), "q": (2, 3, 4), "p": (2, 4, 3),
          "r": (2, 3, 3), "img": (2, 3, 6, 6), "k": (4, 3, 3, 3), "kt": (3, 4, 3, 3), "seq": (5, 2, 4),
          "k1": (3, 2, 2), "kt1": (2, 3, 2), "w": (5, 4), "bias": (5,), "c3": (3,), "e3": (3,), "s": (3, 3),
          "slope": (1,), "bil": (2, 4, 4), "w_ih": (12, 4), "w_hh": (12, 3), "b_ih": (12,), "b_hh": (12,), "h": (2, 3)}


def make_inputs():
    random = np.random.RandomState(3)
    found = {}
    for name, shape in SHAPES.items():  # odd multiples of 1/64 in (0, 1): exact in float16 and bfloat16
        found[name] = torch.tensor(random.randint(0, 32, size=shape) * 2 + 1, dtype=torch.float32) / 64
    return found


def recurrent(kind, x, t, gates):
    net = kind(4, 3).to(x("seq").device)
    with torch.no_grad():
        for name in ("w_ih", "w_hh", "b_ih", "b_hh"):
            long = {"w": "weight", "b": "bias"}[name[0]] + name[1:] + "_l0"
            getattr(net, long).copy_(t(name)[: gates * 3])
    return net(x("seq"))[0]


def cell(kind, x, t, gates):
    net = kind(4, 3).to(x("u").device)
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(net, name).copy_(t(name.replace("weight", "w").replace("bias", "b"))[: gates * 3])
    y = net(x("a"))
    return y[0] if isinstance(y, tuple) else y


def bilinear(x, t):
    net = nn.Bilinear(4, 4, 2).to(x("a").device)
    with torch.no_grad():
        net.weight.copy_(t("bil"))
        net.bias.copy_(t("v")[:2])
    return net(x("a"), x("a"))


def labels(x):
    return torch.tensor([0, 3, 1], device=x("a").device)


def ones(x, *shape):
    return torch.ones(*shape, device=x("a").device)


# x(name) is an input in the variant's type, t(name) the same in float32.
CASES = {
    "matmul": lambda x, t: torch.matmul(x("a"), x("b")),
    "matmul_mixed": lambda x, t: torch.matmul(x("a"), t("b")),
    "mm": lambda x, t: torch.mm(x("a"), x("b")),
    "mv": lambda x, t: torch.mv(x("a"), x("v")),
    "bmm": lambda x, t: torch.bmm(x("q"), x("p")),
    "addmm": lambda x, t: torch.addmm(x("m"), x("a"), x("b")),
    "addmv": lambda x, t: torch.addmv(x("d"), x("a"), x("v")),
    "baddbmm": lambda x, t: torch.baddbmm(x("r"), x("q"), x("p")),
    "dot": lambda x, t: torch.dot(x("v"), x("u")),
    "dot_mixed": lambda x, t: torch.dot(x("v"), t("u")),
    "outer": lambda x, t: torch.outer(x("v"), x("u")),
    "tensordot": lambda x, t: torch.tensordot(x("a"), x("b"), 1),
    "tensordot_mixed": lambda x, t: torch.tensordot(x("a"), t("b"), 1),
    "einsum": lambda x, t: torch.einsum("ij,jk->ik", x("a"), x("b")),
    "linear": lambda x, t: F.linear(x("a"), t("w"), t("bias")),
    "conv1d": lambda x, t: F.conv1d(x("seq"), t("k1"), t("c3")),
    "conv2d": lambda x, t: F.conv2d(x("img"), t("k"), t("v"), padding=1),
    "conv_transpose1d": lambda x, t: F.conv_transpose1d(x("seq"), t("kt1"), t("c3")),
    "conv_transpose2d": lambda x, t: F.conv_transpose2d(x("img"), t("kt"), t("v")),
    "scaled_dot_product_attention": lambda x, t: F.scaled_dot_product_attention(x("q"), x("q"), x("q")),
    "prelu": lambda x, t: F.prelu(x("a") - 0.5, t("slope")),
    "lstm": lambda x, t: recurrent(nn.LSTM, x, t, 4),
    "gru": lambda x, t: recurrent(nn.GRU, x, t, 3),
    "rnn": lambda x, t: recurrent(nn.RNN, x, t, 1),
    "lstm_cell": lambda x, t: cell(nn.LSTMCell, x, t, 4),
    "gru_cell": lambda x, t: cell(nn.GRUCell, x, t, 3),
    "rnn_cell": lambda x, t: cell(nn.RNNCell, x, t, 1),
    "bilinear": bilinear,
    "cross": lambda x, t: torch.cross(x("s"), t("s").flip(0), dim=1),
    "cat": lambda x, t: torch.cat([x("a"), t("a")]),
    "stack": lambda x, t: torch.stack([x("a"), t("a")]),
    "addcmul": lambda x, t: torch.addcmul(x("a"), t("a"), x("a")),
    "addcdiv": lambda x, t: torch.addcdiv(x("a"), t("a"), x("a")),
    "atan2": lambda x, t: torch.atan2(x("a"), t("a")),
    "add": lambda x, t: x("a") + t("a"),
    "mul": lambda x, t: x("a") * x("a"),
    "index_copy": lambda x, t: torch.index_copy(x("a"), 0, labels(x)[[0, 2]], t("a")[:2]),
    "scatter_add": lambda x, t: torch.scatter_add(x("a"), 0, labels(x)[None, :1].repeat(1, 4), t("a")[:1]),
    "index_put": lambda x, t: torch.index_put(x("a"), (labels(x)[[0, 2]],), t("a")[:2]),
    "exp": lambda x, t: torch.exp(x("a")),
    "expm1": lambda x, t: torch.expm1(x("a")),
    "log": lambda x, t: torch.log(x("a")),
    "log10": lambda x, t: torch.log10(x("a")),
    "log1p": lambda x, t: torch.log1p(x("a")),
    "log2": lambda x, t: torch.log2(x("a")),
    "reciprocal": lambda x, t: torch.reciprocal(x("a")),
    "rsqrt": lambda x, t: torch.rsqrt(x("a")),
    "tan": lambda x, t: torch.tan(x("a")),
    "pow": lambda x, t: torch.pow(x("a"), 3),
    "pow_of_tensors": lambda x, t: torch.pow(x("a"), x("a")),
    "power_of_number": lambda x, t: 2 ** x("a"),
    "one_over": lambda x, t: 1 / x("a"),
    "halved": lambda x, t: x("a") / 2,
    "softplus": lambda x, t: F.softplus(x("a")),
    "sqrt": lambda x, t: torch.sqrt(x("a")),
    "sin": lambda x, t: torch.sin(x("a")),
    "erf": lambda x, t: torch.erf(x("a")),
    "tanh": lambda x, t: torch.tanh(x("a")),
    "sigmoid": lambda x, t: torch.sigmoid(x("a")),
    "relu": lambda x, t: F.relu(x("a")),
    "gelu": lambda x, t: F.gelu(x("a")),
    "silu": lambda x, t: F.silu(x("a")),
    "elu": lambda x, t: F.elu(x("a")),
    "softmax": lambda x, t: F.softmax(x("a"), 1),
    "log_softmax": lambda x, t: F.log_softmax(x("a"), 1),
    "softmin": lambda x, t: F.softmin(x("a"), 1),
    "logsumexp": lambda x, t: torch.logsumexp(x("a"), 1),
    "sum": lambda x, t: x("a").sum(),
    "sum_along": lambda x, t: x("a").sum(1),
    "sum_double": lambda x, t: x("a").sum(1, dtype=torch.float64),
    "prod": lambda x, t: x("a").prod(),
    "prod_along": lambda x, t: x("a").prod(1),
    "cumsum": lambda x, t: x("a").cumsum(1),
    "cumprod": lambda x, t: x("a").cumprod(1),
    "mean": lambda x, t: x("a").mean(),
    "var": lambda x, t: x("a").var(),
    "std": lambda x, t: x("a").std(),
    "norm": lambda x, t: torch.norm(x("a")),
    "norm_1": lambda x, t: torch.norm(x("a"), 1, dim=1),
    "norm_inf": lambda x, t: torch.norm(x("a"), float("inf")),
    "trace": lambda x, t: torch.trace(x("s")),
    "layer_norm": lambda x, t: F.layer_norm(x("a"), (4,), t("v"), t("u")),
    "group_norm": lambda x, t: F.group_norm(x("img"), 3, t("c3"), t("e3")),
    "batch_norm": lambda x, t: F.batch_norm(x("img"), t("c3").clone(), t("e3").clone(), t("c3"), t("e3"), True),
    "instance_norm": lambda x, t: F.instance_norm(x("img")),
    "local_response_norm": lambda x, t: F.local_response_norm(x("img"), 3),
    "cosine_similarity": lambda x, t: F.cosine_similarity(x("a"), x("a").flip(0)),
    "avg_pool2d": lambda x, t: F.avg_pool2d(x("img"), 2),
    "max_pool2d": lambda x, t: F.max_pool2d(x("img"), 2),
    "adaptive_avg_pool2d": lambda x, t: F.adaptive_avg_pool2d(x("img"), 2),
    "interpolate": lambda x, t: F.interpolate(x("img"), scale_factor=2, mode="bilinear"),
    "embedding": lambda x, t: F.embedding(labels(x), x("b")),
    "cross_entropy": lambda x, t: F.cross_entropy(x("a"), labels(x)),
    "cross_entropy_smooth": lambda x, t: F.cross_entropy(x("a"), labels(x), label_smoothing=0.1),
    "cross_entropy_weighed": lambda x, t: F.cross_entropy(x("a"), labels(x), weight=t("v")),
    "cross_entropy_of_probabilities": lambda x, t: F.cross_entropy(x("a"), t("a")),
    "nll_loss": lambda x, t: F.nll_loss(x("a"), labels(x)),
    "mse_loss": lambda x, t: F.mse_loss(x("a"), t("a").flip(0)),
    "l1_loss": lambda x, t: F.l1_loss(x("a"), t("a").flip(0)),
    "smooth_l1_loss": lambda x, t: F.smooth_l1_loss(x("a"), t("a").flip(0)),
    "huber_loss": lambda x, t: F.huber_loss(x("a"), t("a").flip(0)),
    "kl_div": lambda x, t: F.kl_div(x("a"), t("a"), reduction="sum"),
    "poisson_nll_loss": lambda x, t: F.poisson_nll_loss(x("a"), t("a")),
    "soft_margin_loss": lambda x, t: F.soft_margin_loss(x("a"), ones(x, 3, 4)),
    "hinge_embedding_loss": lambda x, t: F.hinge_embedding_loss(x("a"), ones(x, 3, 4)),
    "margin_ranking_loss": lambda x, t: F.margin_ranking_loss(x("v"), x("u"), ones(x, 4)),
    "triplet_margin_loss": lambda x, t: F.triplet_margin_loss(x("a"), x("a").flip(0), x("a").flip(1)),
    "multi_margin_loss": lambda x, t: F.multi_margin_loss(x("a"), labels(x)),
    "cosine_embedding_loss": lambda x, t: F.cosine_embedding_loss(x("a"), x("a").flip(0), ones(x, 3)),
    "binary_cross_entropy": lambda x, t: F.binary_cross_entropy(x("a"), t("a")),
    "binary_cross_entropy_with_logits": lambda x, t: F.binary_cross_entropy_with_logits(x("a"), t("a")),
}
FIRST = {"bmm": "q", "baddbmm": "q", "scaled_dot_product_attention": "q", "conv1d": "seq", "conv2d": "img",
         "conv_transpose1d": "seq", "conv_transpose2d": "img", "lstm": "seq", "gru": "seq", "rnn": "seq", "cross": "s",
         "trace": "s", "dot": "v", "dot_mixed": "v", "outer": "v", "margin_ranking_loss": "v", "embedding": "b",
         "group_norm": "img", "batch_norm": "img", "instance_norm": "img", "local_response_norm": "img",
         "avg_pool2d": "img", "max_pool2d": "img", "adaptive_avg_pool2d": "img", "interpolate": "img"}


def main():
    device = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(__file__))
    inputs = make_inputs()
    found = {f"in/{name}": x.numpy() for name, x in inputs.items()}
    for name, run in CASES.items():
        for variant, dtype in (("float32", torch.float32), ("half", HALF[device])):
            here = {k: x.to(device, dtype, copy=True) for k, x in inputs.items()}
            wide = {k: x.to(device) for k, x in inputs.items()}
            first = here[FIRST.get(name, "a")].requires_grad_()
            try:
                with torch.autocast(device, HALF[device]):
                    y = run(here.__getitem__, wide.__getitem__)
            except RuntimeError as error:
                print(f"{name} {variant}: {str(error).splitlines()[0]}")
                continue
            kind = str(y.dtype).removeprefix("torch.")
            found[f"{name}/type/{variant}"] = np.frombuffer(kind.encode(), dtype=np.uint8)
            found[f"{name}/{variant}"] = y.detach().cpu().to(torch.float64).numpy()
            if variant == "float32" and y.requires_grad:
                y.sum().backward()
                found[f"{name}/grad"] = first.grad.cpu().numpy()
    path = os.path.join(folder, f"autocast_{device}.safetensors")
    write_safetensors(path, found)
    print(f"{len(found)} tensors, {os.path.getsize(path)} bytes, by PyTorch {torch.__version__}: {path}")


if __name__ == "__main__":
    main()
