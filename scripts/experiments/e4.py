#!/usr/bin/env python3
"""E4, STL-10 on one device: three blocks of convolution and max-pooling, two linear layers, Adam, 10 epochs of batches
of 32, captured with the images on the device, eager, from the loader, and on the CPU; then the same task done well, a
ResNet-18 with augmentation, label smoothing and a one-cycle schedule, and the same without parts of that. Writes
E4.jsonl, E4.html, E4_curves.png and E4_gpu.png.
"""

import training
from gpu_recorder import ABOUT_RECORDINGS, draw_recordings
from record import page, picture

ON_GPU = ["--device", "cuda", "--device-data"]
# images a step, learning rate and epochs go together
WELL = [*ON_GPU, "--graph", "--amp", "bf16", "--model", "resnet", "--dropout", "0", "--optimizer", "sgd", "--lr", "0.1",
        "--weight-decay", "5e-4", "--schedule", "one-cycle", "--batch-size", "64", "--workers", "4"]
SMOOTHED = [*WELL, "--label-smoothing", "0.1"]
EPOCHS = 100

ROWS = {
    "resnet": training.Row([*SMOOTHED, "--augment", "crop+flip+cutout"], epochs=EPOCHS),
    "plain": training.Row([*ON_GPU, "--graph"]),
    "plain, eager": training.Row(ON_GPU),
    "plain, from the loader": training.Row(["--device", "cuda", "--graph", "--workers", "4"]),
    "plain, CPU": training.Row([]),
    "resnet without cutout": training.Row([*SMOOTHED, "--augment", "crop+flip"], epochs=EPOCHS),
    "resnet without augmentation": training.Row(SMOOTHED, epochs=EPOCHS),
    "resnet without label smoothing": training.Row([*WELL, "--augment", "crop+flip+cutout"], epochs=EPOCHS),
}


def render(results):
    folder = results.folder
    found = training.by_row(results, ROWS)
    panels = {"the plain net": {row: runs for row, runs in found.items() if row.startswith("plain")},
              "done well": {row: runs for row, runs in found.items() if row.startswith("resnet")}}
    training.draw_curves(panels, folder / "E4_curves.png")
    gpu = draw_recordings({row: runs[-1]["gpu_over_time"] for row, runs in found.items()}, folder / "E4_gpu.png")
    text = page(
        "E4: STL-10 on one device",
        f"<p>{training.libraries_of(found)}</p><p>5,000 labelled photographs of 96 x 96 pixels to train on, and 1,600 "
        "to test with; nothing else is used. The plain net: three blocks conv3x3(3-32-64-128) + ReLU + maxpool2, "
        "linear 512 + ReLU, dropout 0.5, linear 10; Adam at 1e-3, batches of 32. Reported elsewhere: 50.6 % (best "
        "epoch 54.1 %), 179 s, 498 MB. resnet: a ResNet-18 whose first convolution has stride 2, in bfloat16; SGD with "
        "Nesterov's momentum, weight decay 5e-4, one cycle of the learning rate up to 0.1; images shifted by up to 12 "
        "pixels, mirrored, and with a square of 32 x 32 covered; label smoothing 0.1.</p>", training.ABOUT_TABLE,
        training.rows_table(found), results.skipped(ROWS),
        "<h2>Curves</h2><p>Dashed: the training images as the net saw them, with what augmentation, dropout and label "
        "smoothing make of them; solid: the test images. Bands: the seeds.</p>",
        picture(folder / "E4_curves.png", "loss and accuracy by epoch"),
        *([ABOUT_RECORDINGS, picture(folder / "E4_gpu.png", "memory and utilisation")] if gpu else []))
    (folder / "E4.html").write_text(text, encoding="utf-8")
    print(f"wrote {folder / 'E4.html'}")


if __name__ == "__main__":
    training.run("E4", __doc__, "stl10", ROWS, render)
