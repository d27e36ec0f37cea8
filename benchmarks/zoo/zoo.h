// The zoo: public architectures of small models, written with the public API as a user of LibTorch writes them. Each
// has a twin in PyTorch with the same names of weights: nets/NAME.cpp and nets/NAME.py hold the same nets. The program
// zoo runs them, and zoo.py compares losses, gradients and times with PyTorch's.
//
// To add a net, write it and its twin into the two files of a family, and add it to the family's list in both. A new
// family declares its list below and is joined to the others in registry.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gradus/gradus.h>

namespace gradus::zoo {

/// A part of a training step: the loss of a batch, whose gradients update the parameters of one module. Most nets have
/// one phase. A GAN has two: one trains its discriminator, the other its generator.
struct Phase {
  std::shared_ptr<nn::Module> trained;
  std::function<Tensor(const TensorList& batch)> loss;
};

/// A net that can be trained. All its weights are in `module`.
struct Net {
  std::shared_ptr<nn::Module> module;
  std::vector<Phase> phases;
};

/// A random tensor of a batch.
struct Input {
  std::string kind;  ///< normal: mean 0, deviation 1; uniform: in [0, 1); integers: in [0, bound)
  Shape shape;
  int64_t bound = 0;  ///< of integers

  Tensor draw() const;
};

/// How a net is made, and what it is trained on.
struct Entry {
  std::string name;
  int64_t batch;  ///< size of the batch of a timed step
  std::function<Net()> make;
  std::function<std::vector<Input>(int64_t batch)> inputs;
};

/// Returns all nets.
const std::vector<Entry>& entries();
/// Returns true if the net belongs to the half that is looked at only at the end (registry.cpp).
bool is_frozen(const std::string& name);

// ---- What several families use ----

/// Returns a net with one phase.
Net one_phase(const std::shared_ptr<nn::Module>& module, std::function<Tensor(const TensorList& batch)> loss);
/// Returns a net with one phase: the cross-entropy of the logits that `module` computes from the first input, with the
/// labels in the second input.
Net classifier(const nn::AnyModule& module);
/// The same for logits (N, L, classes) of all steps of sequences, with the labels (N, L).
Net step_classifier(const nn::AnyModule& module);
/// The same for tokens (N, L + 1), the only input: `module` computes logits from all tokens but the last, and the
/// labels are all tokens but the first.
Net language_model(const nn::AnyModule& module);
/// Returns a net with one phase: the mean squared difference of what `module` computes from the first input and the
/// second input.
Net regression(const nn::AnyModule& module);

/// Returns an entry for a classifier of images, which `make` constructs: a holder or a shared_ptr.
template <class Make>
Entry image_classifier(std::string name, int64_t batch, Shape image, int64_t classes, Make make) {
  return {std::move(name), batch, [make] { return classifier(nn::AnyModule(make())); },
          [=](int64_t size) {
            Shape images{size};
            for (const int64_t side : image) images.push_back(side);
            return std::vector<Input>{{"normal", images}, {"integers", {size}, classes}};
          }};
}

// ---- The families ----

std::vector<Entry> mobile_nets();
std::vector<Entry> residual_nets();
std::vector<Entry> plain_nets();
std::vector<Entry> pixel_nets();
std::vector<Entry> recurrent_nets();
std::vector<Entry> transformer_nets();
std::vector<Entry> structured_nets();
std::vector<Entry> detector_nets();

}  // namespace gradus::zoo
