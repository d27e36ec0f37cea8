"""Simulates a training step on N ranks: how long it takes, and how much memory a rank needs.

A message of m bytes takes alpha + m beta seconds (Hockney 1994). Overlap is simulated: a bucket is sent when it is full
and the link is free. Units are seconds, bytes and FLOPs per second.
"""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Link:
    alpha: float
    beta: float

    def ring(self, ranks, nbytes):
        """Time of half an all-reduce (an all-gather or a reduce-scatter) of this total number of bytes in a ring."""
        return (ranks - 1) * (self.alpha + nbytes / ranks * self.beta)


def fit(points):
    """Returns the link for which 2 ring(ranks, bytes) is closest to measured all-reduces [(ranks, bytes, seconds)], by
    least squares of the relative error."""
    rows = [(2 * (n - 1) / s, 2 * (n - 1) / n * m / s) for n, m, s in points]
    aa, ab, bb = (sum(x[i] * x[j] for x in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(x[i] for x in rows) for i in (0, 1))
    alpha, beta = (a * bb - b * ab) / (aa * bb - ab * ab), (b * aa - a * ab) / (aa * bb - ab * ab)
    return Link(alpha, beta) if alpha > 0 else Link(0, b / bb)


def exposed(backward, buckets, transfer):
    """Returns the time for sending after the end of the backward pass. buckets: [(part of the pass after which the
    bucket is full, bytes)], which are sent one after the other."""
    done = 0
    for full, nbytes in buckets:
        done = max(done, full * backward) + transfer(nbytes)
    return max(0, done - backward)


def data_parallel(local, backward, buckets, link, ranks, overlap=True):
    """Computes the step of DistributedDataParallel from the step of a single rank. Without overlap, for example if a
    rank has only one core, communication follows computation."""
    def transfer(nbytes):
        return 2 * link.ring(ranks, nbytes) if ranks > 1 else 0

    return local + (exposed(backward, buckets, transfer) if overlap else sum(transfer(m) for _, m in buckets))


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Hosts with `host` ranks each. The link `near` connects the ranks of a host; `far` connects hosts, with one port
    for each rank."""
    near: Link
    far: Link
    host: int
    flops: float  # of a rank, as nets get them
    memory: float

    def half(self, ranks, nbytes, stride=1):
        """Time of half an all-reduce of a group of every stride-th rank: first within hosts, then each rank's part
        between hosts, in log2(hosts) rounds."""
        inside = min(ranks, max(1, self.host // stride))
        hosts = ranks // inside
        far = math.log2(hosts) * self.far.alpha + (hosts - 1) / hosts * nbytes / inside * self.far.beta
        return self.near.ring(inside, nbytes) + far


@dataclasses.dataclass(frozen=True)
class Transformer:
    """A decoder like GPT-3 (Brown et al. 2020)."""
    name: str
    layers: int
    hidden: int
    sequence: int = 2048
    vocabulary: int = 50257

    @property
    def parameters(self):
        return 12 * self.layers * self.hidden**2 + self.vocabulary * self.hidden

    @property
    def flops(self):
        """FLOPs for a sequence, forward and backward (Chowdhery et al. 2022, appendix B)."""
        return self.sequence * (6 * self.parameters + 12 * self.layers * self.hidden * self.sequence)


SCHEMES = ["DDP", "ZeRO 1", "ZeRO 2", "FSDP"]


def memory(net, scheme, data, tensor, micro):
    """Returns the bytes of a rank: bfloat16 parameters and gradients, float32 parameters and Adam's two moments, and
    the activations of `micro` sequences, where attention is recomputed in the backward pass (Korthikanti et al.
    2022)."""
    p = net.parameters / tensor
    whole, sharded = {"DDP": (16, 0), "ZeRO 1": (4, 12), "ZeRO 2": (2, 14), "FSDP": (0, 16)}[scheme]
    gathered = 2 * 2 * p / net.layers if scheme == "FSDP" else 0  # this layer and the next
    return p * (whole + sharded / data) + gathered + 34 * net.sequence * micro * net.hidden * net.layers / tensor


def step(net, cluster, scheme, data, tensor, micro, rounds):
    """Returns the seconds of a step on data x tensor ranks, each of which processes `micro` sequences `rounds`
    times."""
    layers, p = net.layers, 2 * net.parameters / tensor  # bytes in bfloat16
    layer = p / layers
    activations = 2 * net.sequence * micro * net.hidden
    sums = 4 * layers * cluster.half(tensor, activations)  # two all-reduces a layer, forward and again backward
    forward = micro * net.flops / 3 / tensor / cluster.flops + sums
    backward = 2 * micro * net.flops / 3 / tensor / cluster.flops + sums

    def half(nbytes):
        return cluster.half(data, nbytes, tensor) if data > 1 else 0

    if scheme == "FSDP":  # a layer computes while the next is gathered and the gradients of the last are sent
        def pipeline(compute, send, ends):
            return ends + (layers - 1) * max(compute / layers, send) + compute / layers

        gather = reduce = half(layer)
        return rounds * (pipeline(forward, gather, gather) + pipeline(backward, gather + reduce, gather + reduce))
    buckets = [((k + 1) / layers, layer) for k in range(layers)]
    left = exposed(backward, buckets, half if scheme == "ZeRO 2" else lambda nbytes: 2 * half(nbytes))
    times = rounds if scheme == "ZeRO 2" else 1  # its gradients are sharded in each round, others summed in the last
    return rounds * (forward + backward) + times * left + (0 if scheme == "DDP" else half(p))


def best(net, cluster, ranks, tokens, most_tokens):
    """Returns the fastest (sequences per second, scheme, tensor, micro, rounds) that fits into memory, or None. A step
    has `tokens` tokens, or more if each group of tensor-parallel ranks needs a sequence, but at most `most_tokens`."""
    found = None
    for tensor in (1, 2, 4, 8):
        data = ranks // tensor
        if data * net.sequence > most_tokens:
            continue
        share = max(1, tokens // net.sequence // data)
        for micro in (2**i for i in range(share.bit_length())):
            for scheme in SCHEMES:
                if memory(net, scheme, data, tensor, micro) <= cluster.memory:
                    rounds = share // micro
                    speed = data * micro * rounds / step(net, cluster, scheme, data, tensor, micro, rounds)
                    found = max(found or (0,), (speed, scheme, tensor, micro, rounds))
    return found
