"""What the nets of the zoo in PyTorch consist of (zoo.h has the same in C++), and their training steps."""

import importlib
import pathlib
import sys
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "nets")]

from pytorch_step import Phase, training_step  # noqa: E402


class Net(NamedTuple):
    """A net that can be trained: what a training step consists of, and the module that holds all weights."""

    module: nn.Module
    phases: list


class Input(NamedTuple):
    """A random tensor of a batch, as `zoo --list` describes it."""

    kind: str  # normal: mean 0, deviation 1; uniform: in [0, 1); integers: in [0, bound)
    shape: list
    bound: int = 0

    @staticmethod
    def parse(text):
        kind, shape, *rest = text.split()
        return Input(kind, [int(size) for size in shape.split(",")], int(rest[1]) if rest else 0)

    def draw(self):
        if self.kind == "integers":
            return torch.randint(0, self.bound, self.shape)
        return torch.rand(self.shape) if self.kind == "uniform" else torch.randn(self.shape)


def one_phase(module, loss=None):
    """Returns a net with one phase, whose loss is module.loss unless it is given."""
    return Net(module, [Phase(module, loss or module.loss)])


def classifier(module):
    """Returns a net with one phase: the cross-entropy of the logits that `module` computes from the first input, with
    the labels in the second input."""
    return one_phase(module, lambda images, labels: F.cross_entropy(module(images), labels))


def step_classifier(module):
    """Returns the same for logits (N, L, classes) of all steps of sequences, with the labels (N, L)."""
    return one_phase(module, lambda x, labels: F.cross_entropy(module(x).flatten(0, 1), labels.flatten()))


def language_model(module):
    """Returns the same for tokens (N, L + 1), the only input: `module` computes logits from all tokens but the last,
    and the labels are all tokens but the first."""

    def loss(tokens):
        return F.cross_entropy(module(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return one_phase(module, loss)


def regression(module):
    """Returns a net with one phase: the mean squared difference of what `module` computes from the first input and the
    second input."""
    return one_phase(module, lambda x, target: F.mse_loss(module(x), target))


def all_nets():
    """Returns the functions that make the nets, by name."""
    modules = [importlib.import_module(path.stem) for path in sorted((HERE / "nets").glob("*.py"))]
    return {name: make for module in modules for name, make in getattr(module, "NETS", {}).items()}


def draw_batch(inputs):
    """Returns the inputs that a text like "normal 4,3,32,32; integers 4 below 10" describes."""
    return [Input.parse(text).draw() for text in inputs.split(";")]


def make_step(net, inputs, device, variant):
    """Returns a function that makes a training step of a net on random inputs."""
    torch.manual_seed(0)
    made = all_nets()[net]()
    batch = [x.to(device) for x in draw_batch(inputs)]
    made.module.to(device)
    if variant.layout == "channels_last":
        made.module.to(memory_format=torch.channels_last)
        batch = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in batch]
    return training_step(made.phases, made.module, batch, device, variant)
