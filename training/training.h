// What a training run needs around its steps: replayed steps, reports of their memory, checkpoint files, interrupts and
// early stopping.
#pragma once

#include <gradus/training/checkpoint.h>
#include <gradus/training/memory_report.h>
#include <gradus/training/recomputation.h>
#include <gradus/training/replayed_step.h>
#include <gradus/training/stopping.h>
