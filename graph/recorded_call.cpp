#include <gradus/graph/recorded_call.h>

#include <algorithm>
#include <array>

#include <gradus/core/binary_ops.h>
#include <gradus/core/unary_ops.h>

namespace gradus::graph {
namespace detail {
namespace {

// ---- Names ----

// The names of an enumeration's values, in order.
std::span<const char* const> names_of(UnaryOp) { return kUnaryNames; }
std::span<const char* const> names_of(BinaryOp) { return kBinaryNames; }
std::span<const char* const> names_of(ReduceOp) { return kReduceNames; }
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

// The names of the optimizers' rules ("adam_step"), in the variant's order.
template <class... Rules>
struct RuleNames {
  static constexpr const char* names[] = {Rules::kName...};
};
std::span<const char* const> names_of(const OptimizerRule&) { return rules::All<RuleNames>::names; }

// Removes the first name from a list such as "x, w, bias" and returns it.
std::string take_name(std::string_view& names) {
  const size_t end = names.find(", ");
  const std::string name(names.substr(0, end));
  names.remove_prefix(end == std::string_view::npos ? names.size() : end + 2);
  return name;
}

// ---- Arguments ----

// Shows the visitor the argument `name`, or its members or elements one by one.
template <class T>
void visit_argument(const std::string& name, const T& argument, ArgumentVisitor& visitor);

template <class T>
void visit_fields(const std::string& prefix, const T& argument, ArgumentVisitor& visitor) {
  std::string_view names = T::field_names();
  argument.with_fields(
      [&](const auto&... fields) { (visit_argument(prefix + take_name(names), fields, visitor), ...); });
}

template <class T>
void visit_argument(const std::string& name, const T& argument, ArgumentVisitor& visitor) {
  if constexpr (std::is_same_v<T, View> || std::is_same_v<T, MutableView>) visitor.operand(name, argument);
  else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double> || std::is_same_v<T, Scalar> ||
                     std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, std::vector<double>>) {
    visitor.value(name, argument);
  } else if constexpr (std::is_integral_v<T>) {
    visitor.value(name, static_cast<int64_t>(argument));
  } else if constexpr (std::is_same_v<T, rules::Decay>) {
    visitor.value(name, argument.value);
  } else if constexpr (std::is_enum_v<T>) {
    visitor.value(name, Choice{static_cast<size_t>(argument), names_of(argument)});
  } else if constexpr (std::is_same_v<T, const uint64_t*>) {  // RandomState::device_offset
    visitor.value(name, argument != nullptr);
  } else if constexpr (std::is_same_v<T, int64_t[2]>) {
    visitor.value(name, std::vector<int64_t>(argument, argument + 2));
  } else if constexpr (std::is_same_v<T, UnaryArgs>) {
    visit_argument("a", argument.a, visitor), visit_argument("b", argument.b, visitor);
  } else if constexpr (std::is_same_v<T, OptimizerRule>) {
    visitor.value(name, Choice{argument.index(), names_of(argument)});
    std::visit([&](const auto& rule) { visit_fields(name + ".", rule, visitor); },
               static_cast<const rules::All<std::variant>&>(argument));
  } else if constexpr (requires { T::field_names(); }) {
    visit_fields(name == "args" ? "" : name + ".", argument, visitor);
  } else {
    for (size_t i = 0; i < std::size(argument); ++i)
      visit_argument(name + "." + std::to_string(i), argument[i], visitor);
  }
}

// ---- Operations ----

template <class... Params>
void visit(const Call& call, void (Backend::*)(Params...), std::string_view names, ArgumentVisitor& visitor) {
  std::apply([&](const auto&... arguments) { (visit_argument(take_name(names), arguments, visitor), ...); },
             static_cast<const RecordedCall<Params...>&>(call).arguments());
}

// Returns true if a list such as "x, w, y" has a name for each parameter.
template <class... Params>
constexpr bool names_all(std::string_view names, void (Backend::*)(Params...)) {
  return std::count(names.begin(), names.end(), ',') + 1 == static_cast<std::ptrdiff_t>(sizeof...(Params));
}
#define GRADUS_CHECK_NAMES(op, ...) static_assert(names_all(#__VA_ARGS__, &Backend::op));
GRADUS_BACKEND_OPS(GRADUS_CHECK_NAMES)
#undef GRADUS_CHECK_NAMES

struct OperationEntry {
  const char* name;
  void (*visit)(const Call&, ArgumentVisitor&);
};
#define GRADUS_OPERATION(op, ...) \
  {#op, [](const Call& call, ArgumentVisitor& visitor) { visit(call, &Backend::op, #__VA_ARGS__, visitor); }},
constexpr OperationEntry kOperations[] = {GRADUS_BACKEND_OPS(GRADUS_OPERATION)};
#undef GRADUS_OPERATION

class CallBackend final : public BackendInterceptor<CallBackend> {
 public:
  CallBackend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink) : like_(like), sink_(std::move(sink)) {}
  std::string_view name() const override { return like_.name(); }
  DeviceType device_type() const override { return like_.device_type(); }
  std::string libraries() const override { return like_.libraries(); }
  bool can(Fusion fusion) const override { return like_.can(fusion); }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    std::unique_ptr<Call> call = make_call(method, arguments...);
    call->name = name;
    sink_(std::move(call));
  }

 private:
  Backend& like_;
  const std::function<void(std::unique_ptr<Call>)> sink_;
};

}  // namespace

void visit_recorded(const Call& call, ArgumentVisitor& visitor) {
  for (const OperationEntry& operation : kOperations)
    if (operation.name == std::string_view(call.name)) return operation.visit(call, visitor);
}

}  // namespace detail

std::unique_ptr<Backend> call_backend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink) {
  return std::make_unique<detail::CallBackend>(like, std::move(sink));
}

}  // namespace gradus::graph
