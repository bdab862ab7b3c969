// The receiver's end of the ucx channel where it reads one-sided: it sends requests over the control socket, is told
// where the tensors lie, reads them straight to the caller's destination, and says that it has.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/transport/channel/controlled_fetching.h"
#include "src/transport/ucx/one_sided/read_plan.h"
#include "src/transport/ucx/wire/greeting.h"
#include "src/transport/ucx/wire/remote_reads.h"

namespace layercast::ucx_channel {

// A chunk that was asked for.
struct ReadChunk : RequestedChunk {
  struct Place {
    RemotePlace granted;
    std::unique_ptr<RemoteKey> key;  // opened at the first read: by then messages were taken that may take it back
  };

  ReadPlan plan;
  std::map<std::uint32_t, Place> places;  // by tensor
  bool granted = false;                   // all places are known
  std::size_t reading = 0;                // reads that have not landed
  bool whole() const { return granted && plan.done() && reading == 0; }
};

// One thread only.
class UcxReadingEnd final : public ControlledFetching<ReadChunk> {
 public:
  // `address` is for error messages. Throws kUnavailable, kUnsupported, kDeadlineExceeded or kCorrupt if reading over
  // these lanes does not work.
  UcxReadingEnd(const std::string& address, Greeted greeted, std::unique_ptr<RemoteReads> reads, Deadline deadline);
  ~UcxReadingEnd() override { Close(); }

  std::string lane() const override { return lane_; }

 private:
  using Chunk = ReadChunk;

  void ReadToken(const Welcome& welcome, Deadline deadline);
  void ExpectThere() override;
  void Prepare(Chunk& chunk, const ChunkRequest& request, const std::vector<std::byte>& message) override;
  bool Progress() override;
  void Wait(Deadline deadline) override;
  void Ask() override;
  void Sleep(Deadline deadline) override;
  void End() noexcept override;
  void TakeMessage(std::span<const std::byte> message) override;
  void TakeGranted(Granted granted);
  bool TakeLanded();
  bool ReadMore();
  // Begins the next read of the chunk; true if it has landed already.
  bool ReadNext(Chunk& chunk);
  void ExpectReadable();
  // Completes the chunks whose bytes are all here, but only if the connection still stands after they came: otherwise
  // bytes of another version may be among them.
  bool CompleteWhole();

  Token seen_{};  // where the publisher's token is read to
  std::unique_ptr<RemoteReads> reads_;
  std::unique_ptr<RemoteKey> token_key_;
  std::string lane_;
  std::deque<Chunk*> to_read_;          // granted, and not all of their reads begun
  std::vector<Chunk*> whole_;           // all of their bytes are here
  std::size_t reading_ = 0;             // reads of all chunks that have not landed
  Deadline::Clock::duration waited_{};  // slept here since a read last landed; the caller's own work does not count
  std::size_t pongs_owed_ = 0;          // a PONG that was not asked for is refused, lest it keep this end busy
};

}  // namespace layercast::ucx_channel
