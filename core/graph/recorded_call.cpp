#include <gradus/core/graph/recorded_call.h>

#include <algorithm>
#include <array>

#include <gradus/core/scalar_ops.h>

namespace gradus::graph {
namespace detail {
namespace {

template <class Enum, size_t count>
std::span<const char* const> names_by_number() {
  static const auto names = [] {
    std::array<const char*, count> list;
    for (size_t i = 0; i < count; ++i) list[i] = gradus::name(static_cast<Enum>(i));
    return list;
  }();
  return names;
}

template <class... Rules>
struct RuleList {
  static constexpr const char* names[] = {Rules::kName...};
  static OptimizerRule make(size_t place) {
    static constexpr OptimizerRule (*makers[])() = {[] { return OptimizerRule(Rules()); }...};
    return makers[place]();
  }
};

template <class... Params>
std::unique_ptr<Call> make(void (Backend::*method)(Params...)) {
  return std::make_unique<RecordedCall<Params...>>(method);
}

/// Whether "x, w, y" has a name for each parameter.
template <class... Params>
constexpr bool names_all(std::string_view names, void (Backend::*)(Params...)) {
  return std::count(names.begin(), names.end(), ',') + 1 == static_cast<std::ptrdiff_t>(sizeof...(Params));
}
#define GRADUS_CHECK_NAMES(op, ...) static_assert(names_all(#__VA_ARGS__, &Backend::op));
GRADUS_BACKEND_OPS(GRADUS_CHECK_NAMES)
#undef GRADUS_CHECK_NAMES

struct OperationEntry {
  const char* name;
  std::string_view parameters;
  std::unique_ptr<Call> (*make)();
};
#define GRADUS_OPERATION(op, ...) {#op, #__VA_ARGS__, [] { return make(&Backend::op); }},
constexpr OperationEntry kOperations[] = {GRADUS_BACKEND_OPS(GRADUS_OPERATION)};
#undef GRADUS_OPERATION

const OperationEntry* find_operation(std::string_view name) {
  for (const OperationEntry& operation : kOperations)
    if (name == operation.name) return &operation;
  return nullptr;
}

}  // namespace

std::span<const char* const> names_of(UnaryOp) { return names_by_number<UnaryOp, kUnaryOps>(); }
std::span<const char* const> names_of(BinaryOp) { return names_by_number<BinaryOp, kBinaryOps>(); }
std::span<const char* const> names_of(ReduceOp) {
  return names_by_number<ReduceOp, static_cast<size_t>(ReduceOp::prod) + 1>();
}
std::span<const char* const> names_of(ArgReduceOp) {
  static constexpr const char* names[] = {"argmax", "argmin"};
  return names;
}
std::span<const char* const> names_of(ScanOp) {
  static constexpr const char* names[] = {"sum", "prod"};
  return names;
}
std::span<const char* const> names_of(Reduction) {
  static constexpr const char* names[] = {"none", "mean", "sum"};
  return names;
}

std::span<const char* const> rule_names() { return rules::All<RuleList>::names; }
OptimizerRule default_rule(size_t place) { return rules::All<RuleList>::make(place); }

std::string_view parameter_names(std::string_view operation) {
  const OperationEntry* const entry = find_operation(operation);
  return entry ? entry->parameters : "";
}

std::string take_name(std::string_view& names) {
  const size_t end = names.find(", ");
  const std::string name(names.substr(0, end));
  names.remove_prefix(end == std::string_view::npos ? names.size() : end + 2);
  return name;
}

}  // namespace detail

std::unique_ptr<Call> make_call(std::string_view operation) {
  const detail::OperationEntry* const entry = detail::find_operation(operation);
  if (!entry) return nullptr;
  std::unique_ptr<Call> call = entry->make();
  call->name = entry->name;
  return call;
}

}  // namespace gradus::graph
