#!/usr/bin/env python3
"""E4's plain net on STL-10 by PyTorch's DistributedDataParallel, as examples/stl10 trains it with --device-data: the
rows of E7 to compare with. Takes the options of the example that it needs, and writes the same log.jsonl.
"""

import argparse
import json
import os
import pathlib
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]


def folder_of(data):
    for place in [data] if data else [os.environ.get("GRADUS_DATA", ""), ROOT / "data", ROOT.parent / "shared/data"]:
        for folder in (pathlib.Path(place), pathlib.Path(place) / "stl10_binary"):
            if (folder / "train_X.bin").exists():
                return folder
    raise SystemExit("torch_stl10: no STL-10: give its folder with --data")


def load(folder, part, count, device):
    """Bytes (N, 3, 96, 96) and classes (N), the first `count` or all."""
    labels = torch.frombuffer(bytearray((folder / f"{part}_y.bin").read_bytes()), dtype=torch.uint8).long() - 1
    pixels = torch.frombuffer(bytearray((folder / f"{part}_X.bin").read_bytes()), dtype=torch.uint8)
    images = pixels.view(-1, 3, 96, 96).transpose(2, 3).contiguous()
    count = min(count or len(images), len(images))
    return images[:count].to(device), labels[:count].to(device)


def normalised(images):
    return images.float() / 127.5 - 1


def make_net():
    layers, channels = [], 3
    for out in (32, 64, 128):
        layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 12 * 12, 512), nn.ReLU(), nn.Dropout(0.5),
                         nn.Linear(512, 10))


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def totals(numbers, device):
    """Sums over the ranks."""
    sums = torch.tensor(numbers, dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return sums.tolist()


def train_epoch(net, optimizer, images, labels, order, batch_size, rank, ranks):
    """(sum of losses, images classified right) of this rank's part of each batch."""
    loss_sum = torch.zeros((), dtype=torch.float64, device=images.device)
    right = torch.zeros((), dtype=torch.int64, device=images.device)
    net.train()
    for indices in order.split(batch_size):
        own = indices[rank::ranks]
        logits, target = net(normalised(images[own])), labels[own]
        loss = nn.functional.cross_entropy(logits, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss_sum += loss.detach() * len(own)
        right += (logits.argmax(1) == target).sum()
    return loss_sum.item(), right.item()


@torch.no_grad()
def test(net, images, labels, rank, ranks):
    net.eval()
    loss_sum, right = 0.0, 0
    for own in torch.arange(rank, len(images), ranks, device=images.device).split(100):
        logits = net(normalised(images[own]))
        loss_sum += nn.functional.cross_entropy(logits, labels[own], reduction="sum").item()
        right += (logits.argmax(1) == labels[own]).sum().item()
    return loss_sum, right


def run_rank(rank, options, port):
    ranks = options.ranks
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group(options.comm, rank=rank, world_size=ranks)
    device = torch.device("cuda", rank) if options.device == "cuda" else torch.device("cpu")
    memory = (0, 0)
    if options.device == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    torch.manual_seed(options.seed + rank)  # DDP gives all ranks the first one's weights
    folder = folder_of(options.data)
    images, labels = load(folder, "train", options.images, device)
    test_images, test_labels = load(folder, "test", options.test_images, device)
    model = make_net().to(device)
    net = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    shuffler = torch.Generator().manual_seed(options.seed)
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(images), generator=shuffler).to(device)
        dist.barrier()
        synchronize(device)
        before = time.perf_counter()
        sums = train_epoch(net, optimizer, images, labels, order, options.batch_size, rank, ranks)
        synchronize(device)
        seconds = time.perf_counter() - before
        if options.device == "cuda":
            memory = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
        loss, right, test_loss, test_right = totals([*sums, *test(model, test_images, test_labels, rank, ranks)],
                                                    device)
        if rank == 0:
            line = {"epoch": epoch, "train_loss": loss / len(images), "train_accuracy": right / len(images),
                    "test_loss": test_loss / len(test_images), "test_accuracy": test_right / len(test_images),
                    "test_images": len(test_images), "seconds": seconds, "images_per_second": len(images) / seconds,
                    "data_wait_seconds": 0.0, "peak_allocated_bytes": memory[0], "peak_reserved_bytes": memory[1],
                    "libraries": f"PyTorch {torch.__version__}", "ranks": ranks, "comm": options.comm,
                    "device": str(device), "batch_size": options.batch_size, "seed": options.seed}
            with open(pathlib.Path(options.out) / "log.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--comm", default="nccl", choices=["nccl", "gloo"])
    for name, default in (("ranks", 2), ("epochs", 10), ("batch-size", 64), ("seed", 1), ("images", 0),
                          ("test-images", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--data")
    parser.add_argument("--out", default=".")
    parser.add_argument("--quiet", action="store_true")  # it is
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(run_rank, (options, port), nprocs=options.ranks)


if __name__ == "__main__":
    main()
