// One sample, or one batch of them.
#pragma once

#include <utility>

#include <gradus/autograd/node.h>

namespace gradus::data {

/// The target type of examples without a target.
namespace example {
using NoTarget = void;
}

/// An input and the desired output of a model (torch::data::Example).
template <class Data = Tensor, class Target = Tensor>
struct Example {
  Example() = default;
  Example(Data data_, Target target_) : data(std::move(data_)), target(std::move(target_)) {}

  Data data;
  Target target;
};

/// An input without a target.
template <class Data>
struct Example<Data, example::NoTarget> {
  Example() = default;
  Example(Data data_) : data(std::move(data_)) {}  // NOLINT(google-explicit-constructor)
  operator Data&() { return data; }                // NOLINT(google-explicit-constructor)
  operator const Data&() const { return data; }    // NOLINT(google-explicit-constructor)

  Data data;
};

using TensorExample = Example<Tensor, example::NoTarget>;

}  // namespace gradus::data
