// Embedding: a table of vectors that are looked up by index.
#pragma once

#include <optional>

#include <gradus/core/options.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

struct EmbeddingOptions {
  EmbeddingOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  GRADUS_ARG(int64_t, num_embeddings);
  GRADUS_ARG(int64_t, embedding_dim);
  /// Index of a row that is initialised with zeros and gets no gradient. Negative indices count from the end.
  GRADUS_ARG(std::optional<int64_t>, padding_idx) = absent<int64_t>();
  /// Rows that are looked up and whose norm exceeds max_norm are scaled down to it.
  GRADUS_ARG(std::optional<double>, max_norm) = absent<double>();
  GRADUS_ARG(double, norm_type) = 2;
  /// If true, the gradient of a row is divided by the number of its occurrences in the indices.
  GRADUS_ARG(bool, scale_grad_by_freq) = false;
  /// There are no sparse gradients: if true, forward throws.
  GRADUS_ARG(bool, sparse) = false;
  /// Initial table in place of N(0, 1). The layer removes it from its options.
  GRADUS_ARG(Tensor, _weight);
};

struct EmbeddingFromPretrainedOptions {
  /// If true, the table is not trained.
  GRADUS_ARG(bool, freeze) = true;
  GRADUS_ARG(std::optional<int64_t>, padding_idx) = absent<int64_t>();
  GRADUS_ARG(std::optional<double>, max_norm) = absent<double>();
  GRADUS_ARG(double, norm_type) = 2;
  GRADUS_ARG(bool, scale_grad_by_freq) = false;
  GRADUS_ARG(bool, sparse) = false;
};

namespace detail {
/// Converts padding_idx, which may count from the end, to a row; -1 if absent. Throws an IndexError if there is no such
/// row.
int64_t padding_row(std::optional<int64_t> padding_idx, int64_t rows);
}  // namespace detail

/// Looks up rows of the parameter `weight` (num_embeddings, embedding_dim): int64 indices x (…) to (…, embedding_dim).
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
  /// Makes an embedding with the table `embeddings` (num_embeddings, embedding_dim).
  static Embedding from_pretrained(const Tensor& embeddings, const EmbeddingFromPretrainedOptions& options = {});
};

}  // namespace gradus::nn
