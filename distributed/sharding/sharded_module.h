// What nets have in common some of whose tensors are parts: tensor-parallel layers and sharded tables, beside layers
// that are whole on every rank.
//
//   dist::clip_grad_norm_(*net, group, 1.0);
//   optimizer.step();
//   …
//   dist::save_sharded("checkpoint", *net, group, &optimizer);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/sharding/sharded_checkpoint.h>
#include <gradus/layers/module.h>

namespace gradus::dist {

/// Of a module whose own parameters or buffers, some of them, are cut over the ranks of a group.
class ShardedModule {
 public:
  struct Part {
    std::string name;     ///< of the parameter or buffer
    std::string of_what;  ///< its name in a checkpoint, the same on all ranks
    Cut cut;
  };
  virtual ~ShardedModule() = default;
  virtual std::vector<Part> parts() const = 0;
  /// Gradients of parts that are not in their grad(), summed up, to be scaled in place.
  virtual std::vector<Tensor> part_gradients() const { return {}; }
};

/// The norm of all ranks' gradients, taken as one vector, on `device`. Collective.
Tensor norm_over_ranks(const std::vector<Tensor>& gradients, double norm_type, ProcessGroup& group, Device device);

// `group` is that over whose ranks the net is cut: of a mesh, the line of it. What is not cut is the same on all of
// these ranks. All are collective.

/// Scales the gradients so that the norm of the whole net's is at most max_norm. Returns the norm.
Tensor clip_grad_norm_(const nn::Module& net, const std::shared_ptr<ProcessGroup>& group, double max_norm,
                       double norm_type = 2);

/// Writes the net and, where given, its optimizer's state into a folder (sharded_checkpoint.h).
void save_sharded(const std::string& folder, const nn::Module& net, const std::shared_ptr<ProcessGroup>& group,
                  const optim::Optimizer* optimizer = nullptr);
/// Reads such a folder, which may be of another number of ranks. One of another net is an IoError that changes nothing.
void load_sharded(const std::string& folder, const nn::Module& net, const std::shared_ptr<ProcessGroup>& group,
                  optim::Optimizer* optimizer = nullptr);

}  // namespace gradus::dist
