#include <gradus/examples/common/images.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>

#include <nlohmann/json.hpp>

#include <gradus/autograd/autograd.h>
#include <gradus/data/images/image_file.h>

using namespace gradus;

namespace {

constexpr size_t kMistakes = 16;  // number of mistakes that a test keeps

}  // namespace

int64_t size_of(const Images& images) {
  const size_t size = images.size().value_or(0);
  GRADUS_CHECK(size > 0, IoError, "there are no images to train on or to test with");
  return static_cast<int64_t>(size);
}

Images first(Images images, int count) {
  if (count == 0 || count >= size_of(images)) return images;
  std::vector<size_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), size_t{0});
  return data::datasets::Subset<Images>(std::move(images), std::move(indices));
}

std::vector<double> TestResult::class_accuracy() const {
  std::vector<double> shares;
  for (const training::ClassCounts& counts : confusion.per_class()) shares.push_back(counts.recall());
  return shares;
}

void TestResult::print_classes(const std::vector<std::string>& names) const {
  size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  std::printf("accuracy by class, %.2f %% of all:\n", 100 * accuracy());
  const std::vector<training::ClassCounts> classes = confusion.per_class();
  for (size_t label = 0; label < classes.size(); ++label)
    std::printf("  %-*s %6.2f %%  (%lld of %lld)\n", static_cast<int>(width), names[label].c_str(),
                100 * classes[label].recall(), static_cast<long long>(classes[label].true_positives),
                static_cast<long long>(classes[label].support));
}

Tensor TestResult::mistake_pictures() const {
  TensorList images;
  for (const Mistake& mistake : mistakes) images.push_back(mistake.image);
  const Tensor all = stack(images);
  const float darkest = all.min().item<float>(), brightest = all.max().item<float>();
  return (all - darkest) / std::max(brightest - darkest, 1e-6F);
}

void TestResult::save(const std::string& folder, const std::vector<std::string>& names) const {
  nlohmann::ordered_json page = {{"classes", names}, {"loss", loss}, {"accuracy", accuracy()}};
  const Tensor matrix = confusion.matrix();
  for (int64_t label = 0; label < matrix.size(0); ++label) {
    const auto* row = matrix[label].data_ptr<int64_t>();
    page["confusion"].push_back(std::vector<int64_t>(row, row + matrix.size(1)));
  }
  page["mistakes"] = nlohmann::ordered_json::array();
  for (const Mistake& mistake : mistakes)
    page["mistakes"].push_back({{"label", names[static_cast<size_t>(mistake.label)]},
                                {"predicted", names[static_cast<size_t>(mistake.predicted)]},
                                {"loss", mistake.loss}});
  io::write_file(folder + "/test.json", page.dump(1) + "\n");
  if (!mistakes.empty()) data::save_image(mistake_pictures(), folder + "/mistakes.png", kMistakes);
}

TestResult evaluate(const nn::AnyModule& model, TestLoader& loader, Device device, size_t classes, const Ranks& ranks) {
  const NoGradGuard no_grad;
  model.ptr()->eval();
  TestResult result;
  result.confusion = training::ConfusionMatrix(static_cast<int64_t>(classes));
  double loss = 0;
  for (const auto& batch : loader) {
    const Tensor logits = model.forward(batch.data.to(device));  // (N, classes)
    const Tensor losses = cross_entropy(logits, batch.target.to(device), {}, Reduction::none).to(kCPU, kDouble);
    const Tensor predicted = logits.argmax(1).cpu();  // (N)
    loss += losses.sum().item<double>();
    result.confusion.update(predicted, batch.target);
    for (int64_t i = 0; i < predicted.numel(); ++i) {
      const auto label = batch.target.data_ptr<int64_t>()[i], found = predicted.data_ptr<int64_t>()[i];
      if (found != label) result.mistakes.push_back({losses.data_ptr<double>()[i], batch.data[i], label, found});
    }
    std::ranges::stable_sort(result.mistakes, std::greater(), &Mistake::loss);
    result.mistakes.resize(std::min(kMistakes, result.mistakes.size()));
    for (Mistake& mistake : result.mistakes) mistake.image = mistake.image.clone();  // frees the batch
  }
  model.ptr()->train();
  if (ranks.host) result.confusion.all_reduce(*ranks.host);
  result.loss = ranks.sum({loss})[0] / static_cast<double>(result.images());
  return result;
}
