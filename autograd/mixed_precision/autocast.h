// Mixed precision: matrix products run in a half type, and operators that need range or precision in float32
// (torch.autocast; Micikevicius et al., "Mixed precision training", 2018).
//
//   amp::Autocast autocast(kCUDA);                // float16 until the end of the scope; kBFloat16 as second argument
//   Tensor loss = cross_entropy(net->forward(x), labels);
//
// Parameters stay float32. PyTorch's lists (autocast.cpp) give each operator a rule for its floating inputs.
// OpScope looks up the rule and apply() casts the inputs, so operators contain no code for this. Casts are
// differentiable: each gradient has the type that the tensor had before its cast.
#pragma once

#include <optional>
#include <string_view>

#include <gradus/autograd/tensor.h>

namespace gradus {
namespace amp {

/// What an operator does with inputs of floating types. float64 inputs are never cast.
enum class CastRule : uint8_t {
  none,     ///< leaves inputs as they are; the operators it is composed of follow their own rules
  keep,     ///< leaves inputs as they are; this and all rules below also hold for the operators it is composed of
  lower,    ///< casts to the guard's type
  float32,  ///< casts to float32
  float32_result,  ///< leaves inputs as they are, accumulates in float32 and returns float32
  widest,          ///< casts to the widest type among its inputs
  refused,         ///< throws an error
};

/// The rule of the operator that opens its OpScope with the name `op`.
CastRule cast_rule(DeviceType device, std::string_view op);

/// For each device type: whether autocast applies to a thread's operators on such devices, and the type to which they
/// cast.
struct AutocastSettings {
  bool enabled[kDeviceTypeCount] = {};
  DType dtype[kDeviceTypeCount] = {};
  bool cache_enabled = true;
  bool any() const { return enabled[0] || enabled[1]; }
};

/// Until the end of the scope, this thread's operators on tensors of a device type follow their cast rules. Guards can
/// be nested, and a guard with enabled = false switches autocast off. backward() needs no guard: its operators run in
/// the types of the forward pass.
///
/// The cast of a float32 parameter is cached (unless cache_enabled is false) until the parameter changes, the outermost
/// guard ends, or the capture of a graph begins or ends.
class Autocast : NoCopy {
 public:
  /// dtype is kHalf or kBFloat16; any other type is a DTypeError. Default: kHalf on cuda, kBFloat16 on the cpu.
  explicit Autocast(DeviceType device, std::optional<DType> dtype = {}, bool enabled = true, bool cache_enabled = true);
  /// Applies the settings of another guard, as a checkpointed function does when it is recomputed.
  explicit Autocast(const AutocastSettings& settings);
  ~Autocast();

  /// The settings of this thread.
  static const AutocastSettings& settings();
  static bool is_enabled(DeviceType device) { return settings().enabled[static_cast<int>(device)]; }

 private:
  void enter(const AutocastSettings& settings);
  AutocastSettings previous_;
};

namespace detail {

/// The cast rules of one operator, for each device type.
struct CastRules {
  CastRule on[kDeviceTypeCount] = {};
  bool any() const { return on[0] != CastRule::none || on[1] != CastRule::none; }
};

struct AutocastThread {
  bool active = false;  // settings.any()
  AutocastSettings settings;
  CastRules rules;  // rules of the open operators; the outermost operator that has a rule decides
  int guards = 0;   // open Autocast guards
};
inline thread_local constinit AutocastThread autocast;

/// Puts the rules of `op` into effect on the device types for which no enclosing operator has a rule. Returns the rules
/// that were in effect before.
CastRules open_rules(const char* op);

/// The type to which this thread's rules cast x. Only with `other` does the rule `widest` count: it promotes the types
/// of both.
DType type_for(const Tensor& x);
DType type_for(const Tensor& x, const Tensor& other);

/// Casts the inputs of an operator by this thread's rules.
class Casts {
 public:
  explicit Casts(TensorPointers inputs);
  Tensor operator()(const Tensor& x) const;

 private:
  std::optional<DType> widest_;
};

/// Switches autocast off until the end of the scope.
class AutocastOff : ScopedValue<AutocastThread> {
 public:
  AutocastOff() : ScopedValue(autocast, {false, {}, {}, autocast.guards}) {}
};

}  // namespace detail
}  // namespace amp
}  // namespace gradus
