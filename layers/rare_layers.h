// Layers of LibTorch that few programs use, compositions of operators: EmbeddingBag, LPPool, CrossMapLRN2d, two losses;
// and pad_sequence. <gradus/torch.h> has them, <gradus/gradus.h> does not.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <gradus/autograd/ops/pool.h>
#include <gradus/core/options.h>
#include <gradus/layers/embedding.h>
#include <gradus/layers/loss.h>
#include <gradus/layers/module.h>
#include <gradus/layers/pool.h>

namespace gradus {
namespace nn {

/// kSum, kMean or kMax.
class EmbeddingBagMode {
 public:
  enum Kind : uint8_t { sum, mean, max };
  constexpr EmbeddingBagMode(Kind kind) : kind(kind) {}  // NOLINT(google-explicit-constructor)
  EmbeddingBagMode(Reduction reduction);                 // NOLINT(google-explicit-constructor)
  friend bool operator==(EmbeddingBagMode a, EmbeddingBagMode b) { return a.kind == b.kind; }
  Kind kind;
};

}  // namespace nn

inline constexpr nn::EmbeddingBagMode::Kind kMax = nn::EmbeddingBagMode::max;

namespace nn {
namespace functional {

struct EmbeddingBagFuncOptions {
  /// Where each bag begins in one-dimensional indices.
  GRADUS_ARG(Tensor, offsets);
  GRADUS_ARG(std::optional<double>, max_norm);
  GRADUS_ARG(double, norm_type) = 2;
  GRADUS_ARG(bool, scale_grad_by_freq) = false;
  GRADUS_ARG(EmbeddingBagMode, mode) = kMean;
  GRADUS_ARG(bool, sparse) = false;
  /// Factors of the rows, in the shape of the indices; with kSum only.
  GRADUS_ARG(Tensor, per_sample_weights);
  /// Whether the last offset is the number of indices and no bag.
  GRADUS_ARG(bool, include_last_offset) = false;
  /// An index that does not count.
  GRADUS_ARG(std::optional<int64_t>, padding_idx);
};

/// Sums, means or maxima (bags, embedding_dim) of the rows of weight (num_embeddings, embedding_dim) that bags of int64
/// indices name: indices (bags, length), or (n) with offsets. Bags without indices are zeros.
Tensor embedding_bag(const Tensor& indices, const Tensor& weight, const EmbeddingBagFuncOptions& options = {});

}  // namespace functional

struct EmbeddingBagOptions {
  EmbeddingBagOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  GRADUS_ARG(int64_t, num_embeddings);
  GRADUS_ARG(int64_t, embedding_dim);
  GRADUS_ARG(std::optional<double>, max_norm);
  GRADUS_ARG(double, norm_type) = 2;
  GRADUS_ARG(bool, scale_grad_by_freq) = false;
  GRADUS_ARG(EmbeddingBagMode, mode) = kMean;
  /// There are no sparse gradients: forward refuses true.
  GRADUS_ARG(bool, sparse) = false;
  GRADUS_ARG(bool, include_last_offset) = false;
  GRADUS_ARG(std::optional<int64_t>, padding_idx);
  /// The table to start with, instead of N(0, 1).
  GRADUS_ARG(Tensor, _weight);
};

/// functional::embedding_bag over the parameter `weight`.
struct EmbeddingBagImpl : Cloneable<EmbeddingBagImpl> {
  EmbeddingBagImpl(int64_t num_embeddings, int64_t embedding_dim)
      : EmbeddingBagImpl(EmbeddingBagOptions(num_embeddings, embedding_dim)) {}
  explicit EmbeddingBagImpl(const EmbeddingBagOptions& options) : options(options) { EmbeddingBagImpl::reset(); }
  void reset() override;
  /// N(0, 1), and zeros for padding_idx.
  void reset_parameters();
  Tensor forward(const Tensor& indices, const Tensor& offsets = {}, const Tensor& per_sample_weights = {});
  void pretty_print(std::ostream& stream) const override;

  EmbeddingBagOptions options;
  Tensor weight;
};

/// Holder of EmbeddingBagImpl.
class EmbeddingBag : public ModuleHolder<EmbeddingBagImpl> {
 public:
  using ModuleHolder<EmbeddingBagImpl>::ModuleHolder;
  using Impl = EmbeddingBagImpl;
  /// One whose table is `embeddings` (num_embeddings, embedding_dim), not trained if `freeze`.
  static EmbeddingBag from_pretrained(const Tensor& embeddings, bool freeze = true,
                                      EmbeddingBagMode mode = EmbeddingBagMode::mean);
};

/// Over windows as AvgPool's: (sum of x^p)^(1/p), 0 where the sum is negative.
template <class Size, class Stride>
struct LPPoolOptions {
  LPPoolOptions(double norm_type, Size kernel_size) : norm_type_(norm_type), kernel_size_(kernel_size) {}
  GRADUS_ARG(double, norm_type);
  GRADUS_ARG(Size, kernel_size);
  GRADUS_ARG(Stride, stride);
  GRADUS_ARG(bool, ceil_mode) = false;
};
using LPPool1dOptions = LPPoolOptions<int64_t, std::optional<int64_t>>;
using LPPool2dOptions = LPPoolOptions<Pair, PoolStride>;

namespace functional {
using LPPool1dFuncOptions = LPPool1dOptions;
using LPPool2dFuncOptions = LPPool2dOptions;
/// LPPool1d of sequences (N, C, L) or (C, L).
Tensor lp_pool1d(const Tensor& x, const LPPool1dFuncOptions& options);
/// LPPool2d of images (N, C, H, W) or (C, H, W).
Tensor lp_pool2d(const Tensor& x, const LPPool2dFuncOptions& options);
/// AdaptiveMaxPool's forward_with_indices.
std::tuple<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& x, const AdaptiveMaxPool1dOptions& options);
/// The same for images.
std::tuple<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, const AdaptiveMaxPool2dOptions& options);
}  // namespace functional

/// functional::lp_pool1d.
struct LPPool1dImpl : detail::PlainLayer<LPPool1dImpl, LPPool1dOptions> {
  using PlainLayer::PlainLayer;
  LPPool1dImpl(double norm_type, int64_t kernel_size) : PlainLayer(LPPool1dOptions(norm_type, kernel_size)) {}
  Tensor forward(const Tensor& x) { return functional::lp_pool1d(x, options); }
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(LPPool1d);

/// functional::lp_pool2d.
struct LPPool2dImpl : detail::PlainLayer<LPPool2dImpl, LPPool2dOptions> {
  using PlainLayer::PlainLayer;
  LPPool2dImpl(double norm_type, Pair kernel_size) : PlainLayer(LPPool2dOptions(norm_type, kernel_size)) {}
  Tensor forward(const Tensor& x) { return functional::lp_pool2d(x, options); }
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(LPPool2d);

struct CrossMapLRN2dOptions {
  CrossMapLRN2dOptions(int64_t size) : size_(size) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, size);
  GRADUS_ARG(double, alpha) = 1e-4;
  GRADUS_ARG(double, beta) = 0.75;
  GRADUS_ARG(int64_t, k) = 1;
};
/// LocalResponseNorm by another name. (PyTorch's goes on adding channel 0 to all sums behind the first few.)
struct CrossMapLRN2dImpl : detail::PlainLayer<CrossMapLRN2dImpl, CrossMapLRN2dOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(CrossMapLRN2d);

struct TripletMarginWithDistanceLossOptions {
  using reduction_t = Reduction;
  using distance_function_t = std::function<Tensor(const Tensor&, const Tensor&)>;
  /// pairwise_distance unless set.
  GRADUS_ARG(std::optional<distance_function_t>, distance_function);
  GRADUS_ARG(reduction_t, reduction) = kMean;
  GRADUS_ARG(double, margin) = 1;
  GRADUS_ARG(bool, swap) = false;
};
struct MultiLabelMarginLossOptions {
  MultiLabelMarginLossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT
  GRADUS_ARG(Reduction, reduction);
};

namespace functional {
using TripletMarginWithDistanceLossFuncOptions = TripletMarginWithDistanceLossOptions;
using MultilabelMarginLossFuncOptions = MultiLabelMarginLossOptions;
/// triplet_margin_loss with a distance of one's own.
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const TripletMarginWithDistanceLossFuncOptions& options = {});
/// The int64 labels of x (N, C) or (C) are those of target, of the same shape, before its first -1. The
/// sum over labels j and all other classes i of max(0, 1 - x[j] + x[i]), divided by C.
Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target,
                              const MultilabelMarginLossFuncOptions& options = {});
}  // namespace functional

/// functional::triplet_margin_with_distance_loss.
struct TripletMarginWithDistanceLossImpl
    : detail::PlainLayer<TripletMarginWithDistanceLossImpl, TripletMarginWithDistanceLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
    return functional::triplet_margin_with_distance_loss(anchor, positive, negative, options);
  }
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(TripletMarginWithDistanceLoss);

/// functional::multilabel_margin_loss.
struct MultiLabelMarginLossImpl : detail::PlainLayer<MultiLabelMarginLossImpl, MultiLabelMarginLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target) {
    return functional::multilabel_margin_loss(x, target, options);
  }
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(MultiLabelMarginLoss);

namespace utils::rnn {
/// Sequences (L_i, …) as one tensor (longest L, N, …), or (N, longest L, …) where batch_first, with padding_value
/// behind the shorter ones.
Tensor pad_sequence(const std::vector<Tensor>& sequences, bool batch_first = false, double padding_value = 0);
}  // namespace utils::rnn

}  // namespace nn

using nn::utils::rnn::pad_sequence;
}  // namespace gradus
