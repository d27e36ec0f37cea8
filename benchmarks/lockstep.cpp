// Runs a training step of a net on two backends at the same time. Each operation gets the same inputs on both. Prints
// the first operation whose results differ by more than the tolerance of its type. scripts/lockstep.sh builds this
// program.
//
//   lockstep --net lenet --a openmp --b cuda --save /tmp
//   lockstep --a cuda --b static           # compares the eager with the recorded step, bit by bit
//   lockstep --a cuda --precision bf16     # compares each operation under autocast with the same one in float32
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/nets.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/graph/passes/passes.h>
#include <gradus/graph/recorder.h>
#include <gradus/inspect/lockstep.h>

namespace {

using namespace gradus;

/// Returns true if the results agree.
bool compare(const benchmarks::Workload& work, int64_t batch, Backend& a, const std::string& b,
             const std::string& precision, const std::string& folder) {
  const Device device = settled(a.device_type());
  const BackendGuard guard(a);
  manual_seed(0);
  const nn::AnyModule net = work.make();
  net.ptr()->to(device);
  optim::Adam optimizer(net.ptr()->parameters(), optim::AdamOptions(1e-3));
  const Tensor x = randn(work.input(batch)).to(device), target = randint(10, {batch}).to(device);
  const auto step = [&] {
    optimizer.zero_grad();
    {
      const amp::Autocast autocast(device.type(), precision == "fp16" ? kHalf : kBFloat16, precision != "fp32");
      cross_entropy(net.forward(x), target).backward();
    }
    optimizer.step();
  };
  step();  // creates the optimizer's state
  graph::Recorder recorder(device);
  step();
  graph::Graph graph = recorder.finish();
  if (b == "static") graph::run_passes(graph);
  graph::Executor executor(std::move(graph));
  optimizer.zero_grad();  // the recording has not computed the gradients
  const std::optional<graph::Mismatch> mismatch = b == "static"         ? graph::lockstep(executor, step)
                                                  : precision != "fp32" ? graph::lockstep_in_float32(executor, a)
                                                                        : graph::lockstep(executor, a, backend(b));
  std::printf("%-12s %zu calls: %s\n", work.name.c_str(), executor.graph().calls().size(),
              mismatch        ? mismatch->str().c_str()
              : b == "static" ? "equal"
                              : "equal within tolerances");
  if (mismatch && !folder.empty()) mismatch->save(folder);
  return !mismatch;
}

}  // namespace

int main(int argc, char** argv) {
  std::string net = "all", a = "openmp", b = "naive", precision = "fp32", folder;
  int64_t batch = 2;
  bool equal = true;
  benchmarks::Program program("lockstep", "Runs a training step on two backends side by side");
  program.option("--net", net, "a net by name, or all");
  program.option("--batch", batch, "number of images or sequences");
  program.option("--a", a, "backend whose results later calls read: naive, openmp, cuda or cudnn");
  program.option("--b", b, "backend to compare with a; static: compare a's recorded step with its eager step");
  program.option("--precision", precision,
                 "type for autocast; unless b is static, results are then compared with float32 instead of b",
                 {"fp32", "fp16", "bf16"});
  program.option("--save", folder,
                 "folder for npy files of the inputs and results of the first operation that differs");
  const int status = program.run(argc, argv, [&] {
    bool found = false;
    cudnn::set_allow_tf32(false);  // the tolerances are for float32
    for (const benchmarks::Workload& work : benchmarks::workloads()) {
      if (net != "all" && net != work.name) continue;
      found = true;
      equal = compare(work, batch, backend(a), b, precision, folder) && equal;
    }
    GRADUS_CHECK(found, ValueError, "there is no net '", net, "'");
  });
  return status != 0 ? status : equal ? 0 : 1;
}
