// Functions for nets in which some tensors are divided among ranks, those of tensor-parallel layers and sharded tables,
// and others are whole on every rank.
//
//   dist::clip_grad_norm_(*net, group, 1.0);
//   optimizer.step();
//   …
//   dist::save_sharded("checkpoint", *net, group, &optimizer);
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/sharding/sharded_checkpoint.h>
#include <gradus/layers/module/module.h>

namespace gradus::dist {

/// A module whose own parameters or buffers are divided, in part or all, over the ranks of a group.
class ShardedModule {
 public:
  struct Part {
    std::string name;             ///< of the parameter or buffer
    std::string checkpoint_name;  ///< its name in a checkpoint, the same on all ranks
    Cut cut;
  };
  virtual ~ShardedModule() = default;
  virtual std::vector<Part> parts() const = 0;
  /// Summed gradients of parts that are not in their grad(). The caller scales them in place.
  virtual std::vector<Tensor> part_gradients() const { return {}; }
};

/// The norm of the gradients of all ranks, taken as one vector, on `device`. A collective.
Tensor norm_over_ranks(const std::vector<Tensor>& gradients, double norm_type, ProcessGroup& group, Device device);

// `group` has the ranks among which the net is divided; in a mesh, one line of it. Tensors that are not divided must be
// the same on all of these ranks. All functions are collectives.

/// Scales the gradients so that the norm of the whole net's gradient is at most max_norm. Returns the norm.
Tensor clip_grad_norm_(const nn::Module& net, const std::shared_ptr<ProcessGroup>& group, double max_norm,
                       double norm_type = 2);

/// Writes the net and, if given, its optimizer's state to a folder (sharded_checkpoint.h).
void save_sharded(const std::string& folder, const nn::Module& net, const std::shared_ptr<ProcessGroup>& group,
                  const optim::Optimizer* optimizer = nullptr);
/// Loads such a folder, which may come from any number of ranks. If it belongs to another net, throws an IoError and
/// changes nothing.
void load_sharded(const std::string& folder, const nn::Module& net, const std::shared_ptr<ProcessGroup>& group,
                  optim::Optimizer* optimizer = nullptr);

// ---- Initial values ----
// Every rank draws its part of what one process would draw for the whole weight, so that training begins with the same
// numbers on any number of ranks, and no rank holds more than its part.

/// The row of the whole matrix that is row i of this rank's part.
using RowOf = std::function<int64_t(int64_t i)>;
/// Fills `part` (rows, columns), float32 on the CPU, with its elements of one draw of the default generator from
/// U(-bound, bound) for a whole matrix with `whole_columns`. The part has the columns from `first_column` on. The
/// generator advances as it does for the whole matrix.
void draw_uniform_part(const Tensor& part, int64_t whole_columns, int64_t first_column, const RowOf& row_of,
                       double bound);
/// Draws whole rows from N(0, 1), as nn::Embedding does.
void draw_normal_part(const Tensor& part, const RowOf& row_of);

}  // namespace gradus::dist

namespace gradus::nn::detail {

/// The common part of layers that the ranks of a group share. Their constructors call reset().
template <class Layer, class Options>
struct SharedLayer : Cloneable<Layer>, dist::ShardedModule {
  SharedLayer(const Options& options_, std::shared_ptr<dist::ProcessGroup> group_)
      : options(options_), group(std::move(group_)) {
    GRADUS_CHECK(group, ValueError, "a layer that several ranks share needs a process group");
  }

  Options options;
  std::shared_ptr<dist::ProcessGroup> group;
};

}  // namespace gradus::nn::detail
