// What the C++ files that code_blocks.py makes of the pages are written with.
#pragma once

#include <iostream>
#include <string>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace docs {

/// A block of a page that can be run; its name is "PAGE:LINE".
struct Block {
  Block(const char* name, void (*run)()) : name(name), run(run) { all().push_back(*this); }
  /// Those of all pages.
  static std::vector<Block>& all();

  std::string name;
  void (*run)();
};

/// Ends the process with kSkipped if what the block needs is not there.
void need(bool available);
inline constexpr int kSkipped = 77;

/// Throws unless the sizes of x are `expected`, for instance "N, 3", where letters stand for any size.
void check_shape(const gradus::Tensor& x, const std::string& expected);

/// Prints the message that f() throws.
template <class F>
void print_error(F&& f) {
  try {
    f();
  } catch (const gradus::Error& error) { std::cout << error.what() << "\n"; }
}

}  // namespace docs
