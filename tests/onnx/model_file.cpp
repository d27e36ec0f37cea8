#include <gradus/tests/onnx/model_file.h>

#include <bit>
#include <cstring>
#include <functional>
#include <optional>

#include <gradus/core/ops/ops.h>
#include <gradus/core/platform/file.h>

namespace gradus::test {
namespace {

/// The types of a field's value in the format.
enum WireType : uint64_t { kVarint = 0, kBytes = 2, kFixed32 = 5 };

/// One field of a message.
struct Field {
  int number;
  uint64_t wire_type, integer;
  std::string_view bytes;

  int64_t as_integer() const {
    GRADUS_CHECK(wire_type == kVarint, ValueError, "field ", number, " is no integer");
    return static_cast<int64_t>(integer);
  }
  std::string as_text() const { return std::string(as_message()); }
  std::string_view as_message() const {
    GRADUS_CHECK(wire_type == kBytes, ValueError, "field ", number, " has no bytes");
    return bytes;
  }
  float as_float() const {
    GRADUS_CHECK(wire_type == kFixed32, ValueError, "field ", number, " is no float");
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])) << 8 * i;
    return std::bit_cast<float>(bits);
  }
  [[noreturn]] void unexpected(const char* message) const {
    GRADUS_FAIL(ValueError, "unexpected field ", number, " in ", message);
  }
};

uint64_t varint(std::string_view& text) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(text.at(0));
    text.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
}

std::vector<Field> fields_of(std::string_view text) {
  std::vector<Field> fields;
  while (!text.empty()) {
    const uint64_t key = varint(text);
    Field field{static_cast<int>(key >> 3), key & 7, 0, {}};
    if (field.wire_type == kVarint) field.integer = varint(text);
    else {
      const size_t size = field.wire_type == kBytes ? varint(text) : field.wire_type == kFixed32 ? 4 : 8;
      GRADUS_CHECK(size <= text.size(), ValueError, "a field of ", size, " bytes is longer than its message");
      field.bytes = text.substr(0, size);
      text.remove_prefix(size);
    }
    fields.push_back(field);
  }
  return fields;
}

DType dtype_of(int64_t element_type) {
  static const std::map<int64_t, DType> types = {{1, kFloat}, {2, kByte},  {6, kInt},     {7, kLong},
                                                 {9, kBool},  {10, kHalf}, {11, kDouble}, {16, kBFloat16}};
  GRADUS_CHECK(types.contains(element_type), ValueError, "no element type has the number ", element_type);
  return types.at(element_type);
}

std::pair<std::string, ModelFile::Attribute> read_attribute(std::string_view text) {
  std::string name;
  std::optional<ModelFile::Attribute> value;
  std::vector<int64_t> integers;
  int64_t type = 0;
  for (const Field& field : fields_of(text)) switch (field.number) {
      case 1: name = field.as_text(); break;
      case 2: value = field.as_float(); break;
      case 3: value = field.as_integer(); break;
      case 4: value = field.as_text(); break;
      case 8: integers.push_back(field.as_integer()); break;
      case 20: type = field.as_integer(); break;
      default: field.unexpected("an attribute");
    }
  if (!value) value = integers;
  const int64_t expected = std::array{2, 1, 3, 7}[value->index()];  // of AttributeProto.AttributeType
  GRADUS_CHECK(type == expected, ValueError, "the attribute ", name, " has the type ", type, " instead of ", expected);
  return {name, *value};
}

ModelFile::Node read_node(std::string_view text) {
  ModelFile::Node node;
  for (const Field& field : fields_of(text)) switch (field.number) {
      case 1: node.inputs.push_back(field.as_text()); break;
      case 2: node.outputs.push_back(field.as_text()); break;
      case 3: node.name = field.as_text(); break;
      case 4: node.op = field.as_text(); break;
      case 5:
        GRADUS_CHECK(node.attributes.insert(read_attribute(field.as_message())).second, ValueError,
                     "an attribute appears twice");
        break;
      case 6: node.doc = field.as_text(); break;
      default: field.unexpected("a node");
    }
  return node;
}

std::pair<std::string, Tensor> read_weight(std::string_view text) {
  std::string name, bytes;
  Shape shape;
  int64_t type = 0;
  for (const Field& field : fields_of(text)) switch (field.number) {
      case 1: shape.push_back(field.as_integer()); break;
      case 2: type = field.as_integer(); break;
      case 8: name = field.as_text(); break;
      case 9: bytes = field.as_text(); break;
      default: field.unexpected("a tensor");
    }
  const Array array = Array::empty(shape, dtype_of(type));
  GRADUS_CHECK(array.nbytes() == bytes.size(), ValueError, name, " has ", bytes.size(), " bytes for the shape ", shape);
  std::memcpy(array.data(), bytes.data(), bytes.size());
  return {name, Tensor(array)};
}

std::string read_dimension(std::string_view text) {
  std::string size;
  for (const Field& field : fields_of(text)) switch (field.number) {
      case 1: size = std::to_string(field.as_integer()); break;
      case 2: size = field.as_text(); break;
      default: field.unexpected("a dimension");
    }
  return size;
}

ModelFile::Port read_port(std::string_view text) {
  ModelFile::Port port{};
  const auto read_tensor = [&](std::string_view tensor) {
    for (const Field& field : fields_of(tensor)) switch (field.number) {
        case 1: port.dtype = dtype_of(field.as_integer()); break;
        case 2:
          for (const Field& dimension : fields_of(field.as_message())) {
            if (dimension.number != 1) dimension.unexpected("a shape");
            port.sizes.push_back(read_dimension(dimension.as_message()));
          }
          break;
        default: field.unexpected("a tensor's type");
      }
  };
  for (const Field& field : fields_of(text)) switch (field.number) {
      case 1: port.name = field.as_text(); break;
      case 2:
        for (const Field& type : fields_of(field.as_message())) {
          if (type.number != 1) type.unexpected("a type");
          read_tensor(type.as_message());
        }
        break;
      default: field.unexpected("an input or output");
    }
  return port;
}

}  // namespace

ModelFile::ModelFile(std::string_view bytes) {
  for (const Field& field : fields_of(bytes)) switch (field.number) {
      case 1: ir_version = field.as_integer(); break;
      case 2: producer = field.as_text(); break;
      case 3: producer_version = field.as_text(); break;
      case 7: read_graph(field.as_message()); break;
      case 8:
        for (const Field& part : fields_of(field.as_message())) {
          if (part.number == 2) opset = part.as_integer();
          else if (part.number != 1 || !part.as_text().empty()) part.unexpected("an operator set");
        }
        break;
      default: field.unexpected("a model");
    }
}

ModelFile ModelFile::read(const std::string& path) {
  const io::Bytes bytes = io::read_file(path);
  return ModelFile(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void ModelFile::read_graph(std::string_view text) {
  for (const Field& field : fields_of(text)) switch (field.number) {
      case 1: nodes.push_back(read_node(field.as_message())); break;
      case 2: graph = field.as_text(); break;
      case 5:
        GRADUS_CHECK(weights.insert(read_weight(field.as_message())).second, ValueError, "a weight appears twice");
        break;
      case 11: inputs.push_back(read_port(field.as_message())); break;
      case 12: outputs.push_back(read_port(field.as_message())); break;
      default: field.unexpected("a graph");
    }
}

std::vector<std::string> ModelFile::ops() const {
  std::vector<std::string> list;
  for (const Node& node : nodes) list.push_back(node.op);
  return list;
}

std::string to_string(const ModelFile::Port& port) {
  std::string text;
  for (const std::string& size : port.sizes) text += (text.empty() ? "" : ", ") + size;
  return port.name + " (" + text + (port.sizes.size() == 1 ? ",)" : ")");
}

std::vector<std::string> to_strings(const std::vector<ModelFile::Port>& ports) {
  std::vector<std::string> texts;
  for (const ModelFile::Port& port : ports) texts.push_back(to_string(port));
  return texts;
}

}  // namespace gradus::test
