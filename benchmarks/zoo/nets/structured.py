"""The nets of structured.cpp in PyTorch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import Residual, small_embedding
from frame import classifier, one_phase, regression


def linear_layers(*widths):
    """Returns linear layers from widths[0] to widths[1], from there to widths[2] and so on, with ReLU between them."""
    layers = [[nn.Linear(width, out), nn.ReLU()] for width, out in zip(widths, widths[1:])]
    return nn.Sequential(*sum(layers, [])[:-1])


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = linear_layers(13, 256, 128, 32)
        self.tables = nn.ModuleList([nn.EmbeddingBag(10000, 32, mode="sum") for _ in range(8)])
        self.top = linear_layers(32 + 36, 256, 128, 1)
        self.register_buffer("pairs", torch.tril_indices(9, 9, -1))

    def loss(self, numbers, categories, clicks):
        dense = F.relu(self.bottom(numbers))
        vectors = [dense, *(table(categories[:, i]) for i, table in enumerate(self.tables))]
        vectors = torch.stack(vectors, 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        rows, columns = self.pairs
        logits = self.top(torch.cat([dense, products[:, rows, columns]], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logits, clicks)


class FactorizationMachine(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights, self.factors = small_embedding(50000, 1, 0.01), small_embedding(50000, 16, 0.01)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, categories):
        v = self.factors(categories)
        products = (v.sum(1).square() - v.square().sum(1)).sum(1) / 2
        return self.bias + self.weights(categories).sum((1, 2)) + products


class CausalConv(nn.Module):
    def __init__(self, width, out, dilation):
        super().__init__()
        self.conv, self.padding = nn.Conv1d(width, out, 3, dilation=dilation), 2 * dilation

    def forward(self, x):
        return self.conv(F.pad(x, (self.padding, 0)))


def tcn():
    layers = [nn.Conv1d(8, 64, 1)]
    for dilation in (1, 2, 4, 8, 16, 32):
        layers += [Residual(CausalConv(64, 64, dilation), nn.ReLU(), CausalConv(64, 64, dilation), nn.ReLU()),
                   nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv1d(64, 8, 1))


class NBeats(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([linear_layers(60, 256, 256, 256, 256) for _ in range(8)])
        self.coefficients = nn.ModuleList([nn.Linear(256, 64) for _ in range(8)])
        self.backcasts = nn.ModuleList([nn.Linear(32, 60) for _ in range(7)])
        self.forecasts = nn.ModuleList([nn.Linear(32, 12) for _ in range(8)])

    def forward(self, x):
        future = x.new_zeros(len(x), 12)
        for i, block in enumerate(self.blocks):
            theta = self.coefficients[i](F.relu(block(x))).chunk(2, 1)
            future = future + self.forecasts[i](theta[1])
            x = x - self.backcasts[i](theta[0]) if i < 7 else x
        return future


def point_layer(width, out):
    return nn.Sequential(nn.Conv1d(width, out, 1), nn.BatchNorm1d(out), nn.ReLU())


def vector_layer(width, out):
    return nn.Sequential(nn.Linear(width, out), nn.BatchNorm1d(out), nn.ReLU())


class PointTransform(nn.Module):
    """Multiplies points (N, size, P) by a matrix that it computes from them."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.points = nn.Sequential(point_layer(size, 64), point_layer(64, 128), point_layer(128, 512))
        self.matrix = nn.Sequential(vector_layer(512, 256), vector_layer(256, 128), nn.Linear(128, size * size))

    def forward(self, x):
        change = self.matrix(self.points(x).amax(2)).view(-1, self.size, self.size)
        return torch.bmm(change + torch.eye(self.size, dtype=x.dtype, device=x.device), x)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Sequential(PointTransform(3), point_layer(3, 64), PointTransform(64), point_layer(64, 64),
                                    point_layer(64, 128), point_layer(128, 512))
        self.head = nn.Sequential(vector_layer(512, 256), vector_layer(256, 128), nn.Linear(128, 40))

    def forward(self, clouds):
        return self.head(self.points(clouds).amax(2))


class GraphConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(256, 128), nn.Linear(128, 128), nn.Linear(128, 7)])

    def loss(self, x, edges, labels):
        itself = torch.arange(len(x), device=x.device)
        source, target = torch.cat([edges[0], edges[1], itself]), torch.cat([edges[1], edges[0], itself])
        degrees = x.new_zeros(len(x)).index_add(0, target, torch.ones_like(target, dtype=x.dtype))
        scale = degrees.rsqrt()
        weights = (scale[source] * scale[target]).unsqueeze(1)
        for i, layer in enumerate(self.layers):
            y = layer(F.relu(x) if i else x)
            messages = weights * y[source]
            x = messages.new_zeros(y.shape).index_add(0, target, messages)
        return F.cross_entropy(x, labels)


NETS = {"dlrm": lambda: one_phase(Dlrm()), "factorization_machine": lambda: regression(FactorizationMachine()),
        "tcn": lambda: regression(tcn()), "n_beats": lambda: regression(NBeats()),
        "pointnet": lambda: classifier(PointNet()), "graph_convolution": lambda: one_phase(GraphConvolution())}
