"""What a GPU does while a program runs on it: memory and utilisation over time, by NVML."""

import ctypes
import os
import threading
import time

POINTS = 20  # of the curves that a recording keeps
ABOUT_RECORDINGS = (
    "<h2>The GPU over time</h2><p>By NVML: memory in use, including what the driver and the libraries take themselves, "
    "and the share of the driver's last period in which a kernel ran; the first points still show the program that ran "
    "before. A point stands for a twentieth of the run: the most memory, the mean utilisation.</p>")


class NvmlError(Exception):
    """Why there is nothing to record."""


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilisation(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Gpu:
    """A GPU as NVML sees it: number `index` of those that CUDA_VISIBLE_DEVICES names, or of the machine."""

    def __init__(self, library=None, index=0):
        try:
            self._nvml = library or ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NvmlError(f"no NVIDIA driver: {error}") from None
        self._call("nvmlInit_v2")
        self._device = ctypes.c_void_p()
        names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        if names and index >= len(names):
            raise NvmlError(f"CUDA_VISIBLE_DEVICES has no GPU {index}")
        name = names[index] if names else str(index)
        if name.startswith("GPU-"):
            self._call("nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(self._device))
        else:
            number = ctypes.c_uint(int(name) if name.isdigit() else index)
            self._call("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(self._device))

    def _call(self, function, *arguments):
        status = getattr(self._nvml, function)(*arguments)
        if status != 0:
            raise NvmlError(f"{function} failed with status {status}")

    def _text(self, function, *arguments):
        text = ctypes.create_string_buffer(96)
        self._call(function, *arguments, text, ctypes.c_uint(len(text)))
        return text.value.decode()

    def name(self):
        return self._text("nvmlDeviceGetName", self._device)

    def driver(self):
        return self._text("nvmlSystemGetDriverVersion")

    def memory_bytes(self):
        """In use, by all programs."""
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._device, ctypes.byref(memory))
        return memory.used

    def utilisation(self):
        """Percent of the driver's last period in which a kernel ran."""
        rates = _Utilisation()
        self._call("nvmlDeviceGetUtilizationRates", self._device, ctypes.byref(rates))
        return rates.gpu


def thinned(samples):
    """At most POINTS of (seconds, bytes, percent): of each group the first time, most memory, mean utilisation."""
    size = max(1, -(-len(samples) // POINTS))
    groups = [samples[begin : begin + size] for begin in range(0, len(samples), size)]
    return [(group[0][0], max(s[1] for s in group), sum(s[2] for s in group) / len(group)) for group in groups]


def mean_while_busy(percents):
    """The mean from the first to the last sample at which a kernel ran at all."""
    busy = [place for place, percent in enumerate(percents) if percent > 0]
    part = percents[busy[0] : busy[-1] + 1] if busy else [0]
    return sum(part) / len(part)


def summary(samples):
    """Of (seconds, bytes, percent): the most bytes in use, the mean utilisation, and both as coarse curves."""
    seconds, memory, utilisation = zip(*thinned(samples))
    return {"most_memory_bytes": max(s[1] for s in samples),
            "mean_utilisation": round(mean_while_busy([s[2] for s in samples]), 2),
            "seconds": [round(s, 3) for s in seconds], "memory_bytes": list(memory),
            "utilisation": [round(u, 1) for u in utilisation]}


class GpuRecorder:
    """Samples one of the GPUs in a thread while the block runs.

    with GpuRecorder() as recorder:
        …
    run["gpu_over_time"] = recorder.recording()
    """

    def __init__(self, every=0.05, library=None, index=0):
        self._every = every
        self._samples, self._reason = [], ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        try:
            self._gpu = Gpu(library, index)
        except NvmlError as error:
            self._reason = str(error)

    def __enter__(self):
        self._start = time.monotonic()
        if not self._reason:
            self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self):
        try:
            while True:
                sample = (self._gpu.memory_bytes(), self._gpu.utilisation())
                self._samples.append((time.monotonic() - self._start, *sample))
                if self._stop.wait(self._every):
                    return
        except NvmlError as error:  # a part of a GPU (MIG) has no utilisation
            self._reason = str(error)

    def recording(self):
        """What summary() says of the samples, or {"none": why}."""
        return {"none": self._reason} if self._reason else summary(self._samples)


def by_gpu(recordings):
    """A recording for each label, of {label: recording or those of several GPUs}, without those that hold nothing."""
    single = {}
    for label, found in recordings.items():
        if isinstance(found, list):
            single |= {f"{label}, GPU {number}": one for number, one in enumerate(found)}
        else:
            single[label] = found
    return {label: one for label, one in single.items() if one and "none" not in one}


def draw_recordings(recordings, path):
    """Curves of {label: recording or those of several GPUs} as a PNG; false where there is nothing to draw."""
    from record import pyplot

    recordings = by_gpu(recordings)
    if not recordings:
        return False
    figure, axes = pyplot().subplots(1, 2, figsize=(13, 4.2), constrained_layout=True)
    for number, (label, one) in enumerate(recordings.items()):
        color = pyplot().get_cmap("tab20")(number % 20)
        axes[0].plot(one["seconds"], [value / 2**20 for value in one["memory_bytes"]], color=color)
        axes[1].plot(one["seconds"], one["utilisation"], color=color, label=label)
    axes[0].set_ylabel("memory in use, MiB")
    axes[1].set_ylabel("utilisation, %")
    for axis in axes:
        axis.set_xlabel("seconds since the program started")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=120)
    return True
