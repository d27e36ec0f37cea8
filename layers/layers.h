// Modules, containers, layers, losses and initialisation. For each layer without parameters, nn::functional has a
// function with an options struct, as torch::nn::functional:
//
//   namespace F = gradus::nn::functional;
//   x = F::max_pool2d(F::relu(conv1(x)), F::MaxPool2dFuncOptions(2));
#pragma once

#include <gradus/layers/activation.h>
#include <gradus/layers/conv.h>
#include <gradus/layers/dropout.h>
#include <gradus/layers/embedding.h>
#include <gradus/layers/layer.h>
#include <gradus/layers/linear.h>
#include <gradus/layers/loss.h>
#include <gradus/layers/module/containers.h>
#include <gradus/layers/module/init.h>
#include <gradus/layers/module/module.h>
#include <gradus/layers/module/serialize.h>
#include <gradus/layers/module/summary.h>
#include <gradus/layers/norm.h>
#include <gradus/layers/pool.h>
#include <gradus/layers/resize.h>
#include <gradus/layers/rnn.h>
#include <gradus/layers/transformer.h>
