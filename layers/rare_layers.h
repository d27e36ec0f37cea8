// Layers that few LibTorch programs use, composed of operators: EmbeddingBag, indices of adaptive maxima, pad_sequence.
// <gradus/torch.h> includes them, <gradus/gradus.h> does not.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include <gradus/autograd/ops/pool.h>
#include <gradus/core/options.h>
#include <gradus/layers/embedding.h>
#include <gradus/layers/loss.h>
#include <gradus/layers/module/module.h>
#include <gradus/layers/pool.h>

namespace gradus {
namespace nn {

/// How a bag is reduced: kSum, kMean or kMax.
class EmbeddingBagMode {
 public:
  enum Kind : uint8_t { sum, mean, max };
  constexpr EmbeddingBagMode(Kind kind_) : kind(kind_) {}  // NOLINT(google-explicit-constructor)
  EmbeddingBagMode(Reduction reduction);                   // NOLINT(google-explicit-constructor)
  friend bool operator==(EmbeddingBagMode a, EmbeddingBagMode b) { return a.kind == b.kind; }
  Kind kind;
};

}  // namespace nn

inline constexpr nn::EmbeddingBagMode::Kind kMax = nn::EmbeddingBagMode::max;

namespace nn {
namespace functional {

struct EmbeddingBagFuncOptions {
  /// Start of each bag if the indices are one-dimensional. The first must be 0.
  GRADUS_ARG(Tensor, offsets);
  GRADUS_ARG(std::optional<double>, max_norm) = absent<double>();
  GRADUS_ARG(double, norm_type) = 2;
  /// If true, the gradient of a row is divided by the number of its occurrences in all bags. Not with kMax.
  GRADUS_ARG(bool, scale_grad_by_freq) = false;
  GRADUS_ARG(EmbeddingBagMode, mode) = kMean;
  GRADUS_ARG(bool, sparse) = false;
  /// Weights of the rows, in the shape of the indices. Only with kSum.
  GRADUS_ARG(Tensor, per_sample_weights);
  /// True: the last offset is the number of indices and does not start a bag.
  GRADUS_ARG(bool, include_last_offset) = false;
  /// An index that is ignored.
  GRADUS_ARG(std::optional<int64_t>, padding_idx) = absent<int64_t>();
};

/// Sums, means or maxima (bags, embedding_dim) of the rows of weight (num_embeddings, embedding_dim) with the int64
/// indices (bags, length), or (n) with offsets. Bags without indices are zeros. Of equal maxima the first gets the
/// gradient. Needs memory for one row per index, even for long bags. Offsets must start at 0, must not decrease, and
/// must not exceed the number of indices (IndexError).
Tensor embedding_bag(const Tensor& indices, const Tensor& weight, const EmbeddingBagFuncOptions& options = {});

}  // namespace functional

struct EmbeddingBagOptions {
  EmbeddingBagOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  GRADUS_ARG(int64_t, num_embeddings);
  GRADUS_ARG(int64_t, embedding_dim);
  GRADUS_ARG(std::optional<double>, max_norm) = absent<double>();
  GRADUS_ARG(double, norm_type) = 2;
  GRADUS_ARG(bool, scale_grad_by_freq) = false;
  GRADUS_ARG(EmbeddingBagMode, mode) = kMean;
  /// There are no sparse gradients: if true, forward throws.
  GRADUS_ARG(bool, sparse) = false;
  GRADUS_ARG(bool, include_last_offset) = false;
  GRADUS_ARG(std::optional<int64_t>, padding_idx) = absent<int64_t>();
  /// Initial table in place of N(0, 1).
  GRADUS_ARG(Tensor, _weight);
};

/// functional::embedding_bag over the parameter `weight`.
struct EmbeddingBagImpl : Cloneable<EmbeddingBagImpl> {
  EmbeddingBagImpl(int64_t num_embeddings, int64_t embedding_dim)
      : EmbeddingBagImpl(EmbeddingBagOptions(num_embeddings, embedding_dim)) {}
  explicit EmbeddingBagImpl(const EmbeddingBagOptions& options_) : options(options_) { EmbeddingBagImpl::reset(); }
  void reset() override;
  /// N(0, 1), with zeros for padding_idx.
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
  /// Makes a layer with the table `embeddings` (num_embeddings, embedding_dim), which is not trained if `freeze`.
  static EmbeddingBag from_pretrained(const Tensor& embeddings, bool freeze = true,
                                      EmbeddingBagMode mode = EmbeddingBagMode::mean);
};

namespace functional {
/// AdaptiveMaxPool1d's forward_with_indices.
std::tuple<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& x, const AdaptiveMaxPool1dOptions& options);
/// AdaptiveMaxPool2d's forward_with_indices.
std::tuple<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, const AdaptiveMaxPool2dOptions& options);
}  // namespace functional

namespace utils::rnn {
/// Combines sequences (L_i, …) to one tensor (longest L, N, …), or (N, longest L, …) with batch_first. Shorter
/// sequences are extended by padding_value.
Tensor pad_sequence(const std::vector<Tensor>& sequences, bool batch_first = false, double padding_value = 0);
}  // namespace utils::rnn

}  // namespace nn

using nn::utils::rnn::pad_sequence;
}  // namespace gradus
