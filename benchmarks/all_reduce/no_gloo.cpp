#include <gradus/benchmarks/all_reduce/peer.h>

namespace gradus::benchmarks {

AllReduce gloo_all_reduce(int, int, const std::string&) { return {}; }

}  // namespace gradus::benchmarks
