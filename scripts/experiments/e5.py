#!/usr/bin/env python3
"""E5, STL-10 on two devices: E4's plain net under the launcher gradus-run and by --spawn from one program, against one
process; on GPUs, and on the CPU with a thread for each rank. Writes E5.jsonl, E5.html, E5_curves.png and
E5_gpu.png.
"""

import training
from e4 import ON_GPU
from gpu_recorder import ABOUT_RECORDINGS, draw_recordings
from record import page, picture
from training import Row

GPU = [*ON_GPU, "--graph"]
CPU = ["--threads", "1"]
ROWS = {
    "one GPU": Row(GPU),
    "two GPUs, gradus-run": Row([*GPU, "--batch-size", "64"], 2, "gradus-run"),
    "two GPUs, spawn": Row([*GPU, "--batch-size", "64"], 2, "spawn"),
    "two GPUs, the steps of one": Row(GPU, 2, "gradus-run"),
    "one GPU, the steps of two": Row([*GPU, "--batch-size", "64"]),
    "one CPU process": Row(CPU),
    "two CPU processes, gradus-run": Row([*CPU, "--batch-size", "64"], 2, "gradus-run"),
    "two CPU processes, spawn": Row([*CPU, "--batch-size", "64"], 2, "spawn"),
}


def render(results):
    folder = results.folder
    found = training.by_row(results, ROWS)
    training.draw_curves({"STL-10": found}, folder / "E5_curves.png", columns=1)
    gpu = draw_recordings({row: runs[-1]["gpu_over_time"] for row, runs in found.items()}, folder / "E5_gpu.png")
    text = page(
        "E5: STL-10 on two devices",
        f"<p>{training.libraries_of(found)}</p><p>E4's plain net for 10 epochs, 32 images a rank and step, so two "
        "ranks take half as many steps; in the rows \"the steps of\" as many as the other. On GPUs the step is "
        "captured with its all-reduces, and each GPU has all images. Reported elsewhere: 51.5 % and 49.3 % (each rank "
        "tested with a half of the images), 63.9 s, 562 MB a rank; on one GPU 50.6 %, 179 s, 498 "
        "MB.</p>", training.ABOUT_TABLE,
        training.rows_table(found), results.skipped(ROWS),
        "<h2>Curves</h2><p>Dashed: training images; solid: test images. Bands: the seeds.</p>",
        picture(folder / "E5_curves.png", "loss and accuracy by epoch"),
        *([ABOUT_RECORDINGS, picture(folder / "E5_gpu.png", "memory and utilisation")] if gpu else []))
    (folder / "E5.html").write_text(text, encoding="utf-8")
    print(f"wrote {folder / 'E5.html'}")


if __name__ == "__main__":
    training.run("E5", __doc__, "stl10", ROWS, render)
