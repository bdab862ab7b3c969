// The publisher's end of the shm channel: the arena, the tables of its offers, and a service thread ("lc-shm") that
// hands descriptors to receivers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/base/deadline.h"
#include "src/net/accept_pause.h"
#include "src/net/service_thread.h"
#include "src/net/wake_up.h"
#include "src/transport/channel/channel.h"
#include "src/transport/shm/arena.h"
#include "src/transport/shm/offer_table.h"
#include "src/transport/shm/unix_socket.h"

namespace layercast::shm_channel {

// Thread-safe.
class ShmOfferingEnd final : public OfferingEnd {
 public:
  ShmOfferingEnd();
  std::string address() const override { return "shm://" + name_; }
  MemoryResource* arena() override { return &arena_; }
  std::vector<std::shared_ptr<const void>> MappingsOf(std::span<const OfferedTensor> tensors) const override {
    return arena_.MappingsOf(tensors);
  }
  void Add(const Offer& offer) override;
  void Remove(std::uint64_t offer_id) override;
  double core_seconds() override { return service_.core_seconds(); }

 private:
  struct Connection {
    UniqueFd socket;
    bool greeted = false;
    Deadline greeting;
  };

  void Run(const std::stop_token& stop);
  void AcceptAll(std::vector<Connection>& connections);
  bool Serve(Connection& connection);  // false if the connection has ended, or is to end
  bool Answer(Connection& connection, const Message& message);
  bool Attach(const UniqueFd& socket, std::uint64_t offer_id);

  static constexpr std::size_t kTablesSegment = std::size_t{1} << 20;

  Arena arena_;
  Arena tables_{kTablesSegment};  // and nothing else; outlives offers_
  std::mutex mutex_;
  std::map<std::uint64_t, std::unique_ptr<WrittenTable>> offers_;  // guarded by mutex_
  WakeUp wake_;
  std::string name_;
  UniqueFd listener_;
  AcceptPause pause_;  // used by the service thread only
  ServiceThread service_;
};

}  // namespace layercast::shm_channel
