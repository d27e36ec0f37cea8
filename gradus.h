// Everything that a program needs: #include <gradus/gradus.h>.
#pragma once

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/function.h>
#include <gradus/core/array.h>
#include <gradus/core/cuda.h>
#include <gradus/core/cudnn.h>
#include <gradus/core/error.h>
#include <gradus/core/parallel.h>
#include <gradus/core/registry.h>
#include <gradus/core/version.h>
#include <gradus/data/data.h>
#include <gradus/layers/layers.h>
#include <gradus/optim/optim.h>
#include <gradus/training/training.h>
