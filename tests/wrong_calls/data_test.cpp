// Wrong calls: Data sets, transforms, loaders and devices.
#include <gradus/core/registry.h>
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

using data::datasets::ImageDataset;
using Normalize = data::transforms::Normalize<>;

ImageDataset four_images() {
  return {zeros({4, 3, 8, 8}, kByte).array(), zeros({4}, kByte).array(), 10, ImageDataset::kTrain, "four images"};
}
void iterate(auto dataset, const data::DataLoaderOptions& options) {
  auto loader = data::make_data_loader(dataset.map(data::transforms::Stack<>()), options);
  for (auto& batch : *loader) (void)batch;
}
data::DataLoaderOptions workers(size_t count) { return data::DataLoaderOptions(1).workers(count); }
void iterate(const data::DataLoaderOptions& options) { iterate(four_images(), options); }
void transform_images(auto with) { iterate(four_images().map(std::move(with)), 2); }

void transform_images(Tensor (*with)(const Tensor&)) { transform_images(data::transforms::TensorLambda<>(with)); }
Tensor find_no_file(const Tensor&) { throw ValueError("no such file"); }
Tensor add_five(const Tensor& x) { return x + f({5}); }

/// Four images of three classes.
void label_images(const Tensor& labels, const std::string& name) {
  ImageDataset(zeros({4, 1, 2, 2}, kByte).array(), labels.array(), 3, ImageDataset::kTrain, name);
}

// clang-format off
const WrongCalls data_calls("data", {
    wrong<ValueError>("", {"batch_size"}, [] { iterate(0); }),
    wrong<ValueError>("", {"workers", "100000"}, [] { iterate(workers(100000)); }),
    wrong<ValueError>("", {"max_jobs"}, [] { iterate(workers(1).max_jobs(0)); }),
    wrong<IndexError>("", {"9", "4"}, [] { four_images().get(9); }),
    wrong<IndexError>("", {"9", "4"}, [] { four_images().get_stacked({1, 9}); }),
    wrong<Error>("", {"Normalize", "2 means", "(2, 3, 8, 8)"}, [] { transform_images(Normalize({0.5, 0.5}, {1, 1})); }),
    wrong<ValueError>("", {"deviation", "0"}, [] { Normalize(0.5, 0); }),
    wrong<ValueError>("", {"sample ", "no such file"}, [] { transform_images(find_no_file); }),
    wrong<ShapeError>("", {"sample ", "[add]", "(3, 8, 8)", "(5,)"}, [] { transform_images(add_five); }),
    wrong<IoError>("", {"four labels", "7", "3"}, [] { label_images(full({4}, 7, kByte), "four labels"); }),
    wrong<IoError>("", {"three labels", "4", "3"}, [] { label_images(zeros({3}, kByte), "three labels"); }),
    wrong<IoError>("", {"/nowhere"}, [] { data::datasets::MNIST("/nowhere"); }),
});

const WrongCalls devices("devices", {
    wrong<ValueError>("", {"toaster", "cuda:N"}, [] { Device("toaster"); }),
    wrong<ValueError>("", {"cuda:x", "cuda:N"}, [] { Device("cuda:x"); }),
    wrong<DeviceError>("", {"abacus", "naive", "openmp"}, [] { set_backend("abacus"); }),
    wrong<DeviceError>("", {"abacus", "naive", "openmp"}, [] { BackendGuard("abacus"); }),
    wrong<DeviceError>("zeros", {"CUDA"}, [] { zeros({2}, Device("cuda:99")); }),
    wrong<DeviceError>("to", {"CUDA"}, [] { f({2}).to(Device("cuda:99")); }),
    wrong<DeviceError>("to", {"CUDA"}, [] { nn::Linear(2, 2)->to(Device("cuda:99")); }).found_outside_of_operators(),
});
// clang-format on

}  // namespace
