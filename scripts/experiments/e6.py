#!/usr/bin/env python3
"""E6, batch size: E4's plain net with 16, 32, 64 and 128 images a GPU and step, on one GPU and on two. Writes
E6.jsonl, E6.html, E6_batches.png and E6_gpu.png.
"""

import training
from e5 import GPU
from gpu_recorder import ABOUT_RECORDINGS, draw_recordings
from record import mean, page, picture, pyplot, table
from training import Row

BATCHES = (16, 32, 64, 128)
RANKS = {"one GPU": 1, "two GPUs": 2}
ROWS = {f"{name}, {batch}": Row([*GPU, "--batch-size", str(ranks * batch)], ranks,
                                "gradus-run" if ranks > 1 else "alone")
        for name, ranks in RANKS.items() for batch in BATCHES}

# Reported elsewhere by batch: seconds, MB, accuracy in %.
ELSEWHERE = {"one GPU": ((185, 179, 169, 157), (388, 498, 720, 1164), (50.2, 50.6, 54.1, 55.8)),
             "two GPUs": ((80.6, 63.9, 60.6, 57.9), (452, 562, 784, 1228), (49.4, 51.5, 51.0, 56.5))}
FIGURES = {"s of 10 epochs' training": training.seconds_of, "MiB reserved": training.reserved_of,
           "test accuracy, %": training.accuracy_of}


def draw(found, path):
    figure, axes = pyplot().subplots(1, len(FIGURES), figsize=(13, 3.8), constrained_layout=True)
    for axis, (label, figure_of) in zip(axes, FIGURES.items()):
        for number, name in enumerate(RANKS):
            points = [(batch, [figure_of(one) for one in found[f"{name}, {batch}"]]) for batch in BATCHES
                      if f"{name}, {batch}" in found]
            middle = [mean(values) for _, values in points]
            reach = [[m - min(values) for m, (_, values) in zip(middle, points)],
                     [max(values) - m for m, (_, values) in zip(middle, points)]]
            axis.errorbar([batch for batch, _ in points], middle, yerr=reach, marker="o", capsize=3, color=f"C{number}",
                          label=name)
        axis.set_xscale("log", base=2)
        axis.set_xticks(BATCHES, BATCHES)
        axis.set_xlabel("images a GPU and step")
        axis.set_ylabel(label)
        if "accuracy" not in label:
            axis.margins(y=0.1)
            axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(path, dpi=120)


def render(results):
    folder = results.folder
    found = training.by_row(results, ROWS)
    draw(found, folder / "E6_batches.png")
    gpu = draw_recordings({row: runs[-1]["gpu_over_time"] for row, runs in found.items()}, folder / "E6_gpu.png")
    elsewhere = [[f"{name}, {batch}", *(figures[place] for figures in ELSEWHERE[name])]
                 for name in RANKS for place, batch in enumerate(BATCHES)]
    text = page(
        "E6: batch size",
        f"<p>{training.libraries_of(found)}</p><p>E4's plain net for 10 epochs, with Adam at 1e-3 whatever the batch. "
        "The number behind the GPUs are the images of a GPU and step. Steps are captured, images are on the GPUs.</p>",
        training.ABOUT_TABLE, training.rows_table(found), results.skipped(ROWS),
        picture(folder / "E6_batches.png", "time, memory and accuracy by batch size"),
        "<h2>Reported elsewhere</h2>", table(["row", "s", "MB", "accuracy, %"], elsewhere),
        *([ABOUT_RECORDINGS, picture(folder / "E6_gpu.png", "memory and utilisation")] if gpu else []))
    (folder / "E6.html").write_text(text, encoding="utf-8")
    print(f"wrote {folder / 'E6.html'}")


if __name__ == "__main__":
    training.run("E6", __doc__, "stl10", ROWS, render)
