#include <gradus/examples/common/predict.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <gradus/autograd/autograd.h>
#include <gradus/data/images/image_file.h>
#include <gradus/data/images/image_ops.h>
#include <gradus/examples/common/model_file.h>

using namespace gradus;

namespace {

constexpr int64_t kMostClasses = 5;  // number of classes that are shown for each image

/// Encodes bytes as Base64 (RFC 4648).
std::string base64(io::ByteSpan bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? kDigits[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string escaped(const std::string& text) {
  std::string html;
  for (const char c : text) {
    if (c == '<') html += "&lt;";
    else if (c == '&') html += "&amp;";
    else html += c;
  }
  return html;
}

/// Returns an HTML element <img> that shows an image (C, H, W), with values from 0 to 1, enlarged.
std::string picture(const Tensor& image) {
  return "<img style='image-rendering:pixelated;width:140px' src='data:image/png;base64," +
         base64(data::encode_image(image)) + "'>";
}

}  // namespace

int predict(const RunOptions& options, const nn::AnyModule& model, const std::vector<std::string>& classes,
            const Preparation& preparation) {
  load_model(*model.ptr(), options);
  model.ptr()->to(Device(options.device));
  model.ptr()->eval();
  const NoGradGuard no_grad;
  std::string page =
      "<!doctype html><meta charset='utf-8'><title>Predictions</title>"
      "<body style='font-family:sans-serif'><h1>What " +
      escaped(options.init) + " sees</h1><table>";
  for (const std::string& path : options.predict) {
    const Tensor image = preparation.crop(data::unit_floats(data::read_image(path)));
    const Tensor logits = model.forward(preparation.normalise(image).unsqueeze(0).to(Device(options.device)));
    const int64_t shown = std::min<int64_t>(kMostClasses, static_cast<int64_t>(classes.size()));
    const auto [probabilities, labels] = logits.to(kCPU).softmax(1)[0].topk(shown);
    std::printf("%s:", path.c_str());
    page += "<tr><td>" + picture(image) + "<td><b>" + escaped(path) + "</b>";
    for (int64_t i = 0; i < shown; ++i) {
      const std::string& name = classes[static_cast<size_t>(labels[i].item<int64_t>())];
      const double percent = 100 * probabilities[i].item<double>();
      std::printf("%s %s %.1f %%", i > 0 ? "," : "", name.c_str(), percent);
      char bar[160];
      std::snprintf(bar, sizeof bar,
                    "<div><span style='display:inline-block;background:#9cf;width:%.0fpx'>&nbsp;</span> %.1f %% ",
                    2 * percent, percent);
      page += bar + escaped(name) + "</div>";
    }
    std::printf("\n");
  }
  std::filesystem::create_directories(options.out);
  const std::string file = options.out + "/predictions.html";
  io::write_file(file, page + "</table>\n");
  std::printf("wrote %s\n", file.c_str());
  return 0;
}

Tensor centre_square(const Tensor& photograph, int64_t side) {
  const int64_t height = photograph.size(1), width = photograph.size(2), shorter = std::min(height, width);
  return data::transforms::functional::resized_crop(photograph, (height - shorter) / 2, (width - shorter) / 2, shorter,
                                                    shorter, side);
}
