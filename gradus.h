// Everything that a program needs to train a net in one process: tensors and autograd, layers, optimizers, data and
// training. Not included are distributed training (distributed/distributed.h), rarely used operators and layers,
// metrics, the lab page and other tools, which have headers of their own. gradus/torch.h takes the place of LibTorch's
// <torch/torch.h>.
#pragma once

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/function.h>
#include <gradus/core/array/array.h>
#include <gradus/core/error.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/version.h>
#include <gradus/data/data.h>
#include <gradus/inspect/inspect.h>
#include <gradus/layers/layers.h>
#include <gradus/onnx/export.h>
#include <gradus/optim/optim.h>
#include <gradus/training/training.h>
