// An embedding table that no rank could hold: its rows are spread over the ranks of a group, and each rank looks up the
// indices of its own samples. Naumov et al., "Deep learning recommendation model for personalization and recommendation
// systems", 2019; Mudigere et al., "Software-hardware co-design for fast and scalable training of deep learning
// recommendation models", 2022.
//
//   forward    counts ─all_to_all─>   indices ─all_to_all_v─>   rows are read there ─all_to_all_v─>   vectors
//   backward   gradients of vectors ─all_to_all_v─>   kept there until adagrad_step() updates the rows they are of
#pragma once

#include <memory>
#include <vector>

#include <gradus/core/options.h>
#include <gradus/distributed/sharding/sharded_module.h>
#include <gradus/layers/module.h>

namespace gradus::nn {

/// Which rank has which rows.
enum class RowPlacement : uint8_t {
  range,  ///< ceil(rows / n) neighbours each, the last ranks fewer
  /// The same of rows in the order of row * m mod rows, m near the golden section of rows (Fibonacci hashing: Knuth,
  /// "The art of computer programming", vol. 3, 6.4): neighbours, often alike frequent, go to different ranks.
  hash,
};

struct ShardedEmbeddingOptions {
  ShardedEmbeddingOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  GRADUS_ARG(int64_t, num_embeddings);
  GRADUS_ARG(int64_t, embedding_dim);
  GRADUS_ARG(RowPlacement, placement) = RowPlacement::range;
};

namespace detail {
/// What a rank asks of the others and they of it. Vectors are counted in numbers of rows.
struct LookupRoute {
  std::vector<int64_t> sent, received;  ///< indices to and from each rank
  Array order;                          ///< (N) int64: this rank's indices in the order in which they are sent
  Array rows;                           ///< (M) int64: rows of `weight` that this rank is asked for, by rank
};
/// Gradients of rows, (M) and (M, embedding_dim), as backward passes bring them.
struct RowGradients {
  std::vector<Array> rows, values;
};
}  // namespace detail

/// Embedding of which each rank has some rows: int64 or int32 indices x (…), of any number on each rank, to
/// (…, embedding_dim). All ranks construct it from the same state of the default generator, and together have the
/// numbers that nn::Embedding would have; no rank draws more than its part. All ranks call forward, and backward, in
/// the same order; on a GPU the host waits for the indices, to tell whose they are. An index outside of the table is an
/// IndexError on all ranks, and the group lives on.
///
/// Gradients are those of the mean of all ranks' losses, as with DistributedDataParallel, and sparse: the parameter's
/// grad() stays undefined, so that optimizers leave it alone, and row_gradient() is what it would hold. They add up in
/// the order of the backward passes, then of the ranks, then of each rank's indices: the same bits in every run. Not
/// differentiable twice.
///
/// The parameter `weight_<rank>_of_<n>` (rows of this rank, embedding_dim) and the buffer `squares_<rank>_of_<n>` (rows
/// of this rank) have names of their own on each rank: DistributedDataParallel, which would make all tables rank 0's,
/// refuses a net that contains them. Give it the rest of the net.
class ShardedEmbeddingImpl : public Cloneable<ShardedEmbeddingImpl>, public dist::ShardedModule {
 public:
  ShardedEmbeddingImpl(const ShardedEmbeddingOptions& options, std::shared_ptr<dist::ProcessGroup> group);
  void reset() override;
  Tensor forward(const Tensor& x);

  /// The rank that has row 0 … num_embeddings - 1 of the table, and which row of its `weight` that is.
  struct Place {
    int64_t rank, row;
  };
  Place place_of(int64_t row) const;

  struct RowGradient {
    Tensor rows;    ///< (k) int64, ascending: rows of this rank's `weight` that were looked up
    Tensor values;  ///< (k, embedding_dim): sums of their gradients
  };
  RowGradient row_gradient() const;
  /// Forgets the gradients of the passes so far.
  void clear_gradient() { *gradients_ = {}; }
  /// Updates the rows that have a gradient g, and forgets it (row-wise Adagrad, with one number of state a row, as in
  /// DLRM and FBGEMM):   squares += mean(g²);   weight -= lr g / (sqrt(squares) + eps)
  /// No collective. Negative lr or eps are a ValueError.
  void adagrad_step(double lr, double eps = 1e-10);
  std::vector<Part> parts() const override;
  std::vector<Tensor> part_gradients() const override;

  ShardedEmbeddingOptions options;
  std::shared_ptr<dist::ProcessGroup> group;
  Tensor weight, squares;

 private:
  detail::LookupRoute route(const Array& indices) const;
  int64_t multiplier_ = 1, inverse_ = 1, rows_a_rank_ = 0;
  std::shared_ptr<detail::RowGradients> gradients_;  // shared with the nodes that fill it
};
GRADUS_MODULE(ShardedEmbedding);

}  // namespace gradus::nn
