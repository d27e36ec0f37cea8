// Batch normalisation over the samples of all ranks of a process group.
#pragma once

#include <memory>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/layers/norm.h>

namespace gradus::nn {

/// x (N, C) or (N, C, …), normalised in training for each channel over the batches of all ranks, which may differ in
/// size and on some be empty: as one process would do it with the whole batch, and with the running statistics that it
/// would have. In evaluation, and in a group of one rank, plain batch norm. (torch.nn.SyncBatchNorm)
///
/// All ranks call forward, and backward, in the same order and mode: each is a collective of the group, with its
/// deadline. x is on a device that the group serves. As in PyTorch the gradient of x is that of the sum of all ranks'
/// losses, and those of weight and bias are this rank's share: averaged over the ranks, as data-parallel training does
/// with all of them, they are those of the mean loss. Not differentiable twice.
struct SyncBatchNormImpl : Cloneable<SyncBatchNormImpl, detail::BatchNormBase> {
  SyncBatchNormImpl(const BatchNormOptions& options, const std::shared_ptr<dist::ProcessGroup>& group);
  void reset() override { register_tensors(); }
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override { print(stream, "SyncBatchNorm"); }
};
GRADUS_MODULE(SyncBatchNorm);

/// Makes every batch norm of `module` and below (BatchNorm1d, BatchNorm2d, BNReLU2d) work like SyncBatchNorm. They stay
/// the same modules, so that members that hold them do, with their parameters, buffers, names and hooks; clones of them
/// are synchronised too. (torch.nn.SyncBatchNorm.convert_sync_batchnorm)
void convert_sync_batchnorm(Module& module, const std::shared_ptr<dist::ProcessGroup>& group);

}  // namespace gradus::nn
