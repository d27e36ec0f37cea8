#!/usr/bin/env python3
"""The tree keeps the dependency rules, and the check sees each rule broken when a violation is planted."""

import pathlib
import tempfile
import unittest

import layering

ROOT = pathlib.Path(__file__).resolve().parents[2]

# (file, line that breaks a rule, words of the message)
PLANTED = [
    ("core/array/array.h", "#include <gradus/autograd/tensor.h>", "core may include only core"),
    ("core/ops/matmul.cpp", "#include <gradus/backends/naive/naive.h>", "core may include only"),
    ("core/array/array.cpp", "#include <gradus/gradus.h>", "core may include only"),
    ("backends/naive/naive.h", "#include <gradus/backends/openmp/openmp.h>", "backends/naive may include only"),
    ("backends/openmp/gemm/gemm.cpp", "#include <gradus/backends/cuda/cuda_backend.h>", "backends/openmp may include only"),
    ("backends/cuda/gemm/gemm.cu", "#include <gradus/backends/naive/naive.h>", "backends/cuda may include only"),
    ("backends/cuda/gemm/gemm.cu", "#include <gradus/backends/cudnn/cudnn_backend.h>", "backends/cuda may include only"),
    ("backends/cuda/norm/softmax.cu", "#include <gradus/backends/cuda/conv2d/conv2d.cuh>", "no other family"),
    ("backends/openmp/simd/simd.h", "#include <gradus/backends/openmp/gemm/gemm.h>", "no other family"),
    ("backends/cuda/register.cpp", "#include <gradus/autograd/tensor.h>", "backends/cuda may include only"),
    ("autograd/engine.cpp", "#include <gradus/backends/naive/naive.h>", "autograd may include only"),
    ("autograd/engine.cpp", "  #  include <gradus/layers/module/module.h>", "autograd may include only"),
    ("layers/conv.h", "#include <gradus/optim/optimizers.h>", "layers may include only"),
    ("layers/conv.h", "#include <gradus/backends/openmp/openmp.h>", "layers may include only"),
    ("optim/optimizers.h", "#include <gradus/layers/module/module.h>", "optim may include only"),
    ("layers/module/serialize.h", "#include <gradus/training/checkpoint.h>", "layers may include only"),
    ("training/checkpoint.h", "#include <gradus/backends/naive/naive.h>", "training may include only"),
    ("graph/graph.h", "#include <gradus/autograd/tensor.h>", "graph may include only core, graph"),
    ("core/ops/matmul.cpp", "#include <gradus/graph/graph.h>", "core may include only core"),
    ("training/checkpoint.h", "#include <gradus/inspect/profiler.h>", "training may include only"),
    ("training/metrics.cpp", "#include <gradus/distributed/parallel/reducer.h>", "training may include only"),
    ("data/datasets/mnist.h", "#include <gradus/layers/module/module.h>", "data may include only"),
    ("distributed/comm/store/store.h", "#include <gradus/autograd/tensor.h>", "distributed/comm may include only"),
    ("distributed/comm/store/store.h", "#include <gradus/distributed/parallel/data_parallel.h>",
     "distributed/comm may include"),
    ("distributed/parallel/data_parallel.h", "#include <gradus/data/data.h>", "distributed/parallel may include only"),
    ("autograd/engine.cpp", "#include <gradus/distributed/parallel/data_parallel.h>", "autograd may include only"),
    ("layers/norm.cpp", "#include <gradus/distributed/parallel/sync_batch_norm.h>", "layers may include only"),
    ("core/runtime/runtime.cpp", "#include <cuda_runtime.h>", "vendor headers"),
    ("tests/core/device_test.cpp", "#include <cublas_v2.h>", "vendor headers"),
    ("distributed/comm/init.cpp", "#include <mpi.h>", "mpi.h stays"),
    ("core/runtime/runtime.cpp", "#if GRADUS_WITH_CUDA", "#if GRADUS_WITH_"),
    ("layers/conv.cpp", "#ifdef GRADUS_WITH_CUDA", "#if GRADUS_WITH_"),
    ("distributed/comm/init.cpp", "#if GRADUS_WITH_MPI", "#if GRADUS_WITH_"),
    ("layers/conv.cpp", "#if defined(X) && !defined(GRADUS_WITH_NCCL)", "#if GRADUS_WITH_"),
    ("backends/openmp/gemm/gemm.cpp", "#pragma omp parallel for", "parallel_for alone"),
    ("backends/openmp/gemm/gemm.cpp", "#include <omp.h>", "parallel_for alone"),
    ("core/parallel/parallel.cpp", "#pragma omp parallel", "parallel_for alone"),
    ("tests/core/parallel_test.cpp", "#include <omp.h>", "parallel_for alone"),
    ("core/array/array.cpp", '#include "shape.h"', "root-relative"),
    ("core/io/npy.cpp", "#include <unistd.h>", "core/platform and distributed/comm"),
    ("graph/graph.cpp", "#include <sys/mman.h>", "core/platform and distributed/comm"),
    ("backends/cuda/register.cpp", "#include <dlfcn.h>", "core/platform and distributed/comm"),
    ("core/parallel/parallel.cpp", "#ifdef __linux__", "core/platform and distributed/comm"),
    ("data/data.h", "#if defined(X) || defined(__APPLE__)", "core/platform and distributed/comm"),
    ("distributed/elastic/agent.h", "#include <signal.h>", "core/platform and distributed/comm"),
]

KEPT = [
    ("core/array/array.cpp", "#include <gradus/core/array/array.h>"),
    ("core/array/array.cpp", "#include <vector>"),
    ("backends/openmp/gemm/gemm.cpp", "#include <gradus/backends/naive/naive.h>"),
    ("backends/openmp/gemm/gemm.cpp", "#pragma omp simd"),
    ("backends/openmp/gemm/gemm.cpp", "#include <gradus/backends/openmp/simd/simd.h>"),
    ("backends/openmp/kernel_table.h", "#include <gradus/backends/openmp/gemm/gemv_kernel.h>"),
    ("core/parallel/parallel_openmp.cpp", "#include <omp.h>"),
    ("backends/cudnn/conv.cpp", "#include <cudnn.h>"),
    ("backends/cuda/register.cpp", "#include <gradus/backends/cuda/cuda_backend.h>"),
    ("distributed/comm/mpi/mpi_group.cpp", "#include <mpi.h>"),
    ("distributed/comm/process_group_factory.cpp", "#if GRADUS_WITH_MPI"),
    ("optim/optimizers.h", "#include <gradus/autograd/tensor.h>"),
    ("training/checkpoint.h", "#include <gradus/layers/module/module.h>"),
    ("training/checkpoint.h", "#include <gradus/distributed/comm/process_group.h>"),
    ("distributed/parallel/sync_batch_norm.h", "#include <gradus/layers/norm.h>"),
    ("distributed/parallel/sync_batch_norm.h", "#include <gradus/distributed/comm/process_group.h>"),
    ("core/platform/process.cpp", "#include <sys/mman.h>"),
    ("core/platform/process.cpp", "#ifdef __linux__"),
    ("core/parallel/parallel_call.h", "#if defined(__x86_64__)"),
    ("training/stopping.cpp", "#include <csignal>"),
    ("distributed/comm/tcp/socket.cpp", "#include <sys/socket.h>"),
    ("distributed/launcher/launcher.cpp", "#include <unistd.h>"),
    ("tests/core/parallel_test.cpp", "#include <unistd.h>"),
    ("examples/hello.cpp", "#include <gradus/gradus.h>"),
    ("examples/mnist/main.cpp", '#include "options.h"'),
    ("tests/core/array_test.cpp", "#include <gradus/backends/naive/naive.h>"),
]


class Layering(unittest.TestCase):
    def test_the_tree_keeps_the_rules(self):
        self.assertEqual(layering.violations(ROOT), [])

    def check_planted(self, path, line):
        with tempfile.TemporaryDirectory() as root:
            file = pathlib.Path(root) / path
            file.parent.mkdir(parents=True)
            file.write_text(f"// A file with one line to judge.\n{line}\n", encoding="utf-8")
            return layering.violations(root)

    def test_planted_violations_are_found(self):
        for path, line, message in PLANTED:
            with self.subTest(path=path, line=line):
                found = self.check_planted(path, line)
                self.assertEqual(len(found), 1)
                self.assertTrue(found[0].startswith(f"{path}:2: "), found[0])
                self.assertIn(message, found[0])

    def test_what_the_rules_allow_is_left_alone(self):
        for path, line in KEPT:
            with self.subTest(path=path, line=line):
                self.assertEqual(self.check_planted(path, line), [])


if __name__ == "__main__":
    unittest.main()
