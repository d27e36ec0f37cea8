// Finds mistakes in a training program that cause no error: a layer that was not registered, a layer that forward()
// does not use, a layer whose parameters the optimizer does not update.
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

/// Returns a line of text for each of these mistakes. Must be called after loss.backward() and before the gradients are
/// set to zero. Throws an AutogradError if the loss has no graph.
/// - A parameter of `net` requires a gradient but has none: forward() did not use the parameter in this step.
/// - A tensor requires a gradient and the loss depends on it, but it is not a parameter of `net`: its layer was not
///   registered. parameters() does not list such a tensor, and saving or moving the net leaves it out.
/// - An optimizer is given, and a parameter of `net` that requires a gradient is not among the optimizer's parameters.
std::vector<std::string> find_oversights(const nn::Module& net, const Tensor& loss,
                                         const optim::Optimizer* optimizer = nullptr);
/// Prints the lines of find_oversights(), each after "warning: ", to stderr.
void warn_of_oversights(const nn::Module& net, const Tensor& loss, const optim::Optimizer* optimizer = nullptr);
/// Prints the lines of find_oversights(), each after "warning: ", to the stream.
void warn_of_oversights(const nn::Module& net, const Tensor& loss, const optim::Optimizer* optimizer,
                        std::ostream& stream);

}  // namespace gradus::training
