// Wrong calls: Files.
#include <gradus/tests/wrong_calls/wrong_calls.h>
#include <fstream>

#include <gradus/core/io/npy.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using namespace gradus::test;

namespace {

/// The path of a file with these bytes; it lives as long as the process.
std::string file_of(const std::string& bytes) {
  static const TemporaryDirectory directory;
  const std::string path = directory.file("broken.file");
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}
/// A safetensors file with this header.
std::string safetensors_of(const std::string& header, size_t data_bytes = 0) {
  std::string bytes(8, '\0');
  for (size_t k = 0; k < 8; ++k) bytes[k] = static_cast<char>(header.size() >> (8 * k));
  return file_of(bytes + header + std::string(data_bytes, '\0'));
}
void load_linear(const std::string& path) { load(nn::Linear(2, 3), path); }
std::string saved(const nn::Linear& layer) {
  const std::string path = file_of("");
  save(layer, path);
  return path;
}

// clang-format off
const WrongCalls files("files", {
    wrong<IoError>("", {"/nowhere/net.safetensors"}, [] { load_linear("/nowhere/net.safetensors"); }),
    wrong<IoError>("", {"/nowhere/net.safetensors"}, [] { save(nn::Linear(2, 3), "/nowhere/net.safetensors"); }),
    wrong<IoError>("", {"broken.file"}, [] { load_linear(file_of("")); }),
    wrong<IoError>("", {"broken.file"}, [] { load_linear(file_of("PK\3\4 a zip file")); }),
    wrong<IoError>("", {"broken.file"}, [] { load_linear(safetensors_of("{]")); }),
    wrong<IoError>("", {"broken.file", "'w'", "F7"}, [] { load_linear(safetensors_of(R"({"w": {"dtype": "F7", "shape": [1], "data_offsets": [0, 4]}})", 4)); }),
    wrong<IoError>("", {"broken.file", "'w'"}, [] { load_linear(safetensors_of(R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 4)); }),
    wrong<IoError>("", {"broken.file"}, [] { load_linear(safetensors_of(R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 3)); }),
    wrong<IoError>("", {"broken.file", "'w'"}, [] { load_linear(safetensors_of(R"({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4)); }),
    wrong<ShapeError>("", {"LinearImpl", "weight", "(3, 2)", "(5, 2)"}, [] { load_linear(saved(nn::Linear(2, 5))); }),
    wrong<ValueError>("", {"LinearImpl", "bias"}, [] { load_linear(saved(nn::Linear(nn::LinearOptions(2, 3).bias(false)))); }),
    wrong<ValueError>("", {"LinearImpl", "bias"}, [] { load(nn::Linear(nn::LinearOptions(2, 3).bias(false)), saved(nn::Linear(2, 3))); }),
    wrong<IoError>("", {"broken.file"}, [] { io::load_npy(file_of("no numpy array")); }),
    wrong<IoError>("", {"/nowhere/x.npy"}, [] { io::load_npy("/nowhere/x.npy"); }),
    wrong<IoError>("", {"/nowhere/run.safetensors"}, [] { training::Checkpoint().load("/nowhere/run.safetensors"); }),
    wrong<IoError>("", {"broken.file", "checkpoint"}, [] { training::Checkpoint().load(saved(nn::Linear(2, 3))); }),
    wrong<ValueError>("", {"a.b"}, [] { int epoch = 0; training::Checkpoint().value("a.b", epoch); }),
    wrong<ValueError>("", {"epoch"}, [] { int epoch = 0; training::Checkpoint().value("epoch", epoch).value("epoch", epoch); }),
    wrong<ValueError>("", {"batch", "32", "64"}, [] { const std::string path = file_of(""); training::Checkpoint().setting("batch", 32).save(path); training::Checkpoint().setting("batch", 64).load(path); }),
});
// clang-format on

}  // namespace
