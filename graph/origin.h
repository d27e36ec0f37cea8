// Where a recorded call, or memory, comes from.
#pragma once

#include <string>

#include <gradus/core/error.h>

namespace gradus::graph {

/// What a user knows a call by.
struct Origin {
  std::string op;      ///< "conv2d"; "" outside of any
  std::string module;  ///< "features.3"; "" outside of any, and in the backward pass
  SourceLocation where;

  /// What runs on this thread.
  static Origin current();
  std::string str() const;  ///< "conv2d of features.3, train.cpp:41"
};

}  // namespace gradus::graph
