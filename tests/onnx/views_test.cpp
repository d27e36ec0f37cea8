// Exports random programs that write and read parts of an array: slices, transpositions, windows, repeated and reversed
// axes of several shapes.
#include <map>

#include <gradus/core/backend.h>
#include <gradus/core/io/npy.h>
#include <gradus/graph/recorder.h>
#include <gradus/onnx/exporter.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/onnx/exporting.h>

using namespace gradus;

namespace {

constexpr int64_t kElements = 24;

struct Layout {
  int64_t offset = 0;
  Shape shape;
  Strides strides;

  Array of(const Array& x) const { return {x.storage(), x.offset() + offset, shape, strides, x.dtype()}; }
};

/// Draws programs. The numbers are the same on every platform, unlike those of the standard library's distributions.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  int64_t below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }
  bool one_in(int64_t count) { return below(count) == 0; }

  Layout whole() {
    static const std::vector<Shape> shapes = {{24},      {2, 12},   {4, 6},       {6, 4},      {2, 3, 4},
                                              {4, 2, 3}, {3, 1, 8}, {2, 2, 2, 3}, {1, 8, 1, 3}};
    Layout layout;
    layout.shape = shapes[static_cast<size_t>(below(static_cast<int64_t>(shapes.size())))];
    layout.strides = contiguous_strides(layout.shape);
    return layout;
  }
  /// A part of an array, without repeated elements.
  Layout part() {
    Layout layout = whole();
    for (int axis = 0; axis < layout.shape.size(); ++axis)
      if (one_in(2)) cut(layout, axis);
    if (one_in(3)) exchange(layout);
    return layout;
  }
  /// A part of an array whose elements may be repeated, in windows that overlap, or in reversed order.
  Layout any_view() {
    Layout layout = part();
    const int axis = static_cast<int>(below(layout.shape.size()));
    if (one_in(4)) {
      layout.offset += (layout.shape[axis] - 1) * layout.strides[axis];
      layout.strides[axis] = -layout.strides[axis];
    } else if (one_in(3)) {
      layout.shape.push_back(2 + below(2)), layout.strides.push_back(0);
    } else if (one_in(3) && layout.shape[axis] > 2) {
      const int64_t window = 2 + below(layout.shape[axis] - 2);
      layout.shape[axis] += 1 - window;
      layout.shape.push_back(window), layout.strides.push_back(layout.strides[axis]);
    }
    if (one_in(4)) exchange(layout);
    return layout;
  }
  /// The parts of a whole array along one axis, in any order.
  std::vector<Layout> parts_of_whole() {
    Layout rest = whole();
    const int axis = static_cast<int>(below(rest.shape.size()));
    std::vector<Layout> parts;
    while (rest.shape[axis] > 0) {
      Layout part = rest;
      part.shape[axis] = 1 + below(rest.shape[axis]);
      rest.shape[axis] -= part.shape[axis];
      rest.offset += part.shape[axis] * part.strides[axis];
      parts.insert(parts.begin() + below(static_cast<int64_t>(parts.size()) + 1), part);
    }
    return parts;
  }

 private:
  void cut(Layout& layout, int axis) {
    const int64_t size = layout.shape[axis], step = 1 + below(2), start = below(size);
    layout.offset += start * layout.strides[axis];
    layout.shape[axis] = 1 + below((size - start + step - 1) / step);
    layout.strides[axis] *= step;
  }
  void exchange(Layout& layout) {
    const int a = static_cast<int>(below(layout.shape.size())), b = static_cast<int>(below(layout.shape.size()));
    std::swap(layout.shape[a], layout.shape[b]);
    std::swap(layout.strides[a], layout.strides[b]);
  }
  std::mt19937 random_;
};

/// Writes parts of y, and returns views and copies of other parts. The input is x.
std::vector<Array> run_program(unsigned seed, const Array& x, const Array& y) {
  Backend& cpu = current_backend(DeviceType::cpu);
  Draw draw(seed);
  const auto write = [&](const Layout& layout) {
    if (draw.one_in(4)) return cpu.fill(layout.of(y), draw.below(9));
    const Layout source{draw.below(kElements), layout.shape, contiguous_strides(layout.shape)};
    cpu.copy(source.of(x), layout.of(y));
  };
  if (const int64_t beginning = draw.below(4); beginning == 0) write(draw.whole());
  else if (beginning == 1) cpu.fill(draw.whole().of(y), 0.5);
  else if (beginning == 2)
    for (const Layout& part : draw.parts_of_whole()) write(part);
  std::vector<Array> outputs;
  for (int64_t writes = draw.below(4); writes > 0; --writes) {
    write(draw.part());
    if (draw.one_in(3)) outputs.push_back(ops::clone(draw.any_view().of(y), MemoryFormat::contiguous));
  }
  const Array read = draw.any_view().of(y);
  const Layout other{0, read.shape(), Strides::filled(read.ndim(), 0)};
  outputs.push_back(ops::binary(BinaryOp::add, other.of(x), read));
  outputs.push_back(draw.any_view().of(y));
  return outputs;
}

}  // namespace

TEST_CASE("random programs that write and read parts of arrays are exported", "[onnx]") {
  const Array x = randn({2 * kElements}).array();
  std::map<std::string, int> found;  // how many nodes of each operator the models have, and how many are refused
  for (unsigned seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    // y is created by the program, is an input, or is an array from before the program.
    const int64_t kind = seed % 6;
    const Array before = kind < 4 ? ops::zeros({kElements}, DType::f32) : randn({kElements}).array();
    const auto expected = run_program(seed, x, ops::clone(before, MemoryFormat::contiguous));
    const auto recorded = [&] {
      graph::ForwardPass pass;
      graph::Recorder recorder;
      const Array y = kind < 4 ? Array::empty({kElements}) : before;
      for (const Array& output : run_program(seed, x, y))
        pass.outputs.emplace_back("output" + std::to_string(pass.outputs.size()), output);
      pass.graph = recorder.finish();
      pass.inputs = {{"x", x}};
      if (kind == 4) pass.inputs.emplace_back("y", before);
      return graph::to_onnx(pass);
    };
    try {
      const test::ModelFile model(recorded());
      for (const std::string& op : model.ops()) ++found[op];
      TensorList inputs = {Tensor(x)}, outputs;
      if (kind == 4) inputs.emplace_back(before);
      for (const Array& output : expected) outputs.emplace_back(output);
      CHECK(difference(model, inputs, outputs) == "");
    } catch (const ValueError& error) {
      const std::string message = error.what();
      const size_t last = message.find(" of memory ");
      ++found[last == std::string::npos ? message : message.substr(last + 11)];
    }
  }
  std::string counts;
  for (const auto& [name, count] : found) counts += name + ": " + std::to_string(count) + "\n";
  // Every node is needed: a change of the export may only make them fewer.
  CHECK(counts ==
        "Add: 564\nConcat: 42\nExpand: 620\nGather: 994\nIdentity: 1422\nPad: 169\nReshape: 3958\nSlice: 2255\n"
        "Transpose: 232\nWhere: 447\n"
        "across the axes that it was written with: 11\n"
        "of which only a part is known: 12\n"
        "that no call and no input or weight has: 5\n"
        "that no call has written: 8\n");
}
