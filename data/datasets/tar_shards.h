// TarShards: a dataset in tar files ("shards") of WebDataset's format. Few large files hold many samples, so that disks
// and networks read sequentially. In a tar file, consecutive entries whose names are equal up to the first dot are a
// sample; the rest of the name is the name of a field:
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
#include <gradus/data/dataset.h>
#include <gradus/data/loader/samplers.h>

namespace gradus::data {

struct TarSample {
  std::string key;    ///< name of the entries up to the first dot
  std::string shard;  ///< the path of the tar file
  /// Contents of the entries, by the rest of the name in lower case: "jpg", "cls".
  std::map<std::string, io::Bytes> fields;
};

/// Decodes a sample to {image (3, H, W) float32 in [0, 1], class as an int64 scalar}. The image is in the field "png",
/// "jpg" or "jpeg"; the class is an integer in the field "cls", parsed as by Python's int(): spaces around it and a
/// sign are allowed. A missing or damaged field is an IoError that names the shard and the sample.
Example<> decode_image_and_class(const TarSample& sample);

namespace detail {
class TarStream;
}

namespace samplers {
/// Decides which samples of TarShards a loader gets next.
class TarShardSampler : public Sampler {
 public:
  explicit TarShardSampler(std::shared_ptr<detail::TarStream> stream) : stream_(std::move(stream)) {}
  void reset(uint64_t seed, uint64_t epoch) override;
  std::optional<Indices> next(size_t batch_size) override;
  /// Also reads the samples that it skips, because shards can only be read sequentially.
  void skip(uint64_t batches, size_t batch_size) override;

 private:
  std::shared_ptr<detail::TarStream> stream_;
};
}  // namespace samplers

namespace datasets {

struct TarShardsOptions {
  size_t num_replicas = 1, rank = 0;  ///< ranks read different shards; the ranks' numbers of shards differ by at most 1
  bool shuffle = true;                ///< shuffles the shards in every epoch
  size_t shuffle_buffer = 0;          ///< samples are drawn at random from a buffer of this size; 0: no buffer
  size_t read_ahead = size_t{16} << 20;  ///< limit for the bytes of samples that are read ahead from each folder
  std::chrono::milliseconds stall_limit{10'000};  ///< a folder is given up if reading a sample takes longer
};

/// The samples of all *.tar files in some folders. A thread for each folder reads the folder's shards, so it is fastest
/// if the folders are on different disks. The same shard may be in several folders: if one folder fails or takes longer
/// than stall_limit for a sample, the shard is read from another folder. If no other folder has it, the iteration
/// throws an IoError.
///
/// The samples of an epoch and their order depend only on the seed, the epoch, the options and which folder has which
/// shards. A loader's position can therefore be saved, and restored with the same number of ranks. Ranks may have
/// different numbers of samples. Set the rank in TarShardsOptions, not by DataLoaderOptions::distributed; all ranks
/// must see the same folders.
///
/// A TarShards and its copies share one stream of samples, so only one loader at a time can iterate over them.
/// get(index) returns a sample only after the sampler has drawn its index, and only once.
class TarShards : public Dataset<TarShards, TarSample> {
 public:
  /// A folder that cannot be read is an IoError. Fewer shards than ranks are a ValueError.
  explicit TarShards(std::vector<std::string> folders, const TarShardsOptions& options = {});
  samplers::TarShardSampler sampler() const { return samplers::TarShardSampler(stream_); }
  TarSample get(size_t index) override;
  /// Unknown, because shards do not store their number of samples.
  std::optional<size_t> size() const override { return std::nullopt; }
  std::vector<std::string> plan() const override;

 private:
  std::shared_ptr<detail::TarStream> stream_;
};

}  // namespace datasets

/// Writes images (C, H, W) float32 in [0, 1] and their classes to shard-000000.tar, shard-000001.tar, … with
/// `samples_per_shard` samples each, in the fields "png" and "cls". Shard i is written to folder i modulo the number of
/// folders.
void write_tar_shards(datasets::AnyDataset<> images, const std::vector<std::string>& folders, size_t samples_per_shard);

}  // namespace gradus::data
