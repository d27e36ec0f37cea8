// Optimizers and learning-rate schedules.
#pragma once

#include <gradus/optim/adam.h>
#include <gradus/optim/lr_scheduler.h>
#include <gradus/optim/sgd.h>
