// The place in the program that a recorded call comes from.
#pragma once

#include <string>

#include <gradus/core/error.h>

namespace gradus::graph {

/// The operator, the layer and the source line that made a call.
struct Origin {
  std::string op;      ///< for example "conv2d"; empty outside operators
  std::string module;  ///< for example "features.3"; empty outside modules and in the backward pass
  SourceLocation where;

  /// The operator that this thread runs now, with its layer and source line.
  static Origin current();
  std::string str() const;  ///< "conv2d of features.3, train.cpp:41"
};

}  // namespace gradus::graph
