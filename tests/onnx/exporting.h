// Helpers of the export tests: modules made from functions, and modules exported to files.
#pragma once

#include <gradus/gradus.h>
#include <gradus/tests/compare.h>
#include <gradus/tests/onnx/model_file.h>
#include <gradus/tests/temporary_directory.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

namespace gradus::test {

/// A module whose forward() is any function.
struct Lambda : nn::Module {
  explicit Lambda(std::function<Tensor(const Tensor&)> f) : f(std::move(f)) {}
  Tensor forward(const Tensor& x) { return f(x); }
  std::function<Tensor(const Tensor&)> f;
};
inline nn::AnyModule module_of(std::function<Tensor(const Tensor&)> f) {
  return nn::AnyModule(std::make_shared<Lambda>(std::move(f)));
}

/// Exports a model and reads the file back.
inline ModelFile exported(const nn::AnyModule& model, const Tensor& input, const OnnxOptions& options = {}) {
  const TemporaryDirectory folder;
  export_onnx(model, input, (folder.path() / "model.onnx").string(), options);
  return ModelFile::read((folder.path() / "model.onnx").string());
}

/// What is wrong with the outputs of a model for these inputs, or "". Tolerances are relative to the largest number.
inline std::string difference(const ModelFile& model, const TensorList& inputs, const TensorList& expected) {
  static constexpr Tolerance kTolerance{.f64 = 1e-12, .f32 = 3e-5, .f16 = 1e-2};
  TensorList outputs;
  try {
    outputs = evaluate(model, inputs);
  } catch (const std::exception& error) { return error.what(); }
  if (outputs.size() != expected.size()) return std::to_string(outputs.size()) + " outputs";
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].dtype() != expected[i].dtype()) return "another element type";
    const std::string found = difference(outputs[i], expected[i], kTolerance.of(expected[i].dtype()));
    if (!found.empty()) return found;
  }
  return "";
}

/// The folder in which onnx_test.py looks for MODEL.onnx and, for each run, MODEL/RUN.INPUT.npy and
/// MODEL/RUN.OUTPUT.npy. If onnx_test.py did not start the program, a temporary folder, and save() writes nothing.
class RuntimeFolder {
 public:
  std::string operator/(const std::string& file) const { return path_ + "/" + file; }

  /// Writes the bytes of a model.
  void save(const std::string& model, const std::string& bytes) const {
    if (wanted_) std::ofstream(*this / (model + ".onnx"), std::ios::binary) << bytes;
  }
  /// Writes an input or output of a run. Does not wait for the disk, as io::save_npy() would for each of 12,000 files.
  void save(const std::string& model, int64_t run, const std::string& port, const Array& array) const {
    if (!wanted_) return;
    std::filesystem::create_directory(*this / model);
    const io::Bytes bytes = io::encode_npy(array);
    std::ofstream(*this / (model + "/" + std::to_string(run) + "." + port + ".npy"), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  const char* const wanted_ = std::getenv("GRADUS_ONNX_FOLDER");
  const TemporaryDirectory temporary_;
  const std::string path_ = wanted_ ? wanted_ : temporary_.path().string();
};

}  // namespace gradus::test
