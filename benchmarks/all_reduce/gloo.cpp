#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <gradus/benchmarks/all_reduce/peer.h>

namespace gradus::benchmarks {

AllReduce gloo_all_reduce(int rank, int size, const std::string& directory) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(directory);
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  return [context](float* x, int64_t count) {  // the same call as torch.distributed's gloo backend makes
    gloo::AllreduceOptions options(context);
    options.setOutput(x, static_cast<size_t>(count));
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  };
}

}  // namespace gradus::benchmarks
