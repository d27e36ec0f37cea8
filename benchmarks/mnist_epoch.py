#!/usr/bin/env python3
"""Compares an epoch of LeNet on MNIST, with loading and evaluation: examples/mnist and the same program in PyTorch.

Trains with batches of 64, Adam and normalised images, adds up loss and correct predictions of the epoch, and then tests
on 10,000 images. PyTorch runs with a DataLoader (0 and 2 workers) and, as fast as it can, with all images normalised
beforehand and indexed by batch. Each round runs every contender once; the figures are medians over the rounds of the
epoch after the first.

    python3 benchmarks/mnist_epoch.py --program build/cpu-release/examples/mnist --data ../shared/data --threads 2
"""
import argparse
import datetime
import gzip
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts/experiments"))

from nets import lenet  # noqa: E402
from record import code_version, machine  # noqa: E402

MEAN, DEVIATION, BATCH = 0.1307, 0.3081, 64


def read_idx(folder, name):
    """Returns the bytes of an IDX file; images have the shape (N, 1, 28, 28)."""
    path = next(p for p in (folder / name, folder / f"{name}.gz") if p.exists())
    data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
    header = 4 + 4 * data[3]
    numbers = torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8)
    return numbers.reshape(-1, 1, 28, 28) if data[3] == 3 else numbers.long()


class Digits(torch.utils.data.Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i].float().div_(255).sub_(MEAN).div_(DEVIATION), self.labels[i]


def dataloader(workers):
    def batches(images, labels, size, shuffle):
        return torch.utils.data.DataLoader(Digits(images, labels), size, shuffle, num_workers=workers,
                                           persistent_workers=workers > 0)

    return batches


class sliced:
    """Yields batches of images that were all normalised before."""

    def __init__(self, images, labels, size, shuffle):
        self.images = images.float().div_(255).sub_(MEAN).div_(DEVIATION)
        self.labels, self.size, self.shuffle = labels, size, shuffle

    def __iter__(self):
        count = len(self.images)
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        for begin in range(0, count, self.size):
            chosen = order[begin:begin + self.size]
            yield self.images[chosen], self.labels[chosen]


def pytorch(batches):
    def run(options, sets):
        torch.manual_seed(1)
        net = lenet()
        optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
        train, test = batches(*sets["train"], BATCH, True), batches(*sets["t10k"], 1000, False)
        for _ in range(options.epochs):
            start = time.perf_counter()
            loss_sum, right = torch.zeros(()), torch.zeros((), dtype=torch.long)
            for images, labels in train:
                optimizer.zero_grad()
                logits = net(images)
                loss = F.cross_entropy(logits, labels)
                loss.backward()
                optimizer.step()
                loss_sum += loss.detach() * len(labels)
                right += (logits.argmax(1) == labels).sum()
            loss_sum.item(), right.item()
            trained = time.perf_counter()
            hits = 0
            with torch.no_grad():
                for images, labels in test:
                    logits = net(images)
                    F.cross_entropy(logits, labels, reduction="sum").item()
                    hits += (logits.argmax(1) == labels).sum().item()
            seconds, test_seconds = trained - start, time.perf_counter() - trained
        return {"seconds": seconds, "test_seconds": test_seconds, "test_accuracy": hits / len(sets["t10k"][1])}

    return run


def gradus(options, _):
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([options.program, "--model", "lenet", "--epochs", str(options.epochs), "--schedule", "none",
                        "--batch-size", str(BATCH), "--threads", str(options.threads), "--data", options.data,
                        "--quiet", "--workers", str(options.workers), "--out", out], check=True)
        last = json.loads(open(pathlib.Path(out) / "log.jsonl", encoding="utf-8").readlines()[-1])
    return {key: last[key] for key in ("seconds", "test_seconds", "test_accuracy", "data_wait_seconds")}


CONTENDERS = {
    "gradus": gradus,
    "PyTorch, DataLoader": pytorch(dataloader(0)),
    "PyTorch, DataLoader with 2 workers": pytorch(dataloader(2)),
    "PyTorch, images indexed in memory": pytorch(sliced),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the built examples/mnist")
    parser.add_argument("--data", required=True, help="folder that has MNIST in a folder mnist")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1, help="of gradus's loader")
    parser.add_argument("--epochs", type=int, default=2, help="the last one counts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--json", default="", help="put all figures into this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    folder = pathlib.Path(options.data) / "mnist"
    sets = {part: (read_idx(folder, f"{part}-images-idx3-ubyte"), read_idx(folder, f"{part}-labels-idx1-ubyte"))
            for part in ("train", "t10k")}
    runs = {name: [] for name in options.contenders}
    for _ in range(options.rounds):
        for name in options.contenders:
            runs[name].append(CONTENDERS[name](options, sets))
    rows = []
    print(f"{'LeNet, batch 64':36} {'epoch s':>8} {'training':>9} {'test':>7} {'accuracy':>9}")
    for name, found in runs.items():
        row = {key: statistics.median(run[key] for run in found) for key in found[0]}
        row = {"contender": name, "epoch_seconds": row["seconds"] + row["test_seconds"], **row}
        rows.append(row)
        print(f"{name:36} {row['epoch_seconds']:8.3f} {row['seconds']:9.3f} {row['test_seconds']:7.3f} "
              f"{100 * row['test_accuracy']:8.2f}%")
    if options.json:
        results = {"pytorch": torch.__version__, "machine": machine(), "code": code_version(),
                   "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="minutes"),
                   "threads": options.threads, "workers": options.workers, "rounds": options.rounds, "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
