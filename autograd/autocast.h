// Mixed precision: matrix products in a half type, what needs range or digits in float32 (torch.autocast; Micikevicius
// et al., "Mixed precision training", 2018).
//
//   amp::Autocast autocast(kCUDA);                // float16 until the end of the scope; kBFloat16 as second argument
//   Tensor loss = cross_entropy(net->forward(x), labels);
//
// Parameters stay float32. What an operator does with floating inputs stands in PyTorch's lists (autocast_lists.cpp);
// OpScope looks it up and apply casts, so that no operator knows of it. Casts are differentiable: gradients come back
// in the type of what was cast.
#pragma once

#include <optional>
#include <string_view>

#include <gradus/autograd/tensor.h>

namespace gradus {
namespace amp {

/// What an operator does with inputs of floating types other than float64.
enum class CastRule : uint8_t {
  none,            ///< takes them as they are; the operators it is composed of follow their own rules
  keep,            ///< takes them as they are, and so do those operators; as with all below
  lower,           ///< in the guard's type
  float32,         ///< in float32
  float32_result,  ///< reads them as they are, accumulates and answers in float32
  widest,          ///< in the widest type among its inputs
  refused,         ///< an error
};

/// The rule of the operator that opens its scope under this name.
CastRule cast_rule(DeviceType device, std::string_view op);

/// Which operators of a thread are autocast, and how.
struct AutocastSettings {
  bool enabled[kDeviceTypeCount] = {};
  DType dtype[kDeviceTypeCount] = {};
  bool cache_enabled = true;
  bool any() const { return enabled[0] || enabled[1]; }
};

/// Until the end of the scope, this thread's operators on tensors of a device type follow their rules. Guards nest, and
/// one with enabled = false switches the others off. backward() needs no guard: its operators run in the types that
/// the forward ones had.
///
/// The cast of a float32 parameter is kept for its next use (unless cache_enabled is false), until the parameter
/// changes, the outermost guard ends, or the capture of a graph begins or ends.
class Autocast {
 public:
  /// dtype is kHalf or kBFloat16, anything else a DTypeError. Default: kHalf on cuda, kBFloat16 on the cpu.
  explicit Autocast(DeviceType device, std::optional<DType> dtype = {}, bool enabled = true, bool cache_enabled = true);
  /// Takes over what another guard set; autograd's checkpoints do.
  explicit Autocast(const AutocastSettings& settings);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  /// Of this thread.
  static const AutocastSettings& settings();
  static bool is_enabled(DeviceType device) { return settings().enabled[static_cast<int>(device)]; }

 private:
  void enter(const AutocastSettings& settings);
  AutocastSettings previous_;
};

namespace detail {

/// The rules of an operator.
struct CastRules {
  CastRule on[kDeviceTypeCount] = {};
  bool any() const { return on[0] != CastRule::none || on[1] != CastRule::none; }
};

struct AutocastThread {
  bool active = false;  // settings.any()
  AutocastSettings settings;
  CastRules rules;  // of the operators that are open: the outermost one that has a rule decides
  int guards = 0;
};
inline thread_local constinit AutocastThread autocast;

/// Adds the rules of `op` to those of this thread, and returns what these were.
CastRules open_rules(const char* op);

/// The type that the rules of this thread give to x.
DType type_for(const Tensor& x);
DType type_for(const Tensor& x, const Tensor& other);

/// Casts the inputs of an operator as the rules of this thread say.
class Casts {
 public:
  Casts(const Tensor* const* inputs, size_t count);
  Tensor operator()(const Tensor& x) const;

 private:
  DType widest_ = DType::f32;
};

/// Switches autocast off until the end of the scope.
class AutocastOff {
 public:
  AutocastOff() : previous_(autocast) { autocast.active = false, autocast.rules = {}, autocast.settings = {}; }
  ~AutocastOff() { autocast = previous_; }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;

 private:
  const AutocastThread previous_;
};

}  // namespace detail
}  // namespace amp
}  // namespace gradus
