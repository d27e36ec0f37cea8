// Measures whether the loader is faster than the training step. For each dataset with its usual augmentation and for 0,
// 1, 2 and 4 workers, prints the time to make a batch, how long a step waits for a batch, and the time of the step
// itself, as means over epochs. The images are random bytes with the dataset's shape, because the content does not
// influence the time.
//
//   loader --data-set cifar10 --threads 2 --json results.jsonl
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/nets.h>
#include <gradus/benchmarks/timing.h>

namespace {

using namespace gradus;
using Images = data::datasets::AnyDataset<>;
namespace transforms = data::transforms;

/// A dataset with its augmentation, and a net.
struct Course {
  std::string name;
  Shape image;  // (C, H, W)
  size_t batch;
  std::function<Images(Images)> augment;
  std::function<nn::AnyModule()> make_net;
};

Images moved_digits(Images digits) {
  transforms::RandomAffine affine(10);
  affine.translate(0.1, 0.1).scale(0.9, 1.1).shear(5).interpolation(transforms::Interpolation::kBilinear);
  return digits.map(affine).map(transforms::Normalize<>(0.1307, 0.3081));
}

Images cropped_and_mirrored(Images images) {
  return images.map(transforms::RandomCrop(32).padding(4))
      .map(transforms::RandomHorizontalFlip())
      .map(transforms::Normalize<>({0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}));
}

Images photographs(Images images) {
  return images.map(transforms::RandomCrop(96).padding(12))
      .map(transforms::RandomHorizontalFlip())
      .map(transforms::ColorJitter(0.4, 0.4, 0.4, 0.1))
      .map(transforms::Normalize<>(0.5, 0.5));
}

Images as_they_are(Images digits) { return digits.map(transforms::Normalize<>(0.1307, 0.3081)); }

std::vector<Course> courses() {
  const auto small_resnet = [] { return nn::AnyModule(ResNet18(ResNet18Options().width(16))); };
  return {
      {"mnist", {1, 28, 28}, 64, as_they_are, [] { return nn::AnyModule(benchmarks::lenet()); }},
      {"mnist affine", {1, 28, 28}, 64, moved_digits, [] { return nn::AnyModule(benchmarks::lenet()); }},
      {"cifar10 crop+flip", {3, 32, 32}, 128, cropped_and_mirrored, small_resnet},
      {"stl10 crop+flip+color", {3, 96, 96}, 32, photographs, [] { return nn::AnyModule(benchmarks::stl10_net()); }}};
}

Images random_images(const Course& course, size_t count) {
  const int64_t n = static_cast<int64_t>(count);
  const Array pixels = randint(256, {n, course.image[0], course.image[1], course.image[2]}).to(kByte).array();
  return data::datasets::ImageDataset(pixels, randint(10, {n}).to(kByte).array(), 10,
                                      data::datasets::ImageDataset::kTrain, course.name);
}

/// Milliseconds per batch.
struct Figures {
  double load = 0;    // to make it, on any thread
  double wait = 0;    // waiting time of the step
  double update = 0;  // the step without waiting
};

// Returns means over as many epochs as fit into `seconds`, after an epoch to warm up.
Figures measure(const Course& course, size_t workers, double seconds) {
  manual_seed(0);
  const size_t batches = 20;
  auto loader =
      data::make_data_loader(course.augment(random_images(course, batches * course.batch)).map(transforms::Stack<>()),
                             data::DataLoaderOptions(course.batch).workers(workers));
  const nn::AnyModule net = course.make_net();
  optim::Adam optimizer(net.ptr()->parameters(), optim::AdamOptions(1e-3));
  const auto epoch = [&] {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      cross_entropy(net.forward(batch.data), batch.target).backward();
      optimizer.step();
    }
  };
  epoch();
  Figures sums;
  double epochs = 0;
  for (const double end = benchmarks::now_ms() + 1000 * seconds; benchmarks::now_ms() < end; ++epochs) {
    const double start = benchmarks::now_ms();
    epoch();
    const double time = benchmarks::now_ms() - start;
    const data::LoaderTimings timings = loader->timings();
    // Does not count the wait for the first batch, because no batch was prepared at the start of the epoch.
    sums.load += 1000 * timings.load_seconds;
    sums.wait += 1000 * (timings.wait_seconds - timings.first_wait_seconds);
    sums.update += time - 1000 * timings.wait_seconds;
  }
  const double steps = epochs * static_cast<double>(batches);
  return {sums.load / steps, sums.wait / (steps - epochs), sums.update / steps};
}

}  // namespace

int main(int argc, char** argv) {
  std::string data_set;
  std::vector<size_t> workers = {0, 1, 2, 4};
  double seconds = 2;
  benchmarks::Program program("loader", "Times loaders beside the training steps that they feed");
  program.option("--data-set", data_set, "beginning of the names of the data sets to measure; default: all");
  program.option("--workers", workers, "numbers of threads that prepare batches");
  program.option("--seconds", seconds, "time per row");
  program.json_option();
  return program.run(argc, argv, [&] {
    std::printf("%-22s %6s %8s %9s %9s %10s\n", "data set", "batch", "workers", "load ms", "wait ms", "update ms");
    for (const Course& course : courses()) {
      if (course.name.compare(0, data_set.size(), data_set) != 0) continue;
      for (const size_t count : workers) {
        const Figures ms = measure(course, count, seconds);
        std::printf("%-22s %6zu %8zu %9.3f %9.3f %10.3f\n", course.name.c_str(), course.batch, count, ms.load, ms.wait,
                    ms.update);
        std::fflush(stdout);
        program.record({{"data_set", course.name},
                        {"batch", course.batch},
                        {"workers", count},
                        {"threads", num_threads()},
                        {"version", version()},
                        {"load_ms", ms.load},
                        {"wait_ms", ms.wait},
                        {"update_ms", ms.update}});
      }
    }
  });
}
