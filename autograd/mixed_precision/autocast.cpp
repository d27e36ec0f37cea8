#include <gradus/autograd/mixed_precision/autocast.h>

#include <map>
#include <unordered_map>

#include <gradus/autograd/mixed_precision/half_copy.h>
#include <gradus/autograd/op_scope.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/cuda.h>

namespace gradus::amp {
namespace {

using detail::autocast;

int slot_of(const Tensor& x) { return static_cast<int>(x.device().type()); }

// True if cast rules apply to x.
bool is_castable(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) && x.dtype() != DType::f64 && autocast.settings.enabled[slot_of(x)];
}

CastRule rule_for(const Tensor& x) { return autocast.rules.on[slot_of(x)]; }

// The cached casts of parameters, by parameter and type.
struct CacheEntry {
  Tensor parameter;  // held so that no other tensor can get the same address
  uint32_t version = 0;
  bool with_history = false;
  Tensor cast;
};
using Cache = std::map<std::pair<const TensorImpl*, DType>, CacheEntry>;
thread_local Cache cache;

void clear_cache() { cache.clear(); }

Tensor cast_to(DType dtype, const Tensor& x) {
  if (x.dtype() == dtype) return x;
  const detail::AutocastOff off;
  return x.to(dtype, false, false, Loc{});
}

// An operator whose input is a parameter and whose result is the optimizer's half-type copy of it, so that gradients of
// the copy reach the parameter.
struct HalfCast final : Node {
  Array forward(const Array&, const Array& copy) { return copy; }
  // The engine converts dy to float32, unless the leaf accepts it in a half type (AccumulateGrad::takes_half).
  Grads backward(const Tensor& dy) override { return {dy}; }
};

Tensor cast_parameter(DType dtype, const Tensor& x) {
  const Array copy = detail::half_copy_for_cast(x, dtype);
  return copy.defined() ? gradus::detail::apply_as_is<HalfCast>(x, copy) : cast_to(dtype, x);
}

// Returns a cast of x, which is cached if x is a float32 parameter. A cast that was made under NoGradGuard is not used
// in grad mode, and vice versa.
Tensor cached_cast(DType dtype, const Tensor& x) {
  const bool kept = autocast.settings.cache_enabled && x.dtype() == DType::f32 && x.is_leaf() && x.requires_grad();
  if (!kept) return cast_to(dtype, x);
  CacheEntry& entry = cache[{x.impl(), dtype}];
  const uint32_t version = x.array().version();
  if (!entry.cast.defined() || entry.version != version || entry.with_history != GradMode::is_enabled())
    entry = {x, version, GradMode::is_enabled(), cast_parameter(dtype, x)};
  return entry.cast;
}

using detail::CastRules;
using Lists = std::unordered_map<std::string_view, CastRules>;

const Lists& lists() {
  using enum CastRule;
  static const Lists all = [] {
    Lists lists;
    const auto add = [&](CastRule cpu, CastRule cuda, std::initializer_list<std::string_view> ops) {
      for (std::string_view op : ops) lists[op] = {{cpu, cuda}};
    };
    // Matrix products and convolutions.
    add(lower, lower,
        {"addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv2d_relu", "conv_transpose1d", "conv_transpose2d", "linear",
         "lstm", "matmul", "mm", "prelu", "scaled_dot_product_attention"});
    add(none, lower, {"einsum", "gru", "gru_cell", "lstm_cell", "rnn", "rnn_cell"});
    add(keep, lower, {"addmv", "mv"});
    add(keep, widest, {"dot"});
    add(none, widest, {"bilinear", "cross", "index_put", "scatter_add", "tensordot"});
    add(widest, none, {"index_copy"});
    // Element-wise functions: float32 if results or derivatives may leave the range of float16.
#define GRADUS_OP(op, types, results, on_cuda) add(none, on_cuda, {#op});
    GRADUS_UNARY_OPS(GRADUS_OP)
    GRADUS_BINARY_OPS(GRADUS_OP)
#undef GRADUS_OP
    add(none, float32, {"tan"});
    // Sums of many terms, and operators that divide by such sums.
    add(none, float32,
        {"cosine_similarity", "group_norm", "interpolate", "layer_norm", "log_softmax", "logsumexp", "norm", "softmax",
         "softmin"});
    add(none, float32_result, {"cumprod", "cumsum", "sum"});
    add(float32, float32_result, {"prod"});
    add(none, float32, {"pairwise_distance"});
    add(float32, float32, {"local_response_norm"});
    add(float32, none, {"trace"});
    // Losses.
    add(float32, float32,
        {"binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "hinge_embedding_loss",
         "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss", "nll_loss",
         "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss"});
    add(float32, refused, {"binary_cross_entropy"});
    return lists;
  }();
  return all;
}

}  // namespace

Autocast::Autocast(DeviceType device, std::optional<DType> dtype, bool enabled, bool cache_enabled) {
  const DType type = dtype.value_or(device == DeviceType::cuda ? DType::f16 : DType::bf16);
  GRADUS_CHECK(type == DType::f16 || type == DType::bf16, DTypeError, "autocast needs float16 or bfloat16, got ", type);
  AutocastSettings settings = autocast.settings;
  settings.enabled[static_cast<int>(device)] = enabled;
  settings.dtype[static_cast<int>(device)] = type;
  settings.cache_enabled = cache_enabled;
  enter(settings);
}

Autocast::Autocast(const AutocastSettings& settings) { enter(settings); }

void Autocast::enter(const AutocastSettings& settings) {
  previous_ = autocast.settings;
  autocast.settings = settings;
  autocast.active = settings.any();
  if (autocast.guards++ == 0) on_capture(clear_cache);
}

Autocast::~Autocast() {
  autocast.settings = previous_;
  autocast.active = previous_.any();
  if (--autocast.guards > 0) return;
  on_capture(nullptr);
  clear_cache();
}

const AutocastSettings& Autocast::settings() { return autocast.settings; }

namespace detail {

DType type_for(const Tensor& x) {
  if (!is_castable(x)) return x.dtype();
  switch (rule_for(x)) {
    case CastRule::lower: return autocast.settings.dtype[slot_of(x)];
    case CastRule::float32:
    case CastRule::float32_result: return DType::f32;
    default: return x.dtype();
  }
}

DType type_for(const Tensor& x, const Tensor& other) {
  const bool widest = is_castable(x) && is_castable(other) && rule_for(x) == CastRule::widest;
  return widest ? promote_types(x.dtype(), other.dtype()) : type_for(x);
}

Casts::Casts(TensorPointers inputs) {
  for (const Tensor* x : inputs)
    if (is_castable(*x)) widest_ = promote_types(widest_.value_or(x->dtype()), x->dtype());
}

Tensor Casts::operator()(const Tensor& x) const {
  if (!is_castable(x)) return x;
  switch (rule_for(x)) {
    case CastRule::lower: return cached_cast(autocast.settings.dtype[slot_of(x)], x);
    case CastRule::float32: return cast_to(DType::f32, x);
    case CastRule::widest: return cast_to(*widest_, x);
    case CastRule::refused:
      GRADUS_FAIL(ValueError, "is not safe in ", autocast.settings.dtype[slot_of(x)],
                  ", where a sigmoid soon rounds to 0 or 1: drop the sigmoid and call "
                  "binary_cross_entropy_with_logits, or switch autocast off around it");
    default: return x;
  }
}

}  // namespace detail

CastRule cast_rule(DeviceType device, std::string_view op) {
  const auto found = lists().find(op);
  return found == lists().end() ? CastRule::none : found->second.on[static_cast<int>(device)];
}

detail::CastRules detail::open_rules(const char* op) {
  const CastRules outer = autocast.rules;
  if (const auto found = lists().find(op); found != lists().end())
    for (int device = 0; device < kDeviceTypeCount; ++device)
      if (outer.on[device] == CastRule::none) autocast.rules.on[device] = found->second.on[device];
  return outer;
}

}  // namespace gradus::amp
