// Converts 200 photographs of STL-10, resized to 128x128, from RGB to grey (experiment E3). For each backend, prints a
// JSON line with the time, with and without copies to the device and back, and the difference from the naive backend.
// --picture saves some results.
//
//   grayscale --threads 2 --data ../shared/data --picture grey.png
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/core/io/png.h>
#include <gradus/gradus.h>

namespace {

using namespace gradus;

constexpr int64_t kImages = 200, kSize = 128;

/// Returns the photographs, (200, 3, 128, 128) with values from 0 to 1.
Tensor photographs(const std::string& folder) {
  const std::string root = folder.empty() ? data::datasets::find_stl10() : folder;
  GRADUS_CHECK(!root.empty(), IoError,
               "no STL-10: give its folder with --data, or fetch it with scripts/stl10_data.sh");
  data::datasets::STL10 test_set(root, data::datasets::STL10::kTest);
  GRADUS_CHECK(static_cast<int64_t>(*test_set.size()) >= kImages, IoError, root, " has fewer than ", kImages,
               " images to test with");
  std::vector<size_t> first(kImages);
  for (size_t i = 0; i < first.size(); ++i) first[i] = i;
  return data::transforms::functional::resize(test_set.get_stacked(first).data, {kSize, kSize});
}

/// Saves the first eight images, and below them their grey versions.
void save_picture(const std::string& path, const Tensor& images, const Tensor& grey) {
  constexpr int64_t kShown = 8;
  const Tensor both =
      cat({images.narrow(0, 0, kShown), grey.narrow(0, 0, kShown).expand({kShown, 3, kSize, kSize})}, 2);
  const Tensor bytes = (both.permute({2, 0, 3, 1}).clamp(0, 1) * 255 + 0.5).to(kByte).contiguous();  // (H, N, W, 3)
  io::write_file(path, io::encode_png({reinterpret_cast<const std::byte*>(bytes.data_ptr<uint8_t>()),
                                       static_cast<size_t>(bytes.numel())},
                                      2 * kSize, kShown * kSize, 3));
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder, picture;
  double seconds = 0.5;
  std::vector<std::string> backends = {"naive", "openmp", "cuda"};
  benchmarks::Program program("grayscale", "Times the conversion of 200 photographs to grey");
  program.option("--data", folder, "folder of STL-10 (default: where the examples search)");
  program.option("--backends", backends, "backends to measure, if this machine has them");
  program.option("--seconds", seconds, "time per measurement");
  program.option("--picture", picture, "PNG file for some of the images and their results");
  return program.run(argc, argv, [&] {
    const NoGradGuard no_grad;
    const Tensor images = photographs(folder);
    Tensor expected;
    {
      const BackendGuard naive("naive");
      expected = rgb_to_grayscale(images);
    }
    for (const std::string& name : backends) {
      if (!has_backend(name)) continue;
      const BackendGuard guard(name);
      const Device device(backend(name).device_type());
      const Tensor there = images.to(device);
      Tensor grey;
      const double alone = benchmarks::time_ms(device, seconds, [&] { grey = rgb_to_grayscale(there); });
      const double with_copies =
          device.is_cpu() ? alone
                          : benchmarks::time_ms(device, seconds, [&] { rgb_to_grayscale(images.to(device)).to(kCPU); });
      const Tensor result = grey.to(kCPU);
      if (!picture.empty()) save_picture(picture, images, result);
      std::printf("%s\n", benchmarks::to_json({{"backend", name},
                                               {"images", kImages},
                                               {"size", kSize},
                                               {"seconds", alone / 1000},
                                               {"seconds_with_copies", with_copies / 1000},
                                               {"max_difference", (result - expected).abs().max().item<double>()},
                                               {"threads", num_threads()},
                                               {"device_name", runtime(device.type()).description(device.index())},
                                               {"libraries", backend(name).libraries()}})
                              .c_str());
      std::fflush(stdout);
    }
  });
}
