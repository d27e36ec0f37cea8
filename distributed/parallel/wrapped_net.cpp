#include <gradus/distributed/parallel/wrapped_net.h>

#include <algorithm>
#include <sstream>

#include <gradus/autograd/autograd.h>
#include <gradus/core/ops/ops.h>

#include <gradus/distributed/parallel/reducer.h>

namespace gradus::dist {
namespace {

/// A description of a net: a line for each parameter, then a line for each buffer.
using Net = std::string;

Net describe(const nn::Module& module) {
  gradus::detail::Message text;
  const auto add = [&](const char* kind, const std::string& name, const Tensor& x, const char* state) {
    text << kind << name << " of shape " << x.sizes() << ", strides " << x.array().strides() << ", " << x.dtype()
         << state << "\n";
  };
  for (const auto& item : module.named_parameters())
    add("parameter ", item.key(), *item, item->requires_grad() ? "" : ", frozen");
  for (const auto& item : module.named_buffers()) add("buffer ", item.key(), *item, "");
  return std::move(text).take();
}

/// The lines of the description that begin with `kind`, without that prefix.
std::vector<std::string> lines_of(const Net& net, const std::string& kind) {
  std::istringstream stream(net);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with(kind)) lines.push_back(line.substr(kind.size()));
  return lines;
}

/// Describes the first difference between the nets of rank 0 and another rank: of their parameters or, if these are the
/// same, of their buffers.
std::string difference(const Net& first, const Net& other, int rank) {
  std::string kind = "parameter";
  std::vector<std::string> a = lines_of(first, "parameter "), b = lines_of(other, "parameter ");
  if (a == b) kind = "buffer", a = lines_of(first, "buffer "), b = lines_of(other, "buffer ");
  const auto at = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const std::string in_a = at < a.size() ? a[at] : "none", in_b = at < b.size() ? b[at] : "none";
  gradus::detail::Message text;
  if (a.size() == b.size())
    text << "rank 0 has the " << kind << ' ' << in_a << ", rank " << rank << " has in its place " << in_b;
  else
    text << "rank 0 has " << a.size() << ' ' << kind << "s, rank " << rank << " has " << b.size()
         << "; the first that differs is on rank 0 " << in_a << ", on rank " << rank << ' ' << in_b;
  return std::move(text).take();
}

/// Gives access to the tensors of any module, because listing them by name takes ten times as long.
struct Members : nn::Module {
  static constexpr auto kParameters = &Members::parameters_, kBuffers = &Members::buffers_;
};

/// Calls visit(tensor) for the parameters of all modules, and for the buffers if requested, in a fixed order.
template <class Visit>
void visit_tensors_of(const nn::Module& net, bool with_buffers, const Visit& visit) {
  const std::function<void(const nn::Module&)> visit_module = [&](const nn::Module& module) {
    for (const auto& item : module.*Members::kParameters)
      if (item->defined()) visit(*item);
    if (!with_buffers) return;
    for (const auto& item : module.*Members::kBuffers)
      if (item->defined()) visit(*item);
  };
  net.apply(visit_module);
}

}  // namespace

OrderedDict<std::string, Tensor> trained_parameters(const nn::Module& module) {
  OrderedDict<std::string, Tensor> parameters("Parameter");
  for (const auto& item : module.named_parameters())
    if (item->requires_grad()) parameters.insert(item.key(), *item);
  return parameters;
}

void broadcast_from_first(ProcessGroup& group, const Array& x) {
  if (x.is_dense()) {
    group.broadcast(as_line(x), 0);
    return;
  }
  const Array copy = ops::clone(x, MemoryFormat::contiguous);
  group.broadcast(copy, 0);
  ops::copy_into(x, copy);
}

void check_same_on_all_ranks(ProcessGroup& group, const nn::Module& module) {
  const auto parameters = module.named_parameters();
  if (parameters.is_empty()) {
    const std::string cause = module.name() + " has no parameters on rank " + std::to_string(group.rank());
    if (group.size() > 1) group.abort(cause);
    GRADUS_FAIL(ValueError, cause);
  }
  const Net own = describe(module);
  const Device device = parameters[0].value().device();
  const auto net_of = [&](int rank) {
    const std::vector<std::byte> text = broadcast_bytes(group, std::as_bytes(std::span(own)), rank, device);
    return Net(reinterpret_cast<const char*>(text.data()), text.size());
  };
  const Net first = net_of(0);

  const Array differing = ops::full({1}, own == first ? group.size() : group.rank(), DType::i64, device);
  group.all_reduce(differing, ReduceKind::min);
  const auto rank = static_cast<int>(ops::item(differing).to<int64_t>());
  if (rank == group.size()) return;
  const Net theirs = net_of(rank);
  GRADUS_CHECK(own == first, ValueError, "the nets differ: ", difference(first, own, group.rank()));
  GRADUS_FAIL(ValueError, "the nets differ: rank ", rank,
              " has other parameters than rank 0: ", difference(first, theirs, rank));
}

// ---- WatchedNet ----

WatchedNet::WatchedNet(nn::Module& module, WatchedNetOptions options)
    : module_(module), alive_(module.weak_from_this().lock()), options_(std::move(options)),
      parameters_(entries_of(module.named_parameters())),
      buffers_(options_.watches_buffers ? entries_of(module.named_buffers()) : Entries()) {
  visit_tensors_of(module, options_.watches_buffers, [&](const Tensor& x) {
    in_order_.push_back({"", x, x.requires_grad(), x.dtype(), x.device(), x.sizes()});
  });
}

bool WatchedNet::is_unchanged() const {
  size_t i = 0;
  bool same = true;
  visit_tensors_of(module_, options_.watches_buffers, [&](const Tensor& x) {
    same = same && i < in_order_.size() && is_same(in_order_[i], x);
    ++i;
  });
  return same && i == in_order_.size();
}

WatchedNet::Entries WatchedNet::entries_of(const OrderedDict<std::string, Tensor>& tensors) {
  Entries entries;
  for (const auto& item : tensors)
    entries.push_back({item.key(), *item, item->requires_grad(), item->dtype(), item->device(), item->sizes()});
  return entries;
}

void WatchedNet::check(ProcessGroup& group) const {
  if (is_unchanged()) return;
  try {
    compare(parameters_, module_.named_parameters(), "parameter");
    if (options_.watches_buffers) compare(buffers_, module_.named_buffers(), "buffer");
  } catch (const Error& error) {
    if (group.size() > 1) group.abort(error.what());
    throw;
  }
}

bool WatchedNet::is_same(const Entry& before, const Tensor& now) const {
  const bool may_train = before.requires_grad || !now.requires_grad();
  const bool may_be_frozen = now.requires_grad() || !before.requires_grad || options_.may_freeze;
  return before.tensor.impl() == now.impl() && may_train && may_be_frozen &&
         (options_.may_move ||
          (before.dtype == now.dtype() && before.device == now.device() && before.shape == now.sizes()));
}

void WatchedNet::compare(const Entries& before, const OrderedDict<std::string, Tensor>& now, const char* kind) const {
  const std::string& wrapper = options_.wrapper;
  for (const auto& item : now) {
    const auto entry = std::ranges::find(before, item.key(), &Entry::name);
    if (entry != before.end() && is_same(*entry, *item)) continue;
    const std::string remedy = ": make the " + wrapper + " after changes of the net";
    GRADUS_CHECK(entry != before.end(), ValueError, "the ", kind, " '", item.key(), "' was added after the ", wrapper,
                 " was made", remedy);
    GRADUS_CHECK(entry->tensor.impl() == item->impl(), ValueError, "the ", kind, " '", item.key(),
                 "' was replaced by another tensor after the ", wrapper, " was made", remedy);
    GRADUS_CHECK(entry->requires_grad || !item->requires_grad(), AutogradError, "the ", kind, " '", item.key(),
                 "' requires gradients, but did not when the ", wrapper,
                 " was made: its gradient would not be averaged. Make the ", wrapper, " after requires_grad_()");
    GRADUS_CHECK(entry->requires_grad == item->requires_grad() || options_.may_freeze, AutogradError, "the ", kind,
                 " '", item.key(), "' was frozen after the ", wrapper, " was made", remedy);
    GRADUS_FAIL(ValueError, "the ", kind, " '", item.key(), "' is of shape ", item->sizes(), ", ", item->dtype(),
                " on ", item->device(), ", but was of shape ", entry->shape, ", ", entry->dtype, " on ", entry->device,
                " when the ", wrapper, " was made", remedy);
  }
  for (const Entry& entry : before)
    GRADUS_CHECK(now.contains(entry.name), ValueError, "the ", kind, " '", entry.name, "' was removed after the ",
                 wrapper, " was made: make the ", wrapper, " after changes of the net");
}

// ---- The end of a backward pass ----

void at_end_of_backward(const GroupPtr& group, Device device, std::function<void()> finish,
                        std::function<void()> cancel) {
  const auto finished = std::make_shared<bool>(false);
  const std::shared_ptr<void> pass(nullptr, [=, cancel = std::move(cancel)](void*) {
    if (*finished) return;
    cancel();
    if (!runtime(device.type()).capturing()) group->abort("its backward pass ended by an exception");
  });
  autograd::queue_callback([pass, finished, finish = std::move(finish)] {
    finish();
    *finished = true;
  });
}

}  // namespace gradus::dist
