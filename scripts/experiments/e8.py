#!/usr/bin/env python3
"""E8, CIFAR-10: a ResNet-18 on one GPU, on two by DistributedDataParallel over NCCL and TCP and by data_parallel; in
float32, float16 and bfloat16; and what each of six regularisers changes. Writes E8.jsonl, E8.html,
E8_regularisers.png, E8_precision.png and E8_gpu.png.
"""

import training
from gpu_recorder import ABOUT_RECORDINGS, draw_recordings
from record import mean, page, picture, table
from training import Row

EPOCHS = 20
NET = ["--device", "cuda", "--width", "32", "--workers", "4"]
EAGER = [*NET, "--device-data"]
CAPTURED = [*EAGER, "--graph"]


def row(options, *more, ranks=1):
    return Row([*options, *more], ranks, "gradus-run" if ranks > 1 else "alone", EPOCHS)


DEVICES = {
    "one GPU": row(CAPTURED),
    "one GPU, eager": row(EAGER),
    "two GPUs, DDP, nccl": row(CAPTURED, "--comm", "nccl", ranks=2),
    "two GPUs, DDP, nccl, eager": row(EAGER, "--comm", "nccl", ranks=2),
    "two GPUs, DDP, nccl, batch norm of both, eager": row(EAGER, "--comm", "nccl", "--sync-batch-norm", ranks=2),
    "two GPUs, DDP, tcp, eager": row(EAGER, "--comm", "tcp", ranks=2),
    "two GPUs, data_parallel, eager": row(EAGER, "--data-parallel", "2"),
}
PRECISIONS = {f"one GPU, {half}": row(CAPTURED, "--amp", half) for half in ("fp16", "bf16")}

# What each switch changes, from batch norm alone on; from the loader where images are held back.
WITH_NORM = ["--augment", "none", "--weight-decay", "0"]
BASE = "batch norm alone"
REGULARISERS = {
    BASE: row(CAPTURED, *WITH_NORM),
    "no batch norm": row(CAPTURED, *WITH_NORM, "--no-batch-norm"),
    "dropout 0.5": row(CAPTURED, *WITH_NORM, "--dropout", "0.5"),
    "weight decay 5e-4": row(CAPTURED, "--augment", "none", "--weight-decay", "5e-4"),
    "augmentation": row(CAPTURED, "--augment", "crop+flip", "--weight-decay", "0"),
    "label smoothing 0.1": row(CAPTURED, *WITH_NORM, "--label-smoothing", "0.1"),
    "early stopping": row([*NET, "--graph"], *WITH_NORM, "--early-stopping", "3"),
    "all but early stopping": row(CAPTURED, "--dropout", "0.5", "--label-smoothing", "0.1"),
}
ROWS = {**DEVICES, **PRECISIONS, **REGULARISERS}


def effects(found):
    """What each regulariser adds to the accuracies of the base, mean over the seeds that both have."""
    lines = []
    base = {one["seed"]: one["epochs"][-1] for one in found.get(BASE, [])}
    for name, runs in found.items():
        pairs = [(one["epochs"][-1], base[one["seed"]]) for one in runs if one["seed"] in base]
        if name == BASE or not pairs:
            continue
        cells = [training.spread((100 * (last[key] - before[key]) for last, before in pairs), "{:+.2f}")
                 for key in ("test_accuracy", "train_accuracy")]
        gap = mean(100 * (last["train_accuracy"] - last["test_accuracy"]) for last, _ in pairs)
        lines.append([name, *cells, f"{gap:.1f}"])
    return table(["against batch norm alone", "test accuracy, points", "train accuracy, points", "gap train - test"],
                 lines)


def render(results):
    folder = results.folder
    found = training.by_row(results, ROWS)

    def of(rows):
        return {name: found[name] for name in rows if name in found}

    regularisers = of(REGULARISERS)
    panels = {name: {other: regularisers[other] for other in (BASE, name) if other in regularisers}
              for name in regularisers if name != BASE}
    training.draw_curves(panels or {"": {}}, folder / "E8_regularisers.png")
    training.draw_curves({"precision": of(["one GPU", *PRECISIONS]), "devices": of(DEVICES)},
                         folder / "E8_precision.png")
    gpu = draw_recordings({name: runs[-1]["gpu_over_time"] for name, runs in of([*DEVICES, *PRECISIONS]).items()},
                          folder / "E8_gpu.png")
    text = page(
        "E8: CIFAR-10",
        f"<p>{training.libraries_of(found)}</p><p>10,000 images to train on and 2,000 to test with. A ResNet-18 of "
        "half the paper's width (32 channels in the first stage), batches of 128 images on all devices together, SGD "
        "at 0.05 with Nesterov's momentum and a cosine schedule. Unless a row says otherwise: weight decay 5e-4, "
        "images shifted by up to 4 pixels and mirrored.</p>", training.ABOUT_TABLE,
        "<h2>One GPU and two</h2><p>data_parallel is one process, whose MiB are those of its first GPU.</p>",
        training.rows_table(of(DEVICES)),
        "<h2>Precision</h2><p>float32 (convolutions round to TF32), float16 with a scaled loss, bfloat16.</p>",
        training.rows_table(of(["one GPU", *PRECISIONS])),
        picture(folder / "E8_precision.png", "loss and accuracy by epoch"),
        "<h2>Regularisers</h2><p>Each by itself, against a net with batch norm alone, the same seeds compared with "
        "each other. Early stopping holds a tenth of the images back and ends after 3 epochs without a better loss on "
        "them.</p>",
        effects(regularisers), training.rows_table(regularisers),
        "<p>Dashed: the training images as the net saw them; solid: the test images. Bands: the seeds.</p>",
        picture(folder / "E8_regularisers.png", "loss and accuracy by epoch"),
        results.skipped(ROWS),
        *([ABOUT_RECORDINGS, picture(folder / "E8_gpu.png", "memory and utilisation")] if gpu else []))
    (folder / "E8.html").write_text(text, encoding="utf-8")
    print(f"wrote {folder / 'E8.html'}")


if __name__ == "__main__":
    training.run("E8", __doc__, "cifar10", ROWS, render)
