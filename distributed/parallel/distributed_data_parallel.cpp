#include <gradus/distributed/parallel/distributed_data_parallel.h>

#include <map>

#include <gradus/autograd/autograd.h>
#include <gradus/core/ops/ops.h>

namespace gradus::dist {
namespace {

size_t bytes_of(double mebibytes, const char* option) {
  GRADUS_CHECK(mebibytes > 0 && mebibytes < 1e6, ValueError, option, " must be a positive number of MiB, got ",
               mebibytes);
  return static_cast<size_t>(mebibytes * (1 << 20));
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(nn::Module& module, GroupPtr group,
                                                 DistributedDataParallelOptions options)
    : group_(std::move(group)), options_(std::move(options)), module_(module) {
  const OpContext context("DistributedDataParallel");
  GRADUS_CHECK(group_, ValueError, "the process group is null");
  const std::optional<DType>& compression = options_.gradient_compression();
  GRADUS_CHECK(!compression || *compression == kHalf || *compression == kBFloat16, DTypeError,
               "gradient_compression takes kHalf or kBFloat16, not ", compression.value_or(kFloat));
  const ReducerOptions reducer_options = {.bucket_sizes = {bytes_of(options_.first_bucket_mb(), "first_bucket_mb"),
                                                           bytes_of(options_.bucket_cap_mb(), "bucket_cap_mb")},
                                          .zero_unused = options_.find_unused_parameters(),
                                          .strict = options_.strict(),
                                          .compression = compression};

  check_same_on_all_ranks(*group_, module);
  const OrderedDict<std::string, Tensor> trained = trained_parameters(module);
  parameters_ = trained.values();
  GRADUS_CHECK(!parameters_.empty(), ValueError, "no parameter of ", module.name(), " requires gradients");
  for (const Tensor& parameter : module.parameters()) broadcast_from_first(*group_, parameter.array());
  gather_buffers(module.named_buffers());
  if (!options_.broadcast_buffers()) {  // gather_buffers() has broadcast the initial values
    buffers_.clear();
    joined_buffers_.clear();
  }
  reducer_.emplace(trained, group_, reducer_options);
  for (size_t i = 0; i < parameters_.size(); ++i)
    hooks_.push_back(parameters_[i].register_post_accumulate_grad_hook([this, i](const Tensor&) { on_gradient(i); }));
  const WatchedNetOptions watched = {.wrapper = "DistributedDataParallel",
                                     .may_freeze = true,  // the reducer reports frozen parameters
                                     .watches_buffers = options_.broadcast_buffers()};
  watched_ = std::make_shared<WatchedNet>(module, watched);
  forward_hook_ = module.register_forward_hook(
      [this](nn::Module&, const TensorList&, TensorList& outputs) { watch_outputs(outputs); });
}

DistributedDataParallel::~DistributedDataParallel() {
  module_.remove_hook(forward_hook_);
  for (size_t i = 0; i < hooks_.size(); ++i) parameters_[i].remove_hook(hooks_[i]);
}

void DistributedDataParallel::watch_outputs(const TensorList& outputs) {
  for (const Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    output.register_hook([this, weak = std::weak_ptr(watched_)](const Tensor&) {
      const auto watched = weak.lock();
      if (!watched || checked_) return Tensor();
      const OpContext context("DistributedDataParallel");
      watched->check(*group_);
      checked_ = true;
      autograd::queue_callback([this, weak] {
        if (weak.lock()) checked_ = false;
      });
      return Tensor();
    });
  }
}

void DistributedDataParallel::gather_buffers(const OrderedDict<std::string, Tensor>& buffers) {
  std::map<DType, std::vector<std::pair<std::string, Tensor>>> by_dtype;
  for (const auto& item : buffers) by_dtype[item->dtype()].emplace_back(item.key(), *item);
  for (const auto& [dtype, members] : by_dtype) {
    int64_t count = 0, begin = 0;
    for (const auto& [name, buffer] : members) count += buffer.numel();
    const Array joined = joined_buffers_.emplace_back(group_->empty({count}, dtype, members[0].second.device()));
    for (const auto& [name, buffer] : members) {
      const Array place = slice_like(joined, begin, buffer.array());
      ops::copy_into(place, buffer.array());
      buffer.set_data(Tensor(place));
      buffers_.push_back({name, buffer, place});
      begin += buffer.numel();
    }
    group_->broadcast(joined, 0);
  }
}

double DistributedDataParallel::loss_weight(int64_t samples, int64_t global_samples) const {
  const OpContext context("DistributedDataParallel::loss_weight");
  GRADUS_CHECK(0 <= samples && samples <= global_samples && global_samples > 0, ValueError, samples,
               " samples of this rank among ", global_samples, " of all ranks");
  return static_cast<double>(samples) * group_->size() / static_cast<double>(global_samples);
}

void DistributedDataParallel::on_gradient(size_t index) {
  if (!synchronizes_) return;
  const OpContext context("DistributedDataParallel");
  if (!reducer_->in_pass()) {
    if (!checked_) watched_->check(*group_);  // no output hook did it if forward called only submodules of the net
    at_end_of_backward(
        group_, parameters_[0].device(), [this] { finish(); }, [this] { reducer_->cancel(); });
    if (joining_) announce(true);
  }
  reducer_->add(index);
}

void DistributedDataParallel::finish() {
  const OpContext context("DistributedDataParallel");
  try {
    reducer_->flush();
    for (const auto& [name, buffer, place] : buffers_)
      GRADUS_CHECK(buffer.array().data() == place.data(), ValueError, "the buffer '", name, "' of shape ",
                   buffer.sizes(), " was moved or replaced: move the net to its device and dtype first");
  } catch (const CollectiveError&) { throw; } catch (const Error& error) {
    group_->abort(error.what());
    throw;
  }
  std::vector<ProcessGroup::WorkPtr> works;
  for (const auto& [name, buffer, place] : buffers_) place.bump_version();
  for (const Array& joined : joined_buffers_) works.push_back(group_->broadcast(joined, 0, {.async = true}));
  reducer_->finalize();
  for (const ProcessGroup::WorkPtr& work : works) work->wait();
}

Array DistributedDataParallel::announce(bool takes_part) {
  const Array count = ops::full({1}, takes_part ? 1 : 0, DType::f32, parameters_[0].device());
  group_->all_reduce(count);
  return count;
}

void Join::finish(const std::function<void()>& step) {
  const OpContext context("Join");
  while (ops::item(ddp_.announce(false)).to_double() > 0) {
    ddp_.reducer_->add_zeros();
    ddp_.finish();
    step();
  }
}

}  // namespace gradus::dist
