// What a training run needs around the step: its memory, planned; steps that are replayed, checkpoints, interrupts,
// early stopping, profiles and curves; and export of what was trained.
#pragma once

#include <gradus/onnx/export.h>
#include <gradus/training/captured_step.h>
#include <gradus/training/checkpoint.h>
#include <gradus/training/early_stopping.h>
#include <gradus/training/explain.h>
#include <gradus/training/interrupt.h>
#include <gradus/training/plan.h>
#include <gradus/training/profiler.h>
#include <gradus/training/recomputation.h>
#include <gradus/training/rotation.h>
#include <gradus/training/static_step.h>
#include <gradus/training/tensorboard.h>
