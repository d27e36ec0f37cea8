#include <nlohmann/json.hpp>

#include <gradus/core/platform/file.h>
#include <gradus/distributed/comm/local/message_log.h>
#include <gradus/inspect/lab/lab.h>
#include <gradus/inspect/lab/lab_parts.h>

void gradus::write_lab(const dist::MessageLog& log, const std::string& path, const std::string& title) {
  training::detail::Texts texts;
  nlohmann::json events = nlohmann::json::array();
  for (const dist::MessageLog::Event& event : log.events) {
    if (96 * events.size() + texts.bytes() > training::detail::kMostBytes) break;
    const auto size = static_cast<int64_t>(size_of(event.dtype));
    const auto elements = static_cast<int64_t>(event.bytes) / size,
               kept = static_cast<int64_t>(event.body.size()) / size;
    StridedLayout layout;
    layout.dtype = event.dtype, layout.shape = {kept}, layout.strides = {1};
    events.push_back({static_cast<int>(event.kind), event.rank, event.peer, event.message, texts(event.text),
                      event.bytes, texts(std::string(name(event.dtype)) + " " + to_string(Shape{elements})),
                      texts(training::detail::first_numbers(View(layout, event.body.data()), kept))});
  }
  const size_t left_out = log.events.size() - events.size();
  const nlohmann::json data = {{"kind", "messages"},
                               {"ranks", log.ranks},
                               {"events", std::move(events)},
                               {"left_out", left_out},
                               {"notes", nlohmann::json::array()},
                               {"texts", texts.list()}};
  io::write_file(
      path, training::detail::lab_page(title, "", data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}
