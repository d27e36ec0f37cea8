// Embedding and EmbeddingBag: tables of vectors that are looked up by index.
#pragma once

#include <optional>

#include <gradus/autograd/ops/index.h>
#include <gradus/layers/layer.h>
#include <gradus/layers/loss.h>

namespace gradus {
namespace nn {

/// How the rows of a bag, which is a group of indices, are combined: kSum, kMean or kMax.
struct EmbeddingBagMode {
  enum Kind : uint8_t { sum, mean, max };
  constexpr EmbeddingBagMode(Kind kind_) : kind(kind_) {}  // NOLINT(google-explicit-constructor)
  EmbeddingBagMode(Reduction reduction);                   // NOLINT(google-explicit-constructor)
  friend bool operator==(EmbeddingBagMode a, EmbeddingBagMode b) { return a.kind == b.kind; }
  Kind kind;
};

}  // namespace nn

inline constexpr nn::EmbeddingBagMode::Kind kMax = nn::EmbeddingBagMode::max;

namespace nn {

// ---- Options ----

namespace detail {

/// Options of all functions and layers that look up rows of a table.
template <class Options>
struct LookupOptions {
  /// Index of a row that is initialised with zeros and gets no gradient; in a bag it is ignored. Negative indices count
  /// from the end.
  GRADUS_ARG_OF(Options, std::optional<int64_t>, padding_idx) = absent<int64_t>();
  /// If a looked-up row has a norm above max_norm, the row is scaled down to that norm in the table.
  GRADUS_ARG_OF(Options, std::optional<double>, max_norm) = absent<double>();
  GRADUS_ARG_OF(Options, double, norm_type) = 2;
  /// If true, the gradient of a row is divided by the number of its occurrences in the indices. Cannot be combined with
  /// kMax.
  GRADUS_ARG_OF(Options, bool, scale_grad_by_freq) = false;
  /// Sparse gradients are not supported: if true, forward throws.
  GRADUS_ARG_OF(Options, bool, sparse) = false;

 public:
  /// Copies the options above from `other`.
  template <class Other>
  Options& lookup(const LookupOptions<Other>& other) {
    padding_idx(other.padding_idx()).max_norm(other.max_norm()).norm_type(other.norm_type());
    return scale_grad_by_freq(other.scale_grad_by_freq()).sparse(other.sparse());
  }
};

/// The options of layers with a table.
template <class Options>
struct TableOptions : LookupOptions<Options> {
  TableOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  GRADUS_ARG_OF(Options, int64_t, num_embeddings);
  GRADUS_ARG_OF(Options, int64_t, embedding_dim);
  /// Initial values of the table; by default they are drawn from N(0, 1). The layer clears this option.
  GRADUS_ARG_OF(Options, Tensor, _weight);
};

/// Converts padding_idx, which may count from the end, to a row; -1 if absent. Throws an IndexError if there is no such
/// row.
int64_t padding_row(std::optional<int64_t> padding_idx, int64_t rows);

}  // namespace detail

struct EmbeddingOptions : detail::TableOptions<EmbeddingOptions> {
  using TableOptions::TableOptions;
  void print(detail::LayerPrinter& printer) const;
};

struct EmbeddingFromPretrainedOptions : detail::LookupOptions<EmbeddingFromPretrainedOptions> {
  /// If true, the table is not trained.
  GRADUS_ARG(bool, freeze) = true;
};

struct EmbeddingBagOptions : detail::TableOptions<EmbeddingBagOptions> {
  using TableOptions::TableOptions;
  void print(detail::LayerPrinter& printer) const;
  GRADUS_ARG(EmbeddingBagMode, mode) = kMean;
  /// If true, the last offset is the number of indices and does not start a bag.
  GRADUS_ARG(bool, include_last_offset) = false;
};

// ---- Functions ----

namespace functional {

struct EmbeddingFuncOptions : nn::detail::LookupOptions<EmbeddingFuncOptions> {};
/// Returns the rows of weight (num_embeddings, embedding_dim) at the int64 indices (…), as a tensor (…, embedding_dim).
Tensor embedding(const Tensor& indices, const Tensor& weight, const EmbeddingFuncOptions& options = {},
                 Loc where = Loc::current());

struct EmbeddingBagFuncOptions : nn::detail::LookupOptions<EmbeddingBagFuncOptions> {
  /// Position of the first index of each bag, if the indices are one-dimensional. The first offset must be 0.
  GRADUS_ARG(Tensor, offsets);
  GRADUS_ARG(EmbeddingBagMode, mode) = kMean;
  /// Factors for the rows, in the shape of the indices. Allowed only with kSum.
  GRADUS_ARG(Tensor, per_sample_weights);
  GRADUS_ARG(bool, include_last_offset) = false;
};
/// Returns the sums, means or maxima (bags, embedding_dim) of the rows of weight (num_embeddings, embedding_dim) at the
/// int64 indices of each bag. Indices have shape (bags, length), or (n) with offsets. A bag without indices gives
/// zeros. The first of equal maxima gets the gradient. The memory needed is one row for each index, whatever the
/// lengths of bags. Offsets must start at 0, must not decrease, and must not exceed the number of indices (IndexError).
Tensor embedding_bag(const Tensor& indices, const Tensor& weight, const EmbeddingBagFuncOptions& options = {});

using gradus::one_hot;

}  // namespace functional

// ---- Layers ----

namespace detail {

/// Base of layers with the parameter `weight` (num_embeddings, embedding_dim).
template <class Derived, class Options>
struct TableLayer : Layer<Derived, Options> {
  TableLayer(int64_t num_embeddings, int64_t embedding_dim) : TableLayer(Options(num_embeddings, embedding_dim)) {}
  explicit TableLayer(const Options& options_) : Layer<Derived, Options>(options_) { TableLayer::reset(); }
  void reset() override;
  /// Draws all rows from N(0, 1), then sets the row padding_idx to zeros.
  void reset_parameters();

  Tensor weight;
};

}  // namespace detail

/// Looks up rows of the parameter `weight` (num_embeddings, embedding_dim): int64 indices x (…) to (…, embedding_dim).
struct EmbeddingImpl : detail::TableLayer<EmbeddingImpl, EmbeddingOptions> {
  using TableLayer::TableLayer;
  Tensor forward(const Tensor& x);
};

class Embedding : public ModuleHolder<EmbeddingImpl> {
 public:
  using ModuleHolder<EmbeddingImpl>::ModuleHolder;
  using Impl = EmbeddingImpl;
  /// Makes an embedding with the table `embeddings` (num_embeddings, embedding_dim).
  static Embedding from_pretrained(const Tensor& embeddings, const EmbeddingFromPretrainedOptions& options = {});
};

/// Applies functional::embedding_bag with the parameter `weight` (num_embeddings, embedding_dim) as the table.
struct EmbeddingBagImpl : detail::TableLayer<EmbeddingBagImpl, EmbeddingBagOptions> {
  using TableLayer::TableLayer;
  Tensor forward(const Tensor& indices, const Tensor& offsets = {}, const Tensor& per_sample_weights = {});
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

}  // namespace nn
}  // namespace gradus
