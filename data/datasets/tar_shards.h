// Datasets in tar files ("shards") in WebDataset's format: many samples in few files, which disks and networks can read
// sequentially. Consecutive files with the same name up to the first dot form a sample; extensions name its fields:
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
#include <gradus/data/combine.h>
#include <gradus/data/loader/samplers.h>

namespace gradus::data {

struct TarSample {
  std::string key;                          ///< name of the files up to the first dot
  std::string shard;                        ///< the path of the tar file
  std::map<std::string, io::Bytes> fields;  ///< content by the rest of the name, in lower case: "jpg", "cls"
};

/// Decodes {image (3, H, W) float32 in [0, 1], class as an int64 scalar} from the field "png", "jpg" or "jpeg" and the
/// field "cls", an integer as Python's int() reads it: spaces around it and a sign are allowed. Missing or damaged
/// fields are an IoError that names the shard and the sample.
Example<> decode_image_and_class(const TarSample& sample);

namespace detail {
class TarStream;
}

namespace samplers {
/// Draws the samples of TarShards for one loader.
class TarShardSampler : public Sampler {
 public:
  explicit TarShardSampler(std::shared_ptr<data::detail::TarStream> stream) : stream_(std::move(stream)) {}
  void reset(uint64_t seed, uint64_t epoch) override;
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  /// Reads the samples that it skips.
  void skip(uint64_t batches, size_t batch_size) override;

 private:
  std::shared_ptr<data::detail::TarStream> stream_;
};
}  // namespace samplers

namespace datasets {

struct TarShardsOptions {
  size_t num_replicas = 1, rank = 0;     ///< ranks read disjoint shards, whose numbers differ by at most 1
  bool shuffle = true;                   ///< shuffles the shards in every epoch
  size_t shuffle_buffer = 0;             ///< number of samples from which the next one is drawn; 0: keeps the order
  size_t read_ahead = size_t{16} << 20;  ///< maximum size in bytes of samples that are read ahead in each folder
  std::chrono::milliseconds stall_limit{10'000};  ///< maximum time for reading a sample
};

/// The samples of all *.tar files in some folders. Each folder is read by a separate thread, all at the same time:
/// distribute the shards of a dataset over several disks. The same shard may be in several folders: if one of them
/// fails or takes longer than stall_limit, another is used. If there is no other, throws an IoError.
///
/// The samples of an epoch depend only on the seed, the epoch, the options and the distribution of shards over folders,
/// so a loader's position can be saved and restored with the same number of ranks. Ranks may have different numbers of
/// samples. The rank is set in the options of this class, not by DataLoaderOptions::distributed, and all ranks need the
/// same folders.
///
/// Only one iteration is possible at a time: copies share it, and each sample that the sampler has drawn can be taken
/// once.
class TarShards : public Dataset<TarShards, TarSample> {
 public:
  /// A folder that cannot be read is an IoError; fewer shards than ranks are a ValueError.
  explicit TarShards(std::vector<std::string> folders, const TarShardsOptions& options = {});
  samplers::TarShardSampler sampler() const { return samplers::TarShardSampler(stream_); }
  TarSample get(size_t index) override;
  /// Unknown, because shards do not store their number of samples.
  std::optional<size_t> size() const override { return std::nullopt; }
  std::vector<std::string> plan() const override;

 private:
  std::shared_ptr<data::detail::TarStream> stream_;
};

}  // namespace datasets

/// Writes images (C, H, W) float32 in [0, 1] with their classes as shard-000000.tar, … of `samples_per_shard` samples
/// each, with the fields "png" and "cls". Folder i of n gets every n-th shard, starting with the i-th.
void write_tar_shards(datasets::AnyDataset<> images, const std::vector<std::string>& folders, size_t samples_per_shard);

}  // namespace gradus::data
