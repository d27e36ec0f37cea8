// The cast rule of each operator, from the lists of PyTorch 2.11's aten/src/ATen/autocast_mode.h.
// tests/golden/autocast_*.safetensors contain PyTorch's results on both devices. An operator that is not listed takes
// its inputs as they are, and mixed types are promoted as usual.
#include <unordered_map>

#include <gradus/autograd/autocast.h>
#include <gradus/core/binary_ops.h>
#include <gradus/core/unary_ops.h>

namespace gradus::amp {
namespace {

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
