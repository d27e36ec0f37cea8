// Everything for training with several processes: #include <gradus/distributed/distributed.h>.
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
#include <gradus/distributed/sharding/mesh.h>
#include <gradus/distributed/sharding/sharded_embedding.h>
#include <gradus/distributed/sharding/sharded_module.h>
#include <gradus/distributed/sharding/tensor_parallel.h>
#include <gradus/distributed/sharding/zero_optimizer.h>
