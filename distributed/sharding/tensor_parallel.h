// Tensor parallelism: layers whose weights are cut over the ranks of a group, so that a net is held and computed by all
// of them together. Every rank gets the same samples and computes the same loss.
//
//   x (whole) ─copy─> column-parallel linear ─> y (own columns) ─> gelu ─> row-parallel linear ─reduce─> z (whole)
//
// Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model parallelism", 2019.
// With `sequence_dim`, what lies between such pairs (norms, dropout, residuals) is cut along that dimension of the
// activations, (N, L, E): 1, instead of being held by every rank: an all-gather in front of the column-parallel layer,
// a reduce-scatter behind the row-parallel one, as many bytes as the all-reduce that they replace. Korthikanti et al.,
// "Reducing activation recomputation in large transformer models", 2022.
//
// All ranks construct the layers from the same state of the default generator: together they have the numbers that the
// plain layer would have, whatever the number of ranks, and no rank draws more than its part. All ranks call forward
// and backward in the same order: they are collectives of the group, with its deadline. Sizes that the ranks cannot
// share equally are a ValueError. Parameters that are whole on every rank (norms, the bias of RowParallelLinear) get
// the same gradient on all. Activations that are whole are the same on all ranks only if dropout draws the same there.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <gradus/core/kernel_args.h>
#include <gradus/core/options.h>
#include <gradus/distributed/sharding/sharded_module.h>
#include <gradus/layers/norm.h>

namespace gradus::dist {

// The conjugate operators of the two papers. The gradient of each is its partner, so that all can be differentiated any
// number of times. x is floating, on a device that the group serves; results are contiguous memory of their own. A
// dimension that the ranks cannot share equally is a ShapeError.

/// y = x, which is the same on all ranks;  dx = sum of all ranks' dy.
Tensor copy_to_ranks(const Tensor& x, const std::shared_ptr<ProcessGroup>& group, Loc where = Loc::current());
/// y = sum of all ranks' x;  dx = dy, which is the same on all ranks.
Tensor reduce_from_ranks(const Tensor& x, const std::shared_ptr<ProcessGroup>& group, Loc where = Loc::current());
/// y (…, d / n, …) = this rank's part of x (…, d, …), which is the same on all ranks;  dx = all ranks' dy.
Tensor scatter_to_ranks(const Tensor& x, const std::shared_ptr<ProcessGroup>& group, int64_t dim = -1,
                        Loc where = Loc::current());
/// y (…, d n, …) = all ranks' x (…, d, …), side by side;  dx = this rank's part of dy, which is the same on all ranks.
Tensor gather_from_ranks(const Tensor& x, const std::shared_ptr<ProcessGroup>& group, int64_t dim = -1,
                         Loc where = Loc::current());
/// y (…, d n, …) = all ranks' x (…, d, …);  dx = this rank's part of the sum of all ranks' dy.
Tensor all_gather_sequence(const Tensor& x, const std::shared_ptr<ProcessGroup>& group, int64_t dim,
                           Loc where = Loc::current());
/// y (…, d / n, …) = this rank's part of the sum of all ranks' x (…, d, …);  dx = all ranks' dy.
Tensor reduce_scatter_sequence(const Tensor& x, const std::shared_ptr<ProcessGroup>& group, int64_t dim,
                               Loc where = Loc::current());

/// cross_entropy of logits of which each rank has the columns of its part of the classes, (…, C / n) as a
/// ColumnParallelLinear gives them, at int64 classes `targets` (…), the same on all ranks: 0 … C - 1 or ignore_index.
/// The loss is the same on all ranks. No rank holds more than its part: three numbers a row are exchanged (the largest
/// logit; the sum of the exponentials and the target's logit), and nothing in the backward pass. Half types are
/// computed in float32. A target that is no class is an IndexError on the cpu, NaN elsewhere.
Tensor parallel_cross_entropy(const Tensor& logits, const Tensor& targets, const std::shared_ptr<ProcessGroup>& group,
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
  /// Whether every rank gets all of y instead of its own columns.
  GRADUS_ARG(bool, gather_output) = false;
  /// The dimension along which x is cut over the ranks; none: every rank has all of it.
  GRADUS_ARG(std::optional<int64_t>, sequence_dim);
};

/// Linear of which each rank has some of the outputs: x (…, in) to y (…, out / n), or with gather_output (…, out).
/// Parameters `weight` (out / n, in) and `bias` (out / n): rows rank out / n, … of Linear's.
struct ColumnParallelLinearImpl : Cloneable<ColumnParallelLinearImpl>, dist::ShardedModule {
  ColumnParallelLinearImpl(const ColumnParallelLinearOptions& options, std::shared_ptr<dist::ProcessGroup> group);
  void reset() override;
  Tensor forward(const Tensor& x);
  std::vector<Part> parts() const override;

  ColumnParallelLinearOptions options;
  std::shared_ptr<dist::ProcessGroup> group;
  Tensor weight, bias;
};
GRADUS_MODULE(ColumnParallelLinear);

struct RowParallelLinearOptions {
  RowParallelLinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  GRADUS_ARG(int64_t, in_features);
  GRADUS_ARG(int64_t, out_features);
  GRADUS_ARG(bool, bias) = true;
  /// Whether x is this rank's columns, as a ColumnParallelLinear gives them, or all of them.
  GRADUS_ARG(bool, input_is_parallel) = true;
  /// The dimension along which y is cut over the ranks; none: every rank gets all of it.
  GRADUS_ARG(std::optional<int64_t>, sequence_dim);
};

/// Linear of which each rank has some of the inputs: x (…, in / n), or without input_is_parallel (…, in), to (…, out),
/// the sum of all ranks' products. Parameters `weight` (out, in / n), columns rank in / n, … of Linear's, and `bias`
/// (out), whole on every rank.
struct RowParallelLinearImpl : Cloneable<RowParallelLinearImpl>, dist::ShardedModule {
  RowParallelLinearImpl(const RowParallelLinearOptions& options, std::shared_ptr<dist::ProcessGroup> group);
  void reset() override;
  Tensor forward(const Tensor& x);
  std::vector<Part> parts() const override;

  RowParallelLinearOptions options;
  std::shared_ptr<dist::ProcessGroup> group;
  Tensor weight, bias;
};
GRADUS_MODULE(RowParallelLinear);

struct VocabParallelEmbeddingOptions {
  VocabParallelEmbeddingOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  GRADUS_ARG(int64_t, num_embeddings);
  GRADUS_ARG(int64_t, embedding_dim);
  /// The dimension along which y is cut over the ranks; none: every rank gets all of it.
  GRADUS_ARG(std::optional<int64_t>, sequence_dim);
};

/// Embedding of which each rank has some of the rows, `weight` (num_embeddings / n, embedding_dim): int64 or int32
/// indices (…), the same on all ranks, to (…, embedding_dim), the sum of what all ranks find. An index outside of the
/// table is an IndexError on the cpu, zeros elsewhere.
struct VocabParallelEmbeddingImpl : Cloneable<VocabParallelEmbeddingImpl>, dist::ShardedModule {
  VocabParallelEmbeddingImpl(const VocabParallelEmbeddingOptions& options, std::shared_ptr<dist::ProcessGroup> group);
  void reset() override;
  Tensor forward(const Tensor& indices);
  std::vector<Part> parts() const override;

  VocabParallelEmbeddingOptions options;
  std::shared_ptr<dist::ProcessGroup> group;
  Tensor weight;
};
GRADUS_MODULE(VocabParallelEmbedding);

struct ParallelSelfAttentionOptions {
  ParallelSelfAttentionOptions(int64_t embed_dim, int64_t num_heads) : embed_dim_(embed_dim), num_heads_(num_heads) {}
  GRADUS_ARG(int64_t, embed_dim);
  GRADUS_ARG(int64_t, num_heads);
  GRADUS_ARG(bool, bias) = true;
  /// The dimension along which x and y are cut over the ranks; none: every rank has all of them.
  GRADUS_ARG(std::optional<int64_t>, sequence_dim);
};

/// MultiheadAttention of a sequence with itself of which each rank has some of the heads: x (N, L, E) to y of the same
/// shape. mask (L, L): where a boolean one is false there is no attention, a floating one is added. Parameters
/// `in_proj_weight` (3 E / n, E) and `in_proj_bias` (3 E / n), the rows of MultiheadAttention's that are the queries,
/// keys and values of this rank's heads, and `out_proj`, a RowParallelLinear.
struct ParallelSelfAttentionImpl : Cloneable<ParallelSelfAttentionImpl>, dist::ShardedModule {
  ParallelSelfAttentionImpl(const ParallelSelfAttentionOptions& options, std::shared_ptr<dist::ProcessGroup> group);
  void reset() override;
  Tensor forward(const Tensor& x, const Tensor& mask = {});
  std::vector<Part> parts() const override;

  ParallelSelfAttentionOptions options;
  std::shared_ptr<dist::ProcessGroup> group;
  Tensor in_proj_weight, in_proj_bias;
  RowParallelLinear out_proj{nullptr};
};
GRADUS_MODULE(ParallelSelfAttention);

/// LayerNorm of activations that are cut along the sequence: the gradients of `weight` and `bias`, which are whole on
/// every rank, are summed over the ranks.
struct SequenceParallelLayerNormImpl : Cloneable<SequenceParallelLayerNormImpl> {
  SequenceParallelLayerNormImpl(const LayerNormOptions& options, std::shared_ptr<dist::ProcessGroup> group);
  void reset() override;
  Tensor forward(const Tensor& x);

  LayerNormOptions options;
  std::shared_ptr<dist::ProcessGroup> group;
  Tensor weight, bias;
};
GRADUS_MODULE(SequenceParallelLayerNorm);

}  // namespace gradus::nn
