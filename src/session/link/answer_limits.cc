#include "src/session/link/answer_limits.h"

#include <variant>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::size_t kMostWords = 16U << 10;  // bytes

void CheckText(const char* what, const std::string& text) { CheckName(what, text, ErrorCode::kCorrupt); }

void CheckAll(const wire::Welcome& welcome) {
  CheckText("publisher", welcome.publisher);
  CheckText("run", welcome.run);
  for (const std::string* text :
       {&welcome.host.boot_id, &welcome.host.network, &welcome.host.user, &welcome.host.process}) {
    CheckText("host", *text);
  }
  for (const wire::ChannelAddress& channel : welcome.channels) {
    CheckText("channel", channel.name);
    CheckText("channel address", channel.address);
  }
}

void CheckAll(const wire::StatusAnswer& answer) {
  for (const wire::VersionStatus& version : answer.versions) {
    CheckText("lineage", version.lineage);
    CheckText("run", version.run);
    for (const wire::ReaderStatus& reader : version.receivers) {
      CheckText("engine", reader.engine);
      CheckText("relay", reader.takes_from);
      CheckText("relay", reader.relays_at);
    }
  }
}

void CheckAll(const wire::FetchFrom& fetch) { CheckText("relay", fetch.relay); }

template <class Other>
void CheckAll(const Other& /*no names in it*/) {}

}  // namespace

void CheckNames(const wire::Message& message) {
  std::visit([](const auto& alternative) { CheckAll(alternative); }, message);
}

std::string WordsOf(const wire::Refused& refused) { return Escaped(refused.message, kMostWords); }

}  // namespace layercast
