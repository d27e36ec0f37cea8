#!/usr/bin/env python3
"""E1, when is a kernel of one's own faster than cuDNN's? A 3x3 convolution with bias and ReLU and its gradients, of
1 to 128 channels (as many results) and 28 to 224 pixels a side: plain loops, OpenMP, every rung of the ladder
(benchmarks/ladders/conv2d_cuda), the library, cuDNN fused and kernel by kernel. Writes E1.jsonl, E1.html and
E1_region.png.
"""

import html
import json
import math
import pathlib
import statistics
import tempfile

from record import Runs, Skipped, arguments_of, call, page, picture, program, pyplot, table

CHANNELS = (1, 8, 32, 64, 128)
PIXELS = (28, 56, 112, 224)
ROWS = {f"{channels} channels": channels for channels in CHANNELS}
PASSES, DTYPES = ("fprop", "dgrad", "wgrad"), ("float32", "bfloat16")
PASS_NAMES = {"fprop": "forward, with bias and ReLU", "dgrad": "gradient of the images",
              "wgrad": "gradient of the filters"}
CUDNN = ("cudnn", "cudnn fused", "cudnn unfused")
OTHERS = ("library", "naive loops", "openmp")


def measure(channels, more):
    """One run of the ladder over all sizes of image. Figures: of each pass, type and size the limit and, by rung,
    microseconds and the largest difference from the naive kernel as a share of the root mean square."""
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder) / "lines.jsonl"
        why = None
        try:
            call([program("benchmarks/ladders/conv2d_cuda"), "--channels", str(channels), "--pixels",
                  ",".join(map(str, PIXELS)), "--hosts", "--json", str(lines), *more])
        except Skipped as reason:  # rungs that are wrong have no figures
            if not lines.exists():
                raise
            why = str(reason)
        figures = {}
        for line in map(json.loads, lines.read_text(encoding="utf-8").splitlines()):
            key = " ".join((line["kernel"].split()[1], line["dtype"], line["shape"]))
            figure = figures.setdefault(key, {"limit_us": float(f"{line['limit_us']:.4g}"), "rungs": {}})
            figure["rungs"][line["rung"]] = [float(f"{line['us']:.4g}"), float(f"{line['difference']:.2g}")]
    return {"options": more, "device": "cuda", "channels": channels, "figures": figures,
            **({"wrong": why} if why else {})}


def problems(runs):
    """(pass, dtype, channels, pixels) -> figures, of the newest runs."""
    found = {}
    for run in runs:
        for key, figure in run["figures"].items():
            direction, dtype, shape = key.split(maxsplit=2)
            if any(rung in CUDNN for rung in figure["rungs"]):  # else the program ended before that
                found[direction, dtype, run["channels"], int(shape.split()[0].split("x")[2])] = figure
    return found


def fastest(figure, wanted):
    """(microseconds, rung) of the fastest of them."""
    times = [(us, rung) for rung, (us, _) in figure["rungs"].items() if wanted(rung)]
    return min(times) if times else (math.nan, "")


def own(figure):
    return fastest(figure, lambda rung: rung not in CUDNN and rung not in OTHERS)


def cudnn(figure):
    return fastest(figure, lambda rung: rung in CUDNN)


def draw(found, path):
    plot = pyplot()
    figure, axes = plot.subplots(len(DTYPES), len(PASSES), figsize=(12, 6.4), constrained_layout=True)
    for row, dtype in zip(axes, DTYPES):
        for axis, direction in zip(row, PASSES):
            ratios = [[math.nan] * len(PIXELS) for _ in CHANNELS]
            for y, channels in enumerate(CHANNELS):
                for x, pixels in enumerate(PIXELS):
                    problem = found.get((direction, dtype, channels, pixels))
                    if not problem:
                        continue
                    (mine, rung), (theirs, _) = own(problem), cudnn(problem)
                    ratios[y][x] = math.log2(theirs / mine)
                    axis.text(x, y, f"{theirs / mine:.2f}\n{rung}", ha="center", va="center", fontsize=6)
            shown = axis.imshow(ratios, cmap="RdYlGn", vmin=-2, vmax=2, aspect="auto", origin="lower")
            axis.set_title(f"{PASS_NAMES[direction]}, {dtype}", fontsize="small")
            axis.set_xticks(range(len(PIXELS)), PIXELS, fontsize="small")
            axis.set_yticks(range(len(CHANNELS)), CHANNELS, fontsize="small")
            axis.set_xlabel("pixels a side", fontsize="small")
            axis.set_ylabel("channels", fontsize="small")
    bar = figure.colorbar(shown, ax=axes, shrink=0.6)
    bar.set_ticks([-2, -1, 0, 1, 2], labels=["1/4", "1/2", "1", "2", "4"])
    bar.set_label("cuDNN's time by our fastest kernel's; green: ours is faster", fontsize="small")
    figure.savefig(path, dpi=80)


def summary(found):
    lines = []
    for (direction, dtype, channels, pixels), figure in sorted(found.items(), key=lambda item: (
            PASSES.index(item[0][0]), DTYPES.index(item[0][1]), *item[0][2:])):
        (mine, rung), (theirs, which) = own(figure), cudnn(figure)
        library, limit = figure["rungs"].get("library", [math.nan])[0], figure["limit_us"]
        hosts = [figure["rungs"].get(name, [math.nan])[0] for name in ("openmp", "naive loops")]
        lines.append([direction, dtype, channels, pixels, f"{limit:.4g}", rung, f"{mine:.4g}",
                      f"{100 * limit / mine:.0f} %", which, f"{theirs:.4g}", f"{100 * limit / theirs:.0f} %",
                      f"{theirs / mine:.2f}", f"{library:.4g}",
                      *("" if math.isnan(us) else f"{us:.4g}" for us in hosts)])
    return table(["pass", "type", "channels", "pixels", "limit", "our fastest", "us", "of the limit", "cuDNN", "us",
                  "of the limit", "cuDNN / ours", "library", "OpenMP", "plain loops"], lines)


def markdown(found):
    """Lines for docs/when_to_write_your_own_kernel.md: cuDNN's time by our fastest kernel's, median over the sizes of
    images, by channels."""
    lines = []
    for direction in PASSES:
        for dtype in DTYPES:
            ratios = {channels: [cudnn(figure)[0] / own(figure)[0] for key, figure in found.items()
                                 if key[:3] == (direction, dtype, channels)] for channels in CHANNELS}
            faster = sum(ratio > 1 for some in ratios.values() for ratio in some)
            cells = [f"{statistics.median(some):.2f}" if some else "" for some in ratios.values()]
            lines.append(f"| {PASS_NAMES[direction]}, {dtype} | {' | '.join(cells)} | "
                         f"{faster} of {sum(map(len, ratios.values()))} |")
    return lines


def every_rung(found):
    def cell(figure):
        return "; ".join(f"{rung} {us:.4g} ({difference:.0e})" for rung, (us, difference) in figure["rungs"].items())

    lines = [[*problem, cell(figure)] for problem, figure in sorted(found.items())]
    return ("<details><summary>Every rung: microseconds (difference)</summary>" +
            table(["pass", "type", "channels", "pixels", "rungs"], lines) + "</details>")


def render(results):
    folder, runs = results.folder, list({run["row"]: run for run in results.runs()}.values())
    found = problems(runs)
    if found:
        draw(found, folder / "E1_region.png")
    on = sorted({f"{run['machine']['gpu']}, {run['machine']['cpu']}, {run['machine']['cores']} cores, {run['code']}"
                 for run in runs})
    text = page(
        "E1: when is a kernel of one's own faster than cuDNN's?",
        "<p>A 3x3 convolution, padding 1, as many filters as channels, 16 images, channels-last; float32 is exact, "
        "without TF32. Microseconds of a kernel in a captured graph (on the CPU of a call). The limit: arithmetic at "
        "51 (float32) or 700 TFLOP/s (bfloat16), or operands and results once at 4.2 TB/s. Our fastest: of the "
        "ladder's rungs and the backend cuda. cuDNN: the faster of its fused call and convolution, bias and ReLU as "
        "three kernels. Library: what gradus chooses of both by default. The difference is the largest from the naive "
        "kernel, as a share of the results' root mean square.</p>",
        f"<p>On {'; '.join(on)}.</p>",
        *(f"<p>Left out: {html.escape(run['wrong'])}</p>" for run in runs if "wrong" in run),
        *([picture(folder / "E1_region.png", "the sizes at which a kernel of our own is faster"), summary(found),
           every_rung(found)] if found else []),
        results.skipped(ROWS))
    (folder / "E1.html").write_text(text, encoding="utf-8")
    print(f"wrote {folder / 'E1.html'}")


def main():
    arguments, more = arguments_of(__doc__, ROWS)
    results = Runs("E1", pathlib.Path(arguments.out))
    if not arguments.render:
        for row in arguments.rows:
            results.record(row, lambda: measure(ROWS[row], more))
    if not arguments.record:
        render(results)


if __name__ == "__main__":
    main()
