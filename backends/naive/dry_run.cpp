// A NaiveBackend that only measures how much scratch memory each call needs. Its kernels need none and are skipped;
// composites allocate arrays for their intermediate results.
#include <gradus/backends/naive/naive.h>
#include <gradus/core/backend_ops.h>

namespace gradus {
namespace naive_detail {

// For each operation, a layer that calls Backend's composite, or does nothing if NaiveBackend has its own kernel.
#define GRADUS_LEAVE_OUT(op, ...)                                                                                      \
  template <class Base, class Method = decltype(&Backend::op)>                                                         \
  struct leave_out_##op;                                                                                               \
  template <class Base, class... Params>                                                                               \
  struct leave_out_##op<Base, void (Backend::*)(Params...)> : Base {                                                   \
    void op(Params... params) final {                                                                                  \
      if constexpr (std::is_same_v<decltype(&NaiveBackend::op), void (Backend::*)(Params...)>) Backend::op(params...); \
      else if constexpr (requires { is_composed(params...); }) {                                                       \
        if (is_composed(params...)) Backend::op(params...);                                                            \
      }                                                                                                                \
    }                                                                                                                  \
  };
#define GRADUS_LAYER(op, ...) , leave_out_##op
GRADUS_BACKEND_OPS(GRADUS_LEAVE_OUT)

class DryNaiveBackend final : public detail::Stack<Backend GRADUS_BACKEND_OPS(GRADUS_LAYER)>::type {
 public:
  std::string_view name() const override { return "naive"; }
  DeviceType device_type() const override { return DeviceType::cpu; }
};

}  // namespace naive_detail

Backend& NaiveBackend::dry_run() {
  static naive_detail::DryNaiveBackend dry;
  return dry;
}

}  // namespace gradus
