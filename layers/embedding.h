// Embedding: a table of vectors, looked up by index.
#pragma once

#include <optional>

#include <gradus/core/options.h>
#include <gradus/layers/module.h>

namespace gradus::nn {

struct EmbeddingOptions {
  EmbeddingOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  GRADUS_ARG(int64_t, num_embeddings);
  GRADUS_ARG(int64_t, embedding_dim);
  /// A row that starts as zeros and gets no gradient; negative ones count from the end.
  GRADUS_ARG(std::optional<int64_t>, padding_idx) = absent<int64_t>();
  /// Rows that are looked up and have a larger norm are scaled down to it.
  GRADUS_ARG(std::optional<double>, max_norm) = absent<double>();
  GRADUS_ARG(double, norm_type) = 2;
  /// Whether a row's gradient is divided by how often the indices have it.
  GRADUS_ARG(bool, scale_grad_by_freq) = false;
  /// There are no sparse gradients: forward refuses true.
  GRADUS_ARG(bool, sparse) = false;
  /// The table to start with, instead of N(0, 1); the layer takes it out of its options.
  GRADUS_ARG(Tensor, _weight);
};

struct EmbeddingFromPretrainedOptions {
  /// Whether the table is not trained.
  GRADUS_ARG(bool, freeze) = true;
  GRADUS_ARG(std::optional<int64_t>, padding_idx) = absent<int64_t>();
  GRADUS_ARG(std::optional<double>, max_norm) = absent<double>();
  GRADUS_ARG(double, norm_type) = 2;
  GRADUS_ARG(bool, scale_grad_by_freq) = false;
  GRADUS_ARG(bool, sparse) = false;
};

namespace detail {
/// The row that padding_idx means, -1 without one; negative ones count from the end. Else an IndexError.
int64_t padding_row(std::optional<int64_t> padding_idx, int64_t rows);
}  // namespace detail

/// Rows of the parameter `weight` (num_embeddings, embedding_dim): int64 indices x (…) give (…, embedding_dim).
struct EmbeddingImpl : Cloneable<EmbeddingImpl> {
  EmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim)
      : EmbeddingImpl(EmbeddingOptions(num_embeddings, embedding_dim)) {}
  explicit EmbeddingImpl(const EmbeddingOptions& options_) : options(options_) { EmbeddingImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  EmbeddingOptions options;
  Tensor weight;
};

class Embedding : public ModuleHolder<EmbeddingImpl> {
 public:
  using ModuleHolder<EmbeddingImpl>::ModuleHolder;
  using Impl = EmbeddingImpl;
  /// An embedding whose table is `embeddings` (num_embeddings, embedding_dim).
  static Embedding from_pretrained(const Tensor& embeddings, const EmbeddingFromPretrainedOptions& options = {});
};

}  // namespace gradus::nn
