#include "src/control/open_calls.h"

#include <utility>

namespace layercast {

OpenCalls::Call OpenCalls::Open(const Caller& from, const Json& id) {
  std::stop_source abandoned;
  const Call call{++last_number_, abandoned.get_token()};
  if (from.connection == PeerConnection()) {
    abandoned.request_stop();
    return call;
  }
  Calls& calls = open_[from.connection];
  calls.routing_id = from.routing_id;
  calls.by_number.emplace(call.number, Calls::One{id, std::move(abandoned)});
  return call;
}

void OpenCalls::Close(const Caller& from, std::uint64_t number) {
  const auto calls = open_.find(from.connection);
  if (calls == open_.end()) return;
  calls->second.by_number.erase(number);
  if (calls->second.by_number.empty()) open_.erase(calls);
}

void OpenCalls::GiveUp(const Caller& from, const Json& id) {
  const auto calls = open_.find(from.connection);
  if (calls == open_.end()) return;
  for (auto& [number, one] : calls->second.by_number) {
    if (one.id == id) one.abandoned.request_stop();
  }
}

void OpenCalls::End(const PeerConnection& connection) {
  const auto calls = open_.find(connection);
  if (calls == open_.end()) return;
  Abandon(calls->second);
  open_.erase(calls);
}

void OpenCalls::Heard(const Caller& from) {
  const auto calls = open_.find(from.connection);
  if (calls == open_.end() || calls->second.routing_id == from.routing_id) return;
  Abandon(calls->second);
  open_.erase(calls);
}

void OpenCalls::Abandon(Calls& calls) {
  for (auto& [number, one] : calls.by_number) one.abandoned.request_stop();
}

}  // namespace layercast
