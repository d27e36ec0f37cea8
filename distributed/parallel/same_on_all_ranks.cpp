#include <gradus/distributed/parallel/same_on_all_ranks.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/distributed/parallel/bucket_plan.h>

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

/// Returns the text of rank `root` on all ranks. Their own texts may have other lengths.
std::string broadcast_text(ProcessGroup& group, const std::string& own, int root, Device device) {
  const auto from_root = [&](const Array& x) {
    const Array there = ops::to_device(x, device);
    group.broadcast(there, root);
    return ops::to_device(there, Device());
  };
  const auto bytes = static_cast<int64_t>(own.size());
  const int64_t sent = ops::item(from_root(ops::full({}, bytes, DType::i64))).to<int64_t>();
  Array text = ops::zeros({sent}, DType::u8);
  std::copy_n(own.begin(), std::min(bytes, sent), text.data<uint8_t>());
  text = from_root(text);
  return {reinterpret_cast<const char*>(text.data<uint8_t>()), static_cast<size_t>(sent)};
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
  size_t at = 0;
  while (at < std::min(a.size(), b.size()) && a[at] == b[at]) ++at;
  const std::string in_a = at < a.size() ? a[at] : "none", in_b = at < b.size() ? b[at] : "none";
  gradus::detail::Message text;
  if (a.size() == b.size())
    text << "rank 0 has the " << kind << ' ' << in_a << ", rank " << rank << " has in its place " << in_b;
  else
    text << "rank 0 has " << a.size() << ' ' << kind << "s, rank " << rank << " has " << b.size()
         << "; the first that differs is on rank 0 " << in_a << ", on rank " << rank << ' ' << in_b;
  return std::move(text).take();
}

}  // namespace

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
  const Net first = broadcast_text(group, own, 0, device);

  const Array differing = ops::full({1}, own == first ? group.size() : group.rank(), DType::i64, device);
  group.all_reduce(differing, ReduceKind::min);
  const auto rank = static_cast<int>(ops::item(differing).to<int64_t>());
  if (rank == group.size()) return;
  const Net theirs = broadcast_text(group, own, rank, device);
  GRADUS_CHECK(own == first, ValueError, "the nets differ: ", difference(first, own, group.rank()));
  GRADUS_FAIL(ValueError, "the nets differ: rank ", rank,
              " has other parameters than rank 0: ", difference(first, theirs, rank));
}

}  // namespace gradus::dist
