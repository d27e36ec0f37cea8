// What is easily forgotten in a training program, and goes wrong without an error: a layer that was never registered,
// one that forward() leaves out, one that the optimizer does not know.
//
//   loss.backward();
//   if (step == 0) training::warn_of_oversights(*net, loss, &optimizer);
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <gradus/layers/module.h>
#include <gradus/optim/optimizer.h>

namespace gradus::training {

/// A line for each of these, to be asked after loss.backward() and before gradients are set to zero:
/// - a parameter of `net` that requires a gradient and has none: forward() does not use it, or not this time
/// - a tensor that requires a gradient, takes part in the loss and is no parameter of `net`: it was not registered, so
///   it is neither saved nor moved with the net, nor among parameters()
/// - with an optimizer, a parameter that requires a gradient and that it does not change
/// A loss without a graph is an AutogradError.
std::vector<std::string> find_oversights(const nn::Module& net, const Tensor& loss,
                                         const optim::Optimizer* optimizer = nullptr);
/// Prints them to the stream, stderr unless given, after "warning: ".
void warn_of_oversights(const nn::Module& net, const Tensor& loss, const optim::Optimizer* optimizer = nullptr);
void warn_of_oversights(const nn::Module& net, const Tensor& loss, const optim::Optimizer* optimizer,
                        std::ostream& stream);

}  // namespace gradus::training
