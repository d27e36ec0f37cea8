#include <gradus/distributed/sharding/mesh.h>

namespace gradus::dist {

std::vector<std::shared_ptr<ProcessGroup>> make_mesh(const std::shared_ptr<ProcessGroup>& group, const Shape& sizes) {
  const OpContext context("make_mesh");
  GRADUS_CHECK(group, ValueError, "the process group is null");
  int64_t product = 1;
  for (const int64_t size : sizes) {
    GRADUS_CHECK(size > 0, ValueError, "a mesh cannot have a dimension of ", size, " ranks");
    product *= size;
    if (product > group->size()) break;
  }
  GRADUS_CHECK(product == group->size(), ValueError, "a mesh of sizes ", sizes, " does not have ", group->size(),
               " ranks");

  std::vector<std::shared_ptr<ProcessGroup>> mesh;
  int64_t stride = group->size();
  for (const int64_t size : sizes) {
    stride /= size;  // distance between neighbours along this dimension
    for (int64_t first = 0; first < group->size(); ++first) {
      if (first / stride % size != 0) continue;
      std::vector<int> line;
      for (int64_t i = 0; i < size; ++i) line.push_back(static_cast<int>(first + i * stride));
      // All ranks take part in making the group of each line, and keep the group that they are in.
      if (auto own = new_group(group, line)) mesh.push_back(std::move(own));
    }
  }
  return mesh;
}

}  // namespace gradus::dist
