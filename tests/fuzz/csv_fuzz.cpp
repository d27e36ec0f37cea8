// Any text is a table or an error: rows are as long as the header, and columns can be read or say why not.
#include <gradus/data/datasets/csv.h>

#include <cstdint>
#include <cstdlib>

using namespace gradus;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  try {
    const data::Csv table = data::parse_csv({reinterpret_cast<const char*>(bytes), size}, "fuzzed.csv");
    for (const auto& row : table.rows)
      if (row.size() != table.names.size()) std::abort();
    for (const std::string& name : table.names) {
      if (table.categories(name).first.numel() != static_cast<int64_t>(table.rows.size())) std::abort();
      try {
        table.numbers(name);
      } catch (const ValueError&) {}
    }
  } catch (const IoError&) {}
  return 0;
}
