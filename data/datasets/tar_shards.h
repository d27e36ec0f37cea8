// Data sets in tar files ("shards"), in WebDataset's format: many samples in few files, which disks and networks read
// from beginning to end. Consecutive files of one name up to its first dot are a sample, extensions say what is what:
//
//   000017.jpg  000017.cls  000018.jpg  000018.cls  …
//
//   data::datasets::TarShards shards({"/disk0/train", "/disk1/train"});
//   auto loader = data::make_data_loader(shards.map(data::decode_image_and_class).map(data::transforms::Stack<>()),
//                                        shards.sampler(), data::DataLoaderOptions(64).workers(2));
//
// https://github.com/webdataset/webdataset
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gradus/core/io/tar.h>
#include <gradus/core/runtime/clock.h>
#include <gradus/data/any_dataset.h>
#include <gradus/data/loader/samplers.h>

namespace gradus::data {

struct TarSample {
  std::string key;                          ///< the files' name up to the first dot
  std::string shard;                        ///< the path of the tar file
  std::map<std::string, io::Bytes> fields;  ///< the files by the rest of their name, in lower case: "jpg", "cls"
};

/// {image (3, H, W) float32 in [0, 1], class as an int64 scalar} from the fields "png", "jpg" or "jpeg", and "cls", an
/// integer as Python's int() reads it: blanks around it and a sign may be there. Fields that are missing or damaged are
/// an IoError that names the shard and the sample.
Example<> decode_image_and_class(const TarSample& sample);

namespace detail {
class TarStream;
}

namespace samplers {
/// Draws the samples of TarShards, for one loader.
class TarShardSampler : public Sampler {
 public:
  explicit TarShardSampler(std::shared_ptr<data::detail::TarStream> stream) : stream_(std::move(stream)) {}
  void reset(uint64_t seed, uint64_t epoch) override;
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  /// Reads what it passes over.
  void skip(uint64_t batches, size_t batch_size) override;

 private:
  std::shared_ptr<data::detail::TarStream> stream_;
};
}  // namespace samplers

namespace datasets {

struct TarShardsOptions {
  size_t num_replicas = 1, rank = 0;     ///< each rank reads shards of its own: numbers that differ by at most 1
  bool shuffle = true;                   ///< the order of the shards, anew in each epoch
  size_t shuffle_buffer = 0;             ///< samples among which the next one is drawn; 0: in the shards' order
  size_t read_ahead = size_t{16} << 20;  ///< bytes of samples that wait for their use, for each folder
  std::chrono::milliseconds stall_limit{10'000};  ///< how long a folder may take to read a sample
};

/// The samples of all *.tar files in some folders. Each folder is read by a thread of its own, all at the same time:
/// put the shards of a data set on several disks. A shard may be in several folders, as the same file: where one of
/// them fails, or takes longer than stall_limit, another goes on. Without another, that is an IoError.
///
/// An epoch's samples are a function of the seed, the epoch, the options and which shards are in which folders, so a
/// loader's position can be saved, and taken up by as many ranks as have saved theirs. Ranks need not have equally many
/// samples. They are told apart here, not by DataLoaderOptions::distributed, and all need the same folders.
///
/// There is one walk at a time: copies share it, and each sample that the sampler has drawn can be taken once.
class TarShards : public Dataset<TarShards, TarSample> {
 public:
  /// A folder that cannot be read is an IoError, fewer shards than ranks are a ValueError.
  explicit TarShards(std::vector<std::string> folders, const TarShardsOptions& options = {});
  samplers::TarShardSampler sampler() const { return samplers::TarShardSampler(stream_); }
  TarSample get(size_t index) override;
  /// Unknown: shards do not tell how many samples they have.
  std::optional<size_t> size() const override { return std::nullopt; }
  std::vector<std::string> plan() const override;

 private:
  std::shared_ptr<data::detail::TarStream> stream_;
};

}  // namespace datasets

/// Writes images (C, H, W) float32 in [0, 1] with their classes as shard-000000.tar, … of `samples_per_shard` samples
/// each, fields "png" and "cls"; folder number i of n gets every n-th shard, from the i-th on.
void write_tar_shards(datasets::AnyDataset<> images, const std::vector<std::string>& folders, size_t samples_per_shard);

}  // namespace gradus::data
