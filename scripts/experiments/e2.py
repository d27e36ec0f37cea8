#!/usr/bin/env python3
"""E2, MNIST by 2 and by 10 convolution layers: 3x3 convolutions with ReLU of 1 or 32 channels, then one linear layer;
batches of 128, 5 epochs. On the GPU cuDNN, our fused kernel, and our kernel and ReLU one after the other; on the CPU
openmp, and naive for one epoch. Writes E2.jsonl, E2.html, E2_times.png and E2_gpu.png.
"""

import math
import pathlib

from gpu_recorder import ABOUT_RECORDINGS, draw_recordings
from record import Runs, arguments_of, page, picture, pyplot, table, train, where

NETS = ("conv2_c1", "conv10_c1", "conv2_c32", "conv10_c32")
EPOCHS, BATCH = 5, 128

ON_GPU = ["--device", "cuda", "--device-data"]  # a loader would be slower than these nets

# Scenario: (options, what it is)
SCENARIOS = {
    "cudnn": ([*ON_GPU, "--backend", "cudnn", "--cudnn-small"],
              "all convolutions by cuDNN, fused with bias and ReLU, products in TF32"),
    "cuda fused": ([*ON_GPU, "--backend", "cuda"],
                   "the GPU without cuDNN: our kernel of convolution, bias and ReLU, in float32"),
    "cuda unfused": ([*ON_GPU, "--backend", "cuda", "--unfused"],
                     "the GPU without cuDNN: convolution and bias by our kernel, then ReLU by another"),
    "openmp": (["--backend", "openmp"], "the CPU"),
    "naive": (["--backend", "naive"], "the CPU by plain loops"),
}

# What keeps a row within minutes on two cores: (epochs, training images, test images); 0 is all.
BOUNDS = {
    ("openmp", "conv10_c32"): (EPOCHS, 6000, 2000),
    ("naive", "conv2_c1"): (1, 0, 0),
    ("naive", "conv10_c1"): (1, 0, 0),
    ("naive", "conv2_c32"): (1, 256, 200),
    ("naive", "conv10_c32"): (1, 128, 50),
}

ROWS = {f"{scenario}, {net}": (scenario, net) for scenario in SCENARIOS for net in NETS}


def options_of(row):
    scenario, net = ROWS[row]
    epochs, images, test_images = BOUNDS.get((scenario, net), (EPOCHS, 0, 0))
    return ["--model", net, "--batch-size", str(BATCH), "--epochs", str(epochs), "--images", str(images),
            "--test-images", str(test_images), *SCENARIOS[scenario][0]]


def steps_of(epoch):
    return math.ceil(epoch["seconds"] * epoch["images_per_second"] / epoch["batch_size"] - 0.001)


def total(run, key):
    return sum(epoch[key] for epoch in run["epochs"])


def per_step(run, key):
    """Milliseconds, without the first of several epochs, in which libraries are loaded and plans are made."""
    epochs = run["epochs"][1:] or run["epochs"]
    return 1000 * sum(epoch[key] for epoch in epochs) / sum(steps_of(epoch) for epoch in epochs)


def line_of(run):
    epochs, last = run["epochs"], run["epochs"][-1]
    scenario, net = ROWS[run["row"]]
    images = round(epochs[0]["seconds"] * epochs[0]["images_per_second"])
    totals = ("seconds", "forward_seconds", "backward_seconds", "optimizer_seconds", "data_wait_seconds")
    return [net, scenario, len(epochs), images, "device" if last["device_data"] else "loader",
            *(f"{total(run, key):.2f}" for key in totals), f"{per_step(run, 'seconds'):.3f}",
            f"{100 * last['test_accuracy']:.2f}", last["test_images"],
            f"{max(e['peak_allocated_bytes'] for e in epochs) / 2**20:.1f}",
            f"{max(e['peak_reserved_bytes'] for e in epochs) / 2**20:.1f}", where(run), run["code"]]


def draw(newest, path):
    figure, axes = pyplot().subplots(1, len(NETS), figsize=(13, 4), constrained_layout=True)
    for net, axis in zip(NETS, axes):
        found = [(scenario, newest[f"{scenario}, {net}"]) for scenario in SCENARIOS if f"{scenario}, {net}" in newest]
        places, width = range(len(found)), 0.38
        for shift, key in ((-width / 2, "forward_seconds"), (width / 2, "backward_seconds")):
            heights = [per_step(run, key) for _, run in found]
            bars = axis.bar([place + shift for place in places], heights, width, label=key.split("_", maxsplit=1)[0])
            axis.bar_label(bars, [f"{ms:.3g}" if ms < 1000 else f"{ms:.0f}" for ms in heights], fontsize=6)
        axis.set_xticks(list(places), [scenario for scenario, _ in found], rotation=45, ha="right", fontsize="small")
        if found:
            axis.set_yscale("log")
        axis.set_title(net)
        axis.grid(alpha=0.3, axis="y")
    axes[0].set_ylabel("ms a step of 128 images")
    axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=120)


def render(results):
    folder = results.folder
    newest = {run["row"]: run for run in results.runs()}
    ordered = [newest[f"{scenario}, {net}"] for net in NETS for scenario in SCENARIOS if f"{scenario}, {net}" in newest]
    draw(newest, folder / "E2_times.png")
    gpu = draw_recordings({row: newest[row].get("gpu_over_time") for row in ROWS if row in newest},
                          folder / "E2_gpu.png")
    libraries = sorted({run["epochs"][0]["libraries"] for run in ordered} - {""})
    text = page(
        "E2: MNIST by 2 and 10 convolution layers",
        "<p>3x3 convolutions with ReLU, then one linear layer; Adam, batches of 128. Seconds are of all epochs' "
        "training together; forward, backward and optimizer are timed on the GPU by events in its queue, on the CPU by "
        "the clock. Batches come from a loader or, of images that are on the device, are made in the step, before "
        "forward. No step is captured. Rows that would take too long have fewer images or epochs, as their columns "
        "say: compare them by milliseconds a step, which leave out the first of several epochs. conv10_c1 learns "
        "nothing with any of six seeds: PyTorch's initial weights and ten ReLUs in a row leave nothing of a single "
        "channel; its times are what it is here for.</p><ul>" +
        "".join(f"<li>{name}: {words}.</li>" for name, (_, words) in SCENARIOS.items()) +
        f"</ul><p>{'; '.join(libraries)}</p>",
        table(["net", "scenario", "epochs", "images", "from", "total s", "forward s", "backward s", "optimizer s",
               "data wait s", "ms a step", "test accuracy, %", "test images", "peak MiB of tensors", "MiB reserved",
               "on", "code"],
              [line_of(run) for run in ordered]),
        results.skipped(ROWS),
        "<h2>Time of a step</h2>", picture(folder / "E2_times.png", "milliseconds of forward and backward"),
        *([ABOUT_RECORDINGS, picture(folder / "E2_gpu.png", "memory and utilisation")] if gpu else []))
    (folder / "E2.html").write_text(text, encoding="utf-8")
    print(f"wrote {folder / 'E2.html'}")


def main():
    arguments, more = arguments_of(__doc__, ROWS)
    results = Runs("E2", pathlib.Path(arguments.out))
    if not arguments.render:
        for row in arguments.rows:
            results.record(row, lambda: train(options_of(row), more=more))
    if not arguments.record:
        render(results)


if __name__ == "__main__":
    main()
