// What explain.cpp and its proposals share.
#pragma once

#include <memory>

#include <gradus/core/registry.h>
#include <gradus/training/explain.h>

namespace gradus::training::detail {

/// Seconds of the fastest of `count` calls of work(), after one more: what it takes when nothing disturbs it.
double least_seconds(int count, const std::function<void()>& work);

/// The calls of Explanation::calls, with their arguments.
using WatchedCalls = std::vector<std::unique_ptr<graph::Call>>;

/// Fills `faster` and `smaller`.
void add_proposals(Explanation& explanation, const WatchedCalls& calls, Backend& backend,
                   const std::function<void()>& step, const ExplainOptions& options);

}  // namespace gradus::training::detail
