// The receiver's end where it reads one-sided: it asks over the control socket, is told where what it asked for lies,
// reads that straight to where the caller wants it, and says that it has.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/transport/channel.h"
#include "src/transport/connection_guard.h"
#include "src/transport/control_socket.h"
#include "src/transport/liveness.h"
#include "src/transport/requests_under_way.h"
#include "src/transport/ucx/greeting.h"
#include "src/transport/ucx/read_plan.h"
#include "src/transport/ucx/remote_reads.h"

namespace layercast::ucx_channel {

// One thread only.
class UcxReadingEnd final : public FetchingEnd {
 public:
  // `address` as in errors. Throws kUnavailable, kDeadlineExceeded and kCorrupt: it cannot read by these lanes.
  UcxReadingEnd(const std::string& address, Greeted greeted, std::unique_ptr<RemoteReads> reads, Deadline deadline);
  ~UcxReadingEnd() override { Close(); }

  bool attaches() const override { return false; }
  std::string lane() const override { return lane_; }
  void Submit(const ChunkRequest& request) override;
  std::optional<ChunkCompletion> Poll(Deadline deadline) override;
  void Close() noexcept override;

 private:
  struct Place {
    RemotePlace granted;
    std::unique_ptr<RemoteKey> key;  // opened when it is read by, and all that the publisher has said by then is known
  };
  struct Chunk : RequestedChunk {
    ReadPlan plan;
    std::map<std::uint32_t, Place> places;  // by tensor
    bool granted = false;                   // all of them are here
    std::size_t reading = 0;                // reads that have not landed
    bool whole() const { return granted && plan.done() && reading == 0; }
  };

  void ReadToken(const Welcome& welcome, Deadline deadline);
  // Takes what is there; true when something was. Throws what the publisher refused with, or what is wrong with it.
  bool Progress();
  void TakeMessages();
  void TakeMessage(std::span<const std::byte> message);
  void TakeGranted(Granted granted);
  bool TakeLanded();
  bool ReadMore();
  // True: it has landed already.
  bool ReadNext(Chunk& chunk);
  void ExpectReadable();
  // Chunks whose bytes are here count only if the connection stands after that: else another version's may be among
  // them.
  bool CompleteWhole();

  void Wait(Deadline deadline);
  void Sleep(Deadline deadline);

  ConnectionGuard guard_;
  std::optional<ControlSocket> control_;
  Token seen_{};  // where the publisher's token is read to
  std::unique_ptr<RemoteReads> reads_;
  std::unique_ptr<RemoteKey> token_key_;
  std::string lane_;
  RequestsUnderWay<Chunk> requests_;
  std::deque<Chunk*> to_read_;          // granted, and not all of their reads begun
  std::vector<Chunk*> whole_;           // all of their bytes are here
  std::size_t reading_ = 0;             // of all chunks
  Deadline::Clock::duration waited_{};  // for one to land, since the last one did; not what the caller was busy with
  Liveness liveness_;
  std::size_t pongs_owed_ = 0;  // whatever comes was asked for: nobody keeps this end busy
};

}  // namespace layercast::ucx_channel
