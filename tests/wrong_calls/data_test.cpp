// Wrong calls: Data sets, transforms, loaders and devices.
#include <gradus/core/registry.h>
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

using data::datasets::ImageDataset;

ImageDataset four_images() {
  return {zeros({4, 3, 8, 8}, kByte).array(), zeros({4}, kByte).array(), 10, ImageDataset::kTrain, "four images"};
}
template <class Dataset>
void run(Dataset dataset, const data::DataLoaderOptions& options = 2) {
  auto loader = data::make_data_loader(std::move(dataset), options);
  for (auto& batch : *loader) (void)batch;
}
data::transforms::Stack<> stack_of_images() { return {}; }

// clang-format off
const WrongCalls data_calls("data", {
    wrong<ValueError>("", {"batch_size"}, [] { run(four_images().map(stack_of_images()), 0); }).found_outside_of_operators(),
    wrong<ValueError>("", {"workers", "100000"}, [] { run(four_images().map(stack_of_images()), data::DataLoaderOptions(1).workers(100000)); }).found_outside_of_operators(),
    wrong<ValueError>("", {"max_jobs"}, [] { run(four_images().map(stack_of_images()), data::DataLoaderOptions(1).workers(1).max_jobs(0)); }).found_outside_of_operators(),
    wrong<IndexError>("", {"9", "4"}, [] { four_images().get(9); }).found_outside_of_operators(),
    wrong<IndexError>("", {"9", "4"}, [] { four_images().get_stacked({1, 9}); }).found_outside_of_operators(),
    wrong<Error>("", {"Normalize", "2 means", "(2, 3, 8, 8)"}, [] { run(four_images().map(data::transforms::Normalize<>({0.5, 0.5}, {1, 1})).map(stack_of_images())); }).found_outside_of_operators(),
    wrong<ValueError>("", {"deviation", "0"}, [] { data::transforms::Normalize<>(0.5, 0); }).found_outside_of_operators(),
    wrong<ValueError>("", {"sample ", "no such file"}, [] { run(four_images().map(data::transforms::TensorLambda<>([](const Tensor&) -> Tensor { throw ValueError("no such file"); })).map(stack_of_images())); }).found_outside_of_operators(),
    wrong<ShapeError>("", {"sample ", "[add]", "(3, 8, 8)", "(5,)"}, [] { run(four_images().map(data::transforms::TensorLambda<>([](const Tensor& x) { return x + f({5}); })).map(stack_of_images())); }).found_outside_of_operators(),
    wrong<IoError>("", {"four labels", "7", "3"}, [] { ImageDataset(zeros({4, 1, 2, 2}, kByte).array(), full({4}, 7, kByte).array(), 3, ImageDataset::kTrain, "four labels"); }).found_outside_of_operators(),
    wrong<IoError>("", {"three labels", "4", "3"}, [] { ImageDataset(zeros({4, 1, 2, 2}, kByte).array(), zeros({3}, kByte).array(), 3, ImageDataset::kTrain, "three labels"); }).found_outside_of_operators(),
    wrong<IoError>("", {"/nowhere"}, [] { data::datasets::MNIST("/nowhere"); }).found_outside_of_operators(),
});

const WrongCalls devices("devices", {
    wrong<ValueError>("", {"toaster", "cuda:N"}, [] { Device("toaster"); }).found_outside_of_operators(),
    wrong<ValueError>("", {"cuda:x", "cuda:N"}, [] { Device("cuda:x"); }).found_outside_of_operators(),
    wrong<DeviceError>("", {"abacus", "naive", "openmp"}, [] { set_backend("abacus"); }).found_outside_of_operators(),
    wrong<DeviceError>("", {"abacus", "naive", "openmp"}, [] { BackendGuard guard("abacus"); }).found_outside_of_operators(),
    wrong<DeviceError>("zeros", {"CUDA"}, [] { zeros({2}, Device("cuda:99")); }),
    wrong<DeviceError>("to", {"CUDA"}, [] { f({2}).to(Device("cuda:99")); }),
    wrong<DeviceError>("to", {"CUDA"}, [] { nn::Linear(2, 2)->to(Device("cuda:99")); }).found_outside_of_operators(),
});
// clang-format on

}  // namespace
