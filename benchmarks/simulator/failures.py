"""Computes which share of its time a job whose ranks fail spends on useful work."""

import heapq
import math
import random


def young(checkpoint, mean):
    """Returns the best interval between checkpoints, given the duration of a checkpoint and the mean time between
    failures (Young 1974)."""
    return math.sqrt(2 * checkpoint * mean)


def daly(checkpoint, mean):
    """The same with a higher order of approximation (Daly 2006, equation 37)."""
    half = checkpoint / (2 * mean)
    return mean if half >= 1 else young(checkpoint, mean) * (1 + math.sqrt(half) / 3 + half / 9) - checkpoint


def daly_work(interval, checkpoint, restart, mean):
    """Returns the share of useful work by a formula (Daly 2006, equation 20). A failed rank is replaced immediately."""
    return interval / (mean * math.exp(restart / mean) * math.expm1((interval + checkpoint) / mean))


def work(interval, checkpoint, restart, mean, spares=None, repair=0, keep=0, failures=4000, seed=1):
    """Returns the same by simulating a number of failures, which are `mean` seconds apart on average while the job
    runs.

    One of `spares` ranks replaces a failed rank, if one is waiting (None: always). After `restart` seconds the job
    continues from its last checkpoint or, if the other ranks have kept the state, from the unfinished step, `keep`
    seconds back. Without a spare, the job waits until the first of the failed ranks is repaired, which takes `repair`
    seconds on average, and continues from the checkpoint."""
    draw = random.Random(seed).expovariate
    clock = useful = since = 0.0  # since: work behind the last checkpoint
    repairs = []  # when each failed rank is back
    for _ in range(failures):
        runs = draw(1 / mean)
        clock += runs
        cycles, rest = divmod(runs + since, interval + checkpoint)
        done = min(rest, interval)
        heapq.heappush(repairs, clock + draw(1 / repair) if repair else clock)
        while repairs and repairs[0] <= clock:
            heapq.heappop(repairs)
        waits = spares is not None and len(repairs) > spares
        if waits:
            clock = repairs[0]
        kept = max(0, done - keep) if keep and not waits else 0
        useful += cycles * interval + kept - since
        since = kept
        while (failed := draw(1 / mean)) < restart:  # while it begins again
            clock += failed
        clock += restart
    return useful / clock
