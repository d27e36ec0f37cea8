// Tensors, operators and the engine: what layers, optimizers and data sets are built on.
#pragma once

#include <gradus/autograd/accessor.h>
#include <gradus/autograd/checkpoint.h>
#include <gradus/autograd/engine.h>
#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/ops/activation.h>
#include <gradus/autograd/ops/attention.h>
#include <gradus/autograd/ops/conv.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/dropout.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/image.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/autograd/ops/loss.h>
#include <gradus/autograd/ops/losses.h>
#include <gradus/autograd/ops/matmul.h>
#include <gradus/autograd/ops/norm.h>
#include <gradus/autograd/ops/pad.h>
#include <gradus/autograd/ops/pool.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/resample.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/autograd/ops/sort.h>
#include <gradus/autograd/print.h>
#include <gradus/autograd/tensor.h>
