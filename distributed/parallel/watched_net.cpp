#include <gradus/distributed/parallel/watched_net.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace gradus::dist {
namespace {

/// Gives access to the tensors of any module. Listing them by name takes ten times as long.
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
  const bool trains = now.requires_grad();
  if (before.tensor.impl() != now.impl()) return false;
  if (trains != before.requires_grad && (trains || !options_.may_freeze)) return false;
  return options_.may_move ||
         (before.dtype == now.dtype() && before.device == now.device() && before.shape == now.sizes());
}

void WatchedNet::compare(const Entries& before, const OrderedDict<std::string, Tensor>& now, const char* kind) const {
  const std::string& wrapper = options_.wrapper;
  const auto find = [&](const std::string& name) { return std::ranges::find(before, name, &Entry::name); };
  size_t i = 0;
  for (const auto& item : now) {
    const bool in_order = i < before.size() && before[i].name == item.key();
    const auto entry = in_order ? before.begin() + static_cast<std::ptrdiff_t>(i) : find(item.key());
    ++i;
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
  if (i == before.size()) return;
  for (const Entry& entry : before)
    GRADUS_CHECK(now.contains(entry.name), ValueError, "the ", kind, " '", entry.name, "' was removed after the ",
                 wrapper, " was made: make the ", wrapper, " after changes of the net");
}

}  // namespace gradus::dist
