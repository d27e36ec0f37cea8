#!/usr/bin/env python3
"""The simulator of benchmarks/simulator against what can be worked out by hand, and its page against its files."""

import json
import math
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/simulator"))

import failures  # noqa: E402
import simulate  # noqa: E402
import step  # noqa: E402
from step import Cluster, Link, Transformer  # noqa: E402

FREE = Link(0, 0)
NET = Transformer("small", layers=4, hidden=512)


class Step(unittest.TestCase):
    def test_a_link_is_found_again(self):
        link = Link(3e-6, 2e-10)
        found = step.fit([(n, m, 2 * link.ring(n, m)) for n in (2, 4) for m in (1e3, 1e5, 1e7)])
        self.assertAlmostEqual(found.alpha / link.alpha, 1)
        self.assertAlmostEqual(found.beta / link.beta, 1)
        self.assertAlmostEqual(link.ring(4, 8e6), 3 * 3e-6 + 6e6 * 2e-10)

    def test_what_is_left_behind_the_backward_pass(self):
        # The first bucket is full after 2 s and sent at 5, the second at 5 + 4: 5 s behind the pass of 4 s.
        self.assertAlmostEqual(step.exposed(4, [(0.5, 3), (1, 4)], lambda nbytes: nbytes), 5)
        self.assertEqual(step.exposed(4, [(0.5, 1)], lambda nbytes: nbytes), 0)
        link = Link(0.5, 0.25)  # of two ranks 2 (0.5 + 2 * 0.25) s for 4 bytes
        self.assertAlmostEqual(step.data_parallel(9, 4, [(1, 4)], link, 2), 11)
        self.assertAlmostEqual(step.data_parallel(9, 4, [(0, 4)], link, 2), 9)
        self.assertAlmostEqual(step.data_parallel(9, 4, [(0, 4)], link, 2, overlap=False), 11)
        self.assertEqual(step.data_parallel(9, 4, [(1, 4)], link, 1), 9)

    def test_between_hosts_each_rank_sends_its_part(self):
        cluster = Cluster(Link(1, 0), Link(10, 1), host=8, flops=1, memory=1)
        self.assertAlmostEqual(cluster.half(8, 80), 7)
        self.assertAlmostEqual(cluster.half(32, 80), 7 + 2 * 10 + 3 / 4 * 10)
        self.assertAlmostEqual(cluster.half(4, 80, stride=8), 2 * 10 + 3 / 4 * 80)

    def test_a_step_with_free_links_is_its_computing(self):
        cluster = Cluster(FREE, FREE, host=8, flops=1e12, memory=1)
        for scheme in step.SCHEMES:
            self.assertAlmostEqual(step.step(NET, cluster, scheme, 4, 2, 3, 5), 5 * 3 * NET.flops / 2 / 1e12)
        slow = Cluster(FREE, Link(0, 1e-3), host=1, flops=1e30, memory=1)  # 3/4 of the bytes of the parameters, p
        p = 2 * NET.parameters * 3 / 4 * 1e-3
        for scheme, halves in (("DDP", 2), ("ZeRO 1", 3), ("ZeRO 2", 5 + 1), ("FSDP", 5 * 3)):
            self.assertAlmostEqual(step.step(NET, slow, scheme, 4, 1, 1, 5) / p, halves)

    def test_memory(self):
        p, activations = NET.parameters, 34 * 2048 * 3 * 512 * 4
        self.assertEqual(p, 12 * 4 * 512**2 + 50257 * 512)
        for scheme, whole in (("DDP", 16), ("ZeRO 1", 4 + 12 / 8), ("ZeRO 2", 2 + 14 / 8), ("FSDP", 16 / 8 + 1)):
            self.assertAlmostEqual(step.memory(NET, scheme, 8, 1, 3), whole * p + activations)

    def test_the_best_fits(self):
        slow = Link(1e-4, 1e-10)
        schemes = {}
        for memory in (1e15, 4 * NET.parameters):
            cluster = Cluster(slow, slow, 8, 1e12, memory)
            _, schemes[memory], tensor, micro, rounds = step.best(NET, cluster, 16, 2**20, 2**24)
            self.assertEqual(micro * rounds, 2**20 // 2048 // (16 // tensor))
            self.assertLessEqual(step.memory(NET, schemes[memory], 16 // tensor, tensor, micro), memory)
        self.assertEqual(schemes[1e15], "DDP")
        self.assertNotEqual(schemes[4 * NET.parameters], "DDP")
        self.assertIsNone(step.best(NET, Cluster(FREE, FREE, 8, 1e12, 1), 16, 2**20, 2**24))
        self.assertEqual(step.best(NET, Cluster(FREE, FREE, 8, 1e12, 1e15), 2**16, 2**20, 2**24)[2], 8)


class Failures(unittest.TestCase):
    def test_daly_has_the_same_where_spares_are_always_there(self):
        for mean in (200, 1000, 20000):
            for interval in (0.3 * mean**0.5, failures.daly(10, mean), mean):
                self.assertAlmostEqual(failures.work(interval, 10, 60, mean, failures=40000) /
                                       failures.daly_work(interval, 10, 60, mean), 1, delta=0.03)
        self.assertAlmostEqual(failures.young(8, 100), 40)
        self.assertAlmostEqual(failures.daly(8, 100), 40 * (1 + math.sqrt(0.04) / 3 + 0.04 / 9) - 8)

    def test_without_a_spare_a_repair_is_waited_for(self):
        work = failures.work(1e-6, 0, 50, 1000, spares=0, repair=400, failures=40000)
        restart = 1000 * math.expm1(50 / 1000)  # which may fail too
        self.assertAlmostEqual(work, 1000 / (1000 + 400 + restart), delta=0.01)
        self.assertAlmostEqual(failures.work(1e-6, 0, 50, 1000, spares=9, repair=400, failures=40000),
                               1000 / (1000 + restart), delta=0.01)

    def test_state_that_is_kept_is_not_lost(self):
        self.assertAlmostEqual(failures.work(500, 0, 0, 100, keep=1e-9), 1)
        self.assertAlmostEqual(failures.work(500, 0, 0, 100, keep=10), 0.9, delta=0.02)


class Page(unittest.TestCase):
    def test_says_what_the_files_say(self):
        command = [sys.executable, ROOT / "benchmarks/simulator/simulate.py", "--check"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        check, forecast = ([json.loads(line) for line in (simulate.HERE / name).read_text().splitlines()]
                           for name in ("check.jsonl", "forecast.jsonl"))
        page = simulate.PAGE.read_text(encoding="utf-8")
        check[0]["error"] = 0.5
        self.assertIn("50.0 %", simulate.filled(page, check, forecast))


if __name__ == "__main__":
    unittest.main(verbosity=2)
