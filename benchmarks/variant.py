"""The variants of a training step that benchmarks/vs_pytorch.py compares."""

from typing import NamedTuple

PRECISIONS = ["fp32", "tf32", "fp16", "bf16"]  # the latter two: mixed precision


class Variant(NamedTuple):
    """How a row is measured."""

    mode: str = "eager"  # or graph: captured and replayed; or compiled by torch.compile
    layout: str = "contiguous"  # or channels_last
    precision: str = "fp32"
    fused: bool = False  # PyTorch's optimizer; that of gradus is
    threads: int = 0  # of the CPU; 0: all

    def key(self):
        return " ".join([self.mode, self.layout, *([self.precision] if self.precision != "fp32" else []),
                         *(["fused"] if self.fused else []), *([f"{self.threads} threads"] if self.threads else [])])

    @staticmethod
    def of(key):
        mode, layout, *rest = key.split()
        return Variant(mode, layout, next((word for word in rest if word in PRECISIONS), "fp32"), "fused" in rest,
                       int(rest[-2]) if "threads" in rest else 0)
