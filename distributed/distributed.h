// Everything for training with several processes: #include <gradus/distributed/distributed.h>.
//
//   comm/       the store in which processes meet, and process groups with collectives (tcp, shm, nccl, mpi, local)
//   parallel/   data-parallel training: every rank has the whole net, and gradients are averaged
//   sharding/   nets whose parameters, gradients or optimizer state are divided among ranks
//   elastic/    training that survives the loss of a rank
//   launcher/   gradus-run, which starts the processes of a job
//
// A program gets the group of all ranks from init_process_group() and passes it to a wrapper of its net. During
// backward() the wrapper exchanges gradients by collectives of the group, which run on a transport.
#pragma once

#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/store/store.h>
#include <gradus/distributed/elastic/elastic_training.h>
#include <gradus/distributed/parallel/data_parallel.h>
#include <gradus/distributed/parallel/distributed_data_parallel.h>
#include <gradus/distributed/parallel/sync_batch_norm.h>
#include <gradus/distributed/parallel/verify.h>
#include <gradus/distributed/sharding/fully_sharded.h>
#include <gradus/distributed/sharding/sharded_embedding.h>
#include <gradus/distributed/sharding/sharded_module.h>
#include <gradus/distributed/sharding/tensor_parallel.h>
#include <gradus/distributed/sharding/zero_optimizer.h>
