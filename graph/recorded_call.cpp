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

// Of optimizers' rules ("adam_step"), in the variant's order: the names, and a rule by its place.
template <class... Rules>
struct RuleList {
  static constexpr const char* names[] = {Rules::kName...};
  static OptimizerRule make(size_t place) {
    static constexpr OptimizerRule (*makers[])() = {[] { return OptimizerRule(Rules()); }...};
    return makers[place]();
  }
};

using AllRules = rules::All<RuleList>;

// Takes the first name off "x, w, bias".
std::string take_name(std::string_view& names) {
  const size_t end = names.find(", ");
  const std::string name(names.substr(0, end));
  names.remove_prefix(end == std::string_view::npos ? names.size() : end + 2);
  return name;
}

// ---- Arguments ----

// Shows `argument`, which is called `name`, or what it is made of.
template <class T>
void visit_argument(const std::string& name, T& argument, ArgumentVisitor& visitor);

template <class T>
void visit_fields(const std::string& prefix, T& argument, ArgumentVisitor& visitor) {
  std::string_view names = T::field_names();
  argument.with_fields([&](auto&... fields) { (visit_argument(prefix + take_name(names), fields, visitor), ...); });
}

// Shows a value as a V of the variant, and takes over what the visitor has made of it.
template <class V, class T>
void visit_value(const std::string& name, T& argument, ArgumentVisitor& visitor) {
  Value value = static_cast<V>(argument);
  visitor.value(name, value);
  const V changed = std::get<V>(value);
  argument = static_cast<T>(changed);
  GRADUS_CHECK(static_cast<V>(argument) == changed, IndexError, "'", name, "' cannot be ", changed);
}

template <class T>
void visit_list(const std::string& name, T& list, ArgumentVisitor& visitor) {
  for (size_t i = 0; i < std::size(list); ++i) visit_argument(name + "." + std::to_string(i), list[i], visitor);
}

template <class T>
void visit_argument(const std::string& name, T& argument, ArgumentVisitor& visitor) {
  if constexpr (std::is_same_v<T, View> || std::is_same_v<T, MutableView>) visitor.operand(name, argument);
  else if constexpr (std::is_same_v<T, bool>) visit_value<bool>(name, argument, visitor);
  else if constexpr (std::is_integral_v<T>) visit_value<int64_t>(name, argument, visitor);
  else if constexpr (std::is_same_v<T, double>) {
    Value value = argument;
    visitor.value(name, value);
    argument = std::get<double>(value);
  } else if constexpr (std::is_same_v<T, rules::Decay>) {
    double decay = argument.value;
    visit_argument(name, decay, visitor);
    argument = decay;
  } else if constexpr (std::is_enum_v<T>) {
    Value value = Choice{static_cast<size_t>(argument), names_of(argument)};
    visitor.value(name, value);
    argument = static_cast<T>(std::get<Choice>(value).number);
  } else if constexpr (std::is_same_v<T, const uint64_t*>) {  // of RandomState
    bool draws_anew = argument;
    visit_value<bool>(name, draws_anew, visitor);
    if (draws_anew != (argument != nullptr)) argument = draws_anew ? visitor.generator_offset() : nullptr;
  } else if constexpr (std::is_same_v<T, Scalar> || std::is_same_v<T, std::vector<int64_t>> ||
                       std::is_same_v<T, std::vector<double>>) {
    Value value = std::move(argument);
    visitor.value(name, value);
    argument = std::get<T>(std::move(value));
  } else if constexpr (std::is_same_v<T, int64_t[2]>) {
    std::vector<int64_t> pair(argument, argument + 2);
    visit_argument(name, pair, visitor);
    GRADUS_CHECK(pair.size() == 2, IndexError, "'", name, "' must have two numbers, got ", pair.size());
    argument[0] = pair[0], argument[1] = pair[1];
  } else if constexpr (std::is_same_v<T, UnaryArgs>) {
    visit_argument("a", argument.a, visitor), visit_argument("b", argument.b, visitor);
  } else if constexpr (std::is_same_v<T, OptimizerRule>) {
    Value value = Choice{argument.index(), AllRules::names};
    visitor.value(name, value);
    if (const size_t kind = std::get<Choice>(value).number; kind != argument.index()) argument = AllRules::make(kind);
    std::visit([&](auto& rule) { visit_fields(name + ".", rule, visitor); },
               static_cast<rules::All<std::variant>&>(argument));
  } else if constexpr (requires { T::field_names(); }) {
    visit_fields(name == "args" ? "" : name + ".", argument, visitor);
  } else {
    if constexpr (requires { argument.resize(0); }) {
      size_t length = argument.size();
      visitor.length(name, length);
      argument.resize(length);
    }
    visit_list(name, argument, visitor);
  }
}

// ---- Operations ----

template <class... Params>
void visit(Call& call, void (Backend::*)(Params...), std::string_view names, ArgumentVisitor& visitor) {
  std::apply([&](auto&... arguments) { (visit_argument(take_name(names), arguments, visitor), ...); },
             static_cast<RecordedCall<Params...>&>(call).arguments());
}

// Whether "x, w, y" has a name for each parameter.
template <class... Params>
constexpr bool names_all(std::string_view names, void (Backend::*)(Params...)) {
  return std::count(names.begin(), names.end(), ',') + 1 == static_cast<std::ptrdiff_t>(sizeof...(Params));
}
#define GRADUS_CHECK_NAMES(op, ...) static_assert(names_all(#__VA_ARGS__, &Backend::op));
GRADUS_BACKEND_OPS(GRADUS_CHECK_NAMES)
#undef GRADUS_CHECK_NAMES

struct OperationEntry {
  const char* name;
  std::unique_ptr<Call> (*make)();
  void (*visit)(Call&, ArgumentVisitor&);
};
#define GRADUS_OPERATION(op, ...)               \
  {#op, [] { return make_call(&Backend::op); }, \
   [](Call& call, ArgumentVisitor& visitor) { visit(call, &Backend::op, #__VA_ARGS__, visitor); }},
constexpr OperationEntry kOperations[] = {GRADUS_BACKEND_OPS(GRADUS_OPERATION)};
#undef GRADUS_OPERATION

class CallBackend final : public BackendInterceptor<CallBackend> {
 public:
  CallBackend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink) : like_(like), sink_(std::move(sink)) {}
  std::string_view name() const override { return like_.name(); }
  DeviceType device_type() const override { return like_.device_type(); }
  std::string libraries() const override { return like_.libraries(); }
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

const OperationEntry* find_operation(std::string_view name) {
  for (const OperationEntry& operation : kOperations)
    if (name == operation.name) return &operation;
  return nullptr;
}

}  // namespace

void visit_recorded(Call& call, ArgumentVisitor& visitor) {
  if (const OperationEntry* const entry = find_operation(call.name)) entry->visit(call, visitor);
}

}  // namespace detail

std::unique_ptr<Backend> call_backend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink) {
  return std::make_unique<detail::CallBackend>(like, std::move(sink));
}

std::unique_ptr<Call> make_call(std::string_view operation) {
  const detail::OperationEntry* const entry = detail::find_operation(operation);
  if (!entry) return nullptr;
  std::unique_ptr<Call> call = entry->make();
  call->name = entry->name;
  return call;
}

}  // namespace gradus::graph
