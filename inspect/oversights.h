// Finds mistakes in a training program that cause no error: a layer that was not registered, one that forward() does
// not use, one whose parameters the optimizer does not have.
//
//   loss.backward();
//   if (step == 0) training::warn_of_oversights(*net, loss, &optimizer);
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <gradus/layers/module/module.h>
#include <gradus/optim/optimizer.h>

namespace gradus::training {

/// Returns a line for each of these. Call it after loss.backward() and before gradients are set to zero.
/// - A parameter of `net` requires a gradient and has none: forward() does not use it, or not in this step.
/// - A tensor requires a gradient and takes part in the loss, but is not a parameter of `net`: it was not registered,
/// so it
///   is not saved or moved with the net, and not in parameters().
/// - An optimizer is given, and a parameter that requires a gradient is not among its parameters.
/// Throws an AutogradError if the loss has no graph.
std::vector<std::string> find_oversights(const nn::Module& net, const Tensor& loss,
                                         const optim::Optimizer* optimizer = nullptr);
/// Prints these lines after "warning: " to the stream, by default stderr.
void warn_of_oversights(const nn::Module& net, const Tensor& loss, const optim::Optimizer* optimizer = nullptr);
void warn_of_oversights(const nn::Module& net, const Tensor& loss, const optim::Optimizer* optimizer,
                        std::ostream& stream);

}  // namespace gradus::training
