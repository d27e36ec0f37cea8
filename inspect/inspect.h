// Tools that show what happens in a training run: profiles, explanations of a step, and curves for TensorBoard.
#pragma once

#include <gradus/inspect/explain/explain.h>
#include <gradus/inspect/profiler.h>
#include <gradus/inspect/tensorboard.h>
