// SyncBatchNorm of ranks with GPUs compared with batch norm of the whole batch, and as part of a captured graph.
#include <gradus/distributed/parallel/sync_batch_norm.h>
#include <gradus/gradus.h>
#include <gradus/tests/compare.h>
#include <gradus/tests/distributed_gpu/support.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

constexpr int64_t kChannels = 5, kSamples = 8;

/// The share of one of two ranks in a batch that both know: 3 and 5 samples.
Tensor share_of(const Tensor& whole, int rank) {
  return rank == 0 ? whole.slice(0, 0, 3) : whole.slice(0, 3, kSamples);
}

/// Compares on the host, and throws if the tensors differ.
void require_equal(const std::string& what, const Tensor& actual, const Tensor& expected, double tolerance) {
  const std::string found = difference(actual.detach().cpu(), expected.detach().cpu(), tolerance);
  require(found.empty(), what + ": " + found);
}

/// Compares `passes` training passes of a converted norm over this rank's share, the last `replays` of them replayed,
/// with as many passes of one process over the whole batch.
void check_norm(ProcessGroup& group, DType dtype, MemoryFormat format, int passes, int replays) {
  manual_seed(3);
  const Device device(DeviceType::cuda, cuda::current_device());
  const Tensor x = (randn({kSamples, kChannels, 6, 7}) * 2 + 3).to(dtype).to(device).to(format),
               dy = randn({kSamples, kChannels, 6, 7}).to(dtype).to(device);
  nn::BatchNorm2d plain(kChannels), norm(kChannels);
  for (auto& module : {plain, norm}) {
    module->to(device, dtype == kDouble ? kDouble : kFloat);
    const NoGradGuard no_grad;
    module->weight.fill_(0.5), module->bias.fill_(-1);
  }
  nn::convert_sync_batchnorm(*norm, shared(group));

  const Tensor own_x = share_of(x, group.rank()).contiguous(format).detach().requires_grad_(),
               whole_x = x.detach().requires_grad_(), own_dy = share_of(dy, group.rank());
  Tensor y, expected;
  const auto step = [&](nn::BatchNorm2d& module, const Tensor& input, const Tensor& gradient, Tensor* output) {
    module->zero_grad(), input.zero_grad();
    *output = module(input);
    output->backward(gradient);
  };
  for (int i = 0; i < passes; ++i) step(plain, whole_x, dy, &expected);
  for (int i = replays; i < passes; ++i) step(norm, own_x, own_dy, &y);
  cuda::Graph graph;
  if (replays > 0) graph.capture([&] { step(norm, own_x, own_dy, &y); });
  for (int i = 0; i < replays; ++i) graph.replay();

  const double tolerance = tolerance_of(dtype);
  require_equal("y", y, share_of(expected, group.rank()), tolerance);
  require_equal("dx", own_x.grad(), share_of(whole_x.grad(), group.rank()), 3 * tolerance);
  require_equal("running_mean", norm->running_mean, plain->running_mean, tolerance);
  require_equal("running_var", norm->running_var, plain->running_var, tolerance);
  require_equal("num_batches_tracked", norm->num_batches_tracked, plain->num_batches_tracked, 0);
  const Array gradients = cat({norm->weight.grad(), norm->bias.grad()}).array();
  group.all_reduce(gradients);
  require_equal("dweight and dbias", Tensor(gradients), cat({plain->weight.grad(), plain->bias.grad()}), 3 * tolerance);
  graph.reset();
}

}  // namespace

TEST_CASE("SyncBatchNorm of ranks with GPUs", "[sync_batch_norm]") {
  const auto backend = GENERATE(as<std::string>(), "nccl", "shm");
  CAPTURE(backend);
  if (backend == "nccl" ? no_nccl_for(2) : fewer_gpus_than(1)) return;  // through host memory ranks may share a GPU
  two_ranks({.backend = backend, .timeout = kTimeout}, [](ProcessGroup& group) {
    for (const DType dtype : {kDouble, kFloat, kHalf, kBFloat16})
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
        check_norm(group, dtype, format, /*passes=*/2, /*replays=*/0);
  });
}

TEST_CASE("SyncBatchNorm over NCCL can be part of a captured graph, because the host does not wait",
          "[sync_batch_norm]") {
  if (no_nccl_for(2)) return;
  two_ranks({.backend = "nccl", .timeout = kTimeout}, [](ProcessGroup& group) {
    check_norm(group, kFloat, MemoryFormat::contiguous, /*passes=*/5, /*replays=*/3);
  });
}
