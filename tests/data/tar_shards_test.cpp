// Tests that TarShards reads every sample once, in a deterministic order, and from several folders at the same time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include <gradus/autograd/autograd.h>
#include <gradus/core/platform/file.h>
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using namespace gradus::test;
using data::DataLoaderOptions;
using data::make_data_loader;
using data::TarSample;
using data::datasets::SyntheticDigits;
using data::datasets::TarShards;
using data::datasets::TarShardsOptions;
using data::transforms::Stack;

namespace {

constexpr auto kFar = std::chrono::seconds(60);

// Folders disk0, disk1, … with the given shards. Sample i of a shard is a file "<shard>-<i>.txt" of some bytes.
struct Disks {
  explicit Disks(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      folders.push_back(directory.file("disk" + std::to_string(i)));
      std::filesystem::create_directory(folders.back());
    }
  }
  void put(size_t folder, const std::string& shard, size_t samples, size_t bytes = 10) {
    io::TarWriter tar(folders[folder] + "/" + shard + ".tar");
    for (size_t i = 0; i < samples; ++i) tar.add(shard + "-" + std::to_string(i) + ".txt", std::string(bytes, 'x'));
    tar.commit();
  }
  // Makes shards a, b, c, … of 3, 4, 5, 3, … samples, and distributes them over the folders in turn.
  void stripe(size_t shards) {
    for (size_t i = 0; i < shards; ++i) put(i % folders.size(), std::string(1, static_cast<char>('a' + i)), 3 + i % 3);
  }

  TemporaryDirectory directory;
  std::vector<std::string> folders;
};

using Keys = std::vector<std::string>;

// Returns the remaining batches of the loader's epoch.
template <class Loader>
std::vector<Keys> rest_of(Loader& loader) {
  std::vector<Keys> batches;
  for (auto& batch : loader) {
    batches.emplace_back();
    for (const TarSample& sample : batch) batches.back().push_back(sample.key);
  }
  return batches;
}

Keys flat(const std::vector<Keys>& batches) {
  Keys keys;
  for (const Keys& batch : batches) keys.insert(keys.end(), batch.begin(), batch.end());
  return keys;
}

auto loader_of(const Disks& disks, const TarShardsOptions& options = {}, size_t workers = 0, uint64_t seed = 1) {
  const TarShards shards(disks.folders, options);
  return make_data_loader(shards, shards.sampler(), DataLoaderOptions(4).workers(workers).seed(seed));
}

Keys epoch_of(const Disks& disks, const TarShardsOptions& options = {}) {
  return flat(rest_of(*loader_of(disks, options)));
}

Keys sorted(Keys keys) {
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) { return error.what(); }
  return "(no error)";
}

// While it exists, each read of a file first calls `on_read(path)`. The destructor releases all threads that hold() has
// blocked.
class Reads {
 public:
  explicit Reads(std::function<void(const std::string&)> on_read) {
    std::lock_guard lock(mutex_);  // a stuck thread of the previous test may still read
    on_read_ = std::move(on_read), released_ = false, bytes_ = 0;
    io::read_fault = [](const std::string& path, size_t bytes) {
      std::unique_lock lock(mutex_);
      bytes_ += bytes, ++inside_;
      const auto on_read = on_read_;
      lock.unlock();
      const Leave leave;
      on_read(path);
    };
  }
  ~Reads() {
    std::unique_lock lock(mutex_);
    released_ = true;
    changed_.notify_all();
    changed_.wait(lock, [] { return inside_ == 0; });
    io::read_fault = nullptr;
  }
  static void hold() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [] { return released_; });
  }
  static size_t bytes() {
    std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Leave {
    ~Leave() {
      std::lock_guard lock(mutex_);
      --inside_;
      changed_.notify_all();
    }
  };
  static inline std::mutex mutex_;
  static inline std::condition_variable changed_;
  static inline std::function<void(const std::string&)> on_read_;
  static inline bool released_ = false;
  static inline size_t bytes_ = 0, inside_ = 0;
};

// Blocks all reads of a folder after the given number of reads. A blocked read may fail when it is released.
auto stall(const std::string& folder, int reads, bool fails = false) {
  return [=, left = std::make_shared<std::atomic<int>>(reads)](const std::string& path) {
    if (!path.starts_with(folder + "/") || (*left)-- > 0) return;
    Reads::hold();
    GRADUS_CHECK(!fails, IoError, "late");
  };
}

}  // namespace

TEST_CASE("shards of images are read as they were written", "[data][shards]") {
  const Disks disks(2);
  SyntheticDigits digits(25);
  data::write_tar_shards(digits, disks.folders, 10);
  CHECK(std::filesystem::exists(disks.folders[1] + "/shard-000001.tar"));
  const TarShards shards(disks.folders);
  CHECK(shards.explain() == "tar shards, 3 in 2 folders\n");
  for (const size_t workers : {0, 2}) {
    auto loader = make_data_loader(shards.map(data::decode_image_and_class).map(Stack<>()), shards.sampler(),
                                   DataLoaderOptions(8).workers(workers));
    std::multiset<std::pair<int64_t, float>> expected, found;  // class and sum of the pixels of each sample
    for (size_t i = 0; i < 25; ++i) {
      const auto sample = digits.get(i);
      expected.emplace(sample.target.item<int64_t>(), ((sample.data * 255).round() / 255).sum().item<float>());
    }
    for (auto& batch : *loader)
      for (int64_t i = 0; i < batch.data.size(0); ++i) {
        CHECK(batch.data.sizes() == Shape{batch.target.numel(), 3, 28, 28});
        found.emplace(batch.target.select(0, i).item<int64_t>(),
                      batch.data.select(0, i).select(0, 0).sum().item<float>());
      }
    CHECK(found == expected);
  }
}

TEST_CASE("images are written to shards as bytes", "[data][shards]") {
  const Disks disks(1);
  const Tensor image = tensor({-0.5F, 0.0F, 0.4F / 255, 0.6F / 255, 1.0F, 1.5F}).reshape({1, 2, 3});
  const Tensor colors = stack({image[0], image[0] * 0.5, image[0].flip(1)});
  data::datasets::TensorDataset pair(stack({colors, colors * 0.25}), tensor({7, -2}));
  data::write_tar_shards(pair, disks.folders, 2);
  const TarShards shards(disks.folders, {.shuffle = false});
  auto loader = make_data_loader(shards, shards.sampler(), DataLoaderOptions(3));
  size_t found = 0;
  for (auto& batch : *loader)
    for (const TarSample& sample : batch) {
      CHECK(sample.key == "0000000" + std::to_string(found));
      const data::Example<> read = data::decode_image_and_class(sample);
      const Tensor written = (pair.get(found).data.clamp(0, 1) * 255 + 0.5).floor() / 255;
      CHECK(read.data.allclose(written, 1e-6, 1e-6));
      CHECK(read.target.item<int64_t>() == (found == 0 ? 7 : -2));
      ++found;
    }
  CHECK(found == 2);
  // The shards of three folders take turns; the last one may have fewer samples.
  const Disks three(3);
  data::write_tar_shards(SyntheticDigits(9), three.folders, 2);
  for (size_t shard = 0; shard < 5; ++shard)
    CHECK(std::filesystem::exists(three.folders[shard % 3] + "/shard-00000" + std::to_string(shard) + ".tar"));
  const TarShards striped(three.folders, {.shuffle = false});
  auto striped_loader = make_data_loader(striped, striped.sampler(), DataLoaderOptions(9));
  std::map<std::string, size_t> samples_of;
  for (auto& batch : *striped_loader)
    for (const TarSample& sample : batch) ++samples_of[std::filesystem::path(sample.shard).stem()];
  CHECK(samples_of ==
        std::map<std::string, size_t>{
            {"shard-000000", 2}, {"shard-000001", 2}, {"shard-000002", 2}, {"shard-000003", 2}, {"shard-000004", 1}});
  const std::string needed = "needs a data set whose size is known, a folder and samples for each shard";
  CHECK_THROWS_WITH(data::write_tar_shards(pair, {}, 2), contains(needed));
  CHECK_THROWS_WITH(data::write_tar_shards(pair, disks.folders, 0), contains(needed));
  CHECK_THROWS_WITH(data::write_tar_shards(shards.map(data::decode_image_and_class), disks.folders, 2),
                    contains(needed));
  for (const Tensor& wrong : {image[0], image.to(kDouble)})
    CHECK_THROWS_WITH(
        data::write_tar_shards(data::datasets::TensorDataset(stack({wrong}), tensor({1})), disks.folders, 1),
        contains("tar shards are made of images (C, H, W) float32"));
}

TEST_CASE("shards: each rank reads its own, and none is omitted", "[data][shards]") {
  Disks disks(3);
  disks.stripe(11);
  const Keys all = sorted(epoch_of(disks));
  CHECK(all.size() == 43);
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == all.size());
  CHECK(sorted(epoch_of(disks, {.read_ahead = 0})) == all);
  for (size_t ranks = 1; ranks <= 11; ++ranks)
    for (const bool shuffle : {false, true}) {
      Keys together;
      std::set<char> shards_of_others;
      for (size_t rank = 0; rank < ranks; ++rank) {
        const Keys mine = epoch_of(disks, {.num_replicas = ranks, .rank = rank, .shuffle = shuffle});
        CHECK_FALSE(mine.empty());
        together.insert(together.end(), mine.begin(), mine.end());
        std::set<char> shards;
        for (const std::string& key : mine) shards.insert(key[0]);
        for (const char shard : shards) CHECK(shards_of_others.insert(shard).second);
      }
      CHECK(sorted(together) == all);
    }
  CHECK_THROWS_WITH(TarShards(disks.folders, {.num_replicas = 12}), contains("12 ranks") && contains("there are 11"));
  CHECK_THROWS_AS(TarShards(disks.folders, {.num_replicas = 2, .rank = 2}), ValueError);
  CHECK_THROWS_WITH(TarShards({disks.directory.file("none")}), contains("none': No such file"));
}

TEST_CASE("shards: each rank reads from as many folders as possible", "[data][shards]") {
  Disks disks(3);
  for (const char shard : {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'})
    disks.put(shard < 'e' ? 0 : shard < 'h' ? 1 : 2, std::string(1, shard), 1);
  const auto shards_of = [&](size_t ranks, size_t rank) {
    std::string shards;
    for (const std::string& key : epoch_of(disks, {.num_replicas = ranks, .rank = rank, .shuffle = false}))
      shards += key[0];
    return shards;
  };
  // The order of all ranks is a, e, h, b, f, c, g, d. A rank takes samples from its folders in turn.
  CHECK(shards_of(1, 0) == "aehbfcgd");
  CHECK(shards_of(2, 0) == "aehb");
  CHECK(shards_of(2, 1) == "cfdg");
  CHECK(shards_of(3, 0) == "ae");
  CHECK(shards_of(3, 1) == "bfh");
  CHECK(shards_of(3, 2) == "cgd");
}

TEST_CASE("shards: the order depends on the seed and the epoch", "[data][shards]") {
  Disks disks(2);
  disks.stripe(8);
  for (const size_t shuffle_buffer : {0, 9}) {
    const TarShardsOptions options = {.shuffle_buffer = shuffle_buffer, .read_ahead = 100};
    auto loader = loader_of(disks, options), again = loader_of(disks, options, 3),
         other = loader_of(disks, options, 0, 2);
    const Keys first = flat(rest_of(*loader)), second = flat(rest_of(*loader));
    CHECK(first != second);
    CHECK(sorted(first) == sorted(second));
    CHECK(flat(rest_of(*again)) == first);
    CHECK(flat(rest_of(*again)) == second);
    CHECK(flat(rest_of(*other)) != first);
  }
  // A shuffle buffer gives a random one of its samples, which the next sample replaces.
  const Keys unshuffled = epoch_of(disks, {.shuffle = false});
  for (const uint64_t seed : {1, 2})
    for (const size_t buffer : {1, 2, 7, 100}) {
      CAPTURE(seed, buffer);
      auto loader = loader_of(disks, {.shuffle = false, .shuffle_buffer = buffer}, 0, seed);
      for (const uint64_t epoch : {0, 1}) {
        Keys expected, held;
        for (uint64_t drawn = 0, next = 0; drawn < unshuffled.size(); ++drawn) {
          while (held.size() < buffer && next < unshuffled.size()) held.push_back(unshuffled[next++]);
          const auto chosen = static_cast<size_t>(
              random_integer(seed, data::shuffle_buffer_stream(epoch), drawn, 0, static_cast<int64_t>(held.size())));
          expected.push_back(held[chosen]);
          held[chosen] = held.back();
          held.pop_back();
        }
        CHECK(flat(rest_of(*loader)) == expected);
      }
    }
  // Samples come from the folders in turn, and the shards of each folder in the order of their names.
  const Keys in_order = epoch_of(disks, {.shuffle = false});
  CHECK(Keys(in_order.begin(), in_order.begin() + 9) ==
        Keys{"a-0", "b-0", "a-1", "b-1", "a-2", "b-2", "c-0", "b-3", "c-1"});
}

TEST_CASE("shards: an epoch is continued in the middle", "[data][shards][resume]") {
  Disks disks(2);
  disks.stripe(7);
  for (const TarShardsOptions& options :
       {TarShardsOptions{}, TarShardsOptions{.num_replicas = 2, .rank = 1, .shuffle_buffer = 5}}) {
    auto whole = loader_of(disks, options);
    const std::vector<Keys> first = rest_of(*whole), second = rest_of(*whole);
    for (size_t stop = 1; stop < first.size(); ++stop) {
      auto left = loader_of(disks, options, stop % 3);
      auto walk = left->begin();
      for (size_t i = 1; i < stop; ++i) ++walk;
      auto resumed = loader_of(disks, options, (stop + 1) % 3, 99);
      resumed->load_state(left->state());
      CHECK(rest_of(*resumed) == std::vector<Keys>(first.begin() + static_cast<std::ptrdiff_t>(stop), first.end()));
      CHECK(rest_of(*resumed) == second);
      CHECK(rest_of(*left) == second);  // `left` abandons its first epoch and starts the second
    }
  }
  // The stream does not keep samples that the sampler has skipped.
  TarShards shards(disks.folders);
  auto sampler = shards.sampler();
  const auto drawn_after = [&](uint64_t batches) {
    sampler.reset(1, 0);
    sampler.skip(batches, 4);
    return *sampler.next(4);
  };
  const std::vector<size_t> first = drawn_after(0), second = drawn_after(1);
  CHECK_THROWS_AS(shards.get(first[0]), IndexError);
  CHECK_NOTHROW(shards.get(second[0]));
}

TEST_CASE("shards: files form samples as in WebDataset", "[data][shards]") {
  Disks disks(1);
  const std::string path = disks.folders[0] + "/a.tar";
  {
    io::TarWriter tar(path);
    for (const char* name : {"./d.1/x.PNG", "./d.1/x.seg.png", "./d.1/x.cls", "README", ".hidden", "y.cls", "x.cls"})
      tar.add(name, "1");
    tar.commit();
  }
  const TarShards shards(disks.folders);
  auto loader = make_data_loader(shards, shards.sampler(), DataLoaderOptions(9));
  for (auto& batch : *loader) {
    REQUIRE(batch.size() == 3);
    CHECK(batch[0].key == "./d.1/x");
    CHECK(batch[0].shard == path);
    CHECK(batch[0].fields.size() == 3);
    CHECK(batch[0].fields.contains("seg.png"));
    CHECK(batch[1].key == "y");
    CHECK(batch[2].key == "x");
  }
  CHECK_THROWS_AS(TarShards(shards).get(0), IndexError);  // the sampler has drawn sample 0, and it was already taken
  const auto fields = [](std::map<std::string, std::string> texts) {
    TarSample sample = {"k", "s.tar", {}};
    for (const auto& [name, text] : texts) {
      const auto bytes = std::as_bytes(std::span<const char>(text));
      sample.fields[name] = io::Bytes(bytes.begin(), bytes.end());
    }
    return error_of([&] { data::decode_image_and_class(sample); });
  };
  CHECK_THAT(fields({{"png", "x"}}), contains("'s.tar': 'k' needs a field png, jpg or jpeg, and a field cls"));
  CHECK_THAT(fields({{"png", "x"}, {"cls", "cat"}}), contains("'s.tar': 'k': the field cls, 'cat', is not an integer"));
  for (const char* text : {"3.7", "7x", "7 8", "", " ", "+", "+-7", "--7", "0x7", "1e3", "7,", "99999999999999999999"})
    CHECK_THAT(fields({{"png", "x"}, {"cls", text}}), contains("'k': the field cls, '" + std::string(text) + "'"));
  for (const char* text : {"7\n", " 7\r\n", "+7", "-1"})  // these classes are valid, so the error is about the image
    CHECK_THAT(fields({{"png", "x"}, {"cls", text}}), contains("is neither a PNG nor a JPEG file"));
  CHECK_THAT(fields({{"png", "x"}, {"cls", "7"}}), contains("'s.tar': 'k' is neither a PNG nor a JPEG file"));
}

TEST_CASE("shards: a sample of more than 256 MiB is an error", "[data][shards]") {
  const Disks disks(1);
  const std::string path = disks.folders[0] + "/a.tar";
  {
    io::TarWriter tar(path);  // two files of a sample, which get other sizes
    tar.add("a.x", ""), tar.add("a.y", "");
    tar.commit();
  }
  const io::Bytes written = io::read_file(path);
  std::filesystem::remove(path);
  constexpr size_t kHalf = size_t{1} << 27;  // the files are zeros, which take no space on the disk
  std::ofstream file(path, std::ios::binary);
  for (size_t i = 0; i < 2; ++i) {
    std::string header(reinterpret_cast<const char*>(written.data()) + i * 512, 512);
    header.replace(124, 11, "01000000000");
    header.replace(148, 8, 8, ' ');
    const unsigned sum = std::accumulate(header.begin(), header.end(), 0u,
                                         [](unsigned total, char c) { return total + static_cast<unsigned char>(c); });
    char octal[8];
    std::snprintf(octal, sizeof octal, "%07o", sum);
    header.replace(148, 7, octal);
    file.seekp(static_cast<std::streamoff>(i * (512 + kHalf)));
    file << header;
  }
  file.close();
  std::filesystem::resize_file(path, 2 * (512 + kHalf) + 1024);
  CHECK_THAT(error_of([&] { epoch_of(disks); }),
             contains("sample 'a' is too large: at most 268435456 bytes are accepted"));
}

TEST_CASE("shards: a damaged shard is an error, or is read from another folder", "[data][shards]") {
  Disks disks(2);
  disks.stripe(4);
  const Keys whole = epoch_of(disks);
  const std::string damaged = disks.folders[0] + "/c.tar";
  std::filesystem::copy(damaged, disks.folders[1] + "/c.tar");
  std::filesystem::resize_file(damaged, 3 * 512);
  const Keys with_copy = epoch_of(disks, {.shuffle = false});
  CHECK(sorted(with_copy) == sorted(whole));
  std::filesystem::remove(disks.folders[1] + "/c.tar");
  CHECK_THAT(error_of([&] { epoch_of(disks); }), contains("'" + damaged + "', byte 1536: the archive is truncated"));
  disks.put(0, "c", 2);
  {
    io::TarWriter tar(damaged);
    tar.add("k.txt", "1"), tar.add("k.TXT", "2");
    tar.commit();
  }
  CHECK_THAT(error_of([&] { epoch_of(disks); }), contains("byte 1024: a second file 'k.TXT'"));
}

TEST_CASE("shards: all folders are read at the same time, up to the read-ahead limit", "[data][shards]") {
  Disks disks(4);
  for (size_t i = 0; i < 4; ++i) disks.put(i, std::string(1, static_cast<char>('a' + i)), 50, 1000);
  // Each read waits until reads of all four folders have started.
  static std::mutex mutex;
  static std::condition_variable changed;
  static std::set<std::string> begun;
  static bool late = false;
  begun.clear(), late = false;
  {
    const Reads reads([](const std::string& path) {
      std::unique_lock lock(mutex);
      begun.insert(path);
      changed.notify_all();
      late |= !changed.wait_for(lock, kFar, [] { return begun.size() == 4 || late; });
    });
    CHECK(epoch_of(disks, {.stall_limit = 2 * kFar}).size() == 200);
  }
  CHECK_FALSE(late);
  // A folder's thread reads at most the sample of 1,000 bytes that was taken, the samples that fit into 5,000 bytes,
  // one more sample, and the next tar entry.
  const Reads reads([](const std::string&) {});
  auto loader = loader_of(disks, {.read_ahead = 5000});
  auto walk = loader->begin();  // 4 samples, one from each folder
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(Reads::bytes() <= 4 * 8 * (512 + 1024));
  // When samples are taken, others are read ahead, always as many.
  const auto has_read = [](size_t bytes) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (Reads::bytes() < bytes && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return Reads::bytes() >= bytes;
  };
  for (size_t taken = 4; taken <= 80; taken += 4, ++walk) CHECK(has_read((taken + 3 * 4) * (512 + 1024)));
}

TEST_CASE("shards: all fields of the samples that are read ahead count", "[data][shards]") {
  Disks disks(1);
  {
    io::TarWriter tar(disks.folders[0] + "/a.tar");
    for (int i = 0; i < 40; ++i)
      for (const char* field : {".a", ".b", ".c", ".d"}) tar.add(std::to_string(i) + field, std::string(1000, 'x'));
    tar.commit();
  }
  const Reads reads([](const std::string&) {});
  auto loader = loader_of(disks, {.read_ahead = 13000});  // with their names, two samples have more than 12,000 bytes
  auto walk = loader->begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(Reads::bytes() <= (4 + 4) * 4 * (512 + 1024));
}

TEST_CASE("shards: another folder replaces one that does not answer", "[data][shards]") {
  Disks disks(2);
  disks.stripe(6);
  for (const auto& entry : std::filesystem::directory_iterator(disks.folders[0]))
    std::filesystem::copy(entry.path(), disks.folders[1]);
  for (const auto& entry : std::filesystem::directory_iterator(disks.folders[1]))
    if (!std::filesystem::exists(disks.folders[0] / entry.path().filename()))
      std::filesystem::copy(entry.path(), disks.folders[0]);
  const Keys whole = epoch_of(disks);
  // This limit is long enough for a busy machine: the folder that works must not exceed it.
  const TarShardsOptions options = {.read_ahead = 1, .stall_limit = std::chrono::seconds(1)};
  const std::vector<std::pair<size_t, int>> stalls = {{0, 0}, {1, 1}, {1, 9}};  // at once, in a sample, in a shard
  for (const auto& [folder, answers] : stalls) {
    const auto start = std::chrono::steady_clock::now();
    {
      const Reads reads(stall(disks.folders[folder], answers));
      CHECK(epoch_of(disks, options) == whole);  // the same samples in the same order
    }
    CHECK(std::chrono::steady_clock::now() - start < kFar);
  }
  // A folder that answers again is used again. A sample or an error that its stuck thread delivers late is ignored.
  for (const bool fails : {false, true}) {
    auto reads = std::make_unique<Reads>(stall(disks.folders[0], 4, fails));
    auto loader = loader_of(disks, options);
    Keys keys;
    for (auto& batch : *loader) {
      for (const TarSample& sample : batch) keys.push_back(sample.key);
      if (keys.size() == 12) reads.reset();
    }
    CHECK(keys == whole);
  }
  // If no other folder has the shard, the iteration throws an error.
  for (const auto& entry : std::filesystem::directory_iterator(disks.folders[1])) std::filesystem::remove(entry.path());
  const Reads reads(stall(disks.folders[0], 3));
  CHECK_THAT(error_of([&] { epoch_of(disks, options); }),
             contains("disk0' has not answered for 1000 ms, and no other folder has '"));
}
