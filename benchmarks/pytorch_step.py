"""Training steps in PyTorch, in the variants that benchmarks/vs_pytorch.py compares, and functions that time them."""

import gc
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from typing import Callable, NamedTuple

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler tells when it starts and stops

import torch  # noqa: E402

from nets import WORKLOADS  # noqa: E402


def timed(work, device, seconds):
    """Returns the median milliseconds per call, measured as in benchmarks/timing.h."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def time_row(calls):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        wait()
        return (time.perf_counter() - start) * 1e3 / calls

    time_row(1)
    warm, call = time.perf_counter() + seconds / 5, time_row(1)
    while time.perf_counter() < warm:
        call = time_row(1)
    row = max(1, min(20, int(seconds * 100 / call))) if device == "cuda" else 1
    samples, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples) < 3:
        samples.append(time_row(row))
    return statistics.median(samples)


class Phase(NamedTuple):
    """A part of a training step: the loss of a batch, whose gradients update the parameters of one module."""

    trained: torch.nn.Module
    loss: Callable


def training_step(phases, module, batch, device, variant):
    """Returns a function that makes a training step: each phase goes forward and backward and updates its parameters
    with Adam. `module` holds all weights."""
    if variant.threads:
        torch.set_num_threads(variant.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = variant.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(variant.precision)
    optimizers = [torch.optim.Adam(phase.trained.parameters(), lr=1e-3, fused=variant.fused,
                                   capturable=variant.mode == "graph") for phase in phases]
    scaler = torch.amp.GradScaler(device) if variant.precision == "fp16" else None

    def under_autocast(loss):
        def loss_of(*batch):
            with torch.autocast(device, half, enabled=half is not None):
                return loss(*batch)

        return torch.compile(loss_of, mode="reduce-overhead", dynamic=False) if variant.mode == "compiled" else loss_of

    losses = [under_autocast(phase.loss) for phase in phases]

    def step():
        for loss_of, optimizer in zip(losses, optimizers):
            module.zero_grad(set_to_none=True)
            loss = loss_of(*batch)
            if scaler:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
            else:
                loss.backward()
                optimizer.step()
        if scaler:
            scaler.update()

    return step


def make_step(name, batch, device, variant):
    """Returns a function that makes a training step of a net: forward, cross-entropy, backward, Adam."""
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    torch.manual_seed(0)
    net = workload.make().to(device)
    x = torch.randn(workload.input(batch), device=device)
    y = torch.randint(0, 10, (batch,), device=device)
    if variant.layout == "channels_last":
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    phase = Phase(net, lambda x, y: torch.nn.functional.cross_entropy(net(x), y))
    return training_step([phase], net, (x, y), device, variant)


def captured(work, calls=1):
    """Returns a function that replays captured calls of `work`, on the current stream unless this is the default
    stream."""
    side = torch.cuda.current_stream()
    if side == torch.cuda.default_stream():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(calls):
            work()
    return graph.replay


def time_step(name, batch, device, variant, seconds, make=make_step):
    """Times the step that make(name, batch, device, variant) returns. Returns {"ms": …, "peak_bytes": …}; the latter
    only for eager steps on cuda, where measuring it costs no time."""
    if device == "cuda":
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()  # those that captures on other streams have left
    step = make(name, batch, device, variant)
    if variant.mode == "graph":
        return {"ms": timed(captured(step), device, seconds)}
    found = {"ms": timed(step, device, seconds)}
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        step()
        found["peak_bytes"] = torch.cuda.max_memory_allocated()
    return found


def cpu_peak_bytes(name, batch, variant):
    """Returns the most bytes that are allocated during a step according to the profiler, including memory from
    before."""
    if not torch.profiler.kineto_available():
        return None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step = make_step(name, batch, "cpu", variant)
        step(), step()
        with torch.profiler.record_function("measured step"):
            step()
        del step
        gc.collect()  # what outlives the profile would be counted in the next one
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profile.export_chrome_trace(file.name)
        events = json.load(open(file.name, encoding="utf-8"))["traceEvents"]
    start = next(float(e["ts"]) for e in events if e.get("name") == "measured step")
    end = start + next(float(e["dur"]) for e in events if e.get("name") == "measured step")
    totals = sorted((float(e["ts"]), e["args"]["Total Allocated"], e["args"]["Bytes"]) for e in events
                    if e.get("name") == "[memory]")
    base = totals[0][1] - totals[0][2]
    before = [total for time, total, _ in totals if time < start][-1]
    return max([before] + [total for time, total, _ in totals if start <= time <= end]) - base


def _serve(make, jobs, device, deadline, pipe):
    """A worker of CompiledSteps. It compiles its jobs until the deadline, reports which ones, and then times the
    requested ones."""
    torch._dynamo.config.recompile_limit = 64  # all steps are one piece of code
    steps, failed = {}, {}
    for name, batch, variant in jobs:
        if time.time() > deadline:
            break
        try:
            step = make(name, batch, device, variant)
            for _ in range(4):  # compiles, records, replays
                step()
            steps[name, batch, variant] = step
        except Exception as error:  # noqa: BLE001: that PyTorch cannot compile a step is a result
            failed[name, batch, variant] = str(error).splitlines()[0]
    if device == "cuda":
        torch.cuda.synchronize()
    pipe.send((set(steps), failed))
    try:
        while True:
            job, seconds = pipe.recv()
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = job[2].precision == "tf32"
            pipe.send({"ms": timed(steps[job], device, seconds)})
    except (EOFError, KeyboardInterrupt):
        pass  # nobody asks any more


class CompiledSteps:
    """Steps of torch.compile(mode="reduce-overhead"). Compiling a net takes tens of seconds for each precision, so
    several processes share the jobs, compile at the same time, and keep the compiled steps. Each step is timed in its
    process while the other processes wait."""

    def __init__(self, jobs, device, limit, processes, make=make_step):
        """jobs: (net, batch, variant), the most important first, the arguments of `make`. No job starts after `limit`
        seconds."""
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # of each process
        context, deadline = multiprocessing.get_context("spawn"), time.time() + limit
        self.pipes, self.ready, self.failed = [], {}, {}
        for i in range(min(processes, len(jobs))):
            ours, theirs = context.Pipe()
            arguments = (make, jobs[i::processes], device, deadline, theirs)
            context.Process(target=_serve, args=arguments, daemon=True).start()
            self.pipes.append(ours)
        for pipe in self.pipes:
            done, failed = pipe.recv()
            self.ready.update({job: pipe for job in done})
            self.failed.update(failed)

    def time_step(self, job, seconds):
        self.ready[job].send((job, seconds))
        return self.ready[job].recv()
