// Optimizers, learning-rate schedules, gradient clipping, running averages of parameters.
#pragma once

#include <gradus/optim/averaged_parameters.h>
#include <gradus/optim/clip_grad.h>
#include <gradus/optim/grad_scaler.h>
#include <gradus/optim/lr_scheduler.h>
#include <gradus/optim/optimizers.h>
