#!/usr/bin/env python3
"""E12, sharding: DDP, ZeRO 1 to 3, tensor parallel layers and a sharded table on an MLP, a ResNet-18 and a transformer,
on 1, 2 and 4 ranks of this machine over tcp: the memory of a rank and what it sends in a step, predicted by gradus::plan
with a group of recorded ranks and measured, the time of a step, and the losses beside those of one process. Writes
E12.jsonl, E12.html and E12_sharding.png.
"""

import json
import pathlib
import tempfile

from record import Runs, arguments_of, call, page, picture, program, pyplot, table, where

NETS = {"mlp": ["ddp", "zero1", "zero2", "zero3", "tensor", "table"],
        "resnet18": ["ddp", "zero1", "zero2", "zero3"],
        "transformer": ["ddp", "zero1", "zero2", "zero3", "tensor"]}
# Row: net, way, ranks. The table has its own optimizer, so that one process with it is a row too.
ROWS = {f"{net}, {way}, {ranks}": (net, way, ranks) for net, ways in NETS.items() for way in ["none", *ways]
        for ranks in {"none": [1], "table": [1, 2, 4]}.get(way, [2, 4])}


def measure(row, more):
    net, parallel, ranks = ROWS[row]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "row.jsonl"
        options = ["--net", net, "--parallel", parallel, *([] if "--threads" in more else ["--threads", "1"]), *more]
        call([program("gradus-run"), "--nproc", str(ranks), program("benchmarks/sharding"), *options, "--json", file])
        figures = json.loads(file.read_text(encoding="utf-8"))
    return {"options": options, "figures": {**figures, "losses": list(map(float, figures["losses"].split()))}}


def alone(newest, row):
    """The losses of one process that makes the same steps."""
    net, parallel, _ = ROWS[row]
    run = newest.get(f"{net}, {'table' if parallel == 'table' else 'none'}, 1")
    return run and run["figures"]["losses"]


def errors_of(newest, row):
    """Measured memory and bytes sent against the prediction, and how far the losses are from one process's; or None."""
    figures, losses = newest[row]["figures"], alone(newest, row)
    errors = [figures[f"measured_{what}_bytes"] / figures[f"predicted_{what}_bytes"] - 1
              if figures[f"predicted_{what}_bytes"] else None for what in ("peak", "sent")]
    return [*errors, max(abs(a - b) for a, b in zip(losses, figures["losses"])) if losses else None]


def draw(newest, path):
    plot = pyplot()
    figure, axes = plot.subplots(len(NETS), 2, figsize=(11, 9), constrained_layout=True)
    for net, line in zip(NETS, axes):
        rows = [row for row in ROWS if row in newest and ROWS[row][0] == net]
        names = [f"{parallel}, {ranks}" for _, parallel, ranks in map(ROWS.get, rows)]
        for axis, what, title in zip(line, ("peak", "sent"), ("MB held at the peak", "MB sent in a step")):
            of = {kind: [newest[row]["figures"][f"{kind}_{what}_bytes"] / 1e6 for row in rows]
                  for kind in ("measured", "predicted")}
            axis.barh(names, of["measured"], alpha=0.6, label="measured")
            axis.plot(of["predicted"], names, "k|", markersize=12, label="predicted")
            axis.invert_yaxis()
            axis.set_title(f"{net}: {title}, a rank", fontsize="medium")
            axis.grid(alpha=0.3, axis="x")
    axes[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=100)
    plot.close(figure)


def percent(number):
    return "" if number is None else f"{100 * number:+.2f} %"


def render(runs, folder):
    newest = {run["row"]: run for run in runs.runs()}
    newest = {row: newest[row] for row in ROWS if row in newest}
    draw(newest, folder / "E12_sharding.png")
    lines, worst = [], [0.0, 0.0, 0.0]
    for row, run in newest.items():
        figures, errors = run["figures"], errors_of(newest, row)
        worst = [max(most, abs(error or 0)) for most, error in zip(worst, errors)]
        lines.append([*row.split(", "), f"{figures['parameters']:,}",
                      *(cell for what, error in zip(("peak", "sent"), errors) for cell in
                        (f"{figures[f'predicted_{what}_bytes'] / 1e6:.3f}",
                         f"{figures[f'measured_{what}_bytes'] / 1e6:.3f}", percent(error))),
                      f"{figures['step_ms']:.0f}", f"{figures['losses'][-1]:.6f}",
                      "" if errors[2] is None else f"{errors[2]:.1e}"])
    summary = (f"{len(newest)} rows: memory within {100 * worst[0]:.2f} % of the prediction, bytes sent within "
               f"{100 * worst[1]:.2f} %, losses within {worst[2]:.1e} of one process's")
    last = list(newest.values())[-1]
    head = (f"<p>{summary}. {where(last)}, a thread a rank, tcp on the loopback address; code {last['code']}.</p>"
            "<p>mlp: a table of 50,000 x 16, of which a sample looks up 8 rows, and three linear layers (128, 1024, 1024, "
            "10), 256 samples a step. resnet18: 32 channels in its first stage, no batch norm (its statistics would be "
            "of each rank's part), 16 images of 32 x 32. transformer: that of examples/language with 4 blocks of 128 "
            "features, 2,048 tokens, 16 windows of 64. AdamW. Batches are of all ranks together; tensor parallel ranks "
            "all have all of it.</p>"
            "<p>Predicted: the peak by gradus::plan with a RecordingGroup of so many ranks, bytes by what that group is "
            "asked to send. The rows that a table is asked for are not known before a step, so of &ldquo;table&rdquo; "
            "only the other layers are planned, and the table is added by formula. Measured: the greatest "
            "peak_allocated of the ranks, and what the kernel's counters of all TCP connections say that a rank sends, "
            "headers and messages of the barrier included. Losses: the greatest difference in 12 steps.</p>"
            "<p>Left out: a tensor parallel ResNet-18 (there are no such convolutions), a sharded table in ResNet-18, "
            "which has none, and in the transformer, whose table of tokens is divided by &ldquo;tensor&rdquo;.</p>")
    text = page("E12: sharding", head, picture(folder / "E12_sharding.png", "memory and bytes of a rank"),
                table(["net", "way", "ranks", "parameters of a rank", "MB predicted", "MB held", "difference",
                       "MB predicted", "MB sent a step", "difference", "ms a step", "last loss",
                       "from one process"], lines), runs.skipped(ROWS))
    (folder / "E12.html").write_text(text, encoding="utf-8")
    print(f"{summary}\nwrote {folder / 'E12.html'}")


def main():
    arguments, more = arguments_of(__doc__, ROWS)
    runs = Runs("E12", arguments.out)
    if not arguments.render:
        for row in arguments.rows:
            runs.record(row, lambda row=row: measure(row, more))
    if not runs.runs():
        raise SystemExit("e12: no runs yet")
    if not arguments.record:
        render(runs, pathlib.Path(arguments.out))


if __name__ == "__main__":
    main()
