// Tensors, operators and the engine: the base of layers, optimizers and data sets.
#pragma once

#include <gradus/autograd/accessor.h>
#include <gradus/autograd/checkpoint.h>
#include <gradus/autograd/engine.h>
#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/mixed_precision/autocast.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/autograd/ops/nn/activation.h>
#include <gradus/autograd/ops/nn/conv.h>
#include <gradus/autograd/ops/nn/dropout.h>
#include <gradus/autograd/ops/nn/image.h>
#include <gradus/autograd/ops/nn/loss.h>
#include <gradus/autograd/ops/nn/norm.h>
#include <gradus/autograd/ops/nn/pool.h>
#include <gradus/autograd/ops/nn/sequence.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/autograd/ops/sort.h>
#include <gradus/autograd/tensor.h>
