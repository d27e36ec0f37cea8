// An embedding table that is too large for one rank. Its rows are distributed over the ranks of a group, and each rank
// looks up the indices of its own samples. Naumov et al., "Deep learning recommendation model for personalization and
// recommendation systems", 2019; Mudigere et al., "Software-hardware co-design for fast and scalable training of deep
// learning recommendation models", 2022.
//
//   forward    counts ─all_to_all─>   indices ─all_to_all_v─>   owners read the rows ─all_to_all_v─>   vectors
//   backward   gradients of vectors ─all_to_all_v─>   owners keep them until adagrad_step() updates the rows
#pragma once

#include <gradus/core/options.h>
#include <gradus/distributed/sharding/sharded_module.h>

namespace gradus::nn {

/// Which rank owns which rows.
enum class RowPlacement : uint8_t {
  range,  ///< ceil(rows / n) consecutive rows for each rank, fewer for the last ranks
  /// Like range, but with the rows in the order of row * m mod rows, where m is near rows divided by the golden ratio
  /// (Fibonacci hashing: Knuth, "The art of computer programming", vol. 3, 6.4). Neighbouring rows, which often have
  /// similar frequencies, then go to different ranks.
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
/// Which rows a rank requests from each other rank, and which rows the other ranks request from it.
struct LookupRoute {
  std::vector<int64_t> sent, received;  ///< numbers of indices to and from each rank
  Array order;                          ///< (N) int64: this rank's indices in the order in which they are sent
  Array rows;                           ///< (M) int64: rows of `weight` that are requested from this rank, by rank
};
/// Gradients of rows, with shapes (M) and (M, embedding_dim), one entry for each backward pass.
struct RowGradients {
  std::vector<Array> rows, values;
};
}  // namespace detail

/// An embedding whose rows are distributed over the ranks. Maps int64 or int32 indices x (…), of any number on each
/// rank, to (…, embedding_dim). All ranks must construct it from the same state of the default generator. Together they
/// then have the weights that nn::Embedding would have, and each rank draws only its part. All ranks must call
/// forward and backward in the same order. On a GPU the host waits for the indices to find out who owns their rows. An
/// index outside of the table is an IndexError on all ranks, and the group stays usable.
///
/// As with DistributedDataParallel, gradients are the gradients of the mean of all ranks' losses. They are sparse:
/// row_gradient() returns them, and the parameter's grad() stays undefined, so that optimizers ignore the table.
/// Gradients are added in the order of the backward passes, then of the ranks, then of each rank's indices, so every
/// run gives the same bits. Not differentiable twice.
///
/// The names of the parameter `weight_<rank>_of_<n>` (rows of this rank, embedding_dim) and the buffer
/// `squares_<rank>_of_<n>` (rows of this rank) differ between ranks. DistributedDataParallel would overwrite all tables
/// with rank 0's, so it refuses a net that contains them. Give it the rest of the net.
class ShardedEmbeddingImpl : public detail::SharedLayer<ShardedEmbeddingImpl, ShardedEmbeddingOptions> {
 public:
  ShardedEmbeddingImpl(const ShardedEmbeddingOptions& options_, dist::GroupPtr group_)
      : SharedLayer(options_, std::move(group_)) {
    ShardedEmbeddingImpl::reset();
  }
  void reset() override;
  Tensor forward(const Tensor& x);

  /// The rank that owns row 0 … num_embeddings - 1 of the table, and the index of that row in the rank's `weight`.
  struct Place {
    int64_t rank, row;
  };
  Place place_of(int64_t row) const;

  struct RowGradient {
    Tensor rows;    ///< (k) int64, ascending: rows of this rank's `weight` that were looked up
    Tensor values;  ///< (k, embedding_dim): the sums of their gradients
  };
  RowGradient row_gradient() const;
  /// Forgets the gradients of all passes so far.
  void clear_gradient() { *gradients_ = {}; }
  /// Updates the rows that have a gradient g, and forgets the gradients (row-wise Adagrad with one number of state for
  /// each row, as in DLRM and FBGEMM):   squares += mean(g²);   weight -= lr g / (sqrt(squares) + eps)
  /// This is not a collective. Throws a ValueError if lr or eps is negative.
  void adagrad_step(double lr, double eps = 1e-10);
  std::vector<Part> parts() const override;
  TensorList part_gradients() const override;

  Tensor weight, squares;

 private:
  detail::LookupRoute route(const Array& indices) const;
  int64_t multiplier_ = 1, inverse_ = 1, rows_per_rank_ = 0;
  std::shared_ptr<detail::RowGradients> gradients_;  // shared with the autograd nodes that fill it
};
GRADUS_MODULE(ShardedEmbedding);

}  // namespace gradus::nn
