"""A job whose ranks fail, on paper: what part of its time is work that counts."""

import heapq
import math
import random


def young(checkpoint, mean):
    """The interval between checkpoints that take so long, failures coming so far apart on average (Young 1974)."""
    return math.sqrt(2 * checkpoint * mean)


def daly(checkpoint, mean):
    """The same to a higher order (Daly 2006, equation 37)."""
    half = checkpoint / (2 * mean)
    return mean if half >= 1 else young(checkpoint, mean) * (1 + math.sqrt(half) / 3 + half / 9) - checkpoint


def daly_work(interval, checkpoint, restart, mean):
    """The part of the time that is work, in closed form (Daly 2006, equation 20): a failed rank is replaced at once."""
    return interval / (mean * math.exp(restart / mean) * math.expm1((interval + checkpoint) / mean))


def work(interval, checkpoint, restart, mean, spares=None, repair=0, keep=0, failures=4000, seed=1):
    """The same by playing through so many failures, `mean` seconds apart on average while the job runs.

    A failed rank's place is taken by one of `spares` ranks, if any waits (None: always). After `restart` seconds the
    job goes on from its last checkpoint; or, where the others have kept the state, from the step that was not finished,
    `keep` seconds back. Without a spare it waits until the first of the failed ranks is repaired, which takes `repair`
    seconds on average, and goes on from the checkpoint."""
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
