// A backend with changed results, for tests of what notices wrong ones.
#pragma once

#include <functional>
#include <string_view>

#include <gradus/core/backend_interceptor.h>

namespace gradus::test {

/// Runs the kernels of another backend, and then calls change(operation, y) for each operand y that it wrote.
class ChangedResults final : public BackendInterceptor<ChangedResults> {
 public:
  using Change = std::function<void(std::string_view operation, const MutableView& y)>;

  ChangedResults(Backend& runs, Change change) : runs_(runs), change_(std::move(change)) {}
  std::string_view name() const override { return "changed_results"; }
  DeviceType device_type() const override { return runs_.device_type(); }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    (runs_.*method)(arguments...);
    const auto change = [&](const auto& view) {
      if constexpr (std::is_same_v<decltype(view), const MutableView&>) change_(name, view);
    };
    (for_each_operand(arguments, change), ...);
  }

 private:
  Backend& runs_;
  const Change change_;
};

}  // namespace gradus::test
