// What a program that trains a net in one process needs: tensors and autograd, layers, optimizers, data and training.
// Left out are several processes (distributed/distributed.h), seldom used operators and layers (each says its header),
// metrics, the lab page and other tools; gradus/torch.h has all that LibTorch's <torch/torch.h> has.
#pragma once

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/function.h>
#include <gradus/core/array/array.h>
#include <gradus/core/error.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/cudnn.h>
#include <gradus/core/version.h>
#include <gradus/data/data.h>
#include <gradus/inspect/inspect.h>
#include <gradus/layers/layers.h>
#include <gradus/onnx/export.h>
#include <gradus/optim/optim.h>
#include <gradus/training/training.h>
