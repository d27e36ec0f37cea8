#include <gradus/distributed/parallel/same_on_all_ranks.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/distributed/parallel/bucket_plan.h>

namespace gradus::dist {

void broadcast_from_first(ProcessGroup& group, const Array& x) {
  if (x.is_dense()) {
    group.broadcast(as_line(x), 0);
    return;
  }
  const Array copy = ops::clone(x, MemoryFormat::contiguous);
  group.broadcast(copy, 0);
  ops::copy_into(x, copy);
}

void check_same_on_all_ranks(ProcessGroup& group, const OrderedDict<std::string, Tensor>& parameters) {
  gradus::detail::Message description;
  for (const auto& item : parameters) {
    const Array& x = item.value().array();
    description << item.key() << " of shape " << x.shape() << ", strides " << x.strides() << ", " << x.dtype() << "\n";
  }
  const std::string own = std::move(description).take();
  const Device device = parameters[0].value().device();
  const auto from_first = [&](Array x) {
    const Array there = ops::to_device(x, device);
    group.broadcast(there, 0);
    return ops::to_device(there, Device());
  };
  const auto bytes = static_cast<int64_t>(own.size());
  const int64_t first_bytes = ops::item(from_first(ops::full({}, bytes, DType::i64))).to<int64_t>();
  Array text = ops::zeros({first_bytes}, DType::u8);
  std::copy_n(own.begin(), std::min(bytes, first_bytes), text.data<uint8_t>());
  text = from_first(text);
  const std::string first(reinterpret_cast<const char*>(text.data<uint8_t>()), static_cast<size_t>(first_bytes));

  const Array differing = ops::full({1}, own == first ? group.size() : group.rank(), DType::i64, device);
  group.all_reduce(differing, ReduceKind::min);
  const auto rank = ops::item(differing).to<int64_t>();
  if (rank == group.size()) return;
  std::istringstream ours(own), theirs(first);
  std::string mine = "(none)", zeroth = "(none)";
  while (std::getline(ours, mine) && std::getline(theirs, zeroth) && mine == zeroth) mine = zeroth = "(none)";
  GRADUS_CHECK(own == first, ValueError, "the nets differ: rank 0 has the parameter ", zeroth, ", rank ", group.rank(),
               " at its place ", mine);
  GRADUS_FAIL(ValueError, "the nets differ: rank ", rank, " has other parameters than rank 0");
}

}  // namespace gradus::dist
