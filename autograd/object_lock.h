// What several backward passes may touch at once is locked by object: the gradient and the hooks of a leaf, the hooks
// of a node.
#pragma once

#include <mutex>

namespace gradus::detail {

/// Locks an object, a node or a leaf's AutogradMeta, until the end of the scope. A fixed pool of mutexes serves all
/// objects, so that none has a mutex of its own, and two objects may share one. Therefore no thread locks a second
/// object while it holds this lock, and none calls functions of users or destroys parts of a graph.
class ObjectLock {
 public:
  explicit ObjectLock(const void* object);

 private:
  const std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace gradus::detail
