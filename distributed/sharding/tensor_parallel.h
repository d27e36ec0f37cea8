// Tensor parallelism: layers whose weights are divided among the ranks of a group, so that all ranks together hold and
// compute one net. Every rank gets the same samples and computes the same loss.
//
//   x (whole) ─copy─> column-parallel linear ─> y (own columns) ─> gelu ─> row-parallel linear ─reduce─> z (whole)
//
// Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model parallelism", 2019.
// With `sequence_dim`, the activations between such pairs of layers (norms, dropout, residuals) are divided along that
// dimension, which is 1 for (N, L, E), instead of being held by every rank. An all-gather before the column-parallel
// layer and a reduce-scatter after the row-parallel one then replace the all-reduce; together they send as many bytes.
// Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022.
//
// All ranks must construct the layers from the same state of the default generator. Together they then have the weights
// of the plain layer, whatever the number of ranks, and each rank draws only its part. All ranks must call forward
// and backward in the same order, because both are collectives of the group, with its timeout. Sizes that cannot be
// divided equally are a ValueError. Parameters that are whole on every rank (norms, the bias of RowParallelLinear) get
// the same gradient on all ranks. Whole activations are the same on all ranks only if dropout draws the same numbers
// there.
#pragma once

#include <gradus/core/kernel_args.h>
#include <gradus/distributed/sharding/sharded_module.h>
#include <gradus/layers/norm.h>

namespace gradus::dist {

// The conjugate operators of the two papers. The gradient of each is its partner, so all can be differentiated any
// number of times. x must be floating-point and on a device that the group serves. Results are contiguous and have
// memory of their own. A dimension that cannot be divided equally is a ShapeError.

/// y = x, which is the same on all ranks;  dx = sum of all ranks' dy.
Tensor copy_to_ranks(const Tensor& x, const GroupPtr& group, Loc where = Loc::current());
/// y = sum of all ranks' x;  dx = dy, which is the same on all ranks.
Tensor reduce_from_ranks(const Tensor& x, const GroupPtr& group, Loc where = Loc::current());
/// y (…, d / n, …) = this rank's part of x (…, d, …), which is the same on all ranks;  dx = all dy, concatenated.
Tensor scatter_to_ranks(const Tensor& x, const GroupPtr& group, int64_t dim = -1, Loc where = Loc::current());
/// y (…, d n, …) = all ranks' x (…, d, …), concatenated;  dx = this rank's part of dy, which is the same on all ranks.
Tensor gather_from_ranks(const Tensor& x, const GroupPtr& group, int64_t dim = -1, Loc where = Loc::current());
/// y (…, d n, …) = all ranks' x (…, d, …), concatenated;  dx = this rank's part of the sum of all ranks' dy.
Tensor all_gather_sequence(const Tensor& x, const GroupPtr& group, int64_t dim, Loc where = Loc::current());
/// y (…, d / n, …) = this rank's part of the sum of all ranks' x (…, d, …);  dx = all ranks' dy, concatenated.
Tensor reduce_scatter_sequence(const Tensor& x, const GroupPtr& group, int64_t dim, Loc where = Loc::current());

/// cross_entropy of logits whose classes are divided among the ranks: each rank has (…, C / n), as a
/// ColumnParallelLinear returns them. The int64 `targets` (…), 0 … C - 1 or ignore_index, must be the same on all
/// ranks, and so is the loss. No rank holds more than its part. For each row, the ranks exchange three numbers (the
/// largest logit, the sum of the exponentials and the target's logit), and nothing in the backward pass. Half types are
/// computed in float32. A target that is not a class is an IndexError on the CPU, and gives NaN on other devices.
Tensor parallel_cross_entropy(const Tensor& logits, const Tensor& targets, const GroupPtr& group,
                              Reduction reduction = Reduction::mean, int64_t ignore_index = -100,
                              Loc where = Loc::current());

}  // namespace gradus::dist

namespace gradus::nn {

struct ColumnParallelLinearOptions {
  ColumnParallelLinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  GRADUS_ARG(int64_t, in_features);
  GRADUS_ARG(int64_t, out_features);
  GRADUS_ARG(bool, bias) = true;
  /// If true, every rank gets all columns of y, otherwise only its own columns.
  GRADUS_ARG(bool, gather_output) = false;
  /// The dimension along which x is divided among the ranks. By default every rank has all of it.
  GRADUS_ARG(std::optional<int64_t>, sequence_dim);
};

/// A Linear whose outputs are divided among the ranks: maps x (…, in) to y (…, out / n), or to (…, out) with
/// gather_output. The parameters `weight` (out / n, in) and `bias` (out / n) are the rows of Linear's parameters that
/// begin at row rank * out / n.
struct ColumnParallelLinearImpl : detail::SharedLayer<ColumnParallelLinearImpl, ColumnParallelLinearOptions> {
  ColumnParallelLinearImpl(const ColumnParallelLinearOptions& options_, dist::GroupPtr group_)
      : SharedLayer(options_, std::move(group_)) {
    ColumnParallelLinearImpl::reset();
  }
  void reset() override;
  Tensor forward(const Tensor& x);
  std::vector<Part> parts() const override;

  Tensor weight, bias;
};
GRADUS_MODULE(ColumnParallelLinear);

struct RowParallelLinearOptions {
  RowParallelLinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  GRADUS_ARG(int64_t, in_features);
  GRADUS_ARG(int64_t, out_features);
  GRADUS_ARG(bool, bias) = true;
  /// If true, x has only this rank's columns, as a ColumnParallelLinear returns them, otherwise all columns.
  GRADUS_ARG(bool, input_is_parallel) = true;
  /// The dimension along which y is divided among the ranks. By default every rank gets all of it.
  GRADUS_ARG(std::optional<int64_t>, sequence_dim);
};

/// A Linear whose inputs are divided among the ranks: maps x (…, in / n), or (…, in) without input_is_parallel, to (…,
/// out), the sum of all ranks' products. The parameter `weight` (out, in / n) has the columns of Linear's weight that
/// begin at column rank * in / n. `bias` (out) is whole on every rank.
struct RowParallelLinearImpl : detail::SharedLayer<RowParallelLinearImpl, RowParallelLinearOptions> {
  RowParallelLinearImpl(const RowParallelLinearOptions& options_, dist::GroupPtr group_)
      : SharedLayer(options_, std::move(group_)) {
    RowParallelLinearImpl::reset();
  }
  void reset() override;
  Tensor forward(const Tensor& x);
  std::vector<Part> parts() const override;

  Tensor weight, bias;
};
GRADUS_MODULE(RowParallelLinear);

struct VocabParallelEmbeddingOptions {
  VocabParallelEmbeddingOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  GRADUS_ARG(int64_t, num_embeddings);
  GRADUS_ARG(int64_t, embedding_dim);
  /// The dimension along which y is divided among the ranks. By default every rank gets all of it.
  GRADUS_ARG(std::optional<int64_t>, sequence_dim);
};

/// An Embedding whose rows are divided among the ranks, with `weight` (num_embeddings / n, embedding_dim). Maps int64
/// or int32 indices (…), the same on all ranks, to (…, embedding_dim), the sum of what all ranks find. An index outside
/// of the table is an IndexError on the CPU, and gives zeros on other devices.
struct VocabParallelEmbeddingImpl : detail::SharedLayer<VocabParallelEmbeddingImpl, VocabParallelEmbeddingOptions> {
  VocabParallelEmbeddingImpl(const VocabParallelEmbeddingOptions& options_, dist::GroupPtr group_)
      : SharedLayer(options_, std::move(group_)) {
    VocabParallelEmbeddingImpl::reset();
  }
  void reset() override;
  Tensor forward(const Tensor& indices);
  std::vector<Part> parts() const override;

  Tensor weight;
};
GRADUS_MODULE(VocabParallelEmbedding);

struct ParallelSelfAttentionOptions {
  ParallelSelfAttentionOptions(int64_t embed_dim, int64_t num_heads) : embed_dim_(embed_dim), num_heads_(num_heads) {}
  GRADUS_ARG(int64_t, embed_dim);
  GRADUS_ARG(int64_t, num_heads);
  GRADUS_ARG(bool, bias) = true;
  /// The dimension along which x and y are divided among the ranks. By default every rank has all of them.
  GRADUS_ARG(std::optional<int64_t>, sequence_dim);
};

/// Self-attention as MultiheadAttention, with the heads divided among the ranks: maps x (N, L, E) to y of the same
/// shape. A boolean mask (L, L) permits attention where it is true, and a floating-point mask is added. The parameters
/// `in_proj_weight` (3 E / n, E) and `in_proj_bias` (3 E / n) are the rows of MultiheadAttention's for the queries,
/// keys and values of this rank's heads. `out_proj` is a RowParallelLinear.
struct ParallelSelfAttentionImpl : detail::SharedLayer<ParallelSelfAttentionImpl, ParallelSelfAttentionOptions> {
  ParallelSelfAttentionImpl(const ParallelSelfAttentionOptions& options_, dist::GroupPtr group_)
      : SharedLayer(options_, std::move(group_)) {
    ParallelSelfAttentionImpl::reset();
  }
  void reset() override;
  Tensor forward(const Tensor& x, const Tensor& mask = {});
  std::vector<Part> parts() const override;

  Tensor in_proj_weight, in_proj_bias;
  RowParallelLinear out_proj{nullptr};
};
GRADUS_MODULE(ParallelSelfAttention);

/// LayerNorm of activations that are divided along the sequence. `weight` and `bias` are whole on every rank, and their
/// gradients are summed over the ranks.
struct SequenceParallelLayerNormImpl : detail::SharedLayer<SequenceParallelLayerNormImpl, LayerNormOptions> {
  SequenceParallelLayerNormImpl(const LayerNormOptions& options_, dist::GroupPtr group_)
      : SharedLayer(options_, std::move(group_)) {
    SequenceParallelLayerNormImpl::reset();
  }
  void reset() override;
  Tensor forward(const Tensor& x);
  std::vector<Part> parts() const override { return {}; }

  Tensor weight, bias;
};
GRADUS_MODULE(SequenceParallelLayerNorm);

}  // namespace gradus::nn
