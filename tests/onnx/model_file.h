// Reads those parts of an ONNX file that tests check, without a protobuf library.
#pragma once

#include <gradus/core/platform/file.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::test {

struct ModelFile {
  struct Node {
    std::string op;
    std::vector<std::string> inputs;
  };

  explicit ModelFile(const std::string& path) {
    const io::Bytes bytes = io::read_file(path);
    each_field({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
               [&](int field, uint64_t, std::string_view text) {
                 if (field == 7) read_graph(text);
                 if (field == 8) each_field(text, [&](int f, uint64_t v, auto) { opset = f == 2 ? v : opset; });
               });
  }

  std::vector<std::string> ops() const {
    std::vector<std::string> list;
    for (const Node& node : nodes) list.push_back(node.op);
    return list;
  }

  uint64_t opset = 0;
  std::vector<Node> nodes;
  std::map<std::string, std::string> weights;  // the shapes of the weights by name
  std::vector<std::string> inputs, outputs;    // for example "input (batch, 3)"

 private:
  static uint64_t varint(std::string_view& text) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(text.at(0));
      text.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }
  /// Calls f(field number, integer value, bytes) for each field. Only one of value and bytes is used.
  template <class F>
  static void each_field(std::string_view text, const F& f) {
    while (!text.empty()) {
      const uint64_t key = varint(text);
      uint64_t value = 0;
      std::string_view bytes;
      if ((key & 7) == 0) value = varint(text);
      else {
        const size_t size = (key & 7) == 2 ? varint(text) : (key & 7) == 1 ? 8 : 4;
        bytes = text.substr(0, size);
        text.remove_prefix(size);
      }
      f(static_cast<int>(key >> 3), value, bytes);
    }
  }
  static std::string shape_of(const std::vector<std::string>& sizes) {
    std::string shape;
    for (const std::string& size : sizes) shape += (shape.empty() ? "" : ", ") + size;
    return "(" + shape + (sizes.size() == 1 ? ",)" : ")");
  }
  static std::string port(std::string_view text) {
    std::string name;
    std::vector<std::string> sizes;
    each_field(text, [&](int field, uint64_t, std::string_view inner) {
      if (field == 1) name = inner;
      if (field != 2) return;
      each_field(inner, [&](int, uint64_t, std::string_view tensor) {
        each_field(tensor, [&](int tensor_field, uint64_t, std::string_view shape) {
          if (tensor_field != 2) return;
          each_field(shape, [&](int, uint64_t, std::string_view dimension) {
            each_field(dimension, [&](int kind, uint64_t value, std::string_view symbol) {
              sizes.push_back(kind == 1 ? std::to_string(value) : std::string(symbol));
            });
          });
        });
      });
    });
    return name + " " + shape_of(sizes);
  }
  void read_graph(std::string_view graph) {
    each_field(graph, [&](int field, uint64_t, std::string_view text) {
      if (field == 11) inputs.push_back(port(text));
      if (field == 12) outputs.push_back(port(text));
      if (field == 1) {
        Node& node = nodes.emplace_back();
        each_field(text, [&](int f, uint64_t, std::string_view part) {
          if (f == 1) node.inputs.emplace_back(part);
          if (f == 4) node.op = part;
        });
      }
      if (field == 5) {
        std::string name;
        std::vector<std::string> sizes;
        each_field(text, [&](int f, uint64_t value, std::string_view part) {
          if (f == 1) sizes.push_back(std::to_string(value));
          if (f == 8) name = part;
        });
        weights[name] = shape_of(sizes);
      }
    });
  }
};

}  // namespace gradus::test
