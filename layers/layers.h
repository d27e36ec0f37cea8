// Modules, containers, layers, losses and initialisation.
#pragma once

#include <gradus/layers/activation.h>
#include <gradus/layers/any_module.h>
#include <gradus/layers/containers.h>
#include <gradus/layers/conv.h>
#include <gradus/layers/functional.h>
#include <gradus/layers/functional_layer.h>
#include <gradus/layers/init.h>
#include <gradus/layers/linear.h>
#include <gradus/layers/loss.h>
#include <gradus/layers/module.h>
#include <gradus/layers/pool.h>
#include <gradus/layers/sequential.h>
#include <gradus/layers/serialize.h>
#include <gradus/layers/summary.h>
