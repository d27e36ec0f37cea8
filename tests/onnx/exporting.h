// Helpers of the export tests: modules made from functions, and modules exported to files.
#pragma once

#include <gradus/gradus.h>
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
  return ModelFile((folder.path() / "model.onnx").string());
}

/// The folder in which onnx_test.py looks for MODEL.onnx and, for each run, MODEL/RUN.INPUT.npy and
/// MODEL/RUN.OUTPUT.npy. A temporary folder if onnx_test.py did not start the program.
class RuntimeFolder {
 public:
  std::string operator/(const std::string& file) const { return path_ + "/" + file; }

  /// Writes an input or output of a run. Does not wait for the disk, as io::save_npy() would for each of 12,000 files.
  void save(const std::string& model, int64_t run, const std::string& port, const Array& array) const {
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
