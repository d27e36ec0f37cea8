#include <gradus/graph/recorded_call.h>

#include <gradus/core/op_lists.h>

namespace gradus::graph {
namespace detail {

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

namespace {
template <class... Rules>
struct RuleNames {
  static constexpr const char* names[] = {Rules::kName...};
};
}  // namespace
std::span<const char* const> names_of(const OptimizerRule&) { return rules::All<RuleNames>::names; }

namespace {

class CallBackend final : public BackendInterceptor<CallBackend> {
 public:
  CallBackend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink) : like_(like), sink_(std::move(sink)) {}
  std::string_view name() const override { return like_.name(); }
  DeviceType device_type() const override { return like_.device_type(); }
  std::string libraries() const override { return like_.libraries(); }
  bool can(Fusion fusion) const override { return like_.can(fusion); }
  template <class... Params>
  void call(OperationName operation, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    std::unique_ptr<Call> call = make_call(method, arguments...);
    call->name = operation.name, call->parameters = operation.parameters;
    sink_(std::move(call));
  }

 private:
  Backend& like_;
  const std::function<void(std::unique_ptr<Call>)> sink_;
};

}  // namespace

}  // namespace detail

std::unique_ptr<Backend> call_backend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink) {
  return std::make_unique<detail::CallBackend>(like, std::move(sink));
}

}  // namespace gradus::graph
