"""Formats the results that benchmarks/vs_pytorch.py has stored as Markdown."""

from variant import PRECISIONS, Variant


def best(record, who, wanted=lambda variant: True):
    """Returns the key and the time of the fastest variant among those wanted, or (None, None) if there is none."""
    found = {key: ms for key, ms in record["ms"].get(who, {}).items() if wanted(Variant.of(key))}
    key = min(found, key=found.get) if found else None
    return key, found.get(key)


def peak_cell(record, keys):
    peaks = [record["peak_bytes"].get(who, {}).get(keys[who]) for who in ("pytorch", "gradus")]
    mebibytes = [peak / 2**20 for peak in peaks if peak]
    return " / ".join(f"{m:.0f}" if m >= 1000 else f"{m:.3g}" for m in mebibytes) if all(peaks) else ""


def cpu_cells(record, precision):
    """Returns the cells of a line of the CPU's table."""
    threads, cells = record["threads"], [record["row"] + ("" if precision == "fp32" else f", {precision}")]
    product = record["row"].startswith("matmul")

    def best_of(who, threads):
        return best(record, who, lambda v: v.precision == precision and (not threads or v.threads == threads))

    peers = {who: best_of(who, threads) for who in ("pytorch", "gradus", "openblas") if who in record["ms"]}

    def figure(who):
        key, ms = peers[who]
        if product:
            return f"{2 * int(record['row'].split()[1]) ** 3 / ms / 1e6:.0f} GFLOP/s"
        return f"{ms:.3g}" + (" cl" if "channels_last" in key else "")

    cells += [figure("pytorch") + (f"; OpenBLAS {figure('openblas')}" if "openblas" in peers else ""), figure("gradus")]
    ratios = [f"{peers['pytorch'][1] / peers['gradus'][1]:.2f}"]
    if "openblas" in peers:
        ratios.append(f"{peers['openblas'][1] / peers['gradus'][1]:.2f}")
    cells.append("; ".join(ratios))
    one = {who: best_of(who, 1)[1] for who in ("pytorch", "gradus")}
    has_both = threads != 1 and all(one.values())
    cells.append(" / ".join(f"{one[who] / peers[who][1]:.2f}" for who in one) if has_both else "")
    return [*cells, peak_cell(record, {who: key for who, (key, _) in peers.items()})]


def print_cpu_table(rows):
    print_table(["row", "PyTorch ms", "gradus ms", "ratio", "1 to n threads", "peak MiB"],
                [cpu_cells(record, precision) for record in rows for precision in PRECISIONS
                 if best(record, "gradus", lambda v: v.precision == precision)[0]])


def gpu_cells(record):
    """Returns the cells of a line of the GPU's table: PyTorch / gradus and the ratio, in the columns of
    print_gpu_table."""

    def eager(v):
        return v.mode == "eager"

    def captured(v):
        return v.mode == "graph"

    def float32(v):
        return v.precision == "fp32"

    columns = [(lambda v: eager(v) and float32(v) and not v.fused,) * 2, (eager,) * 2,
               (lambda v: captured(v) and float32(v),) * 2, (lambda v: True, captured)]

    def figure(key, ms):
        variant = Variant.of(key)
        words = [variant.precision, "cl" if variant.layout == "channels_last" else "",
                 variant.mode if variant.mode == "compiled" else ""]
        return " ".join([f"{ms:.3g}", *(word for word in words if word not in ("fp32", ""))])

    cells = [record["row"]]
    for theirs, ours in columns:
        peer, own = best(record, "pytorch", theirs), best(record, "gradus", ours)
        cells += [f"{figure(*peer)} / {figure(*own)}", f"{peer[1] / own[1]:.2f}"] if peer[0] and own[0] else ["", ""]
    for precision in ("fp32", "bf16"):
        own = Variant(precision=precision)
        cells.append(peak_cell(record, {"pytorch": own._replace(fused=True).key(), "gradus": own.key()}))
    return cells


def print_gpu_table(rows):
    """Eager in float32 with PyTorch's default Adam; eager in any precision and with either Adam; captured in float32;
    PyTorch in any way and gradus captured in any precision. Each uses the faster memory format."""
    head = ["net, batch"]
    for column in ("eager fp32", "eager, best", "captured fp32", "best, gradus captured"):
        head += [f"{column} ms", "ratio"]
    for with_cudnn in (True, False):
        lines = [gpu_cells(record) for record in rows if record["cudnn"] == with_cudnn]
        if not lines:
            continue
        if not with_cudnn:
            print("\nPyTorch without cuDNN and gradus's own kernels\n")
        used = [i for i in range(len(lines[0])) if any(line[i] for line in lines)]
        names = [*head, "peak MiB fp32", "peak MiB bf16"]
        print_table([names[i] for i in used], [[line[i] for i in used] for line in lines])


def print_table(head, lines):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for line in lines:
        print("| " + " | ".join(line) + " |")


def print_results(results):
    where = results["machine"]
    print(f"PyTorch {results['pytorch']} and gradus; {where['gpu'] or where['cpu']}\n")
    (print_gpu_table if results.get("device") == "cuda" else print_cpu_table)(results["rows"])
