// Tensors, operators and the engine: the base of layers, optimizers and data sets. Each operator (in ops, or in ops/nn
// for neural nets) records a node of the graph (node.h, op_scope.h). The engine walks the graph back to the leaves and
// accumulates their gradients (engine.h). mixed_precision has autocast and the half-type copies of parameters,
// diagnosis has gradcheck, anomaly mode and pictures of the graph.
#pragma once

#include <gradus/autograd/checkpoint.h>
#include <gradus/autograd/engine.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/autograd/ops/nn/activation.h>
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
