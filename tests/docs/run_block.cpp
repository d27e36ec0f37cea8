// Runs one block of a page: docs_code PAGE:LINE.
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include <gradus/core/error.h>

#include "blocks.h"

namespace docs {

std::vector<Block>& Block::all() {
  static std::vector<Block> blocks;
  return blocks;
}

void need(bool available) {
  if (!available) std::exit(kSkipped);
}

void check_shape(const gradus::Tensor& x, const std::string& expected) {
  std::istringstream sizes(expected);
  int64_t dim = 0;
  bool same = true;
  for (std::string size; std::getline(sizes >> std::ws, size, ','); ++dim)
    same = same && dim < x.dim() && (!std::isdigit(size[0]) || std::stoll(size) == x.size(dim));
  GRADUS_CHECK(same && dim == x.dim(), ShapeError, "the page says (", expected, "), the shape is ", x.sizes());
}

}  // namespace docs

int main(int argc, char** argv) {
  for (const docs::Block& block : docs::Block::all()) {
    if (argc != 2 || block.name != argv[1]) continue;
    block.run();
    return 0;
  }
  std::cerr << "usage: docs_code PAGE:LINE\n";
  return 2;
}
