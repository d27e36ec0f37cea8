// Modules, containers, layers, losses and initialisation.
#pragma once

#include <gradus/layers/activation.h>
#include <gradus/layers/attention.h>
#include <gradus/layers/conv.h>
#include <gradus/layers/distance.h>
#include <gradus/layers/dropout.h>
#include <gradus/layers/embedding.h>
#include <gradus/layers/functional.h>
#include <gradus/layers/functional_layer.h>
#include <gradus/layers/linear.h>
#include <gradus/layers/loss.h>
#include <gradus/layers/module/any_module.h>
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
