#include <gradus/distributed/elastic/membership.h>

#include <iterator>
#include <numeric>
#include <set>
#include <sstream>

namespace gradus::dist {

Members Members::first(int ranks, int spares, int min_ranks) {
  Members first;
  first.ranks.resize(static_cast<size_t>(ranks));
  first.spares.resize(static_cast<size_t>(spares));
  std::iota(first.ranks.begin(), first.ranks.end(), 0);
  std::iota(first.spares.begin(), first.spares.end(), ranks);
  first.min_ranks = min_ranks;
  return first;
}

Members Members::without(int worker, const std::string& cause) const {
  Members next = *this;
  ++next.generation;
  std::erase(next.spares, worker);
  const auto place = std::find(next.ranks.begin(), next.ranks.end(), worker);
  if (place == next.ranks.end()) return next;
  if (!next.spares.empty()) {
    *place = next.spares.front();
    next.spares.erase(next.spares.begin());
  } else {
    next.ranks.erase(place);
    if (static_cast<int>(next.ranks.size()) < min_ranks) next.end = cause.empty() ? "a rank was lost" : cause;
  }
  return next;
}

std::optional<int> Members::rank_of(int worker) const {
  const auto place = std::find(ranks.begin(), ranks.end(), worker);
  return place == ranks.end() ? std::nullopt : std::optional(static_cast<int>(place - ranks.begin()));
}

std::string Members::str() const {
  std::ostringstream text;
  text << "generation " << generation << " ranks";
  for (const int worker : ranks) text << ' ' << worker;
  text << " spares";
  for (const int worker : spares) text << ' ' << worker;
  text << " min_ranks " << min_ranks;
  if (!end.empty()) text << " end " << end;
  return text.str();
}

Members Members::parse(const std::string& text) {
  std::istringstream in(text);
  Members members;
  std::string word;
  const auto workers = [&] {
    std::vector<int> numbers;
    for (int number; in >> number;) numbers.push_back(number);
    in.clear();
    return numbers;
  };
  in >> word >> members.generation >> word;
  members.ranks = workers();
  in >> word;
  members.spares = workers();
  in >> word >> members.min_ranks;
  if (in >> word && in.get()) members.end.assign(std::istreambuf_iterator<char>(in), {});
  std::set<int> all(members.ranks.begin(), members.ranks.end());
  all.insert(members.spares.begin(), members.spares.end());
  const bool valid = members.str() == text && members.generation >= 0 && members.min_ranks > 0 &&
                     all.size() == members.ranks.size() + members.spares.size() && (all.empty() || *all.begin() >= 0) &&
                     (!members.end.empty() || members.ranks.size() >= static_cast<size_t>(members.min_ranks));
  GRADUS_CHECK(valid, CommError, "not a list of a job's workers: '", text, "'");
  return members;
}

Members Membership::list(int64_t generation) {
  const Members members = Members::parse(store_->get(key(generation)));
  GRADUS_CHECK(members.generation == generation, CommError, "the list of a job's workers of generation ", generation,
               " is '", members.str(), "'");
  return members;
}

Members Membership::latest() {
  while (has(newest_ + 1)) ++newest_;
  return list(newest_);
}

Members Membership::after(int64_t generation, Milliseconds timeout) {
  store_->wait({key(generation + 1)}, timeout);
  return latest();
}

bool Membership::meet(const Members& members, int worker, Milliseconds timeout) {
  const auto came = [&](int of) { return "came/" + std::to_string(members.generation) + "/" + std::to_string(of); };
  const std::string met = met_key(members.generation);
  std::vector<std::string> all;
  for (const int of : members.ranks) all.push_back(came(of));
  store_->set(came(worker), "yes");
  if (store_->check(all)) store_->compare_set(met, "", "all");
  try {
    return store_->get(met, timeout) == "all";
  } catch (const CommError&) {
    const std::string cause = "did not arrive within " + std::to_string(timeout.count()) + " ms";
    for (size_t r = 0; r < all.size(); ++r)
      if (!store_->check({all[r]})) remove(members.ranks[r], cause);
    if (store_->check(all)) store_->compare_set(met, "", "all");  // the last worker to come may have died before it
    return store_->get(met, timeout) == "all";
  }
}

Members Membership::announce_latest() {
  const Members newest = latest();
  if (newest.generation > 0) store_->compare_set(met_key(newest.generation - 1), "", "newer");
  return newest;
}

Members Membership::remove(int worker, const std::string& cause) {
  store_->compare_set(cause_key(worker), "", cause);
  while (true) {
    const Members newest = announce_latest();
    if (!newest.end.empty() || !newest.has(worker)) return newest;
    store_->compare_set(key(newest.generation + 1), "", newest.without(worker, cause).str());
  }
}

Members Membership::renew(int64_t generation) {
  Members newest = announce_latest();
  if (newest.generation > generation || !newest.end.empty()) return newest;
  ++newest.generation;
  store_->compare_set(key(newest.generation), "", newest.str());
  return announce_latest();
}

void Membership::finish() {
  store_->set(kFinished, "yes");
  renew(latest().generation);
}

}  // namespace gradus::dist
