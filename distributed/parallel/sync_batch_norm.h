// Batch normalisation over the samples of all ranks of a process group.
#pragma once

#include <gradus/distributed/comm/process_group.h>
#include <gradus/layers/norm.h>

namespace gradus::nn {

/// Batch norm of x (N, C) or (N, C, …) that in training uses the statistics of the batches of all ranks. The batches of
/// the ranks may differ in size, and some may be empty. Results and running statistics are the same as in one process
/// with the whole batch. In evaluation, and in a group of one rank, this is plain batch norm. (torch.nn.SyncBatchNorm)
///
/// All ranks must call forward and backward in the same order and mode, because each call is a collective of the group,
/// with its timeout. x must be on a device that the group serves. As in PyTorch, the gradient of x is the gradient of
/// the sum of all ranks' losses, and the gradients of weight and bias are this rank's share of it. Data-parallel
/// training averages all gradients over the ranks, which gives the gradients of the mean loss. Not differentiable
/// twice.
struct SyncBatchNormImpl : Cloneable<SyncBatchNormImpl, detail::BatchNormBase> {
  SyncBatchNormImpl(const BatchNormOptions& options, const dist::GroupPtr& group);
  void reset() override { register_tensors(); }
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override { print(stream, "SyncBatchNorm"); }
};
GRADUS_MODULE(SyncBatchNorm);

/// Makes every batch norm in `module` (BatchNorm1d, BatchNorm2d, BNReLU2d) work like SyncBatchNorm. The module objects
/// stay the same, so that members which hold them remain valid, with their parameters, buffers, names and hooks. Clones
/// of them are synchronised too. (torch.nn.SyncBatchNorm.convert_sync_batchnorm)
void convert_sync_batchnorm(Module& module, const dist::GroupPtr& group);

}  // namespace gradus::nn
