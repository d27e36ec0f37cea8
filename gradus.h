// Everything that a program needs: #include <gradus/gradus.h>.
#pragma once

#include <gradus/core/array.h>
#include <gradus/core/cuda.h>
#include <gradus/core/error.h>
#include <gradus/core/parallel.h>
#include <gradus/core/registry.h>
#include <gradus/core/version.h>
