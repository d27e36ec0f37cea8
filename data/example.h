// One sample, or one batch of them.
#pragma once

#include <utility>

#include <gradus/autograd/node.h>

namespace gradus::data {

/// An input and what a model should make of it (torch::data::Example).
template <class Data = Tensor, class Target = Tensor>
struct Example {
  Example() = default;
  Example(Data data, Target target) : data(std::move(data)), target(std::move(target)) {}

  Data data;
  Target target;
};

}  // namespace gradus::data
