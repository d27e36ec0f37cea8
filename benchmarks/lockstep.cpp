// Runs a training step of a net on two backends side by side, each operation from the same inputs, and names the first
// whose results differ by more than the tolerance of its type.
//
//   lockstep --net lenet --a openmp --b naive --save /tmp
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/nets.h>
#include <gradus/core/graph/lockstep.h>
#include <gradus/core/graph/recorder.h>

namespace {

using namespace gradus;

/// True if the backends agree.
bool compare(const benchmarks::Workload& work, int64_t batch, Backend& a, Backend& b, const std::string& folder) {
  manual_seed(0);
  const nn::AnyModule net = work.make();
  optim::Adam optimizer(net.ptr()->parameters(), optim::AdamOptions(1e-3));
  const Tensor x = randn(work.input(batch)), target = randint(10, {batch});
  const auto step = [&] {
    optimizer.zero_grad();
    cross_entropy(net.forward(x), target).backward();
    optimizer.step();
  };
  step();  // the optimizer's state is made
  graph::Recorder recorder;
  step();
  graph::Executor executor(recorder.finish());
  optimizer.zero_grad();  // nothing has computed these
  const std::optional<graph::Mismatch> mismatch = graph::lockstep(executor, a, b);
  std::printf("%-12s %zu calls: %s\n", work.name.c_str(), executor.graph().calls().size(),
              mismatch ? mismatch->str().c_str() : "equal within tolerances");
  if (mismatch && !folder.empty()) mismatch->save(folder);
  return !mismatch;
}

}  // namespace

int main(int argc, char** argv) {
  std::string net = "all", a = "openmp", b = "naive", folder;
  int64_t batch = 2;
  bool equal = true;
  benchmarks::Program program("lockstep", "Runs a training step on two backends side by side");
  program.option("--net", net, "a net by name, or all");
  program.option("--batch", batch, "images or sequences");
  program.option("--a", a, "a backend of the cpu, with whose results the step goes on");
  program.option("--b", b, "the other one");
  program.option("--save", folder, "a folder for the inputs and results of the operation that differs (npy)");
  const int status = program.run(argc, argv, [&] {
    bool found = false;
    for (const benchmarks::Workload& work : benchmarks::workloads()) {
      if (net != "all" && net != work.name) continue;
      found = true;
      equal = compare(work, batch, backend(a), backend(b), folder) && equal;
    }
    GRADUS_CHECK(found, ValueError, "there is no net '", net, "'");
  });
  return status != 0 ? status : equal ? 0 : 1;
}
