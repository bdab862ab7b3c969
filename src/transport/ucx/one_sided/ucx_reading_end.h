// The receiver's end of the ucx channel where it reads one-sided: it sends requests over the control socket, is told
// where the tensors lie, reads them straight to the caller's destination, and says that it has.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/net/control_socket.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/connection_guard.h"
#include "src/transport/channel/liveness.h"
#include "src/transport/channel/requests_under_way.h"
#include "src/transport/ucx/one_sided/read_plan.h"
#include "src/transport/ucx/wire/greeting.h"
#include "src/transport/ucx/wire/remote_reads.h"

namespace layercast::ucx_channel {

// One thread only.
class UcxReadingEnd final : public FetchingEnd {
 public:
  // `address` is for error messages. Throws kUnavailable, kUnsupported, kDeadlineExceeded or kCorrupt if reading over
  // these lanes does not work.
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
    std::unique_ptr<RemoteKey> key;  // opened at the first read: by then messages were taken that may take it back
  };
  struct Chunk : RequestedChunk {
    ReadPlan plan;
    std::map<std::uint32_t, Place> places;  // by tensor
    bool granted = false;                   // all places are known
    std::size_t reading = 0;                // reads that have not landed
    bool whole() const { return granted && plan.done() && reading == 0; }
  };

  void ReadToken(const Welcome& welcome, Deadline deadline);
  // Takes what has come; true if there was something. Throws the publisher's refusal, or what has gone wrong.
  bool Progress();
  void TakeMessages();
  void TakeMessage(std::span<const std::byte> message);
  void TakeGranted(Granted granted);
  bool TakeLanded();
  bool ReadMore();
  // Begins the next read of the chunk; true if it has landed already.
  bool ReadNext(Chunk& chunk);
  void ExpectReadable();
  // Completes the chunks whose bytes are all here, but only if the connection still stands after they came: otherwise
  // bytes of another version may be among them.
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
  std::size_t reading_ = 0;             // reads of all chunks that have not landed
  Deadline::Clock::duration waited_{};  // slept here since a read last landed; the caller's own work does not count
  Liveness liveness_;
  std::size_t pongs_owed_ = 0;  // a PONG that was not asked for is refused, lest it keep this end busy
};

}  // namespace layercast::ucx_channel
