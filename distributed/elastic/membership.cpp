#include <gradus/distributed/elastic/membership.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include <gradus/core/error.h>

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
    if (static_cast<int>(next.ranks.size()) < min_ranks) next.end = cause;
  }
  return next;
}

std::optional<int> Members::rank_of(int worker) const {
  const auto place = std::find(ranks.begin(), ranks.end(), worker);
  if (place == ranks.end()) return std::nullopt;
  return static_cast<int>(place - ranks.begin());
}

bool Members::has_spare(int worker) const { return std::find(spares.begin(), spares.end(), worker) != spares.end(); }

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
  const auto workers = [](std::istringstream& in) {
    std::vector<int> numbers;
    for (int number; in >> number;) numbers.push_back(number);
    in.clear();
    return numbers;
  };
  std::istringstream in(text);
  Members members;
  std::string word;
  const auto expect = [&](const char* expected) {
    GRADUS_CHECK(in >> word && word == expected, CommError, "'", text, "' is no list of a job's workers");
  };
  expect("generation");
  GRADUS_CHECK(in >> members.generation, CommError, "'", text, "' is no list of a job's workers");
  expect("ranks");
  members.ranks = workers(in);
  expect("spares");
  members.spares = workers(in);
  expect("min_ranks");
  GRADUS_CHECK(in >> members.min_ranks, CommError, "'", text, "' is no list of a job's workers");
  if (in >> word) {
    GRADUS_CHECK(word == "end", CommError, "'", text, "' is no list of a job's workers");
    std::getline(in >> std::ws, members.end);
  }
  return members;
}

Members Membership::latest() {
  while (has(newest_ + 1)) ++newest_;
  return Members::parse(store_->get(key(newest_)));
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
    const std::string cause = "did not come within " + std::to_string(timeout.count()) + " ms";
    for (size_t r = 0; r < all.size(); ++r)
      if (!store_->check({all[r]})) remove(members.ranks[r], cause);
    return store_->get(met, timeout) == "all";
  }
}

void Membership::add(const Members& next) {
  store_->compare_set(key(next.generation), "", next.str());
  store_->compare_set(met_key(next.generation - 1), "", "newer");
}

Members Membership::remove(int worker, const std::string& cause) {
  while (true) {
    const Members newest = latest();
    if (!newest.end.empty() || (!newest.rank_of(worker) && !newest.has_spare(worker))) return newest;
    add(newest.without(worker, cause));
  }
}

Members Membership::renew(int64_t generation) {
  Members newest = latest();
  if (newest.generation > generation || !newest.end.empty()) return newest;
  ++newest.generation;
  add(newest);
  return latest();
}

}  // namespace gradus::dist
