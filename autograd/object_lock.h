// What several backward passes may touch at once is locked by object: the gradient and the hooks of a leaf, the hooks
// of a node.
#pragma once

#include <mutex>

namespace gradus::detail {

/// Locks an object, a node or a leaf's AutogradMeta, until the end of the scope. Objects have no mutex: a fixed
/// pool of mutexes serves all of them, and two objects may share one. A thread that holds this lock must not lock a
/// second object, call a user's function or destroy a part of a graph.
class ObjectLock {
 public:
  explicit ObjectLock(const void* object);

 private:
  const std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace gradus::detail
