// OrderedDict: a dictionary that keeps insertion order, as torch::OrderedDict.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <gradus/core/error.h>

namespace gradus {

/// Items in insertion order, found by key. Modules have tens of entries, so a search is a linear scan.
///   for (auto& item : net->named_parameters()) use(item.key(), item.value());
template <class Key, class Value>
class OrderedDict {
 public:
  class Item {
   public:
    Item(Key key, Value value) : pair_(std::move(key), std::move(value)) {}
    const Key& key() const { return pair_.first; }
    Value& value() { return pair_.second; }
    const Value& value() const { return pair_.second; }
    Value& operator*() { return value(); }
    const Value& operator*() const { return value(); }
    Value* operator->() { return &value(); }
    const Value* operator->() const { return &value(); }
    const std::pair<Key, Value>& pair() const { return pair_; }

   private:
    std::pair<Key, Value> pair_;
  };

  /// `key_description` is what error messages call a key. With "Parameter", a message reads "Parameter 'weight' already
  /// defined".
  explicit OrderedDict(std::string key_description = "Key") : key_description_(std::move(key_description)) {}
  OrderedDict(std::initializer_list<Item> items) : OrderedDict() {
    for (const Item& item : items) insert(item.key(), item.value());
  }

  size_t size() const { return items_.size(); }
  bool is_empty() const { return items_.empty(); }
  auto begin() { return items_.begin(); }
  auto begin() const { return items_.begin(); }
  auto end() { return items_.end(); }
  auto end() const { return items_.end(); }
  /// The first and the last item; throws an IndexError if the dictionary is empty.
  const Item& front() const {
    GRADUS_CHECK(!is_empty(), IndexError, "Called front() on an empty OrderedDict");
    return items_.front();
  }
  const Item& back() const {
    GRADUS_CHECK(!is_empty(), IndexError, "Called back() on an empty OrderedDict");
    return items_.back();
  }
  const std::vector<Item>& items() const { return items_; }  ///< in order of insertion
  Item& operator[](size_t index) { return items_[index]; }
  const Item& operator[](size_t index) const { return items_[index]; }

  /// The value of `key`, or null if it is absent.
  Value* find(const Key& key) {
    for (Item& item : items_)
      if (item.key() == key) return &item.value();
    return nullptr;
  }
  const Value* find(const Key& key) const { return const_cast<OrderedDict*>(this)->find(key); }
  bool contains(const Key& key) const { return find(key) != nullptr; }
  /// The value of `key`; throws an IndexError if it is absent.
  Value& operator[](const Key& key) {
    Value* value = find(key);
    GRADUS_CHECK(value, IndexError, key_description_, " '", key, "' is not defined");
    return *value;
  }
  const Value& operator[](const Key& key) const { return const_cast<OrderedDict&>(*this)[key]; }

  /// Appends an item; throws a ValueError if the key exists already.
  Value& insert(Key key, Value value) {
    GRADUS_CHECK(!find(key), ValueError, key_description_, " '", key, "' already defined");
    return items_.emplace_back(std::move(key), std::move(value)).value();
  }
  /// Appends without a search, for keys known to be new.
  Value& append(Key key, Value value) { return items_.emplace_back(std::move(key), std::move(value)).value(); }
  /// Inserts the items of `other`; throws a ValueError at the first key that exists already.
  void update(const OrderedDict& other) {
    for (const Item& item : other) insert(item.key(), item.value());
  }
  void erase(const Key& key) {
    for (auto item = items_.begin(); item != items_.end(); ++item)
      if (item->key() == key) return void(items_.erase(item));
    GRADUS_FAIL(IndexError, key_description_, " '", key, "' is not defined");
  }
  void clear() { items_.clear(); }
  void reserve(size_t count) { items_.reserve(count); }

  std::vector<Key> keys() const { return each<Key>(&Item::key); }
  std::vector<Value> values() const {
    return each<Value>([](const Item& item) { return item.value(); });
  }
  std::vector<std::pair<Key, Value>> pairs() const { return each<std::pair<Key, Value>>(&Item::pair); }
  const std::string& key_description() const { return key_description_; }

 private:
  template <class T, class F>
  std::vector<T> each(const F& part_of) const {
    std::vector<T> parts;
    parts.reserve(size());
    for (const Item& item : items_) parts.push_back(std::invoke(part_of, item));
    return parts;
  }

  std::string key_description_;
  std::vector<Item> items_;
};

}  // namespace gradus
